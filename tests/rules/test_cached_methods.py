"""MEM111: caches of methods, which keep the objects that the methods were called on."""

from __future__ import annotations

import functools
import gc
import weakref

import pytest
from torch import nn

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = """
import functools
from functools import cache, cached_property, lru_cache
import torch
from torch import nn
from torch.utils.data import Dataset
"""
FAULTY = {
    "a module": (
        "class Net(nn.Module):\n    @lru_cache(maxsize=4)\n    def angles(self, length):\n        return length * 2\n"
    ),
    "models": (
        "class Agent:\n    def __init__(self):\n        self.net = nn.Linear(4, 4)\n\n"
        "    @functools.cache\n    def name(self):\n        return str(self.net)\n"
    ),
    "tensors": (
        "class Grid:\n    def __init__(self):\n        self.points = torch.zeros(9, 2)\n\n"
        "    @lru_cache\n    def count(self, scale):\n        return len(self.points) * scale\n"
    ),
    "a data set, without end": (
        "class Rows(Dataset):\n    @lru_cache(None)\n    def names(self):\n        return sorted(self.rows)\n\n"
        "    @lru_cache(None)\n    def sizes(self):\n        return len(self.rows)\n"
    ),
}
HEALTHY = {
    "a plain object": "class Words:\n    @lru_cache(None)\n    def split(self, text):\n        return text.split()\n",
    "a plain function": (
        "net = nn.Linear(2, 2)\n\n@lru_cache(None)\ndef angles(length):\n    return torch.arange(length)\n"
    ),
    "a static method": (
        "class Net(nn.Module):\n    @staticmethod\n"
        "    @lru_cache(4)\n    def angles(length):\n        return length * 2\n"
    ),
    "a class method": (
        "class Net(nn.Module):\n    @classmethod\n"
        "    @lru_cache(4)\n    def angles(cls, length):\n        return length * 2\n"
    ),
    "a property of its own": (
        "class Net(nn.Module):\n    @cached_property\n    def angles(self):\n        return torch.arange(4)\n"
    ),
    "a data set, the last few": (
        "class Rows(Dataset):\n    @lru_cache(maxsize=8)\n    def __getitem__(self, i):\n        return self.rows[i]\n"
    ),
    "made in the object": (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.angles = lru_cache(4)(self._angles)\n\n    def _angles(self, length):\n        return length\n"
    ),
    "another package's cache": (
        "from memo import cached\nclass Net(nn.Module):\n"
        "    @cached\n    def angles(self, n):\n        return n  # lru_cache\n"
    ),
}


def found(code: str) -> list[tuple[str, str]]:
    return [(f.severity, f.message) for f in rule("MEM111").in_source(SourceFile("train.py", HEAD + code))]


@pytest.mark.parametrize("name", FAULTY)
def test_caches_that_keep_much_are_named_once_a_class(name: str) -> None:
    ((severity, message),) = found(FAULTY[name])
    assert severity == "info" and "after the program has dropped it" in message


@pytest.mark.parametrize("name", HEALTHY)
def test_others_are_not(name: str) -> None:
    assert not found(HEALTHY[name])


def test_a_forward_that_is_cached_is_keyed_by_its_batch() -> None:
    code = (
        "class Resize(nn.Module):\n    @lru_cache(maxsize=12)\n    def forward(self, waves):\n"
        "        if waves.dim() == 2:\n            waves = waves.unsqueeze(1)\n        return waves * 2\n"
    )
    ((severity, message),) = found(code)
    assert severity == "warning" and "keyed by waves" in message
    other = code.replace("waves.unsqueeze(1)", "load(waves).unsqueeze(1)")
    assert [s for s, _ in found(other)] == ["info"]


def test_what_python_keeps() -> None:
    """The cause, measured: a dropped module lives as long as the cache has its entry."""

    class Net(nn.Module):
        @functools.lru_cache(maxsize=2)  # noqa: B019 - this is the fault
        def angles(self, length: int) -> int:
            return 2 * length

    alive = []
    for _ in range(5):
        net = Net()
        net.angles(3)
        alive.append(weakref.ref(net))
    del net
    gc.collect()
    assert [one() is not None for one in alive] == [False, False, False, True, True]
    Net.angles.cache_clear()
