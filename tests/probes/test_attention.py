"""Attention that is written out is told by its operators, from softmaxes of other things and from weights in use."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from handmade import program, recording
from torch import nn

import torchvet
from torchvet.recording.reader import read
from torchvet.recording.records.base import Place, Site, SiteBytes, Window
from torchvet.recording.records.memory import AttentionMatrix
from torchvet.rules import rule

LONG, WIDE = 128, 8
Form = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k.transpose(-2, -1) / math.sqrt(WIDE)


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return scores(q, k).softmax(-1) @ v


def masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """In heads, by einsum, with a mask, in another precision, dropped out."""
    heads = [t.view(2, LONG, 2, -1).transpose(1, 2) for t in (q, k, v)]
    table = torch.einsum("bhtd,bhsd->bhts", heads[0], heads[1])
    table = table.masked_fill(torch.ones(LONG, LONG, dtype=torch.bool).triu(1), float("-inf"))
    weights = nn.functional.dropout(table.double().softmax(-1).float(), 0.1)
    return (weights @ heads[2]).transpose(1, 2).flatten(2)


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    table = scores(q, k)
    raised = (table - table.amax(-1, keepdim=True)).exp()
    return torch.bmm(raised / raised.sum(-1, keepdim=True), v)


def supervised(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    weights = scores(q, k).softmax(-1)
    return weights @ v + (weights * 0.5).mean()


def contrast(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return scores(q, k).softmax(-1).diagonal(dim1=1, dim2=2).log().mean() + v


def over_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return scores(q, k).softmax(1) @ v


def maps(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Classes of a picture: no product made them."""
    classes = (q.mean() * torch.ones(2, 3, LONG, LONG)).softmax(-1)
    return (classes @ torch.ones(LONG, 1)).mean() + v


class Returning:
    """Gives its weights to the caller, who keeps them."""

    def __init__(self) -> None:
        self.weights = torch.empty(0)

    def returning(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        self.weights = scores(q, k).softmax(-1)
        return self.weights @ v


class Heads(nn.MultiheadAttention):
    """Torch's own, which averages weights that nobody wants."""

    def attended(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return self(q, k, v)[0]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AttentionMatrix]:
    """What is written down of training with all of these, by the function's name."""
    heads = Heads(WIDE, 2, batch_first=True)
    forms: list[Form] = [plain, masked, by_hand, supervised, contrast, over_rows, maps, Returning().returning]
    forms.append(heads.attended)
    project = nn.Linear(WIDE, 3 * WIDE)
    optimizer = torch.optim.SGD(project.parameters(), lr=0.01)

    def step() -> None:
        parts = project(torch.randn(2, LONG, WIDE)).chunk(3, -1)
        loss = torch.stack([form(*parts).square().mean() for form in forms]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    recorded = tmp_path_factory.mktemp("run") / "run.vet"
    with torchvet.watch(record=recorded):
        for _ in range(6):
            step()
    (rank,) = read(recorded).ranks
    found = {(r.place, r.shape): r for r in rank.all(AttentionMatrix)}.values()
    return {r.place.function.rpartition(".")[2]: r for r in found}


@pytest.mark.parametrize("name", ["plain", "masked", "by_hand", "attended"])
def test_weights_that_only_a_product_reads(records: dict[str, AttentionMatrix], name: str) -> None:
    record = records[name]
    assert record.applied == record.calls > 0 and not record.elsewhere and not record.kept
    assert record.shape[-2:] == (LONG, LONG)


def test_weights_that_are_wanted(records: dict[str, AttentionMatrix]) -> None:
    assert records["supervised"].elsewhere == records["supervised"].calls > 0
    returned = records["returning"]
    assert returned.kept == returned.calls > 0 and not returned.elsewhere


def test_softmaxes_that_are_no_attention(records: dict[str, AttentionMatrix]) -> None:
    assert not records["contrast"].applied and records["contrast"].elsewhere
    assert not records.keys() & {"over_rows", "maps"}


HERE = Place("train.py", 7, "forward")
SIZE = 2 * 4 * 512 * 512 * 4


def told(*records: AttentionMatrix) -> list[tuple[str, str, int | None]]:
    """Of a peak with a product's result, the softmax's and a feature map as long as they are wide."""
    shapes = {"aten.bmm": (8, 512, 512), "aten._softmax": (2, 4, 512, 512), "aten.relu": (16, 4, 512, 512)}
    sites = [
        SiteBytes(site=Site(op=op, shape=shape, dtype="float32", device="cpu", place=HERE), bytes=4 * SIZE, storages=4)
        for op, shape in shapes.items()
    ]
    peak = Window(id=1, first=1, last=4, kind="training", born=16 * SIZE, peak=16 * SIZE, sites=sites)
    found = rule("MEM207").in_recording(recording(program(), peak, list(records)))
    return [(f.severity, f.remedy.summary, f.measured.bytes) for f in found]


def test_only_matrices_of_a_softmax_that_a_product_reads_count() -> None:
    shape = (2, 4, 512, 512)
    assert told() == told(AttentionMatrix(place=HERE, shape=shape, calls=9, elsewhere=9)) == []
    ((severity, advice, size),) = told(AttentionMatrix(place=HERE, shape=shape, calls=9, applied=9))
    assert (severity, "scaled_dot_product" in advice, size) == ("warning", True, 8 * SIZE), "not the feature map"
    for wanted in ({"elsewhere": 9}, {"kept": 9}):
        ((severity, advice, _),) = told(AttentionMatrix(place=HERE, shape=shape, calls=9, applied=9, **wanted))
        assert (severity, "scaled_dot_product" in advice) == ("info", False), wanted
