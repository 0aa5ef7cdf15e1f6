"""Whole runs of two ranks: the one that comes late is found with its line, and equal ones are silent."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from warm_interpreters import torchvet

pytest.importorskip("torch")

PROGRAM = """\
import sys
import time
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

LATE = sys.argv[1]

class Data(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, index):
        if LATE == "loader" and dist.get_rank() == 1:
            time.sleep(0.006)  # loads
        return torch.full((64,), index / 640)

def slow(gradient):
    time.sleep(0.05)  # backward

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = Data()
for x in DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False)):
    loss = model(x).square().mean()
    if LATE == "backward" and dist.get_rank() == 1:
        loss.register_hook(slow)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""


def late_ranks(folder: Path, late: str) -> list[dict[str, Any]]:
    program, report = folder / "train.py", folder / "report.json"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [*torchvet(), "run", "--nproc", "2", "--quiet", "-o", str(report), str(program), late]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert ended.returncode in (0, 1, 3), ended.stderr
    found = msgspec.json.decode(report.read_bytes())["findings"]
    return [one for one in found if one["code"].startswith("DST")]


@pytest.mark.parametrize(("late", "mark"), [("backward", "# backward"), ("loader", "# loads")])
def test_the_late_rank_is_found_with_its_line(tmp_path: Path, late: str, mark: str) -> None:
    (found,) = late_ranks(tmp_path, late)
    line = next(n for n, text in enumerate(PROGRAM.splitlines(), start=1) if mark in text)
    assert (found["code"], found["severity"], found["rank"], found["location"]["line"]) == (
        "DST103",
        "warning",
        1,
        line,
    ), found["cause"]
    assert 0.03 < found["measured"]["seconds_per_step"] < 0.08


def test_equal_ranks_are_silent(tmp_path: Path) -> None:
    assert [one["message"] for one in late_ranks(tmp_path, "nowhere") if one["severity"] != "info"] == []
