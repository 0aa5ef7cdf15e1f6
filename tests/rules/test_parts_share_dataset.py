"""TRN141: what is set on the data set that the parts of a split share, and what looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked
from observed_fixes import FILE

from torchvet.rules import rule
from torchvet.source.model import SourceFile

HEAD = "import copy\nimport torch\nfrom torch.utils.data import DataLoader, Subset, random_split\n"
SHARED = {
    "for evaluation": "train, val = random_split(data, [80, 20])\nval.dataset.transform = plain\n",
    "for training": "train, val = random_split(data, [80, 20])\ntrain.dataset.transforms = augment\n",
    "for both": (
        "train, val = random_split(data, [80, 20])\ntrain.dataset.transform = augment\nval.dataset.transform = plain\n"
    ),
    "of the module": "a, b, c = torch.utils.data.random_split(data, [8, 1, 1])\nc.dataset.augment = False\n",
    "a mode": "train, val = random_split(data, [80, 20])\nval.dataset.train = False\n",
    "in a function": "def parts(data):\n    train, val = random_split(data, [8, 2])\n"
    "    val.dataset.transform = plain\n    return train, val\n",
    "attributes": "class Data:\n    def setup(self):\n        self.train, self.val = random_split(self.all, [8, 2])\n"
    "        self.val.dataset.transform = plain\n",
    "attributes, elsewhere": "class Data:\n    def setup(self):\n"
    "        self.train, self.val = random_split(self.all, [8, 2])\n"
    "    def val_dataloader(self):\n        self.val.dataset.transform = plain\n",
}
OWN = {
    "a copy": "train, val = random_split(data, [8, 2])\nval.dataset = copy.copy(data)\nval.dataset.transform = plain\n",
    "a copy, later in the class": "class Data:\n    def setup(self):\n"
    "        self.train, self.val = random_split(self.all, [8, 2])\n"
    "        self.val.dataset = copy.deepcopy(self.all)\n        self.val.dataset.transform = plain\n",
    "two data sets": "train = Subset(Data(augment), picked)\nval = Subset(Data(None), others)\n"
    "val.dataset.transform = plain\n",
    "before each pass": "train, val = random_split(data, [8, 2])\nfor epoch in range(9):\n"
    "    train.dataset.transform = augment\n    run(train)\n    val.dataset.transform = plain\n    run(val)\n",
    "a name": "train, val = random_split(data, [8, 2])\nval.dataset.name = 'cells'\n",
    "the whole": "train, val = random_split(data, [8, 2])\ndata.transform = plain\n",
    "a wrapper": "train, val = random_split(data, [8, 2])\nval = Mapped(val, plain)\nval.transform = plain\n",
    "another part": "train, val = random_split(data, [8, 2])\ntest.dataset.transform = plain\n",
    "one part": "train = random_split(data, [8, 2])[0]\ntrain.dataset.transform = augment\n",
    "another function": "def parts(data):\n    train, val = random_split(data, [8, 2])\n    return train, val\n"
    "def other(val):\n    val.dataset.transform = plain\n",
    "a copy with all that it has": "train, val = random_split(data, [8, 2])\nval = copy.deepcopy(val)\n"
    "val.dataset.transform = plain\n",
    "branches": "if split:\n    train, val = random_split(data, [8, 2])\nelse:\n    val = Subset(Data(), picked)\n"
    "    val.dataset.transform = plain\n",
}


def found(text: str) -> list[tuple[str, str]]:
    return [(one.severity, one.message) for one in rule("TRN141").in_source(SourceFile(FILE, HEAD + text))]


@pytest.mark.parametrize("text", SHARED.values(), ids=SHARED)
def test_what_is_set_for_all_parts_is_found(text: str) -> None:
    ((severity, message),) = found(text)
    assert severity == "info" and "shares with" in message


@pytest.mark.parametrize("text", OWN.values(), ids=OWN)
def test_what_a_part_has_alone_is_left(text: str) -> None:
    assert found(text) == []


def test_the_part_is_given_a_copy() -> None:
    text = "from torch.utils.data import random_split\n" + SHARED["in a function"]
    (one,) = rule("TRN141").in_source(SourceFile(FILE, text))
    assert [edit.text for edit in one.remedy.edits] == [
        "import copy\n",
        "    val.dataset = copy.copy(val.dataset)\n",
    ]


PROGRAM = """
import copy
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset, random_split

torch.manual_seed(0)

class Rows(TensorDataset):
    transform = None
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return (self.transform(x) if self.transform else x), y

def noisy(x):
    return x + torch.randn(())

def plain(x):
    return x

data = Rows(torch.randn(64, 6), torch.randint(0, 2, (64,)))
data.transform = noisy
train, val = random_split(data, [48, 16])
{set}
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    {before}
    for x, y in DataLoader(train, 16):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    {between}
    with torch.no_grad():
        for x, y in DataLoader(val, 16):
            print((model(x).argmax(1) == y).float().mean().item())
"""


def seen(folder: Path, **parts: str) -> list[tuple[str, str, int]]:
    known = {"set": "pass", "before": "pass", "between": "pass"}
    findings = forked(PROGRAM.format(**(known | parts)), folder)
    assert findings is not None
    return [
        (f["severity"], f["evidence"], f["location"]["line"] - PROGRAM[: PROGRAM.index("{set}")].count("\n") - 1)
        for f in findings
        if f["code"] == "TRN141"
    ]


def test_a_run_sees_that_all_parts_were_read_with_it(tmp_path: Path) -> None:
    assert seen(tmp_path, set="val.dataset.transform = plain") == [("warning", "observed", 0)]


def test_what_was_nothing_before_may_be_meant_for_all(tmp_path: Path) -> None:
    lines = "data.transform = None; train, val = random_split(data, [48, 16])\ntrain.dataset.transform = plain"
    assert [one[:2] for one in seen(tmp_path, set=lines)] == [("info", "observed")]


def test_where_the_text_does_not_show_the_part_it_is_a_note(tmp_path: Path) -> None:
    assert seen(tmp_path, set="data.transform = plain") == [("info", "observed", -1)]


@pytest.mark.parametrize(
    "parts",
    [
        {"set": "val.dataset = copy.copy(data)", "before": "val.dataset.transform = plain"},
        {"before": "data.transform = noisy", "between": "data.transform = plain"},
        {"before": "train.dataset.transform = noisy", "between": "val.dataset.transform = plain"},
        {"set": "data.label = 3"},
        {"set": "whole = val; val = Subset(Rows(*data.tensors), val.indices); data.transform = plain"},
        {},
    ],
)
def test_parts_that_are_read_apart_are_left(parts: dict[str, str], tmp_path: Path) -> None:
    assert seen(tmp_path, **parts) == []
