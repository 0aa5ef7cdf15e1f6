"""Which names every pass binds anew, owing nothing to what they had before."""

from __future__ import annotations

import pytest
from programs import program


@pytest.mark.parametrize(
    "text",
    [
        "for n in ns:\n    x = torch.randn(n)",
        "for x in xs:\n    x = x.to(device)\n    out = net(x)",
        "for x, y in xs:\n    x, y = x.cuda(), y.cuda()",
        "for x in loader:\n    net(x)",
        "for i, (x, y) in enumerate(make(90, 64)):\n    net(x)",
        "for x in Prefetcher(make, 3):\n    net(x)",
        "for n in ns:\n    x = net(make(n))\n    x = x.relu()",
        "x = None\nfor n in ns:\n    x = net(n)",
        "while True:\n    at += 4\n    x = data[at : at + 4]",
        "for n in ns:\n    rows = []\n    for r in n:\n        rows.append(r)\n    x = torch.stack(rows)",
        "def f(n):\n    rows = []\n    rows.append(n)\n    return rows\nfor n in ns:\n    x = torch.stack(f(n))",
        "for n in ns:\n    x = {}\n    x['ids'] = n\n    x['labels'] = n",
        "log = []\nfor n in ns:\n    x = net(n)\n    log.append(x.mean())",
    ],
)
def test_bound_anew(text: str) -> None:
    assert program(text).index().is_renewed("x", "__main__", "/proj/train.py")


@pytest.mark.parametrize(
    "text",
    [
        "x = torch.zeros(0)\nfor n in ns:\n    x = torch.cat([x, n])",
        "for n in ns:\n    y = torch.cat([x, n])\n    x = y",
        "x = None\nfor n in ns:\n    x = n if x is None else torch.cat([x, n])",
        "for n in ns:\n    if n % 9 == 0:\n        x = torch.zeros(0)\n    x = torch.cat([x, n])",
        "for e in es:\n    x = torch.zeros(0)\n    for n in ns:\n        x = torch.cat([x, n])",
        "kept = []\nfor n in ns:\n    kept.append(n)\n    x = torch.stack(kept)",
        "kept = []\nfor n in ns:\n    kept += [n]\n    x = torch.stack(kept)",
        "x = make()\nfor n in ns:\n    x.resize_(n)",
        "x = torch.zeros(3)",
        "print(x)",
        "def f():\n    for x in xs:\n        net(x)\nx = torch.zeros(3)\nnet(x)",
        "def step(x, n):\n    return torch.cat([x, n])\nx = torch.zeros(0)\nfor n in ns:\n    x = step(x, n)",
        "x = []\nfor n in ns:\n    x.append(n)",
    ],
)
def test_not_bound_anew(text: str) -> None:
    assert not program(text).index().is_renewed("x", "__main__", "/proj/train.py")


def test_attributes() -> None:
    text = """
        class Trainer:
            def __init__(self):
                self.last = None
                self.seen = torch.zeros(0)

            def step(self, batch):
                out = self.net(batch)
                self.last = out.detach()
                joined = torch.cat([self.seen, self.last])
                self.seen = joined

        trainer = Trainer()
        for batch in batches:
            trainer.step(batch)
        """
    index = program(text).index()
    assert index.is_renewed("trainer.last", "__main__", "/proj/train.py")
    assert not index.is_renewed("trainer.seen", "__main__", "/proj/train.py")


def test_what_a_function_is_given() -> None:
    text = "def step(x, n):\n    x = {}(x, n)\n    return x\nfor n in ns:\n    {}\n"
    index = program(text.format("pad", "step(n, 3)")).index()
    assert index.is_renewed("x", "__main__.step", "/proj/train.py")
    index = program("x = torch.zeros(0)\n" + text.format("join", "x = step(x, n)")).index()
    assert not index.is_renewed("x", "__main__.step", "/proj/train.py")


def test_a_parameter_of_an_attributes_name_is_not_the_attribute() -> None:
    """`self.seen.append(seen)`: what every caller gives anew is added to what stays."""
    text = """
class Meter:
    def __init__(self):
        self.seen = []

    def add(self, seen):
        self.seen.append(seen * 2)

meter = Meter()
for x in data:
    meter.add(x + 1)
"""
    assert not program(text).index().is_renewed("meter.seen", "__main__", "/proj/train.py")
