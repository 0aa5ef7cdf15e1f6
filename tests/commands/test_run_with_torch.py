"""Whole runs of leaky programs, with torch: the leak is named however the program runs and however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from warm_interpreters import python, torchvet

LEAK = """
import os, signal, sys, threading
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
kept = []

def train(steps=24, model=None, batches=None):
    model = nn.Linear(64, 64) if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = batches or (torch.randn(32, 64) for _ in range(steps))
    for batch in batches:
        optimizer.zero_grad()
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        kept.append(model(batch).pow(2))
    print(f"{loss.item():.6f}")

"""
LINE = LEAK[: LEAK.index("kept.append(model")].count("\n") + 1


@dataclass
class Ended:
    """How a run ended, and its report."""

    status: int
    output: str
    talk: str
    report: dict[str, Any] | None

    @property
    def leak(self) -> dict[str, Any]:
        assert self.report is not None, self.talk
        (found,) = (f for f in self.report["findings"] if f["code"] == "MEM101")
        return dict(found)


REAL = [sys.executable, "-m", "torchvet"]
"""The program's own interpreter imports torch while torchvet is there: an import hook, a finder, a first step."""


def run(folder: Path, rest: str, *options: str, tool: list[str] | None = None) -> Ended:
    script, report = folder / "program.py", folder / "report.json"
    script.write_text(LEAK + textwrap.dedent(rest), encoding="utf-8")
    command = [*(tool or torchvet()), "run", "--memory-limit", "24GiB", "-o", str(report), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([*command, str(script)], capture_output=True, text=True, env=environment, timeout=300)
    found = msgspec.json.decode(report.read_bytes()) if report.exists() else None
    assert "torchvet/" not in ended.stderr.replace("\\", "/") or "Traceback" not in ended.stderr, ended.stderr
    return Ended(ended.returncode, ended.stdout, ended.stderr, found)


ENDINGS = {
    "by itself": ("", 1),
    "exit 3": ("sys.exit(3)", 3),
    "exception": ("raise ValueError('no such batch')", 1),
    "os._exit": ("sys.stdout.flush()\nos._exit(4)", 4),
    "interrupt": ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
    "own excepthook": ("sys.excepthook = lambda *about: print('hook')\nraise ValueError('x')", 1),
    "out of memory": ("torch.empty(1 << 55)", 1),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_the_leak_is_named_however_the_program_ends(tmp_path: Path, name: str) -> None:
    rest, status = ENDINGS[name]
    ended = run(tmp_path, f"train()\n{rest}", tool=REAL if name in ("by itself", "os._exit") else None)
    assert ended.leak["holder"]["name"] == "kept" and ended.leak["location"]["line"] == LINE
    assert ended.status == status, ended.talk
    assert ("hook" in ended.output) is (name == "own excepthook")


def test_a_killed_program_is_diagnosed_too(tmp_path: Path) -> None:
    ended = run(tmp_path, "train()\nos.kill(os.getpid(), signal.SIGKILL)")
    assert ended.leak["holder"]["name"] == "kept"


WAYS = {
    "in a thread": "worker = threading.Thread(target=train)\nworker.start()\nworker.join()",
    "compiled": "train(model=torch.compile(nn.Linear(64, 64), backend='eager'))",
    "with forked workers": """
        data = [torch.randn(64) for _ in range(32 * 24)]
        train(batches=DataLoader(data, batch_size=32, num_workers=2, multiprocessing_context="fork"))
    """,
    "with spawned workers": """
        if __name__ == "__main__":
            data = [torch.randn(64) for _ in range(32 * 24)]
            train(batches=DataLoader(data, batch_size=32, num_workers=1, multiprocessing_context="spawn"))
    """,
    "in a closure of a class": """
        class Runner:
            def __call__(self):
                inner = lambda: train()
                inner()
        Runner()()
    """,
}


@pytest.mark.parametrize("name", WAYS)
def test_the_leak_is_named_however_the_program_runs(tmp_path: Path, name: str) -> None:
    script = tmp_path / "alone.py"
    script.write_text(LEAK + textwrap.dedent(WAYS[name]), encoding="utf-8")
    alone = subprocess.run([python(), str(script)], capture_output=True, text=True, timeout=300)
    assert alone.returncode == 0, alone.stderr
    ended = run(tmp_path, WAYS[name], "--exit-zero", "--quiet")
    assert ended.leak["holder"]["name"] == "kept" and ended.leak["location"]["line"] == LINE
    assert (ended.status, ended.output) == (0, alone.stdout)


@pytest.mark.parametrize("rest", [
    "others = [torch.zeros(1) for _ in range(200_000)]\ntrain()",
    "chain = []\nfor _ in range(10_000):\n    chain = [chain]\nchain.append(chain)\ntrain()",
], ids=["200,000 live tensors", "a cyclic container 10,000 deep"])  # fmt: skip
def test_the_leak_is_named_among_masses(tmp_path: Path, rest: str) -> None:
    assert run(tmp_path, rest).leak["holder"]["name"] == "kept"


def test_a_model_that_was_compiled_before_the_watch_began(tmp_path: Path) -> None:
    script = tmp_path / "library.py"
    rest = """
        import torchvet
        model = torch.compile(nn.Linear(64, 64), backend="eager")
        with torchvet.watch() as seen:
            train(model=model)
        print([f.holder.name for f in seen.report.findings if f.code == "MEM101"])
    """
    script.write_text(LEAK + textwrap.dedent(rest), encoding="utf-8")
    ended = subprocess.run([python(), str(script)], capture_output=True, text=True, timeout=300)
    assert "['kept']" in ended.stdout, ended.stderr[-2000:]


TRANSFORMED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    change = nn.Sequential(nn.Flatten(0), nn.Threshold(0.0, 0.0))
    def __len__(self):
        return 800
    def __getitem__(self, index):
        return self.change(torch.full((8,), float(index)))

model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for batch in DataLoader(Rows(), batch_size=40):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
"""


def test_transforms_that_are_modules_are_no_steps(tmp_path: Path) -> None:
    """A run of so many steps would end before the first of them."""
    (tmp_path / "train.py").write_text(TRANSFORMED)
    command = [*REAL, "run", "--steps", "12", "--format", "json", "--exit-zero", "train.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert msgspec.json.decode(ran.stdout)["facts"]["step_kinds"] == {"training": 12}, ran.stderr


LOADED_AHEAD = """
import threading, time
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 100000
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.zeros(8)

def load():
    for batch in DataLoader(Rows(), batch_size=100):
        pass

threading.Thread(target=load, daemon=True).start()
time.sleep(0.2)
model = torch.nn.Linear(8, 1)
with torch.no_grad():
    for step in range(60):
        model(torch.randn(4, 8))
"""


def test_forward_passes_are_steps_while_another_thread_loads(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text(LOADED_AHEAD)
    command = [*REAL, "run", "--format", "json", "--exit-zero", "serve.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert msgspec.json.decode(ran.stdout)["facts"]["step_kinds"].get("forward", 0) >= 50, ran.stderr
