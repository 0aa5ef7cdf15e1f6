"""What crosses between host and device is told by line, kind and amount; what does not cross is not told."""

from __future__ import annotations

import runpy
from pathlib import Path

import torch

import torchvet
from torchvet.finding import Finding
from torchvet.recording import read
from torchvet.recording.records.crossing import Crossing

PROGRAM = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.005)
inputs = torch.randn(1280, 16)
loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=64, pin_memory=PINNED)
weights = torch.rand(64, 1)
scale = torch.ones(64, 1, device="cuda")
total = torch.zeros((), device="cuda")
large = torch.zeros(1 << 19, device="cuda")
for step, (x, y) in enumerate(loader):
    x, y = x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)
    w = scale
PLANTED
    loss = (w * (model(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.detach()
    if step % 10 == 9:
        print(total.item(), weights.sum())
"""

FAULTS = """\
    w = weights.to("cuda")  # OPS105
    w = w * torch.ones(64, 1).to("cuda")  # OPS103
    y = y.cpu().clamp(-4, 4).to("cuda")  # OPS102
    table = large.cpu().exp().to("cuda")  # OPS102 warning
    norms = [p.norm().item() for p in model.parameters()]  # OPS101 warning
    print(w[0])  # OPS101
    read = [v.item() for v in (total, *[scale[n, 0] for n in range(5)])]  # OPS101
    torch.cuda.synchronize()  # OPS101
    chosen = w[w > 0.5]  # OPS101
    hits = [int(v.item()) for v in y[:40]]  # OPS101 warning
"""
HEALTHY = """\
    w = torch.ones(64, 1, device="cuda")
    w = w.to("cuda").cuda() * scale.to(w.device)
    w = w * torch.tensor(2.0)
    chosen = w[torch.tensor([1, 2])]
    on_host = torch.randn(3).sum().item() + torch.ones(2).cpu().tolist()[0]
    print(torch.ones(2))
    if step == 5:
        print(w.cpu().mean().to("cuda"))
"""


def watched(planted: str, folder: Path, pinned: bool = True, begun: str = "") -> tuple[list[Crossing], list[Finding]]:
    """What a run says of copies and waits."""
    path = folder / "program.py"
    text = PROGRAM.replace("PLANTED\n", planted).replace("PINNED", str(pinned))
    total = 'total = torch.zeros((), device="cuda")\n'
    path.write_text(text.replace(total, total + begun), encoding="utf-8")
    with torchvet.watch(record=folder / "run.vet") as watch:
        runpy.run_path(str(path), run_name="__main__")
    assert watch.report is not None
    (rank,) = read(folder / "run.vet").ranks
    found = [f for f in watch.report.findings if f.code.startswith("OPS10") and f.evidence == "observed"]
    return rank.all(Crossing), found


def test_what_was_planted_is_told_by_its_line(tmp_path: Path) -> None:
    records, found = watched(FAULTS, tmp_path)
    said = {(f.location.line, f.code) for f in found if f.location is not None}
    said |= {(r.line or 0, f.code) for f in found for r in f.related}
    text = (tmp_path / "program.py").read_text("utf-8").splitlines()
    planted = {(n, line.split("# ")[1].split()[0]) for n, line in enumerate(text, 1) if "# OPS" in line}
    assert said == planted
    warned = {(f.location.line, f.code) for f in found if f.severity == "warning" and f.location is not None}
    assert warned == {(n, code) for n, code in planted if f"# {code} warning" in text[n - 1]}
    assert all(r.steps and r.calls for r in records)


def test_what_does_not_cross_is_not_told(tmp_path: Path) -> None:
    assert watched(HEALTHY, tmp_path)[1] == []


BY_NUMPY = """\
    array = y.detach().cpu().numpy()  # fetched
    array = numpy.clip(array, -4, 4) * 0.5
    y = torch.from_numpy(array).to("cuda")  # OPS102
    noise = torch.tensor(numpy.ones((64, 1), "float32") * len(x), device="cuda")
"""


def test_what_comes_back_by_way_of_numpy_is_told_with_the_line_that_fetched_it(tmp_path: Path) -> None:
    _, found = watched(BY_NUMPY, tmp_path, begun="import numpy\n")
    (one,) = [f for f in found if f.code == "OPS102"]
    lines = (tmp_path / "program.py").read_text("utf-8").splitlines()
    assert one.location is not None and lines[one.location.line - 1].endswith("# OPS102")
    fetched = next(n for n, line in enumerate(lines, 1) if line.endswith("# fetched"))
    assert f"line {fetched} had fetched" in one.message and "by way of NumPy" in one.message


CONSTANTS = """\
    w = w * torch.tensor([0.5] + [1.0] * 63, device="cuda").view(64, 1)
    mean = torch.tensor([0.1, -0.2, 3]).to(x.device, torch.float32)  # OPS105
    std = torch.tensor([[1, 2], [3, 4]]).to("cuda")  # OPS105
    known = torch.tensor(written).to("cuda")  # OPS105
    grown.append(1.0)
    rates = torch.tensor(grown).to("cuda")
    here = torch.tensor([float(step), 2.0]).to("cuda")
    index = torch.tensor([1, 2])
"""


def test_numbers_that_are_written_out_are_told_as_moved_each_step(tmp_path: Path) -> None:
    _, found = watched(CONSTANTS, tmp_path, begun="written = [1.0, 2.0]\ngrown = [1.0]\n")
    lines = (tmp_path / "program.py").read_text("utf-8").splitlines()
    said = [f.location.line for f in found if f.code == "OPS105" and f.location is not None]
    assert sorted(said) == [n for n, line in enumerate(lines, 1) if "# OPS105" in line]
    assert {f.severity for f in found if f.code == "OPS105"} == {"info"}


SCALED = """\
    with torch.autocast("cuda", torch.float16):
        fit = nn.functional.mse_loss(model(x).float(), y)
    optimizer.zero_grad()
    scaler.scale(fit).backward()
    scaler.step(optimizer)
    scaler.update()
READ
"""


def test_what_a_scaler_asks_for_is_no_fault_of_a_line(tmp_path: Path) -> None:
    for asks, lines in (("", 0), ("    last = scaler.get_scale()", 1)):
        folder = tmp_path / str(lines)
        folder.mkdir()
        records, found = watched(SCALED.replace("READ", asks), folder, begun="scaler = torch.amp.GradScaler()\n")
        assert len(found) == lines
        assert all("get_scale" in (folder / "program.py").read_text("utf-8").splitlines()[f.location.line - 1]
                   for f in found if f.location is not None)  # fmt: skip
        assert len({r.place.line for r in records if r.kind == "wait" and r.each_step}) == lines


def test_advice_is_for_what_waits(tmp_path: Path) -> None:
    (found,) = watched("    host = large.cpu()\n", tmp_path)[1]
    assert found.code == "OPS101" and "non_blocking" in found.remedy.summary


def test_batches_that_wait_are_told(tmp_path: Path) -> None:
    found = watched("", tmp_path, pinned=False)[1]
    assert {(f.code, f.severity) for f in found} == {("OPS104", "info")}


EARLY = """\
    got = w.to("cpu", non_blocking=True)  # early
    print(got.sum())
    pinned[0].copy_(w[:, 0], non_blocking=True)  # early
    shown = pinned[0, 3:5].tolist()
    several = [w.to("cpu", non_blocking=True) for _ in range(2)]  # early
    both = torch.stack(several)
"""
IN_TIME = """\
    got = w.to("cpu", non_blocking=True)
    known, back = got.view(-1)[:2].is_pinned(), got.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    print(got.sum())
    got = w.to("cpu", non_blocking=True)
    done.record()
    done.synchronize()
    print(got.sum())
    got = w.to("cpu", non_blocking=True)
    number = total.item()
    print(got.sum(), number)
    pinned[step % 2].copy_(w[:, 0], non_blocking=True)
    print(pinned[1 - step % 2].sum())
    pageable.copy_(w, non_blocking=True)
    print(pageable.sum())
    got = w.to("cpu", non_blocking=True)
    while not done.query():
        pass
    print(got.tolist()[0])
    print(w.cpu().sum())
    got = w.to("cpu", non_blocking=True)
    solved = torch.linalg.inv(w[:4] @ w[:4].T + torch.eye(4, device="cuda"))
    print(got.sum(), solved.shape)
"""
MEMORY = "done, pinned, pageable = torch.cuda.Event(), torch.zeros(2, 64, pin_memory=True), torch.zeros(64, 1)\n"


def test_a_copy_that_is_read_before_the_host_waits_is_told(tmp_path: Path) -> None:
    _, found = watched(EARLY, tmp_path, begun=MEMORY)
    lines = (tmp_path / "program.py").read_text("utf-8").splitlines()
    early = [f for f in found if f.code == "OPS104"]
    assert sorted(f.location.line for f in early if f.location) == [
        n for n, line in enumerate(lines, 1) if line.endswith("# early")
    ]
    assert all(f.severity == "warning" and f.related[0].line == f.location.line + 1 for f in early if f.location)


def test_a_copy_that_is_waited_for_or_needs_no_wait_is_no_race(tmp_path: Path) -> None:
    records, found = watched(IN_TIME, tmp_path, begun=MEMORY)
    assert [f for f in found if f.code == "OPS104"] == []
    lines = (tmp_path / "program.py").read_text("utf-8").splitlines()
    waits = {lines[r.place.line - 1].strip(): r.waits == r.calls for r in records if r.kind == "to host"}
    assert waits["pageable.copy_(w, non_blocking=True)"] and not waits['got = w.to("cpu", non_blocking=True)']


def test_what_runs_on_to_the_host_is_in_pinned_memory() -> None:
    x = torch.ones(3, device="cuda")
    assert x.to("cpu", non_blocking=True).is_pinned() and not x.to("cpu").is_pinned() and not x.cpu().is_pinned()
    assert not torch.ones(3).to(torch.float64, non_blocking=True).is_pinned()
