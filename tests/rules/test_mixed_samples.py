"""Views of recurrent layers' states that mix samples, and such as do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked
from observed_fixes import fixed_lines

from torchvet.probes.training.mixed_samples import _mixes

PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
layer = nn.{layer}
steps, samples = 5, 12
head = nn.LazyLinear(1)
used = {used}
def answer(x):
    out, state = layer(x)
    return head({used})
answer(torch.randn(samples, steps, 8))
rule = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.01)
for step in range(30):
    x = torch.randn(samples, steps, 8)
    loss = (answer(x) - 1).pow(2).mean()
    rule.zero_grad()
    loss.backward()
    rule.step()
"""
BOTH = "GRU(8, 4, batch_first=True, bidirectional=True)"
MIXED = {
    "two directions": (BOTH, "state.view(samples, -1)"),
    "by reshape": (BOTH, "state.reshape(samples, 8)"),
    "two layers": ("RNN(8, 4, num_layers=2, batch_first=True)", "state.view(samples, 8)"),
    "steps first": ("GRU(8, 4)", "out.view(steps, -1)"),
    "within a model": (
        f"Sequential(nn.Identity(), nn.{BOTH})",
        "state.view(samples, -1)",
    ),
    "cells": ("LSTM(8, 4, num_layers=2, batch_first=True)", "state[1].view(samples, -1)"),
}
RIGHT = {
    "moved first": (BOTH, "state.transpose(0, 1).reshape(samples, -1)"),
    "joined": (BOTH, "torch.cat([state[0], state[1]], 1)"),
    "one layer": ("GRU(8, 4, batch_first=True)", "state.view(samples, 4)"),
    "the last": (BOTH, "state[-1].view(samples, 4)"),
    "the output": (BOTH, "out.reshape(samples, -1)"),
    "kept as a row and viewed back": (BOTH, "state.view(samples, -1).clone().view(2, samples, 4)[-1]"),
    "layers and directions": (BOTH, "state.view(1, 2, samples, 4)[0].sum(0)"),
}


def told(folder: Path, layer: str, used: str) -> list[str]:
    """TRN126's lines, with their severity."""
    text = PROGRAM.replace("{layer}", layer).replace("used = {used}\n", "").replace("{used}", used)
    found = forked(text, folder)
    assert found is not None
    lines = text.splitlines()
    return [f["severity"] + lines[f["location"]["line"] - 1] for f in found if f["code"] == "TRN126"]


@pytest.mark.parametrize(("layer", "used"), MIXED.values(), ids=MIXED)
def test_views_that_mix(layer: str, used: str, tmp_path: Path) -> None:
    assert told(tmp_path, layer, used) == [f"error    return head({used})"]


@pytest.mark.parametrize(("layer", "used"), RIGHT.values(), ids=RIGHT)
def test_views_that_do_not(layer: str, used: str, tmp_path: Path) -> None:
    assert told(tmp_path, layer, used) == []


@pytest.mark.parametrize(
    ("shape", "view", "mixes"),
    [
        ((2, 8, 16), (8, 32), True),
        ((2, 8, 16), (8, 2, 16), True),
        # Steps first.
        ((5, 8, 16), (8, 80), True),
        ((2, 8, 16), (16, 16), False),
        ((2, 8, 16), (2, 128), False),
        ((2, 8, 16), (8 * 2 * 16,), False),
        ((2, 2, 16), (2, 32), False),
        # Two layers in two directions, of two samples.
        ((4, 2, 16), (2, 2, 2, 16), False),
    ],
)
def test_which_views_mix(shape: tuple[int, ...], view: tuple[int, ...], mixes: bool) -> None:
    assert _mixes(shape, view) is mixes


def test_the_samples_are_moved_first() -> None:
    _, new = fixed_lines("TRN126", "code = self.head(state.view(samples, -1))", "code")
    assert new == ["code = self.head(state.transpose(0, 1).reshape(samples, -1))"]
    assert fixed_lines("TRN126", "code = torch.reshape(state, (samples, -1))", "code") == ([], [])
    assert fixed_lines("TRN126", "a, b = h.view(n, -1), c.view(n, -1)", "a, b") == ([], [])
