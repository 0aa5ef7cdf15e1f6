"""Rows that a loss ignores are counted where a matrix product has made their logits."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import RECORDING, forked

from torchvet.recording import read
from torchvet.recording.records.timing import IgnoredRows

PROGRAM = """
import torch
from torch import nn
from torch.nn.functional import cross_entropy, log_softmax, nll_loss
body, head, small = nn.Linear(16, 16), nn.Linear(16, 100), nn.Linear(16, 10)
image, pixels = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 100, 1)
deep = nn.Sequential(nn.Linear(16, 512), nn.Tanh(), nn.Linear(512, 128), nn.Tanh(), nn.Linear(128, 100))
parts = nn.ModuleList([body, head, small, image, pixels, deep])
optimizer = torch.optim.SGD(parts.parameters(), lr=0.01)
for step in range(12):
    x = torch.rand(4, 8, 16)
    targets = torch.randint(10, (4, 8))
    targets[:, 2:] = -100
    hidden = body(x)
    logits = head(hidden)
    loss = cross_entropy(logits.flatten(0, 1), targets.flatten())
    shifted = head(hidden)
    loss += cross_entropy(shifted[:, :-1].contiguous().double().view(-1, 100), targets[:, 1:].flatten())
    turned = head(hidden)
    loss += cross_entropy(turned.transpose(1, 2), targets)
    warmer = head(hidden) / 2
    loss += nll_loss(log_softmax(warmer, -1).flatten(0, 1), targets.flatten())
    whole = deep(x)
    loss += cross_entropy(whole.flatten(0, 1), targets.flatten())
    loss += cross_entropy(small(hidden).flatten(0, 1), targets.flatten())
    loss += cross_entropy(pixels(image(torch.rand(4, 3, 2, 4))), targets.view(4, 2, 4))
    loss += cross_entropy(head(hidden).flatten(0, 1), targets.clamp(min=0).flatten())
    with torch.no_grad():
        cross_entropy(head(hidden).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_rows_are_counted_through_views_and_copies_and_not_of_convolutions(tmp_path: Path) -> None:
    forked(PROGRAM, tmp_path)
    found = {x.place.line: x for x in read(tmp_path / RECORDING).ranks[0].latest(IgnoredRows, "place", "loss")}
    lines = PROGRAM.splitlines()
    assert [lines[line - 1].strip() for line in sorted(found)] == [
        *("logits = head(hidden)", "shifted = head(hidden)", "turned = head(hidden)"),
        *("warmer = head(hidden) / 2", "whole = deep(x)"),
    ]
    plain, shifted, *_, whole = (found[line] for line in sorted(found))
    assert (plain.columns, plain.loss.line, plain.part) == (100, plain.place.line + 1, 1.0)
    assert plain.calls > 3 and (plain.rows, plain.ignored) == (32 * plain.calls, 24 * plain.calls)
    assert plain.least == pytest.approx(0.75) and shifted.least == pytest.approx(6 / 7)
    assert whole.part < 0.2
