"""Watches whether the classes that a loss compares with are ever more than one, and what made them so.

A picture's classes that were scaled to 0 to 1 are all 0 as whole numbers. In sampled steps the conversion is heard, and
what it made is followed by its storage to the loss. Whole numbers in the loaders' batches are looked at in every step,
as long as they have been one number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import (
    EVERY_STEP,
    ByStorage,
    Host,
    Place,
    Record,
    SiteWatcher,
    StepKind,
    Unchecked,
    overloads,
)
from torchvet.probes.internals.simulated import plain_values
from torchvet.probes.numerics import half
from torchvet.probes.training.loaders import tensors_of
from torchvet.recording.records.labels import OneClass

_LOSSES = overloads("nll_loss_forward nll_loss2d_forward")
_COPYING = overloads("_to_copy clone flip index.Tensor index_select")
"""What gives the numbers of its first argument, or some of them."""
_JOINING = overloads("stack cat")
_MOST = 1 << 23
"""Numbers of a tensor that is looked at."""
_STEPS = 16
"""Steps in which a loss is looked at: on a GPU each look waits for the device."""
_COLUMNS = 64
"""Places in batches, of all data sets, that are followed."""
_LIBRARIES = ("torch", "datasets")
"""Packages whose data sets hold anything."""
_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class _Made(NamedTuple):
    """What a conversion to whole numbers made of numbers between `low` and `high`, as a version of its storage."""

    place: Place
    low: float
    high: float
    loaded: bool
    version: int


class _Column:
    """What lies in one place of a data set's batches. It is `followed` if it is whole numbers, or made such."""

    def __init__(self, iterator: Any, followed: bool) -> None:
        self.followed = followed
        self.dataset = type(iterator._dataset).__name__
        self.workers: int = getattr(iterator, "_num_workers", 0) or 0
        self.value: int | None = None
        self.batches, self.numbers, self.varied, self.length = 0, 0, False, 0
        try:
            self.length = len(iterator)
        # What streams has none.
        except Exception:  # a sampler's own `__len__` may raise anything
            self.length = 0

    def add(self, ends: tuple[float, float], count: int) -> None:
        """A batch holds so many numbers, from one to another."""
        low, high = (int(end) if math.isfinite(end) else None for end in ends)
        self.value = low if self.value is None else self.value
        self.varied = self.varied or self.value is None or (low, high) != (self.value, self.value)
        self.batches += 1
        self.numbers += count


