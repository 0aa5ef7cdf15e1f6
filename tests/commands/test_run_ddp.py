"""`torchvet run --nproc 2`: programs of two ranks, observed for real."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")

HEAD = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.spare = nn.Linear(32, 64), nn.Linear(64, 1), nn.Linear(64, 1)

    def forward(self, x):
        hidden = self.body(x).relu()
        return self.head(hidden) + self.spare(hidden)


dist.init_process_group("gloo")
torch.manual_seed(0)
rank = dist.get_rank()
"""

HEALTHY = (
    HEAD
    + """
model = DistributedDataParallel(Net(), gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(320, 32))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
for epoch in range(4):
    sampler.set_epoch(epoch)
    for i, (x,) in enumerate(loader):
        if i % 2 == 0:
            with model.no_sync():
                (model(x).pow(2).mean() / 2).backward()
        else:
            loss = model(x).pow(2).mean()
            (loss / 2).backward()
            optimizer.step()
            optimizer.zero_grad()
    print(loss.item(), file=open(f"losses{rank}.txt", "a"))
dist.destroy_process_group()
"""
)

FAULTY = (
    HEAD
    + """
model = DistributedDataParallel(Net(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(320, 32))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
losses = []
for epoch in range(4):
    for i, (x,) in enumerate(loader):
        loss = model(x).pow(2).mean()
        (loss / 2).backward()
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()
            if rank == 0:
                losses.append(model.module(x).mean())
dist.destroy_process_group()
"""
)

ENDED = (
    HEAD.replace(" + self.spare(hidden)", "")
    + """
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(20):
    loss = model(torch.randn(8, 32)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
)


def ran(folder: Path, text: str, *command: str) -> None:
    """Run a program that these words of Python's start."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", *command, "train.py"]
    subprocess.run(words, capture_output=True, env=environment, timeout=280, cwd=folder)


def observed(folder: Path, text: str) -> list[dict[str, Any]]:
    """The findings on two ranks."""
    ran(folder, text, "torchvet", "run", "--nproc", "2", "--quiet", "-o", "report.json")
    found: list[dict[str, Any]] = msgspec.json.decode((folder / "report.json").read_bytes())["findings"]
    return found


def line_of(text: str, part: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if part in line)


def test_a_healthy_program_is_silent_and_learns_the_same(tmp_path: Path) -> None:
    findings = observed(tmp_path, HEALTHY)
    assert [(f["code"], f["message"]) for f in findings if f["severity"] != "info" or f["code"][:3] == "DST"] == []
    watched = losses(tmp_path)
    ran(tmp_path, HEALTHY, *TORCHRUN)
    assert watched == losses(tmp_path) and len(watched) == 8


def losses(folder: Path) -> list[str]:
    """What both ranks have written since they were asked for last."""
    files = [folder / f"losses{rank}.txt" for rank in (0, 1)]
    return [line for file in files for line in (file.read_text(), file.unlink())[0].splitlines()]


def test_faults_of_several_ranks_are_found_with_their_lines(tmp_path: Path) -> None:
    findings = observed(tmp_path, FAULTY)
    lines = {f["code"]: (f["location"] or {}).get("line") for f in findings}
    assert lines["DST104"] == line_of(FAULTY, "find_unused_parameters=True")
    assert lines["DST105"] == line_of(FAULTY, "(loss / 2).backward()")
    assert lines["DST107"] == line_of(FAULTY, "sampler = ")
    everywhere = {f["code"]: (f["rank"], f["ranks"]) for f in findings}
    assert everywhere["DST105"] == everywhere["DST104"] == (None, [0, 1])
    (reshuffled,) = [f for f in findings if f["code"] == "DST107"]
    assert (reshuffled["severity"], reshuffled["evidence"]) == ("warning", "observed")
    assert "set_epoch" in reshuffled["remedy"]["edits"][0]["text"]
    (leak,) = [f for f in findings if f["code"] == "MEM101"]
    assert leak["rank"] == 0 and leak["holder"]["name"] == "losses"
    assert leak["cause"].endswith("of 2 ranks only rank 0 does")


def test_a_reduction_that_never_ended_is_explained(tmp_path: Path) -> None:
    findings = observed(tmp_path, ENDED)
    (failed,) = [f for f in findings if f["code"] == "DST104"]
    assert (failed["severity"], failed["location"]["line"]) == ("error", line_of(ENDED, "loss = model("))
    assert "`spare.weight`, `spare.bias`" in failed["message"]
    (wrapped,) = [r for r in failed["related"] if r["role"] == "wrapped"]
    assert wrapped["line"] == line_of(ENDED, "model = Distributed")


AROUND = (
    HEAD.replace("torch.manual_seed(0)", "torch.manual_seed(dist.get_rank())")
    + """
class Wrapped:
    def __init__(self, model):
        self.model = DistributedDataParallel(model, broadcast_buffers=False)

    def loss(self, x):
        return self.model.module.loss(x)


class Averaged(Net):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(32)

    def loss(self, x):
        return self.forward(self.norm(x)).pow(2).mean()


wrapped = Wrapped(Averaged())
optimizer = torch.optim.SGD(wrapped.model.parameters(), lr=0.01)
for step in range(24):
    loss = wrapped.loss(torch.randn(8, 32))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
wrapped.model.eval()
with torch.no_grad():
    wrapped.model(torch.randn(8, 32))
dist.destroy_process_group()
"""
)


def test_a_pass_around_the_wrapper_and_buffers_of_an_evaluation(tmp_path: Path) -> None:
    found = [f for f in observed(tmp_path, AROUND) if f["code"] == "DST110"]
    lines = {f["severity"]: f["location"]["line"] for f in found}
    around, wraps = "self.model.module.loss(x)", "broadcast_buffers=False"
    assert lines == {"error": line_of(AROUND, around), "warning": line_of(AROUND, wraps)}
    # The ranks' seeds differ, and DistributedDataParallel has made their parameters the same: no fault of theirs.
    assert not any("before the first step" in f["message"] for f in found)


HAND_REDUCED = (
    HEAD
    + """
def seeded(seed):
    torch.manual_seed(seed)


seeded(40 + rank)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(24):
    loss = model(torch.randn(8, 32)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()
dist.destroy_process_group()
"""
)


def test_the_seed_that_made_parameters_differ_is_told(tmp_path: Path) -> None:
    """It is set before the first optimizer is made: ranks are observed from their beginning."""
    (found,) = [f for f in observed(tmp_path, HAND_REDUCED) if f["code"] == "DST110"]
    assert found["location"]["line"] == line_of(HAND_REDUCED, "seeded(40 + rank)")
