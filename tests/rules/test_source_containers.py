"""Modules in plain containers: where what makes them, or what is done with them, stands elsewhere than in the list."""

from __future__ import annotations

import pytest

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = """
import copy
import torch
from typing import Callable, Dict, List
from torch import nn
from .parts import Base, Part, sizes
"""


def found(text: str) -> list[str]:
    return [f.severity for f in rule("DEV109").in_source(SourceFile("t.py", HEAD + text))]


GIVEN = """
class Net({base}):
    def __init__(self, {taken}):
        super().__init__()
        {more}
    def forward(self, x):
        {forward}
"""
LOOP = "for part in self.parts: x = part(x)\n        return torch.relu(x)"
PARTS = {"base": "nn.Module", "taken": "*parts", "more": "self.parts = parts", "forward": LOOP}


@pytest.mark.parametrize(
    ("changed", "severities"),
    [
        ({}, ["info"]),
        ({"base": "Base"}, ["info"]),
        ({"taken": "parts", "more": "self.parts = list(parts)"}, ["info"]),
        ({"taken": "parts", "more": "self.parts = tuple(parts)"}, ["info"]),
        ({"taken": "part", "more": "self.parts = [copy.deepcopy(part) for _ in range(3)]"}, ["info"]),
        ({"taken": "parts: List[Part]"}, ["info"]),
        ({"taken": "parts: Dict[str, Part]", "forward": "return sum(p(x) for p in self.parts.values())"}, ["info"]),
        ({"forward": "return sum(map(lambda part, one: part(one), self.parts, x))"}, ["info"]),
        ({"forward": "return torch.stack([part.forward(x) for part in self.parts])"}, ["info"]),
        ({"forward": "return torch.relu(self.parts[0](x))"}, ["info"]),
        # What may be an nn.ModuleList, functions, and what nothing is computed with.
        ({"taken": "parts"}, []),
        ({"taken": "parts: nn.ModuleList"}, []),
        ({"taken": "parts: List[Callable]"}, []),
        ({"more": "self.parts = nn.ModuleList(parts)"}, []),
        ({"more": "self.parts = parts\n        self.all = nn.ModuleList(parts)"}, []),
        ({"more": "self.parts = parts\n        for i, p in enumerate(parts): self.add_module(str(i), p)"}, []),
        ({"forward": "for part in self.parts: part(x)\n        return torch.relu(x)"}, []),
        ({"forward": "for size, one in zip(self.parts, self.other): x = one(x)\n        return torch.relu(x)"}, []),
        ({"base": "Base", "forward": "for part in self.parts: x = part(x)\n        return x"}, []),
        ({"base": "object"}, []),
        ({"base": "nn.Sequential"}, []),
    ],
)
def test_what_a_constructor_is_given_is_lost_where_it_is_called(changed: dict[str, str], severities: list[str]) -> None:
    assert found(GIVEN.format(**PARTS | changed)) == severities


def test_what_callers_in_the_file_give_shows_modules() -> None:
    text = GIVEN.format(**PARTS)
    assert found(text + "net = Net(nn.Linear(2, 2), nn.Linear(2, 2))\n") == ["warning"]
    assert found(text + "net = Net(torch.relu, torch.tanh)\n") == ["info"]


MADE = """
class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.inner = nn.Linear(n, n)
class Net({base}):
    def __init__(self, n):
        super().__init__()
        self.head = nn.Linear(n, n)
        {more}
    def stack(self, kind, n):
        made = []
        for _ in range(3):
            made.append({member})
        return made
    def forward(self, x):
        for part in self.parts: x = part(x)
        return self.head(x)
"""
RETURNED = {"base": "nn.Module", "more": "self.parts = self.stack(Block, n)", "member": "kind(n)"}


@pytest.mark.parametrize(
    ("changed", "severities"),
    [
        ({}, ["error"]),
        ({"base": "Base"}, ["error"]),
        ({"member": "nn.Linear(n, n)"}, ["error"]),
        ({"more": "self.parts = []\n        for _ in range(3): self.parts.append(Part(n))"}, ["info"]),
        ({"more": "parts = [Part(n) for _ in range(3)]\n        self.parts = parts"}, ["info"]),
        ({"more": "self.parts = [None] * 3\n        for i in range(3): self.parts[i] = Part(n)"}, ["info"]),
        ({"member": "sizes(n)"}, []),
        ({"more": "self.parts = nn.Sequential(*self.stack(Block, n))"}, []),
        ({"more": "self.parts = nn.ModuleList(self.stack(Block, n))"}, []),
        ({"more": "self.parts = self.stack(nn.ReLU, n)"}, []),
        ({"more": "self.other = [Part(n) for _ in range(3)]"}, []),
        ({"more": "self.parts = [Part(n)]\n        self.parts = nn.ModuleList(self.parts)"}, []),
    ],
)
def test_a_list_that_is_filled_elsewhere_or_of_classes_from_elsewhere(
    changed: dict[str, str], severities: list[str]
) -> None:
    assert found(MADE.format(**RETURNED | changed)) == severities
