"""Watches whether the classes that a loss compares with are ever more than one, and what made them so.

A picture's classes that were scaled to 0 to 1 are all 0 as whole numbers, and none is above a threshold of 127. In
sampled steps the conversion is heard, and what it made is followed by its storage to the loss. Whole numbers in the
loaders' batches are looked at in every step, as long as they have been one number.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from operator import ge, gt, le, lt
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
from torchvet.recording.records.labels import Lost, OneClass

_LOSSES = overloads("nll_loss_forward nll_loss2d_forward")
_BINARY = overloads("binary_cross_entropy binary_cross_entropy_with_logits")
_COMPARING = {one: by for by in (gt, ge, lt, le) for one in overloads(f"{by.__name__}.Scalar")}
_LARGEST = overloads("argmax max.dim")
_FAR = 2
"""A threshold that is meant for numbers up to 255, or up to 5, and not for such as lie between 0 and 1."""
_COPYING = overloads("_to_copy clone flip index.Tensor index_select")
"""What gives the numbers of its first argument, or some of them."""
_TAKING = overloads("index.Tensor index_select")
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
    """What a conversion made of numbers between `low` and `high`, as a version of its storage, and `how` it did."""

    place: Place | None
    low: float
    high: float
    loaded: bool
    version: int
    how: Lost = "cut"
    threshold: float = 0.0


class _Column:
    """What lies in one place of a data set's batches. It is `followed` if it is whole numbers, or made such.

    The program makes classes of its numbers as `classed` does. A tensor that the program takes its batches from itself
    is a data set too: it is the `whole`.
    """

    def __init__(self, followed: bool = False) -> None:
        self.followed = followed
        self.classed: Callable[[float], float] = int
        self.dataset, self.workers, self.length = "", 0, 0
        self.value: float | None = None
        self.batches, self.numbers, self.varied = 0, 0, False
        self.whole: weakref.ref[torch.Tensor] | None = None
        self._seen = -1

    @classmethod
    def loaded(cls, iterator: Any, followed: bool) -> _Column:
        """One of a loader's."""
        new = cls(followed)
        new.dataset = type(iterator._dataset).__name__
        new.workers = getattr(iterator, "_num_workers", 0) or 0
        try:
            new.length = len(iterator)
        # What streams has none.
        except Exception:  # a sampler's own `__len__` may raise anything
            new.length = 0
        return new

    @classmethod
    def of(cls, whole: torch.Tensor) -> _Column:
        """All of a tensor. What is there in two steps was not made for one."""
        new = cls()
        new.whole, new.length = weakref.ref(whole), 2
        return new

    def look(self, tick: int) -> None:
        """At all of the tensor, once a step."""
        whole = self.whole() if self.whole is not None and tick != self._seen else None
        ends = _ends(whole) if whole is not None else None
        if whole is not None and ends is not None:
            self._seen = tick
            self.add(ends, whole.numel())

    def add(self, ends: tuple[float, float], count: int) -> None:
        """A batch holds so many numbers, from one to another."""
        low, high = (self.classed(end) if math.isfinite(end) else None for end in ends)
        self.value = low if self.value is None else self.value
        self.varied = self.varied or self.value is None or (low, high) != (self.value, self.value)
        self.batches += 1
        self.numbers += count


