"""The independent count agrees with what can be reckoned by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from warm_interpreters import python

from casebook.count import CountError, choose, count, slope, steady
from casebook.program import Program

PROGRAM = """
import sys, threading, torch
kept = []
weight = torch.nn.Parameter(torch.zeros(500))
optimizer = torch.optim.SGD([weight], lr=0.1)

def nothing(step): torch.zeros(9000)
def list_of_tensors(step): kept.append(torch.zeros(1000))
def every_other_step(step): kept.extend([torch.zeros(1000)] if step % 2 else [])
def view_of_large(step): kept.append(torch.zeros(100, 10)[:1])
def graph_only(step): kept.append(weight.exp().sum())
def fills_and_stops(step): kept.extend([torch.zeros(1000)] if step < 10 else [])
def from_a_thread(step):
    thread = threading.Thread(target=list_of_tensors, args=(step,))
    thread.start()
    thread.join()
def freed_by_another(step):
    box = [torch.zeros(1000)]
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()

for step in range(40):
    globals()[sys.argv[1]](step)
    optimizer.step()
"""

BY_HAND = {
    "nothing": 0,
    "list_of_tensors": 4 * 1000,
    "every_other_step": 4 * 1000 / 2,
    "view_of_large": 4 * 100 * 10,
    "graph_only": 4 * 500 + 4,
    "fills_and_stops": 0,
    "from_a_thread": 4 * 1000,
    "freed_by_another": 0,
}
"""Bytes per step. ``exp`` saves its result of 500 numbers, and the sum kept is one more."""

MARKERS = {
    "backward": "for _ in range(12): (w * 2).sum().backward(); kept.append(torch.zeros(100))",
    "loader": "for b in torch.utils.data.DataLoader(torch.zeros(24, 100), batch_size=2): kept.append(b[:1] + 1)",
    "module": "for _ in range(12): kept.append(net(torch.zeros(1, 25)).detach())",
}


@pytest.mark.parametrize("pattern", BY_HAND)
def test_bytes_per_step_are_those_reckoned_by_hand(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    counted = count(Program(tmp_path, "program"), [pattern], python())
    assert (counted.marker, counted.steps) == ("optimizer", 40)
    assert counted.bytes_per_step == pytest.approx(BY_HAND[pattern], rel=0.02, abs=1)


@pytest.mark.parametrize("marker", MARKERS)
def test_steps_without_an_optimizer(tmp_path: Path, marker: str) -> None:
    setup = "import torch; kept = []; w = torch.zeros(3, requires_grad=True)\n"
    setup += "net = torch.nn.Sequential(torch.nn.Linear(25, 100))\n"
    (tmp_path / "program.py").write_text(setup + MARKERS[marker])
    counted = count(Program(tmp_path, "program"), [], python())
    assert (counted.marker, counted.bytes_per_step) == (marker, 400)


def test_a_package_is_run_as_a_module(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "__init__.py").touch()
    (tmp_path / "program" / "leak.py").write_text("import torch\nkept = []\n")
    body = "from .leak import kept, torch\nnet = torch.nn.Linear(1, 10)\n"
    (tmp_path / "program" / "__main__.py").write_text(
        body + "for _ in range(12): kept.append(net(torch.ones(1, 1)).detach())"
    )
    assert count(Program(tmp_path, "program"), [], python()).bytes_per_step == 40


def test_a_program_that_cannot_be_counted_says_why(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import torch\n")
    with pytest.raises(CountError, match="no kind of step occurs 8 times: optimizer 0"):
        count(Program(tmp_path, "program"), [], python())


def test_the_slope_ignores_outliers_and_a_sawtooth() -> None:
    line = [10 * i for i in range(40)]
    assert slope(line) == 10
    assert slope([*line[:20], 9_999_999, *line[21:]]) == 10
    assert slope([i % 8 for i in range(64)]) == pytest.approx(0, abs=0.1)
    assert slope([5]) == 0.0
    assert slope([10 * i for i in range(5000)]) == 10


def test_warm_up_is_skipped() -> None:
    assert list(steady(range(12))) == [5, 6, 7, 8, 9, 10, 11]
    assert next(iter(steady(range(40)))) == 10


def test_optimizer_steps_are_preferred_to_what_happens_more_often() -> None:
    marks = {"optimizer": [1] * 8, "backward": [2] * 80, "loader": [3] * 80, "module": [4] * 800}
    assert choose(marks) == ("optimizer", [1] * 8)
    assert choose({**marks, "optimizer": [1]}) == ("backward", [2] * 80)
