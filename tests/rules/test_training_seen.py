"""Faults of training loops that a run shows by itself, where callbacks hide from source who does what, and their
healthy twins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import forked

PROGRAM = """
import contextlib, copy
import torch
from torch import nn

class Callback:
    def before_batch(self, run): ...
    def after_batch(self, run): ...
    def after_epoch(self, run): ...
    def at_the_end(self, run): ...

{callback}

class Run:
    def __init__(self, epochs):
        self.epochs = epochs
        self.net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
        self.rule = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        self.plan = torch.optim.lr_scheduler.CosineAnnealingLR(self.rule, 40)
        self.callback = Mine(self)

    def tell(self, what):
        getattr(self.callback, what)(self)

    def go(self):
        for _ in range(self.epochs):
            for _ in range(10):
                self.tell("before_batch")
                x = torch.randn(16, 8)
                self.rule.zero_grad()
                nn.functional.mse_loss(self.net(x).squeeze(1), x.sum(1)).backward()
                self.rule.step()
                self.tell("after_batch")
            self.tell("after_epoch")
        self.tell("at_the_end")

torch.manual_seed(0)
Run(4).go()
"""

EVALUATES = """
@contextlib.contextmanager
def judged(net):
    net.eval()
    with torch.no_grad():
        yield net
    {after}

class Mine(Callback):
    def __init__(self, run):
        run.net.train()

    def after_epoch(self, run):
        with judged(run.net) as net:
            net(torch.randn(16, 8))
"""
FREEZES = """
class Mine(Callback):
    def __init__(self, run):
        run.net.train()

    def after_epoch(self, run):
        run.net.eval()
        run.net(torch.randn(16, 8)).mean().item()
"""
KEEPS = """
class Mine(Callback):
    def __init__(self, run):
        self.kept = None

    def after_epoch(self, run):
        if self.kept is None:
            self.kept = {kept}

    def at_the_end(self, run):
        run.net.load_state_dict(self.kept)
"""
GIVES_BACK = """
class Mine(Callback):
    def __init__(self, run):
        self.seen = 0

    def after_epoch(self, run):
        self.seen += 1
        if self.seen {when}:
            run.net.load_state_dict(run.net.state_dict())
"""
SCHEDULES = """
class Mine(Callback):
    def __init__(self, run):
        {first}

    def {when}(self, run):
        run.plan.step()
"""


def told(callback: str, code: str, tmp_path: Path) -> list[tuple[dict[str, Any], str]]:
    """The findings of a rule at warning or above, each with the text of its line."""
    program = PROGRAM.format(callback=callback)
    found = forked(program, tmp_path)
    assert found is not None
    mine = [f for f in found if f["code"] == code and f["severity"] != "info"]
    return [(f, program.splitlines()[f["location"]["line"] - 1].strip()) for f in mine]


FAULTS = {
    "never back in train mode": ("TRN103", EVALUATES.format(after="pass"), "net.eval()"),
    "its own weights": ("TRN110", KEEPS.format(kept="run.net.state_dict()"), "self.kept = run.net.state_dict()"),
    "loaded from itself each time": (
        "TRN110", GIVES_BACK.format(when="> 0"), "run.net.load_state_dict(run.net.state_dict())",
    ),
    "the schedule first": ("TRN109", SCHEDULES.format(first="pass", when="before_batch"), "run.plan.step()"),
}  # fmt: skip


@pytest.mark.parametrize("case", FAULTS)
def test_what_a_run_shows_needs_no_suspicion(case: str, tmp_path: Path) -> None:
    code, callback, line = FAULTS[case]
    ((found, text),) = told(callback, code, tmp_path)
    assert found["evidence"] == "observed" and text == line


HEALTHY = {
    "back in train mode": ("TRN103", EVALUATES.format(after="net.train()")),
    "statistics kept on purpose": ("TRN103", FREEZES),
    "a deep copy": ("TRN110", KEEPS.format(kept="copy.deepcopy(run.net.state_dict())")),
    "given back at once": ("TRN110", GIVES_BACK.format(when="== 1")),
    "the schedule last": ("TRN109", SCHEDULES.format(first="pass", when="after_batch")),
    "past a rate of nothing": ("TRN109", SCHEDULES.format(first="run.plan.step()", when="after_batch")),
    "wound on to where it was": (
        "TRN109", SCHEDULES.format(first="run.plan.step(), run.plan.step()", when="after_batch"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HEALTHY)
def test_what_is_meant_so_is_not_told(case: str, tmp_path: Path) -> None:
    code, callback = HEALTHY[case]
    assert told(callback, code, tmp_path) == []
