"""Datasets whose own data reading changes, told from those that only change."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked
from observed_fixes import fixed_lines

from torchvet.finding import About

PROGRAM = """
import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)
class Samples(Dataset):
    def __init__(self):
        self.rows, self.kept = torch.randn(64, 8), torch.zeros(64, 8)
        self.table, self.uses = numpy.ones((64, 8), dtype="float32"), numpy.zeros((64, 2), dtype="int64")
    def __len__(self):
        return 64
    def __getitem__(self, index):
        {item}
data = Samples()
model = nn.Linear(8, 1)
rule = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(5):
    for x in DataLoader(data, batch_size=8, shuffle=True, num_workers={workers}):
        loss = model(x).square().mean()
        rule.zero_grad()
        loss.backward()
        rule.step()
    {between}
"""
CHANGED = {
    "a view of a tensor": "x = self.rows[index]; x.mul_(0.5); return x",
    "a view of an array": "x = self.table[index]; x -= 0.25; return x",
    "its own items": "self.rows[index] = self.rows[index] + 1; return self.rows[index]",
}
OTHERS = {
    "a copy": ("x = self.rows[index].clone(); x.mul_(0.5); return x", "pass", 0),
    "a cache": ("self.kept[index] = self.rows[index]; return self.kept[index]", "pass", 0),
    "the same each time": ("x = self.rows[index]; x.clamp_(-1, 1); return x", "pass", 0),
    "counted": ("self.uses[index] += 1; return self.rows[index]", "pass", 0),
    "drawn anew between epochs": ("return self.rows[index]", "data.rows.normal_()", 0),
    "a worker's copy": ("x = self.rows[index]; x.mul_(0.5); return x", "pass", 1),
}


TWO = PROGRAM.replace(
    "data = Samples()", "class Other(Samples): pass\nOther.__name__ = 'Samples'\ndata, other = Samples(), Other()"
).replace("    {between}", "    for x in DataLoader(other, batch_size=8): x.mul(2)\n    {between}")
"""With another dataset of that name, which copies."""


def told(folder: Path, item: str, between: str = "pass", workers: int = 0) -> list[tuple[str, str]]:
    """The severity of TRN124's findings, and the text of their lines."""
    text = PROGRAM.format(item=item, between=between, workers=workers)
    found = forked(text, folder)
    assert found is not None
    lines = text.splitlines()
    return [(f["severity"], lines[f["location"]["line"] - 1].strip()) for f in found if f["code"] == "TRN124"]


@pytest.mark.parametrize("item", CHANGED.values(), ids=CHANGED)
def test_reading_changes_what_is_kept(item: str, tmp_path: Path) -> None:
    assert told(tmp_path, item) == [("warning", item)]


@pytest.mark.parametrize("given", OTHERS.values(), ids=OTHERS)
def test_what_reading_leaves_as_it_is(given: tuple[str, str, int], tmp_path: Path) -> None:
    assert told(tmp_path, *given) == []


def test_two_datasets_of_one_class_are_one_fault(tmp_path: Path) -> None:
    text = TWO.format(item="x = self.rows[index]; return x.mul_(0.5)", between="pass", workers=0)
    found = forked(text, tmp_path)
    assert found is not None and [f["code"] for f in found if f["code"] == "TRN124"] == ["TRN124"]


def test_one_of_two_that_copies_does_not_hide_the_other(tmp_path: Path) -> None:
    text = TWO.format(item="x = self.rows[index]; return x.mul_(0.5) if type(self) is Samples else x.mul(0.5)",
                      between="pass", workers=0)  # fmt: skip
    found = forked(text, tmp_path)
    assert found is not None and [f["code"] for f in found if f["code"] == "TRN124"] == ["TRN124"]


@pytest.mark.parametrize(
    ("line", "copied", "expected"),
    [
        ("image = self.images[index]", "copy()", ["image = self.images[index].copy()"]),
        ("x, y = self.images[index, ...], self.labels[index]", "clone()",
         ["x, y = self.images[index, ...].clone(), self.labels[index]"]),
        ("x = self.images[index] - self.images[0]", "copy()", []),
        ("x = self.images", "copy()", []),
    ],
)  # fmt: skip
def test_the_item_is_copied(line: str, copied: str, expected: list[str]) -> None:
    assert fixed_lines("TRN124", line, line, about=About(copied, ("images",)))[1] == expected
