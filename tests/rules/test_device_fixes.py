"""Edits about devices and about what an optimizer was built on: what they write, and where none is made."""

from __future__ import annotations

import textwrap

import msgspec
import pytest

from torchvet.finding import About, DetailedFinding, Finding, Location, Related, Remedy
from torchvet.fixing.edits import apply
from torchvet.rules import rule
from torchvet.rules.device.fixes.one_device import ON_CPU
from torchvet.source.model import SourceFile

FILE = "train.py"
BUILT = """
import copy
import torch
from torch import nn

def main(args, loader):
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
{lines}
    for x in loader:
        model(x).mean().backward()
        optimizer.step()
"""
ADAM = "optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)"
HEAD = "model[1] = nn.Linear(8, 2)"
SCHEDULE = "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 9)"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([ADAM, HEAD], [HEAD, ADAM]),
        ([ADAM, "print(args)  # all of them", HEAD], ["print(args)  # all of them", HEAD, ADAM]),
        ([ADAM, "if args.two:", "    " + HEAD], ["if args.two:", "    " + HEAD, ADAM]),
        (["optimizer = torch.optim.Adam(", "    model.parameters(),", ")", HEAD],
         [HEAD, "optimizer = torch.optim.Adam(", "    model.parameters(),", ")"]),
        ([ADAM, "model = copy.deepcopy(model)"], ["model = copy.deepcopy(model)", ADAM]),
        ([ADAM, SCHEDULE, HEAD], [HEAD, ADAM, SCHEDULE]),
        # What is in between would not be as it was.
        ([ADAM, "model.eval()", SCHEDULE, HEAD], None),
        ([ADAM, SCHEDULE, "width = 2", "model[1] = nn.Linear(8, width)"], None),
        ([ADAM, "args = args.more", HEAD], None),
        ([ADAM + "; print(1)", HEAD], None),
        ([ADAM, "if args.two: return", HEAD], None),
        ([ADAM, SCHEDULE, "if args.two:", "    " + HEAD], None),
    ],
)  # fmt: skip
def test_an_optimizer_is_built_after_what_replaces_parameters(before: list[str], after: list[str] | None) -> None:
    text, expected = (BUILT.format(lines=textwrap.indent("\n".join(ls), "    ")) for ls in (before, after or before))
    found = list(rule("DEV103").in_source(SourceFile(FILE, text)))
    assert found
    made = apply({FILE: text}, [f for f in found if f.remedy.edits])[0][FILE]
    assert made == expected
    assert not any(f.remedy.safe for f in found)
    if after is not None:
        assert not list(rule("DEV103").in_source(SourceFile(FILE, made)))


MIXED = """
import torch

class Trainer:
    def __init__(self, model, device):
        self.model, self.device = model.to(device), device

    def loss(self, batch):
        x, mask = batch
        out = self.model({moved})
        {line}
        return part
"""


def brought(line: str, other: str = "out", moved: str = "x.to(self.device)", name: str = "mask") -> list[str]:
    """The new lines of the mended text, where a run has named the line that failed."""
    text = MIXED.format(line=line, moved=moved)
    number = next(n for n, one in enumerate(text.splitlines(), start=1) if "part =" in one)
    finding = DetailedFinding(
        code="DEV101", name="x", severity="error", evidence="observed", cause="because", message="",
        about=About(ON_CPU, (name, other)),
        location=Location(path=FILE, line=9), remedy=Remedy(summary=""),
        related=[Related(role="raised", message="it failed", path=FILE, line=number)],
    )  # fmt: skip
    edits = list(rule("DEV101").fixes(finding, SourceFile(FILE, text)))
    finding = msgspec.structs.replace(finding, remedy=Remedy(summary="", edits=edits))
    after = apply({FILE: text}, [finding])[0][FILE]
    return [one.strip() for one in after.splitlines() if one not in text.splitlines()]


