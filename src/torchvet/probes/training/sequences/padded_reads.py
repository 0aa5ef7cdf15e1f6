"""Looks for padding that is taken for data: the last step of padded rows, and masks that hide the data instead.

Which part of a row is padding is told by the batch: rows that end in one number, each at another place.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from torchvet.probes.base.kit import (
    EVERY_STEP,
    ByStorage,
    Host,
    Place,
    Record,
    SiteWatcher,
    StepKind,
    overloads,
    user_lines,
)
from torchvet.probes.internals import private
from torchvet.probes.internals.module_calls import ModuleCalls
from torchvet.probes.internals.simulated import plain_values
from torchvet.probes.numerics import half
from torchvet.probes.training.loaders import tensors_of
from torchvet.recording.records.layers import PaddedRead

_WHAT = "padding that is taken for data"
_LAYERS, _SEARCHES = 16, 3
"""Layers that are followed at most, and sampled steps after which they are searched."""
_MOST = 1 << 20
_FEWEST_ROWS, _FEWEST_STEPS = 4, 4
_IN_FRONT = 8
"""Steps that a model puts in front of its rows at most, as that of a summary."""
_INSIDE = 0.02
"""The share of a row's data that may be the number which pads it."""
_ALIKE = 0.95
"""The share of positions at which a mask agrees with the data from which on it is that of the data."""
_ENDS, _SAMPLE = 64, 256
"""Rows whose ends are compared at most, and about as many steps of padding."""
_EQUAL = 1e-5
"""How far two results of one vector are apart at most, as a share of the largest."""
_ONE, _LEFT = 0.6, 0.3
"""The share of steps at padding that are one vector: a convolution sees the data from some. And what dropout leaves."""
_MASK = 3
"""Where `nn.MultiheadAttention` takes its mask of keys."""


class _Output(NamedTuple):
    """What a recurrent layer gave for padded rows, its steps in the dimension `steps`; a state has none."""

    layer: str
    lengths: torch.Tensor
    length: int
    steps: int | None
    directions: int

    def at_end(self, args: tuple[Any, ...]) -> bool:
        """Whether an operator that has these arguments takes what came from padding."""
        taken, shape = args[1:3] if len(args) > 2 else (), args[0].shape
        if self.steps is None:
            # The way back goes through the padding first.
            back = self.directions == 2 and len(shape) == 3 and taken and taken[0] == 0
            return not (back and taken[1] % 2)
        # `result[:, -1]`: a view of another shape is not followed.
        whole = len(shape) == 3 and shape[self.steps] == self.length
        return whole and taken in ((self.steps, -1), (self.steps, self.length - 1))


