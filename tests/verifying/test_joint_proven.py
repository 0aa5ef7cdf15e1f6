"""One fault that feeds two buffers, fixed from end to end: neither fix helps without the other."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from warm_interpreters import torchvet

PROGRAM = """\
import torch
from torch import nn


class Whiten(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(64))
        self.register_buffer("spread", torch.ones(64))

    def forward(self, x):
        mean, var = x.mean(0), x.var(0)
        self.center = 0.9 * self.center + 0.1 * mean
        self.spread = 0.9 * self.spread + 0.1 * var
        return (x - mean.detach()) / (var.detach() + 1e-5).sqrt()


torch.manual_seed(1)
norm = Whiten()
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), norm, nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(50):
    x, y = torch.randn(64, 16), torch.randint(0, 4, (64,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_fault_that_feeds_two_names_is_fixed_under_both(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    command = [*torchvet(), "fix", "train.py", "--verify", "--apply", "--quiet", "-o", "report.json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    facts = json.loads((tmp_path / "report.json").read_text())["facts"]["fix"]
    assert not facts["refused"] and len(facts["proven"]) == 2
    assert all(row["losses"]["equal"] for row in facts["proven"])
    assert {row["line"] for row in facts["proven"]} == {13, 14}
    assert (tmp_path / "train.py").read_text().count("detach()") == 4
