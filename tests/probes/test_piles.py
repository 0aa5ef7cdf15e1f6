"""Memory that the backward calls of a step leave behind until it ends."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import torchvet
from torchvet.recording import read
from torchvet.recording.records.memory import Pile

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


def piles(part: Part, folder: Path, parts: int = 9) -> list[Pile]:
    """What is noted of a program whose steps have so many parts."""
    net = nn.Linear(256, 256)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with torchvet.watch(record=folder / "run.vet"):
        for _ in range(12):
            train(net, optimizer, part, parts)
    (rank,) = read(folder / "run.vet").ranks
    return rank.all(Pile)[-1:]


def train(net: nn.Module, optimizer: torch.optim.Optimizer, part: Part, parts: int) -> None:
    kept: list[object] = []
    optimizer.zero_grad()
    for _ in range(parts):
        part(net, kept)
    optimizer.step()


def test_what_each_part_leaves_behind_is_counted(tmp_path: Path) -> None:
    (pile,) = piles(_received, tmp_path)
    assert pile.calls == 9
    # A buffer and its gradient, 256 kB each, and the small output.
    assert pile.per_call == pytest.approx(2 * 256 * 256 * 4 + 1024, rel=0.05)


def test_what_is_kept_without_a_graph_is_counted_as_well(tmp_path: Path) -> None:
    (pile,) = piles(_predictions, tmp_path)
    assert pile.per_call == pytest.approx(256 * 256 * 4, rel=0.05)


@pytest.mark.parametrize("part", [_detached, _nothing])
def test_what_is_freed_is_no_pile(part: Part, tmp_path: Path) -> None:
    assert piles(part, tmp_path) == []


def test_few_parts_are_no_micro_batches(tmp_path: Path) -> None:
    assert piles(_received, tmp_path, parts=3) == []


PROGRAM = """
import torch
from torch import nn
{part}
def step(net, optimizer):
    kept = []
    optimizer.zero_grad()
    for _ in range(9):
        {name}(net, kept)
    optimizer.step()
    print("loss", float(kept[0].mean()))
net = nn.Linear(256, 256)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(70):
    step(net, optimizer)
"""


@pytest.mark.parametrize(("part", "expected"), [(_received, ["kept"]), (_predictions, [])])
def test_only_a_name_that_keeps_graphs_is_at_fault(part: Part, expected: list[str], tmp_path: Path) -> None:
    """In a process of its own: the walk from names has little to walk through."""
    source = textwrap.dedent(inspect.getsource(part)).replace(": nn.Module", "").replace(": list[object]", "")
    (tmp_path / "train.py").write_text(PROGRAM.format(part=source, name=part.__name__), encoding="utf-8")
    command = [sys.executable, "-m", "torchvet", "run", "-o", "report.json", "train.py"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120)
    findings = json.loads((tmp_path / "report.json").read_text())["findings"]
    assert [f["holder"]["name"] for f in findings if f["code"] == "MEM209"] == expected
