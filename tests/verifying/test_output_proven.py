"""Two leaks in one program, of which fixing one changes what the program writes: from end to end."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from warm_interpreters import torchvet

PROGRAM = """\
import json
import logging
import time

import torch
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
history, outputs = [], []
began = time.time()
for step in range(60):
    x = torch.randn(64, 64)
    out = model(x)
    loss = (out - x[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss)
    outputs.append(out)
    print(f"step {step} loss {loss.item():.4f} after {time.time() - began:.3f}")
logging.info("mean %.4f", sum(h.item() for h in history) / len(history))
torch.save(model.state_dict(), "model.pt")
with open("result.json", "w") as stream:
    json.dump({"first": float(history[0]), "learns": sum(o.requires_grad for o in outputs)}, stream)
"""


def test_a_fix_that_changes_a_file_is_refused_and_the_other_one_is_written(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM, encoding="utf-8")
    command = [*torchvet(), "fix", "train.py", "--verify", "--apply", "--quiet", "-o", "report.json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1, ended.stderr
    facts = json.loads((tmp_path / "report.json").read_text())["facts"]["fix"]
    (proven,), (refused,) = facts["proven"], facts["refused"]
    lines = PROGRAM.splitlines()
    assert (lines[proven["line"] - 1].strip(), lines[refused["line"] - 1].strip()) == (
        "history.append(loss)",
        "outputs.append(out)",
    )
    assert sorted(proven["output"]["compared"]) == ["model.pt", "result.json", "stderr", "stdout"]
    assert proven["output"]["lines"] >= 62 and not proven["output"]["differ"] and proven["losses"]["equal"]
    assert 'result.json differs in 1 line: `{"first": ' in refused["reason"]
    assert '"learns": 60}` became `' in refused["reason"] and "--unsafe-fixes" in refused["reason"]
    assert program.read_text() == PROGRAM.replace("append(loss)", "append(loss.detach())")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "train.py"]