class OneClassProbe(SiteWatcher[Place, OneClass]):
    """Targets of cross entropies that are all of one class."""

    only_sampled = EVERY_STEP - {"batch_got"}

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._made: ByStorage[_Made] = ByStorage()
        self._loaded: ByStorage[tuple[_Column | None]] = ByStorage()
        """What came in batches of loaders, and what was copied of it."""
        self._columns: dict[tuple[object, int], _Column] = {}
        self._of: dict[Place, _Column] = {}
        """By loss: where its targets lay in the batches."""
        self._allowance = half.Allowance(0.1, 0.01)

    def install(self) -> None:
        """In sampled steps, hear losses, conversions, and what is made of these."""
        self.host.hear(_LOSSES, self._lost)
        self.host.hear(_COPYING, self._copied)
        self.host.hear(_JOINING, self._joined)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended. What it converted may be the next one's: batches are read ahead."""
        self._made.sweep()
        self._loaded.sweep()

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """See `Watcher`."""
        data, sampling = _identity(iterator._dataset), self.host.sampling
        for number, tensor in enumerate(tensors_of(batch)):
            column = self._columns.get((data, number))
            if column is None and len(self._columns) < _COLUMNS:
                column = self._columns[data, number] = _Column(iterator, tensor.dtype in _WHOLE)
            if column is not None and column.followed and not column.varied:
                self._add(column, tensor)
            if sampling and type(tensor) is torch.Tensor and tensor.layout is torch.strided:
                self._loaded.put(tensor, (column,))
        # Most labels differ in the first batch: from then on only samples matter.
        if all(column.varied or not column.followed for column in self._columns.values()):
            self.hear_in_samples(*EVERY_STEP)

    def _add(self, column: _Column, tensor: torch.Tensor) -> None:
        began = time.thread_time()
        ends = _ends(tensor) if self._allowance.left() and tensor.device.type == "cpu" else None
        if ends is not None:
            column.add(ends, tensor.numel())
        self._allowance.spend(began)

    def _copied(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        given = args[0]
        if isinstance(given, torch.Tensor) and given.is_floating_point() and out.dtype in _WHOLE:
            self._converted(given, out)
        else:
            known = self._known(given) if self._made else None
            if known is not None:
                self._made.put(out, known._replace(version=out._version))
        loaded = self._loaded.get(given) if self._loaded else None
        if loaded is not None:
            self._follow(loaded[0], out)
            self._loaded.put(out, loaded)

    def _follow(self, column: _Column | None, out: torch.Tensor) -> None:
        """From now on look at the numbers that the program makes whole numbers of."""
        if column is not None and not column.followed and out.dtype in _WHOLE:
            column.followed = True
            self.hear_in_samples(*EVERY_STEP - {"batch_got"})

    def _converted(self, given: torch.Tensor, out: torch.Tensor) -> None:
        if given.requires_grad or half.in_backward() or not self._allowance.left():
            return
        began = time.thread_time()
        made, given_ends = _ends(out), _ends(given)
        place = self.host.line() if made is not None and made[0] == made[1] else None
        if place is not None and given_ends is not None:
            loaded = self.host.ledger.phase == "data" or self._loaded.get(given) is not None
            self._made.put(out, _Made(place, *given_ends, loaded, out._version))
        self._allowance.spend(began)

    def _joined(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        known = [self._known(one) for one in args[0]] if self._made and out.dtype in _WHOLE else []
        parts = [one for one in known if one is not None]
        if parts and len(parts) == len(known):
            low, high = min(one.low for one in parts), max(one.high for one in parts)
            self._made.put(out, parts[0]._replace(low=low, high=high, version=out._version))

    def _known(self, tensor: Any) -> _Made | None:
        found = self._made.get(tensor)
        # What was changed in place meanwhile is something else.
        return found if found is not None and found.version == tensor._version else None

    def _lost(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        scores, target, ignored = args[0], args[1], args[4]
        classes = scores.shape[1] if scores.dim() > 1 else scores.shape[0]
        place = self.host.line() if scores.requires_grad and classes > 1 else None
        if place is None or not self._allowance.left():
            return
        record = self.sites.get(place)
        if record is not None and (record.varied or record.steps >= _STEPS):
            return
        began = time.thread_time()
        ends = _ends(target, ignored)
        if ends is not None:
            record = self.sites.setdefault(place, OneClass(place=place, value=int(ends[0]), classes=classes))
            if ends != (record.value, record.value):
                record.varied += 1
            else:
                self._note(record, target)
        self._allowance.spend(began)

    def _note(self, record: OneClass, target: torch.Tensor) -> None:
        first = record.last != self.host.tick
        record.last = self.host.tick
        record.steps += first
        record.targets += target.numel()
        record.dense = record.dense or target.dim() > 1
        made, (column,) = self._known(target), self._loaded.get(target) or (None,)
        if made is not None and made.low < made.high:
            record.low = min(record.low, made.low) if record.converted else made.low
            record.high = max(record.high, made.high) if record.converted else made.high
            record.converted += first
            record.made, record.loaded = record.made or made.place, made.loaded
        if column is not None:
            self._of[record.place] = column

    def totals(self, tick: int) -> Iterable[Record]:
        """Losses whose targets were of one class."""
        for place, column in self._of.items():
            record = self.sites[place]
            record.varied += column.varied and not record.varied
            record.batches, record.length = column.batches, column.length
            record.targets = max(record.targets, column.numbers)
            record.dataset, record.workers = column.dataset, column.workers
        return [record for record in self.sites.values() if record.steps]

    def unchecked(self) -> Iterable[Unchecked]:
        """Says so where targets of one class were made out of sight."""
        if any(one.workers and not one.varied and not one.converted for one in self.sites.values()):
            reason = "workers of loaders are not looked into; use none (`num_workers=0`)"
            yield Unchecked(check="what made targets that are all of one class", reason=reason)


def _identity(dataset: Any) -> object:
    """What stands for a data set: one of the program's own classes may be made anew in each epoch."""
    kind = type(dataset)
    return id(dataset) if kind.__module__.partition(".")[0] in _LIBRARIES else (kind.__module__, kind.__qualname__)


def _ends(tensor: torch.Tensor, ignored: int | None = None) -> tuple[float, float] | None:
    """The least and the largest number of a tensor, where they may be read now."""
    plain = plain_values(tensor)
    if plain is None or not 0 < plain.numel() <= _MOST:
        return None
    if ignored is not None:
        plain = plain[plain != ignored]
    if not plain.numel():
        return None
    low, high = torch.aminmax(plain)
    return low.item(), high.item()
