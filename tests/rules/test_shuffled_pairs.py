"""TRN120 in source: inputs and labels that are shuffled one by one before they meet."""

from __future__ import annotations

from typing import Any

import pytest

from torchvet.rules import rule
from torchvet.source.model import SourceFile

Case = tuple[str, str]
SOURCE = """
import random
import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

def prepare(inputs, labels, model):
    n = len(inputs)
{lines}
    {pair}
"""
DATASET = "return TensorDataset(inputs, labels)"
HELPERS = """
class Files(torch.utils.data.Dataset):
    def __init__(self, inputs, labels):
        self.inputs, self.labels = inputs, labels
    def __getitem__(self, i):
        return self.inputs[i], self.labels[i]

class Named(Files):
    def __getitem__(self, i):
        return self.inputs[i], self.labels.index(self.inputs[i])

def shuffled(rows):
    return rows[torch.randperm(len(rows))]

def in_one_order(rows):
    torch.manual_seed(0)
    return rows[torch.randperm(len(rows))]

def first(rows):
    return rows[torch.arange(len(rows))]
"""
SUSPECTED: dict[str, Case] = {
    "a data set of the file": ("random.shuffle(inputs)\nrandom.shuffle(labels)", "return Files(inputs, labels=labels)"),
    "a function that shuffles": ("inputs, labels = shuffled(inputs), shuffled(labels)", DATASET),
    "one by a function": ("inputs = shuffled(inputs)", DATASET),
    "parts of two orders": (
        "one, other = torch.randperm(n), torch.randperm(n)\nxb = inputs[one[:8]]\nyb = labels[other[:8]]",
        "return cross_entropy(model(xb), yb)",
    ),
    "attributes": (
        "inputs, labels = model.inputs[torch.randperm(n)], model.labels[torch.randperm(n)]",
        DATASET,
    ),
    "returned": ("random.shuffle(inputs)\nrandom.shuffle(labels)", "return inputs, labels"),
    "labels by what they are made of": (
        "prices = inputs.sum(1)\ninputs = inputs[torch.randperm(n)]\nprices = prices[torch.randperm(n)]",
        "return TensorDataset(inputs, prices)",
    ),
    "columns of one table": (
        "x, prices = table[:, 1:], table[:, 0]\nx = x[torch.randperm(n)]\nprices = prices[torch.randperm(n)]",
        "return TensorDataset(x, prices)",
    ),
    "two permutations": ("inputs = inputs[torch.randperm(n)]\nlabels = labels[torch.randperm(n)]", DATASET),
    "named indices": (
        "one = torch.randperm(n)\nother = torch.randperm(n)\ninputs, labels = inputs[one], labels[other]",
        DATASET,
    ),
    "NumPy": (
        "inputs = inputs[np.random.permutation(n)]\nlabels = labels[np.random.permutation(len(labels))]",
        "return cross_entropy(model(inputs), labels)",
    ),
    "seeded once": (
        "torch.manual_seed(0)\ninputs = inputs[torch.randperm(n)]\nlabels = labels[torch.randperm(n)]",
        DATASET,
    ),
    "inputs alone": ("inputs = inputs[torch.randperm(n)]", DATASET),
    "a list alone": ("random.shuffle(inputs)", "return list(zip(inputs, labels))"),
    "two lists": ("np.random.shuffle(inputs)\nnp.random.shuffle(labels)", "return list(zip(inputs, labels))"),
    "through names": (
        "inputs = inputs[torch.randperm(n)]\nx, t = inputs[:8], labels[:8]\nz = model(x)",
        "return cross_entropy(z, t)",
    ),
    "mixup in NumPy": (
        "x = 0.3 * inputs + 0.7 * inputs[np.random.permutation(n)]\ny = labels[np.random.permutation(n)]",
        "return 0.7 * cross_entropy(model(x), y)",
    ),
    "labels of made inputs": (
        "x = torch.randn(n, 4)\ny = (x.sum(1) > 0).long()\nx = x[torch.randperm(n)]",
        "return TensorDataset(x, y)",
    ),
    "split one by one": (
        "from sklearn.model_selection import train_test_split\na, b = train_test_split(inputs, test_size=0.1)\n"
        "c, d = train_test_split(labels, test_size=0.1)",
        "return a, c",
    ),
}
SILENT: dict[str, Case] = {
    "a list of names": (
        "classes = sorted({p[0] for p in inputs})\nrandom.shuffle(inputs)",
        "return Files(inputs, classes)",
    ),
    "names shuffled": ("random.shuffle(inputs)\nrandom.shuffle(labels)", "return Named(inputs, labels)"),
    "parts of one order": (
        "order = torch.randperm(n)\nxb, yb = inputs[order[:8]], labels[order[:8]]",
        "return cross_entropy(model(xb), yb)",
    ),
    "labels by file": ("random.shuffle(inputs)", "return Files(inputs, labels)"),
    "a function with a seed": ("inputs, labels = in_one_order(inputs), in_one_order(labels)", DATASET),
    "a function that takes all": ("inputs, labels = first(inputs), first(labels)", DATASET),
    "two distributions": (
        "x, y = inputs[torch.randperm(n)], labels[torch.randperm(n)]",
        "return x, y",
    ),
    "two tables": (
        "x, prior = inputs[:, 1:], labels[:, 0]\nx = x[torch.randperm(n)]\nprior = prior[torch.randperm(n)]",
        "return TensorDataset(x, prior)",
    ),
    "one index": ("order = torch.randperm(n)\ninputs, labels = inputs[order], labels[order]", DATASET),
    "seeded anew": (
        "torch.manual_seed(0)\ninputs = inputs[torch.randperm(n)]\ntorch.manual_seed(0)\n"
        "labels = labels[torch.randperm(n)]",
        DATASET,
    ),
    "state set again": (
        "state = random.getstate()\nrandom.shuffle(inputs)\nrandom.setstate(state)\nrandom.shuffle(labels)",
        "return zip(inputs, labels)",
    ),
    "labels made afterwards": ("random.shuffle(inputs)\nlabels = [int(p[0]) for p in inputs]", DATASET),
    "pairs": (
        "pairs = list(zip(inputs, labels))\nrandom.shuffle(pairs)\ninputs, labels = zip(*pairs)",
        "return list(zip(inputs, labels))",
    ),
    "columns": ("inputs = inputs[:, torch.randperm(8)]", DATASET),
    "an option": ("if n > 5:\n    labels = labels[torch.randperm(n)]", DATASET),
    "random labels": ("random_labels = labels[torch.randperm(n)]", "return TensorDataset(inputs, random_labels)"),
    "mixup": (
        "order = np.random.permutation(n)\nx = 0.3 * inputs + 0.7 * inputs[order]\ny = labels[order]",
        "return 0.3 * cross_entropy(model(x), labels) + 0.7 * cross_entropy(model(x), y)",
    ),
    "two domains": (
        "source_data = inputs[torch.randperm(n)]\ntarget_data = labels[torch.randperm(n)]",
        "return zip(source_data, target_data)",
    ),
    "coordinates": ("x, y = list(inputs), list(labels)\nrandom.shuffle(x)\nrandom.shuffle(y)", "return zip(x, y)"),
    "generators": (
        "g = torch.Generator().manual_seed(1)\nh = torch.Generator().manual_seed(1)\n"
        "inputs = inputs[torch.randperm(n, generator=g)]\nlabels = labels[torch.randperm(n, generator=h)]",
        DATASET,
    ),
    "not paired": ("inputs = inputs[torch.randperm(n)]\nlabels = labels[torch.randperm(n)]", "return inputs"),
    "split together": (
        "from sklearn.model_selection import train_test_split\n"
        "a, b, c, d = train_test_split(inputs, labels, test_size=0.1)",
        "return TensorDataset(a, c)",
    ),
    "split with one state": (
        "from sklearn.model_selection import train_test_split\na, b = train_test_split(inputs, random_state=1)\n"
        "c, d = train_test_split(labels, random_state=1)",
        "return a, c",
    ),
    "split twice": (
        "from sklearn.model_selection import train_test_split\na, b = train_test_split(inputs, test_size=0.1)\n"
        "a, c = train_test_split(a, test_size=0.1)",
        "return a, c",
    ),
    "balanced labels of random inputs": (
        "x, y = torch.randn(n, 4), torch.arange(n) % 3\ny = y[torch.randperm(n)]",
        "return TensorDataset(x, y)",
    ),
    "inputs made of labels": (
        "y = torch.arange(n) % 3\ny = y[torch.randperm(n)]\nx = model(y)",
        "return TensorDataset(x, y)",
    ),
    "sets": ("x, y = inputs[torch.randperm(n)], labels[torch.randperm(n)]", "return mmd_loss(model(x), y)"),
    "sorted alike": ("random.shuffle(inputs)\ninputs = sorted(inputs)", "return list(zip(inputs, labels))"),
}


