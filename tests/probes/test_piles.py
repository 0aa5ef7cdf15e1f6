"""Memory that the backward calls of a step leave behind until it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import torchvet

Part = Callable[[nn.Module, list[object]], None]


def _received(net: nn.Module, kept: list[object]) -> None:
    """The output that is kept leads back to a buffer that requires a gradient, as stages of a pipeline receive it."""
    buffer = torch.zeros(256, 256, requires_grad=True)
    out = net(buffer)
    kept.append(out.mean(1))
    out.square().mean().backward()


def _detached(net: nn.Module, kept: list[object]) -> None:
    buffer = torch.zeros(256, 256, requires_grad=True)
    out = net(buffer)
    kept.append(out.mean(1).detach())
    out.square().mean().backward()


def _predictions(net: nn.Module, kept: list[object]) -> None:
    """They are what the step is for: large, and without a graph."""
    out = net(torch.zeros(256, 256))
    kept.append(out.detach())
    out.square().mean().backward()


def _nothing(net: nn.Module, kept: list[object]) -> None:
    net(torch.zeros(256, 256)).square().mean().backward()


def codes(part: Part, parts: int = 9) -> dict[str, str]:
    """What is said of a program whose steps have so many parts: the severity by code."""

    def step(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        kept: list[object] = []
        optimizer.zero_grad()
        for _ in range(parts):
            part(net, kept)
        optimizer.step()

    net = nn.Linear(256, 256)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with torchvet.watch() as watched:
        for _ in range(40):
            step(net, optimizer)
    assert watched.report is not None
    return {finding.code: finding.severity for finding in watched.report.findings}


def test_what_each_part_leaves_behind_is_found_with_its_holder() -> None:
    assert codes(_received).get("MEM209") == "warning"


@pytest.mark.parametrize("part", [_detached, _predictions, _nothing])
def test_what_is_detached_or_freed_is_none(part: Part) -> None:
    assert "MEM209" not in codes(part)


def test_few_parts_are_no_micro_batches() -> None:
    assert "MEM209" not in codes(_received, parts=3)
