"""`torchvet amp`: the program's own steps in three precisions; what cannot be judged is said."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from warm_interpreters import torchvet

TRAIN = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int(sys.argv[1])):
    x = torch.randn(8, 16)
    loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("done", sys.argv[1])
"""


def amp(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*torchvet(), "amp", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=300)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("missing.py",), "no such file"), ((), "no program given"), (("--steps", "1", "train.py"), "x>=4"),
        (("-m", "nowhere.at_all"), "no module named"), (("-o", "no/such/report.json", "train.py"), "does not exist"),
    ],
)  # fmt: skip
def test_bad_input_is_one_message_and_status_2(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    done = amp(tmp_path, *words)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr and not done.stdout


def test_a_program_is_measured_in_all_three_and_its_arguments_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN + "open('log.txt', 'a').write('x'); open('new.txt', 'w').write('x')\n")
    (tmp_path / "log.txt").write_text("mine")
    done = amp(tmp_path, "--trials", "1", "--steps", "12", "--show-output", "-o", "amp.json", "train.py", "10")
    assert done.returncode == 0, done.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"train.py", "log.txt", "amp.json"}, "as docs/fix.md says of files"
    assert (tmp_path / "log.txt").read_text() == "mine"
    assert done.stderr.count("done 10") == 4 and done.stdout.startswith("On this CPU float16 ")
    told = json.loads((tmp_path / "amp.json").read_text())["facts"]
    facts = told["amp"]
    (linear,) = (row for row in told["precision_forecast"]["modules"] if row["module"] == "Linear")
    assert 10 < linear["bits"]["float16"]["to_largest"] < 16
    assert "Headroom, in a further run in float32" in done.stdout and "Linear addmm" in done.stdout
    assert [m["mode"] for m in facts["modes"]] == ["float32", "float16", "bfloat16"]
    assert all(m["seconds"] > 0 and m["error"] is None for m in facts["modes"])
    assert facts["how"] == "wrapped" and facts["program_asks_for"] is None
    assert abs(facts["modes"][2]["loss_difference"]) < 0.05, "float16 may have skipped steps at first"


OWN = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)
    @torch.autocast("cpu", dtype=torch.float16)
    def forward(self, x):
        return self.layer(x)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(8):
    loss = model(torch.randn(8, 16)).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_headroom_of_a_program_with_autocast_is_that_of_float32(tmp_path: Path) -> None:
    """What overflows in float16 is not to be seen in float16. The region is one object, entered again in each step."""
    (tmp_path / "train.py").write_text(OWN)
    done = amp(tmp_path, "--trials", "1", "--steps", "8", "-o", "amp.json", "train.py")
    report = json.loads((tmp_path / "amp.json").read_text())
    assert report["not_checked"] == [], done.stderr
    facts = report["facts"]["precision_forecast"]
    assert facts["calls"]["autocast switched off"] == 0 and facts["calls"]["float16"] > 0


@pytest.mark.parametrize(
    ("program", "said"),
    [("import torch\n", "no two training steps"), ("import torch\nraise ValueError('no data')\n", "no data")],
)
def test_a_program_without_steps_cannot_be_judged(tmp_path: Path, program: str, said: str) -> None:
    (tmp_path / "train.py").write_text(program)
    done = amp(tmp_path, "--trials", "1", "train.py")
    assert done.returncode == 3 and done.stdout.startswith("Could not judge") and said in done.stdout