def suspicions(case: Case) -> list[Any]:
    lines, pair = case
    text = SOURCE.format(lines="\n".join(" " * 4 + line for line in lines.splitlines()), pair=pair) + HELPERS
    return list(rule("TRN120").in_source(SourceFile("prepare.py", text)))


@pytest.mark.parametrize("what", SUSPECTED)
def test_pairs_that_source_shuffles_apart(what: str) -> None:
    (found,) = suspicions(SUSPECTED[what])
    assert (found.severity, found.evidence) == ("warning", "suspected")


SET = """
import numpy as np
import torch

class Rows:
    def __init__(self, x, y, n, shuffle=True):
{lines}
    def __getitem__(self, i):
        return self.x[i], self.y[{index}]
"""
APART = "self.x = x[np.random.permutation(n)]\nself.y = y[np.random.permutation(n)]"


@pytest.mark.parametrize(
    ("lines", "index", "found"),
    [
        (APART, "i", True),
        ("self.x, self.y = x[torch.randperm(n)], y", "i", True),
        (
            "self.x = x\none = torch.randperm(n)\nother = torch.randperm(n)\nself.x, self.y = x[one], y[other]",
            "i",
            True,
        ),
        (APART, "i // 2", False),
        ("order = torch.randperm(n)\nself.x, self.y = x[order], y[order]", "i", False),
        ("self.x, self.y = x, y\nif shuffle:\n    self.y = y[torch.randperm(n)]", "i", False),
        (f"np.random.seed(0)\n{APART}".replace("self.y", "np.random.seed(0)\nself.y"), "i", False),
    ],
)
def test_data_sets_that_shuffle(lines: str, index: str, found: bool) -> None:
    text = SET.format(lines="\n".join(" " * 8 + line for line in lines.splitlines()), index=index)
    assert len(list(rule("TRN120").in_source(SourceFile("rows.py", text)))) == found


@pytest.mark.parametrize("what", SILENT)
def test_pairs_that_source_keeps(what: str) -> None:
    assert suspicions(SILENT[what]) == []
