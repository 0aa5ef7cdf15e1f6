"""One leak in each surroundings that programs run in: is it found, with its holder, or is it said what was not seen?

    python -m casebook.surroundings [-k SUBSTRING] [--python PYTHON]

The leak is the same everywhere: the losses of an evaluation with gradients on, kept in a list of an object that is a
local of the function that trains. Surroundings whose packages PYTHON lacks (pytest, nbclient with ipykernel, debugpy)
are passed over and said so. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from casebook.board import markdown
from casebook.program import environment

PATIENCE = 240

LEAK = """\
import torch
from torch import nn


class Meter:
    def __init__(self):
        self.losses = []

    def update(self, loss):
        self.losses.append(loss)


def train(steps=40):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    meter = Meter()
    for step in range(steps):
        x, y = torch.randn(256, 32), torch.randint(0, 4, (256,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        meter.update(nn.functional.cross_entropy(model(x), y))
    return len(meter.losses)
"""


@dataclass(frozen=True)
class Surroundings:
    """One way to run the leak: files to write, and the command."""

    name: str
    files: dict[str, str]
    command: Callable[[str], list[str]]
    needs: tuple[str, ...] = ()


def _run(*target: str) -> Callable[[str], list[str]]:
    return lambda python: [python, "-m", "torchvet", "run", "-o", "report.json", "--quiet", *target]


NOTEBOOK = """\
import json, sys
import nbformat
from nbclient import NotebookClient

cells = [
    open("leak.py").read(),
    "import torchvet",
    "with torchvet.watch() as watched:\\n    print(train())",
    "import msgspec\\nopen('report.json', 'wb').write(msgspec.json.encode(watched.report))",
]
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
NotebookClient(book, timeout=200, kernel_name="here").execute()
"""
KERNEL = """\
{"argv": ["%s", "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "here", "language": "python"}
"""
CALLED = (
    LEAK
    + """

print(train())
"""
)
IN_THE_MODULE = LEAK.replace("def train(steps=40):", "steps = 40\nif True:").replace(
    "    return len(meter.losses)\n", ""
)
AS_A_TEST = LEAK.replace("def train(steps=40):", "def test_train():\n    steps = 40").replace(
    "return len(meter.losses)", "assert len(meter.losses) == steps"
)
IN_A_TEST_CASE = (
    LEAK
    + """

import unittest


class Case(unittest.TestCase):
    def test_train(self):
        self.assertEqual(train(), 40)
"""
)
EXECUTED = """\
scope = {}
exec(open("code.txt").read(), scope)
print(scope["train"]())
"""
IN_A_THREAD = (
    LEAK
    + """

import threading

worker = threading.Thread(target=train)
worker.start()
worker.join()
"""
)
IN_A_POOL = (
    LEAK
    + """

from concurrent.futures import ThreadPoolExecutor

with ThreadPoolExecutor(1) as pool:
    print(pool.submit(train).result())
"""
)
IN_A_CHILD = (
    LEAK
    + """

if __name__ == "__main__":
    import multiprocessing

    child = multiprocessing.get_context("%s").Process(target=train)
    child.start()
    child.join()
"""
)
_BOOK = Surroundings(
    "notebook",
    {"leak.py": LEAK, "book.py": NOTEBOOK},
    lambda python: [python, "book.py"],
    ("nbclient", "ipykernel"),
)
_TORCHRUN = _run("-m", "torch.distributed.run", "--nproc-per-node", "2", "main.py")

ALL = (
    Surroundings("script", {"main.py": CALLED}, _run("main.py")),
    Surroundings("module-level code", {"main.py": IN_THE_MODULE}, _run("main.py")),
    Surroundings("pytest", {"test_leak.py": AS_A_TEST}, _run("-m", "pytest", "-q", "test_leak.py"), ("pytest",)),
    Surroundings("unittest", {"test_leak.py": IN_A_TEST_CASE}, _run("-m", "unittest", "test_leak")),
    Surroundings("debugpy", {"main.py": CALLED}, _run("-m", "debugpy", "--listen", "0", "main.py"), ("debugpy",)),
    Surroundings("exec", {"code.txt": LEAK, "main.py": EXECUTED}, _run("main.py")),
    _BOOK,
    Surroundings("thread", {"main.py": IN_A_THREAD}, _run("main.py")),
    Surroundings("executor", {"main.py": IN_A_POOL}, _run("main.py")),
    Surroundings("spawned child", {"main.py": IN_A_CHILD % "spawn"}, _run("main.py")),
    Surroundings("forked child", {"main.py": IN_A_CHILD % "fork"}, _run("main.py")),
    Surroundings("torchrun", {"main.py": CALLED}, _TORCHRUN),
)


def asked(one: Surroundings, python: str) -> list[str]:
    """Run one: its name, the verdict, what is found, what holds it, and what was not checked."""
    missing = [n for n in one.needs if subprocess.run([python, "-c", f"import {n}"], capture_output=True).returncode]
    if missing:
        return [one.name, f"not run: {', '.join(missing)} is not installed", "", ""]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in one.files.items():
            Path(folder, name).write_text(text)
        kernel = Path(folder, "kernels", "here")
        kernel.mkdir(parents=True)
        (kernel / "kernel.json").write_text(KERNEL % python)
        env = {**environment(), "JUPYTER_PATH": folder}
        done = subprocess.run(
            one.command(python), cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        report = Path(folder, "report.json")
        if not report.exists():
            return [one.name, f"no report: {(done.stderr.strip().splitlines() or ['nothing said'])[-1]}", "", ""]
        told = msgspec.json.decode(report.read_bytes())
    leaks = [f for f in told["findings"] if f["code"].startswith("MEM1") and f["severity"] in ("warning", "error")]
    holder = next((f["holder"]["name"] for f in leaks if f.get("holder")), "")
    gaps = "; ".join(f"{g['check']}: {g['reason']}" for g in told["not_checked"]) if not leaks else ""
    return [one.name, told["verdict"], ", ".join(f["code"] for f in leaks) + (f" by {holder}" if holder else ""), gaps]


def main(argv: Sequence[str] | None = None) -> int:
    """Run all and print the table."""
    parser = argparse.ArgumentParser(prog="python -m casebook.surroundings")
    parser.add_argument("-k", dest="only", default="")
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args(argv)
    rows = [asked(one, options.python) for one in ALL if options.only in one.name]
    print(markdown([["surroundings", "verdict", "found", "not checked"], *rows]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
