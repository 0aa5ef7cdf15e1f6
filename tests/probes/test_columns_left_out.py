"""What a Trainer's collator leaves out of a batch, heard for the first batches, where forward takes any keywords."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from hosts import ByHand
from torch import nn
from torch.utils.data import DataLoader, default_collate

from torchvet.probes.training.columns.dropped import DroppedColumnsProbe

SOURCE = """
class Trainer:
    def train(self, ask):
        return ask()

    def evaluation_loop(self, ask):
        return ask()

class RemoveColumnsCollator:
    def __init__(self, inner, columns):
        self.inner, self.signature_columns = inner, columns

    def _remove_columns(self, row):
        return {name: value for name, value in row.items() if name in self.signature_columns}

    def __call__(self, rows):
        return self.inner([self._remove_columns(row) for row in rows])
"""
ROWS = [{"x": torch.zeros(2), "labels": 1, "image": torch.ones(2), "id": n} for n in range(8)]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: Any, labels: Any = None, **more: Any) -> Any:
        return x


class Plain(Net):
    def forward(self, x: Any, labels: Any = None) -> Any:
        return x


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    names: dict[str, Any] = {"__name__": "transformers.trainer_utils"}
    exec(compile(SOURCE, "/usr/lib/site-packages/transformers/trainer.py", "exec"), names)
    monkeypatch.setitem(sys.modules, "transformers.trainer", ModuleType("transformers.trainer"))
    yield names


def seen(names: dict[str, Any], model: nn.Module, how: str = "train", batches: int = 5, **changes: Any) -> list[Any]:
    """What the probe writes of a Trainer that asks for some batches."""
    probe = DroppedColumnsProbe(ByHand())  # type: ignore[arg-type]
    trainer = names["Trainer"]()
    facts = {"remove_unused_columns": True, "collate": default_collate, "workers": 0, "columns": ["x", "labels"]}
    facts |= changes
    trainer.model, trainer._signature_columns = model, facts["columns"]
    trainer.args = SimpleNamespace(remove_unused_columns=facts["remove_unused_columns"])
    collator = names["RemoveColumnsCollator"](facts["collate"], facts["columns"])
    kept = vars(names["RemoveColumnsCollator"]).get("_remove_columns")
    iterator = iter(DataLoader(ROWS, batch_size=1, collate_fn=collator))  # type: ignore[arg-type]

    def ask() -> None:
        for _ in range(batches):
            probe.batch_asked(iterator, sys._getframe())
            probe.batch_got(iterator, next(iterator))
            assert vars(names["RemoveColumnsCollator"]).get("_remove_columns") is kept

    getattr(trainer, how)(ask)
    return [(r.columns, r.keywords, r.model, r.parts) for r in probe.totals(1)]  # type: ignore[attr-defined]


def test_columns_that_the_collator_leaves_out_are_noted_once(library: dict[str, Any]) -> None:
    assert seen(library, Net()) == [(["id", "image"], "more", "Net", ["inner"])]


def test_what_the_collator_makes_anew_is_not_missing(library: dict[str, Any]) -> None:
    def collate(rows: list[Any]) -> dict[str, Any]:
        return {**default_collate(rows), "image": torch.zeros(1, 2), "id": 0}

    assert not seen(library, Net(), collate=collate)


@pytest.mark.parametrize("case", ["no keywords", "kept", "all named", "evaluation", "another version"])
def test_what_loses_nothing_is_not_noted(library: dict[str, Any], case: str) -> None:
    if case == "no keywords":
        assert not seen(library, Plain())
    elif case == "kept":
        assert not seen(library, Net(), remove_unused_columns=False)
    elif case == "all named":
        assert not seen(library, Net(), columns=["x", "labels", "image", "id"])
    elif case == "evaluation":
        assert not seen(library, Net(), "evaluation_loop")
    else:
        kind = library["RemoveColumnsCollator"]
        kind.__call__ = lambda self, rows: self.inner(rows)
        del kind._remove_columns
        assert not seen(library, Net())


def test_a_library_that_is_not_loaded_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "transformers.trainer", raising=False)
    probe = DroppedColumnsProbe(ByHand())  # type: ignore[arg-type]
    probe.batch_asked(iter(DataLoader(ROWS)), sys._getframe())  # type: ignore[arg-type]
    assert "transformers.trainer" not in sys.modules and not probe.totals(1)
