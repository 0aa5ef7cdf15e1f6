"""What the program's own text did to a device: moves thrown away, devices written out, checkpoints loaded anywhere."""

from __future__ import annotations

import runpy
from pathlib import Path

import torch

import torchvet
from torchvet.finding import Finding

HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)
device = torch.device("{device}")
model = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 4)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(steps, move):
    for step in range(steps):
        x, y = move(torch.randn(8, 16), torch.randint(0, 4, (8,)))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def moved(x, y):
    return x.to(device), y.to(device)


"""


def watched(text: str, folder: Path, device: str = "cuda") -> list[Finding]:
    """What a run says of devices."""
    folder.mkdir(exist_ok=True)
    path = folder / "program.py"
    path.write_text(HEAD.format(device=device) + text + "\n", encoding="utf-8")
    watch = torchvet.watch(record=folder / "run.vet")
    try:
        with watch:
            runpy.run_path(str(path), run_name="__main__")
    except (RuntimeError, AssertionError):
        pass
    assert watch.report is not None
    assert [g for g in watch.report.not_checked if g.check in ("finish", "loaded checkpoints")] == []
    found = [f for f in watch.report.findings if f.code.startswith("DEV") and f.evidence == "observed"]
    lines = path.read_text(encoding="utf-8").splitlines()
    return [f for f in found if f.location is not None and lines[f.location.line - 1].strip()]


def test_a_move_thrown_away_is_told_at_its_own_line(tmp_path: Path) -> None:
    text = "x = torch.randn(2, 16)\nx.to(device)\nmodel(x)"
    (found,) = watched(text, tmp_path / "device")
    assert (found.code, found.severity) == ("DEV110", "error")
    assert found.message.startswith("the result of x.to(device) is thrown away: x stays as it is")
    assert found.remedy.summary == "write `x = x.to(device)`"
    text = "x = torch.randn(2, 16, device=device)\nw = torch.ones(16, 2, device=device).double()\nx.double()\nx @ w"
    (found,) = watched(text, tmp_path / "dtype")
    assert found.message.startswith("the result of x.double() is thrown away: x stays as it is, and ")


def test_a_move_that_did_not_run_or_was_bound_is_not_blamed(tmp_path: Path) -> None:
    for number, text in enumerate(
        (
            "x = torch.randn(2, 16)\nif x.sum() > 1e9:\n    x.to(device)\nmodel(x)",
            "x = torch.randn(2, 16)\nz = x.to(device)\nmodel(x)",
            "x = torch.randn(2, 16)\nmodel.to(device)\nx.cpu()\nmodel(x)",
        )
    ):
        assert [f.code for f in watched(text, tmp_path / str(number))] == ["DEV101"], text


def test_moves_thrown_away_in_steps_that_go_on(tmp_path: Path) -> None:
    text = "def lost(x, y):\n    x.to(device)\n    return moved(torch.randn(8, 16) + x.mean(), y)\ntrain(12, lost)"
    (found,) = watched(text, tmp_path / "to")
    assert (found.code, found.severity) == ("DEV110", "warning")
    assert "x is still cpu, and cuda:0 is made and dropped 1 times a step" in found.message
    text = "def lost(x, y):\n    x.double()\n    return moved(x, y)\ntrain(12, lost)"
    assert "x is still torch.float32" in watched(text, tmp_path / "dtype")[0].message
    text = "def waiting(x, y):\n    x, y = moved(x, y)\n    x.cpu()\n    return x, y\ntrain(12, waiting)"
    assert [f.severity for f in watched(text, tmp_path / "wait")] == ["info"]


def test_moves_done_again_or_timed_are_worth_no_more_than_their_bytes(tmp_path: Path) -> None:
    text = "def lost(x, y):\n    x.to(device)\n    return moved(x, y)\ntrain(12, lost)"
    (found,) = watched(text, tmp_path / "again")
    assert (found.code, found.severity) == ("DEV110", "info")
    assert "x is moved again in the same step, and cuda:0 is made and dropped 1 times a step" in found.message
    text = "def lost(x, y):\n    gone = moved(x, y)\n    x.to(device)\n    return gone\ntrain(12, lost)"
    assert [f.severity for f in watched(text, tmp_path / "before")] == ["info"]
    large = text.replace("x.to(device)", "big.to(device)\n    big.to(device).sum()")
    large = "big = torch.empty(8 << 20)\n" + large
    assert [f.severity for f in watched(large, tmp_path / "large")] == ["warning"], "32 MiB a step"
    text = "def timed(x, y):\n    {}\n    return moved(torch.randn(8, 16) + x.mean(), y)\ntrain(12, timed)"
    for number, wait in enumerate(
        ("x.to(device); torch.cuda.synchronize()", "x.to(device)\n    began = perf_counter()")
    ):
        program = "from time import perf_counter\n" + text.format(wait)
        assert [f.severity for f in watched(program, tmp_path / str(number))] == ["info"], wait


def test_modules_results_that_are_used_and_nameless_tensors_are_silent(tmp_path: Path) -> None:
    text = """
class Batch:
    def __init__(self, x):
        self.x = x
    def to(self, device):
        self.x = self.x.to(device)
def healthy(x, y):
    model.to(torch.float64)
    model.to(torch.float32)
    torch.zeros(3).to(device)
    batch = Batch(x)
    batch.to(device)
    print(x.to(device).sum().item(), x.double().mean().item())
    x.to(torch.float32)
    return moved(x, y)