class PaddedReads(SiteWatcher[tuple[Place, str], PaddedRead]):
    """Recurrent layers that are read at padding, and masks of attention that hide what is none."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._calls = ModuleCalls()
        self._followed: set[int] = set()
        self._searches = 0
        self._lengths: dict[tuple[int, int], torch.Tensor] = {}
        """Of the step's padded batches, by their shape."""
        self._read: set[tuple[int, int]] = set()
        """Shapes of rows that a recurrent layer has been given with their padding at their end in this step."""
        self._outputs: ByStorage[_Output] = ByStorage()
        self._allowance = half.Allowance(0.1, 0.01)

    def install(self) -> None:
        """Hear look-ups of tokens, and what is taken out of a result."""
        self.host.hear(overloads("embedding"), self._looked_up)
        self.host.hear(overloads("select.int squeeze.dim squeeze"), self._taken)

    def remove(self) -> None:
        """Leave torch as it was."""
        self._calls.close()
        super().remove()

    def _search(self) -> None:
        """Follow the layers of the program's models. Some are copies, which nobody constructs."""
        parts = (part for root in self.host.known.live_roots() for part in root.modules())
        for layer in (part for part in parts if isinstance(part, (nn.MultiheadAttention, nn.RNNBase))):
            if id(layer) in self._followed or len(self._followed) >= _LAYERS or not self._calls.can_follow(layer):
                continue
            self._followed.add(id(layer))
            # Not the layer itself: what follows it must not keep it alive.
            name = type(layer).__name__
            before: Callable[[Any, Any], _Output | None]
            if isinstance(layer, nn.RNNBase):
                before = partial(self._recurs, name, int(not layer.batch_first), 1 + layer.bidirectional)
            else:
                before = partial(self._attends, name, int(not layer.batch_first))
            self._calls.follow(layer, before, self._recurred)

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """See `Watcher`."""
        if self.host.sampling:
            for one in tensors_of(batch):
                self._add(one)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended."""
        if self._searches < _SEARCHES:
            self._searches += 1
            self._search()
        self._lengths.clear()
        self._read.clear()
        self._outputs.clear()

    def _looked_up(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if self._followed and not half.in_backward():
            self._add(args[1])

    def _add(self, rows: torch.Tensor) -> None:
        """Note how long the rows of a batch are."""
        kind = 3 if rows.is_floating_point() else 2
        if rows.dim() == kind and self._lengths_in(rows) is None:
            # Recurrent layers take the steps first unless they are told not to.
            self._lengths_in(rows.transpose(0, 1))

    def _lengths_in(self, rows: torch.Tensor) -> torch.Tensor | None:
        """How long rows are, noted by their shape."""
        shape = rows.shape[0], rows.shape[1]
        if shape in self._lengths or rows.numel() > _MOST or not self._allowance.left():
            return self._lengths.get(shape)
        began = time.thread_time()
        plain = plain_values(rows)
        found = lengths_of(plain) if plain is not None else None
        if found is not None:
            self._lengths[shape] = found
        self._allowance.spend(began)
        return found

    def _looks(self) -> bool:
        host = self.host
        return (
            bool(self._followed)
            and host.sampling
            and host.active
            and torch.is_grad_enabled()
            and not half.in_backward()
        )

    def _recurs(self, layer: str, first: int, directions: int, args: Any, kwargs: Any) -> _Output | None:
        given = args[0] if args else kwargs.get("input")
        if not isinstance(given, torch.Tensor) or given.dim() != 3 or not self._looks():
            return None
        with self.host.looking(_WHAT):
            plain = plain_values(given.transpose(0, 1) if first else given)
            lengths = self._lengths_at_end(plain) if plain is not None else None
        steps = 1 - first
        return _Output(layer, lengths, given.shape[steps], steps, directions) if lengths is not None else None

    def _lengths_at_end(self, rows: torch.Tensor) -> torch.Tensor | None:
        """How long the rows are that a layer is given. Its tokens may have been turned round, or have been others."""
        shape = rows.shape[0], rows.shape[1]
        lengths = self._lengths_in(rows)
        if lengths is None or not self._allowance.left():
            return None
        began = time.thread_time()
        tail = torch.arange(shape[1]) >= lengths[:, None]
        if _is_one(rows, tail):
            self._read.add(shape)
        # What a layer below has made of padding is not one number.
        elif shape not in self._read or _is_one(rows, tail.flip(1)):
            lengths = None
        self._allowance.spend(began)
        return lengths

    def _recurred(self, token: _Output, output: Any) -> None:
        result, state = output
        self._outputs.put(result, token)
        self._outputs.put(state[0] if isinstance(state, tuple) else state, token._replace(steps=None))

    def _taken(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        known = self._outputs.get(args[0]) if self._outputs else None
        if known is None or half.in_backward() or not args[0].requires_grad:
            return
        if not known.at_end(args):
            return
        place = self.host.line()
        if place is not None:
            self._note(place, "state" if known.steps is None else "last", known.layer, known.lengths, known.length)

    def _attends(self, layer: str, first: int, args: Any, kwargs: Any) -> None:
        mask = args[_MASK] if len(args) > _MASK else kwargs.get("key_padding_mask")
        if not isinstance(mask, torch.Tensor) or mask.dim() != 2 or not self._looks():
            return
        with self.host.looking(_WHAT):
            lengths = self._lengths_of_keys(mask, args[1] if len(args) > 1 else kwargs.get("key"), first)
            plain = plain_values(mask) if lengths is not None and private.functorch_level() is None else None
            place = next(iter(user_lines(sys._getframe(1), 1)), None) if plain is not None else None
            if plain is None or lengths is None or place is None:
                return
            hidden = plain.cpu() if plain.dtype is torch.bool else plain.cpu() == -torch.inf
            data = torch.arange(mask.shape[1]) < lengths[:, None]
            kind = "hides" if float((hidden == data).float().mean()) >= _ALIKE else "fits"
            self._note(place, kind, layer, lengths, mask.shape[1])

    def _lengths_of_keys(self, mask: torch.Tensor, keys: Any, first: int) -> torch.Tensor | None:
        """How long the rows are that a mask is for: by their tokens, or by what attention is given."""
        lengths = self._lengths_under(mask.shape[0], mask.shape[1])
        if lengths is not None or not isinstance(keys, torch.Tensor) or keys.dim() != 3:
            return lengths
        return self._lengths_in(keys.transpose(0, 1) if first else keys)

    def _lengths_under(self, rows: int, length: int) -> torch.Tensor | None:
        """How long the rows are that a mask is for: a model may put a few steps of its own in front of all."""
        for (known, steps), lengths in self._lengths.items():
            if known == rows and 0 <= length - steps <= _IN_FRONT:
                return lengths + (length - steps)
        return None

    def _note(self, place: Place, kind: str, layer: str, lengths: torch.Tensor, length: int) -> None:
        record = self.sites.setdefault((place, kind), PaddedRead(place=place, kind=kind, layer=layer))
        if record.last == self.host.tick:
            return
        record.last = self.host.tick
        record.steps += 1
        record.rows += len(lengths)
        record.padded += int((lengths < length).sum())
        record.padding += int((length - lengths).sum())
        record.length = length

    def totals(self, tick: int) -> Iterable[Record]:
        """What was taken for data."""
        return [one for one in self.sites.values() if one.kind != "fits"]


def lengths_of(rows: torch.Tensor) -> torch.Tensor | None:
    """How long each row is without the padding at its end, of (rows, steps) or (rows, steps, features). None where the
    rows are not padded, or to no two lengths."""
    if len(rows) < _FEWEST_ROWS or rows.shape[1] < _FEWEST_STEPS:
        return None
    pads = (_ends_alike(rows) if rows.dim() > 2 else rows == rows[:, -1].cpu().mode().values.to(rows.device)).cpu()
    tail = pads.flip(1).int().cumprod(1).sum(1)
    lengths = rows.shape[1] - tail
    inside = int(pads.sum() - tail.sum())
    padded = int((tail > 1).sum()) >= 2 and len({*lengths.tolist()}) > 2 and bool((lengths > 0).all())
    # What stands within the data as well may be a token like any other.
    return lengths if padded and inside <= _INSIDE * int(lengths.sum()) else None


def _ends_alike(rows: torch.Tensor) -> torch.Tensor:
    """Where the steps are those in which most rows end: a layer makes one vector of all padding."""
    ends = rows[:_ENDS, -1].float()
    near = _EQUAL * float(ends.abs().max())
    alike = (ends[:, None] - ends).abs().amax(-1) <= near
    if int((alike.sum(1) > 1).sum()) < 2:
        return torch.zeros(rows.shape[:2], dtype=torch.bool)
    end: torch.Tensor = ends[alike.sum(1).argmax()]
    return (rows - end).abs().amax(-1) <= near


def _is_one(rows: torch.Tensor, where: torch.Tensor) -> bool:
    """Whether most of these steps are one vector, apart from what dropout has taken from it."""
    at = where.nonzero()
    at = at[:: max(1, len(at) // _SAMPLE)].to(rows.device)
    steps = rows[at[:, 0], at[:, 1]].float().cpu()
    near = _EQUAL * float(steps.abs().max())
    if bool(((steps - steps.median(0).values).abs() <= near).all(1).float().mean() >= _ONE):
        return True
    left = steps != 0
    usual = steps.masked_fill(~left, torch.nan).nanmedian(0).values.nan_to_num()
    dropped = (((steps - usual).abs() <= near) | ~left).all(1).float().mean() >= _ONE
    # One-hot rows are numbers and zeros, too.
    return bool(dropped) and float(left.float().mean()) >= _LEFT