class OneClassProbe(SiteWatcher[Place, OneClass]):
    """Targets of cross entropies that are all of one class. Those of binary ones only if a conversion made them so: the
    labels of a GAN are all of one class too."""

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
        self.host.hear(_BINARY, self._lost_binary)
        self.host.hear(_COMPARING, self._compared)
        self.host.hear(_LARGEST, self._indexed)
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
                column = self._columns[data, number] = _Column.loaded(iterator, tensor.dtype in _WHOLE)
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
        converts = isinstance(given, torch.Tensor) and given.is_floating_point() and out.dtype in _WHOLE
        origin = self._origin(given, converts or func in _TAKING)
        if origin is not None:
            if out.dtype in _WHOLE:
                self._follow(origin[0], int)
            self._loaded.put(out, origin)
        if converts:
            self._converted(given, out)
            return
        known = self._known(given) if self._made else None
        if known is not None:
            self._made.put(out, known._replace(version=out._version))

    def _origin(self, given: Any, takes: bool) -> tuple[_Column | None] | None:
        """What a tensor came from; `takes`: it may be a tensor that the program takes its batches from."""
        known = self._loaded.get(given) if self._loaded else None
        if known is not None or not takes or not given.is_floating_point() or given.requires_grad:
            return known
        plain = type(given) is torch.Tensor and given.layout is torch.strided
        if not plain or self.host.ledger.phase == "data":
            return None
        known = (_Column.of(given if given._base is None else given._base),)
        self._loaded.put(given, known)
        return known

    def _follow(self, column: _Column | None, classed: Callable[[float], float]) -> None:
        """From now on look at the numbers that the program makes classes of."""
        if column is not None and not column.followed:
            column.followed, column.classed = True, classed
            self.hear_in_samples(*EVERY_STEP - {"batch_got"})

    def _converted(self, given: torch.Tensor, out: torch.Tensor, how: Lost = "cut", threshold: float = 0.0) -> None:
        if given.requires_grad or half.in_backward() or not self._allowance.left():
            return
        began = time.thread_time()
        made, ends = _ends(out), _ends(given)
        # A scaled picture lies between 0 and 1; other numbers may well be far from a threshold by chance.
        if made is not None and ends is not None and made[0] == made[1] and (how != "compared" or _is_scaled(ends)):
            self._keep(given, out, _Made(None, *ends, False, out._version, how, threshold))
        self._allowance.spend(began)

    def _keep(self, given: torch.Tensor, out: torch.Tensor, made: _Made) -> None:
        """Note what this line made, and whether it was of what is loaded."""
        origin, place = self._loaded.get(given), self.host.line()
        if origin is not None and origin[0] is not None:
            origin[0].look(self.host.tick)
        if place is not None:
            loaded = self.host.ledger.phase == "data" or origin is not None
            self._made.put(out, made._replace(place=place, loaded=loaded))

    def _compared(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        """`mask > 127`, where the mask was scaled."""
        given, threshold = args[0], args[1]
        if not isinstance(threshold, (int, float)) or threshold < _FAR or not given.is_floating_point():
            return
        origin = self._origin(given, takes=True)
        if origin is not None:
            self._follow(origin[0], partial(_compare, _COMPARING[func], threshold))
            self._loaded.put(out, origin)
        self._converted(given, out, "compared", threshold)

    def _indexed(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        """`labels.argmax(1)`, where there is only one entry to choose from."""
        given, dim = args[0], args[1] if len(args) > 1 else None
        if isinstance(dim, int) and given.dim() and given.shape[dim] == 1 and given.numel() > 1:
            self._converted(given, out if isinstance(out, torch.Tensor) else out[1], "index")

    def _joined(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        known = [self._known(one) for one in args[0]] if self._made else []
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
        if scores.requires_grad and classes > 1:
            self._look(target, classes, ignored)

    def _lost_binary(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        scores, target = args[0], args[1]
        if scores.requires_grad and (self.sites or (self._made and self._known(target) is not None)):
            self._look(target, 2, None, self._known(target) is not None)

    def _look(self, target: torch.Tensor, classes: int, ignored: int | None, new: bool = True) -> None:
        """At a loss's targets; `new`: even if this loss has not been looked at before."""
        place = self.host.line()
        record = self.sites.get(place) if place is not None else None
        done = record.varied or record.steps >= _STEPS if record is not None else not new
        if place is None or done or not self._allowance.left():
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
            record.how, record.threshold = made.how, made.threshold
        if column is not None:
            # Targets of binary losses are no whole numbers.
            self._follow(column, float)
            self._of[record.place] = column

    def totals(self, tick: int) -> Iterable[Record]:
        """Losses whose targets were of one class."""
        for place, column in self._of.items():
            record = self.sites[place]
            # A tensor may hold more than the targets.
            record.varied += column.varied and column.whole is None and not record.varied
            once = column.whole is not None and column.batches < column.length
            record.batches, record.length = 0 if column.varied or once else column.batches, column.length
            record.targets = max(record.targets, column.numbers)
            record.dataset, record.workers = column.dataset, column.workers
        return [record for record in self.sites.values() if record.steps]

    def unchecked(self) -> Iterable[Unchecked]:
        """Says so where targets of one class were made out of sight."""
        if any(one.workers and not one.varied and not one.converted for one in self.sites.values()):
            reason = "workers of loaders are not looked into; use none (`num_workers=0`)"
            yield Unchecked(check="what made targets that are all of one class", reason=reason)


def _is_scaled(ends: tuple[float, float]) -> bool:
    return ends[0] >= 0 and ends[1] <= 1


def _compare(compared: Callable[[float, float], bool], threshold: float, number: float) -> int:
    return int(compared(number, threshold))


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