train(12, healthy)"""
    assert watched(text, tmp_path) == []


def test_a_device_written_out_is_told_with_the_variable(tmp_path: Path) -> None:
    (found,) = watched("x = torch.randn(2, 16).cuda()\nmodel(x)", tmp_path / "host", "cpu")
    assert (found.code, found.severity) == ("DEV107", "error")
    assert found.message.startswith("x is on cuda:0 because .cuda() is written out, where device is cpu")
    (found,) = watched("x = torch.randn(2, 16, device='cuda:0')\nmodel(x)", tmp_path / "other", "cuda:1")
    assert (found.code, "'cuda:0' is written out, where device is cuda:1" in found.message) == ("DEV107", True)
    (found,) = watched("x = torch.randn(2, 16).to('cuda:7')", tmp_path / "absent")
    assert (found.code, found.message) == ("DEV107", "'cuda:7' is written out here and 2 GPUs are there")


def test_devices_written_out_that_go_well_or_are_not_to_blame_are_silent(tmp_path: Path) -> None:
    train = "train(5, lambda x, y: (x.cuda(), y.to('cuda:0')))"
    assert watched(train, tmp_path / "well") == []
    text = "model.to('cpu')\nx = torch.randn(2, 16).cuda()\nmodel(x)"
    assert [f.code for f in watched(text, tmp_path / "model")] == ["DEV101"]
    text = "wanted = 'cuda:7'\nx = torch.randn(2, 16).to(wanted)"
    assert watched(text, tmp_path / "told") == []


SAVED = "import os, tempfile\npath = os.path.join(tempfile.mkdtemp(), 'm.pt')\n"


def test_checkpoints_that_come_to_another_device_or_stay(tmp_path: Path) -> None:
    text = SAVED + "torch.save(model.state_dict(), path)\nother = model.to('cuda:1')\n"
    (found,) = watched(text + "other.load_state_dict(torch.load(path))", tmp_path / "other")
    assert (found.code, found.severity) == ("DEV108", "warning")
    assert "were loaded to cuda:0, and Sequential is on cuda:1" in found.message
    text = SAVED + "torch.save({'model': model.state_dict()}, path)\nstate = torch.load(path)\n"
    (found,) = watched(text + "model.load_state_dict(state['model'])\ntrain(12, moved)", tmp_path / "kept")
    assert (found.code, found.severity) == ("DEV108", "info"), "20 kB"
    assert "stayed on cuda:0 over 13 step boundaries beside Sequential" in found.message


LARGE = (
    SAVED
    + """
model = nn.Linear(2048, 4096).to(device)
torch.save(model.state_dict(), path)
def step(model):
    model(torch.randn(2, 2048).to(device)).sum().backward()
    with torch.no_grad():
        model.weight.sub_(model.weight.grad, alpha=1e-4)
    model.zero_grad()
"""
)


def test_checkpoints_are_graded_by_what_they_take_and_what_becomes_of_them(tmp_path: Path) -> None:
    loop = "for _ in range(12):\n    torch.optim.SGD(model.parameters(), lr=0.1)\n    step(model)\n"
    kept = "state = torch.load(path)\nmodel.load_state_dict(state)\n"
    assert [f.severity for f in watched(LARGE + kept + loop, tmp_path / "kept")] == ["warning"]
    (again,) = watched(LARGE + kept + loop + "model.load_state_dict(state)\n" + loop, tmp_path / "again")
    assert again.severity == "info" and "the program goes back to it, 2 times so far" in again.cause
    host = "model = nn.Linear(2048, 4096)\nmodel.load_state_dict(torch.load(path))\n"
    (moved,) = watched(LARGE + host + "model = model.cuda()\n" + loop, tmp_path / "moved")
    assert moved.severity == "info" and "Linear was on cpu then and moved there later" in moved.message
    stays = loop.replace("step(model)", "model(torch.randn(2, 2048)).sum().backward()")
    (stayed,) = watched(LARGE + host + stays, tmp_path / "stays")
    assert stayed.severity == "warning" and "Linear is on cpu" in stayed.message


def test_checkpoints_loaded_well_are_silent(tmp_path: Path) -> None:
    save = SAVED + "torch.save({'model': model.state_dict()}, path)\n"
    for number, text in enumerate(
        (
            "model.load_state_dict(torch.load(path)['model'])\ntrain(12, moved)",
            "state = torch.load(path, map_location='cpu')\nmodel.load_state_dict(state['model'])\ntrain(12, moved)",
            "state = torch.load(path)\nmodel.load_state_dict(state['model'], assign=True)\n"
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\ntrain(12, moved)",
            "state = torch.load(path)\nmodel.load_state_dict(state['model'])\ndel state\ntrain(12, moved)",
            "state = torch.load(path, torch.device('cuda'))\ntrain(12, moved)",
        )
    ):
        assert watched(save + text, tmp_path / str(number)) == [], text


def test_a_file_from_a_device_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "far.pt"
    torch.save(torch.ones(3, device="cuda:1"), path)
    path.write_bytes(path.read_bytes().replace(b"cuda:1", b"cuda:5"))
    (found,) = watched(f"torch.load({str(path)!r})", tmp_path / "run")
    assert (found.code, found.severity) == ("DEV108", "error")
    assert found.cause.startswith(
        "Attempting to deserialize object on CUDA device 5 but torch.cuda.device_count() is 2"
    )
