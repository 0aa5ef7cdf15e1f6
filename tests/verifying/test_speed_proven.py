"""Faults of speed in one program, mended and proven from end to end by what their lines cost."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from warm_interpreters import torchvet

from torchvet.rules import rule

PROGRAM = """\
import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
plain = nn.Linear(16, 16)
average = copy.deepcopy(plain)
model = DistributedDataParallel(plain)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(48):
    x = torch.randn(32, 16)
    mixing = torch.full((16, 16), 0.1)
    scores = torch.matmul(model(x), plain.weight.t().contiguous())
    loss = nn.functional.mse_loss(scores, x @ mixing) / 4
    loss.backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for p, q in zip(average.parameters(), plain.parameters()):
                p.copy_(p * 0.9 + q * 0.1)
        print(f"loss {loss.item():.4f}")
dist.destroy_process_group()
"""


def test_what_lines_cost_before_and_after_is_said(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    command = [*torchvet(), "fix", "train.py", "--verify", "--apply", "--unsafe-fixes", "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [*command, "-o", "report.json"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    facts = json.loads((tmp_path / "report.json").read_text())["facts"]["fix"]
    assert facts["runs"] == 2 and not facts["refused"]
    proven = {row["code"]: (row["before"], row["after"], row["losses"]["equal"]) for row in facts["proven"]}
    averages = "of gradients over all ranks per optimizer step"
    assert proven.pop("DST105") == (f"4 averages {averages}", f"1 average {averages}", True)
    assert proven.pop("OPS202")[1:] == ("0 bytes of plain copies per step", True)
    assert proven.pop("OPS203")[1:] == ("0 bytes of new tensors per step", True)
    assert proven.pop("OPS207")[2] and not proven
    text = (tmp_path / "train.py").read_text()
    assert "p.mul_(0.9).add_(q * 0.1)" in text and ".contiguous()" not in text
    assert "    with contextlib.nullcontext() if (i + 1) % 4 == 0 else model.no_sync():\n        scores = " in text


def test_a_code_that_only_a_run_can_show_may_be_asked_for(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(rule("TRN126").BAD, encoding="utf-8")
    command = [*torchvet(), "fix", "train.py", "TRN126", "--verify", "--unsafe-fixes", "--steps", "60"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert "1 of 1 fix proven" in ended.stdout, ended.stderr
    assert "+    loss = nn.functional.mse_loss(head(state.transpose(0, 1).reshape(32, -1)), target)" in ended.stdout
