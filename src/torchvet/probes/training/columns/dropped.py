"""Notes which columns of its dataset a Trainer of transformers drops, where the model would take any by `**kwargs`.

`remove_unused_columns`, which is on by default, keeps the columns that the model's `forward` names as arguments. What
it takes by `**kwargs` has no name there, and nothing raises. The first batches of a Trainer are looked at.
"""

from __future__ import annotations

import itertools
import os
import sys
import weakref
from collections.abc import Iterable, Mapping
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Record, Watcher, frames, outward, place_in, tap, user_lines
from torchvet.probes.objects.variables import frame_locals
from torchvet.recording.records.columns import DroppedColumns

_WHAT = "columns that a Trainer drops"
_MODULE = "transformers.trainer"
_FILE = os.path.join("transformers", "trainer.py")
_BATCHES = 3
"""Batches of each Trainer that are looked at, until one has lost a column."""
_TRAINERS = 8
_MOST = 64
"""Columns, and parts of a model, that are noted."""
_TAKES_MORE = (0x08, 0x04)
"""CO_VARKEYWORDS and CO_VARARGS."""


class DroppedColumnsProbe(Watcher):
    """Trainers are held weakly. Any private name of transformers that is missing leaves its Trainer unseen."""

    only_sampled = frozenset({"batch_asked", "batch_got"})

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._numbers = itertools.count()
        self._looked: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._records: list[DroppedColumns] = []
        self._asked: tuple[DroppedColumns, set[str], weakref.ref[Any]] | None = None
        """What is read now, with the columns that were dropped from it so far, and for whom."""

    def batch_asked(self, iterator: Any, caller: FrameType) -> None:
        """Before a batch is read: which Trainer has asked for it?"""
        self._ended()
        if _MODULE not in sys.modules or len(self._records) >= _TRAINERS:
            return
        with self.host.looking(_WHAT):
            trainer = _training(caller)
            looked = self._looked.get(trainer, 0) if trainer is not None else _BATCHES
            if trainer is None or looked >= _BATCHES:
                return
            self._looked[trainer] = looked + 1
            record = _record(trainer, next(self._numbers))
            if record is not None:
                record.place = next(iter(user_lines(caller, 1)), None)
                self._asked = record, _dropped_before(trainer, iterator), weakref.ref(trainer)
                self._hear_collator(iterator)

    def _hear_collator(self, iterator: Any) -> None:
        """Hear what the Trainer's own collator is given, until the batch is there."""
        collator = getattr(iterator, "_collate_fn", None)
        kind = type(collator)
        in_workers = (getattr(iterator, "_num_workers", None) or 0) > 0
        ours = kind.__module__.startswith("transformers.") and "_remove_columns" in vars(kind)
        # Workers have a collator of their own.
        if ours and not in_workers and vars(collator).get("signature_columns"):
            self.replace(kind, "_remove_columns", tap(self.host, _WHAT, before=self._row))

    def _row(self, collator: Any, feature: Any) -> None:
        """The Trainer's collator is about to leave columns out of one row."""
        if self._asked is not None and type(feature) is dict:
            kept = vars(collator).get("signature_columns") or ()
            self._asked[1].update(name for name in feature if type(name) is str and name not in kept)

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """It is there. What a collator has made anew under the same name is not missing."""
        asked = self._asked
        self._ended()
        if asked is None:
            return
        record, dropped, trainer = asked
        record.columns = sorted(dropped - set(batch) if isinstance(batch, Mapping) else dropped)[:_MOST]
        if record.columns:
            self._records.append(record)
            self._looked[trainer()] = _BATCHES

    def _ended(self) -> None:
        self._asked = None
        self._undo.close()

    def totals(self, tick: int) -> Iterable[Record]:
        """One for each Trainer."""
        return list(self._records)


def _training(caller: FrameType) -> Any:
    """The Trainer that asks for a batch to train on; None where nobody does, or for an evaluation."""
    trainer = None
    for frame in outward(caller):
        if frame.f_code.co_filename.endswith(_FILE):
            if "evaluat" in frame.f_code.co_name or "predict" in frame.f_code.co_name:
                return None
            if trainer is None:
                trainer = (frame_locals(frame) or {}).get("self")
    return trainer if isinstance(getattr(trainer, "__dict__", None), dict) else None


def _record(trainer: Any, number: int) -> DroppedColumns | None:
    """What there is to say of a Trainer before its columns are known; None where its model takes no others."""
    own = vars(trainer)
    model = own.get("model")
    if not own.get("_signature_columns") or not isinstance(model, torch.nn.Module):
        return None
    if getattr(own.get("args"), "remove_unused_columns", None) is not True:
        return None
    code = _forward_of(model)
    more, positional = _TAKES_MORE
    if code is None or not code.co_flags & more:
        return None
    at = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & positional)
    parts = [*model._modules, *model._parameters]
    return DroppedColumns(
        id=number,
        trainer=type(trainer).__name__,
        model=type(model).__name__,
        columns=[],
        forward=place_in(code),
        keywords=code.co_varnames[at],
        parts=parts[:_MOST],
    )


def _forward_of(model: torch.nn.Module) -> CodeType | None:
    """The program's own `forward` of a model, without its decorators."""
    function: Any = getattr(type(model), "forward", None)
    for _ in range(8):
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    known = type(function) is FunctionType and frames.owner(function.__code__.co_filename) == frames.USER
    return function.__code__ if known else None


def _dropped_before(trainer: Any, iterator: Any) -> set[str]:
    """The columns that a dataset of the library `datasets` lost before the loader was made: its rows do not have
    them."""
    whole, given = vars(trainer).get("train_dataset"), getattr(iterator, "_dataset", None)
    if any(not type(one).__module__.startswith("datasets.") for one in (whole, given)):
        return set()
    before, after = (getattr(one, "column_names", None) for one in (whole, given))
    return set(before) - set(after) if isinstance(before, list) and isinstance(after, list) else set()