@pytest.mark.parametrize(
    ("line", "more", "expected"),
    [
        ("part = out * mask", {}, ["part = out * mask.to(out.device)"]),
        ("part = (out * mask).sum() / 2", {"other": "self.model(x)"},
         ["part = (out * mask.to(self.device)).sum() / 2"]),
        ("part = (out * mask).sum() / mask.sum()", {}, ["mask = mask.to(self.device)"]),
        ("part = (out * mask).sum() / mask.sum()", {"moved": "x.cuda()"}, []),
        ("part = out * self.table", {"name": "table"}, []),
        ("part = out * batch[1]", {"other": "a value without a name", "name": "other"}, []),
    ],
)  # fmt: skip
def test_what_is_out_of_place_is_brought_along(line: str, more: dict[str, str], expected: list[str]) -> None:
    assert brought(line, **more) == expected


MOVED = """
import torch
from torch import nn

class {kind}:
    def __init__(self, prior, device):
        {first}
        self.device = device
        self.prior = {prior}

    def loss(self, x):
        return (x + self.prior.to({to})).mean(){also}
"""


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, "self.prior = prior.to(self.device)"),
        ({"prior": "prior * 2"}, "self.prior = (prior * 2).to(self.device)"),
        ({"kind": "Loss(nn.Module)", "to": "x.device"}, 'self.register_buffer("prior", prior, persistent=False)'),
        ({"kind": "Loss(nn.Module)", "to": "x.device", "prior": "nn.Parameter(prior)"}, ""),
        (
            {
                "kind": "Loss(nn.Module)",
                "to": "x.device",
                "prior": "prior\n        super().__init__()",
                "first": "pass",
            },
            "",
        ),
        ({"to": "x.device"}, ""),
        ({"also": " + self.prior.numpy().sum()"}, ""),
        ({"prior": "prior if device else None\n        self.prior = prior"}, ""),
    ],
)
def test_an_attribute_that_each_step_moves_is_moved_where_it_is_bound(parts: dict[str, str], expected: str) -> None:
    text = MOVED.format(
        **{"kind": "Loss", "first": "super().__init__()", "prior": "prior", "to": "self.device", "also": "", **parts}
    )
    assert moved(text, "self.prior.to(") == ([expected] if expected else [])


LOOPED = """
import torch

def train(model, loader, optimizer, device):
    {start}
    for epoch in range(3):
        for x in loader:
            loss = (model(x) * weights.to(device)).mean()
            loss.backward()
            optimizer.step()
    {end}
"""


@pytest.mark.parametrize(
    ("start", "end", "made"),
    [
        ("weights = torch.ones(4)", "return 0", True),
        ("weights = torch.ones(4)", "return weights", False),
        ("weights = None\n    weights = torch.ones(4)", "return 0", False),
        ("if device:\n        weights = torch.ones(4)", "return 0", False),
    ],
)
def test_a_name_that_each_step_moves_is_moved_before_the_loop(start: str, end: str, made: bool) -> None:
    text = LOOPED.format(start=start, end=end)
    expected = ["weights = weights.to(device)", "loss = (model(x) * weights).mean()"] if made else []
    assert moved(text, "weights.to(") == expected


def moved(text: str, at: str) -> list[str]:
    """The new lines of a text where a run has seen one tensor moved in every step."""
    number = next(n for n, one in enumerate(text.splitlines(), start=1) if at in one)
    finding = Finding(
        code="OPS105", name="x", severity="warning", evidence="observed", cause="because", message="the same tensor",
        location=Location(path=FILE, line=number), remedy=Remedy(summary=""),
    )  # fmt: skip
    edits = list(rule("OPS105").fixes(finding, SourceFile(FILE, text)))
    after = apply({FILE: text}, [msgspec.structs.replace(finding, remedy=Remedy(summary="", edits=edits))])[0][FILE]
    compile(after, FILE, "exec")
    return [one.strip() for one in after.splitlines() if one not in text.splitlines()]
