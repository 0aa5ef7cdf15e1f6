"""Tables by position whose rows come in equal groups are found; other tables are not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from example_runs import forked

from torchvet.probes.numerics.position_tables import _groups

PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
class Table(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        frequencies = 0.5 ** torch.arange(0, 8, 2).float()
        self.register_buffer("frequencies", frequencies.to(dtype), persistent=False)
        self.waves = None
    def forward(self, x):
        if self.waves is None:
            positions = torch.arange(x.shape[1]).type_as(self.frequencies)
            angles = torch.outer(positions, self.frequencies)
            self.waves = torch.cat([angles.cos(), angles.sin()], 1).float()
        return x * self.waves
table, head = Table({dtype}), nn.Linear(8, 1)
model = nn.Sequential(table, head)
rule = torch.optim.SGD(head.parameters(), lr=0.01)
for step in range(30):
    loss = model(torch.randn(2, {length}, 8)).pow(2).mean()
    rule.zero_grad()
    loss.backward()
    rule.step()
"""


def told(folder: Path, dtype: str, length: int) -> list[tuple[str, int]]:
    found = forked(PROGRAM.format(dtype=dtype, length=length), folder)
    assert found is not None
    return [(f["severity"], f["location"]["line"]) for f in found if f["code"] == "NUM109"]


def test_a_table_that_the_first_pass_made(tmp_path: Path) -> None:
    assert told(tmp_path, "torch.bfloat16", 700) == [("warning", 13)]


@pytest.mark.parametrize(("dtype", "length"), [("torch.float32", 700), ("torch.bfloat16", 250), ("torch.float16", 700)])
def test_tables_that_are_exact(dtype: str, length: int, tmp_path: Path) -> None:
    assert told(tmp_path, dtype, length) == []


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (torch.arange(3000).bfloat16().unsqueeze(1) * torch.ones(4), "bfloat16"),
        (torch.arange(6000).half().unsqueeze(1) * torch.ones(4), "float16"),
        (torch.zeros(3000, 4), None),
        (torch.arange(3000.0).unsqueeze(1) * torch.ones(4), None),
        (torch.ones(3000, 3000).tril(), None),
        # What is padded with zeros, and a range that stops.
        (torch.cat([torch.arange(300.0), torch.zeros(300)]).unsqueeze(1), None),
        (torch.arange(3000.0).clamp(max=256).unsqueeze(1), None),
    ],
)
def test_what_comes_in_such_groups(table: torch.Tensor, expected: str | None) -> None:
    found = _groups(table)
    assert (found and found[0]) == expected
