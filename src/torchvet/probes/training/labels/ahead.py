"""Measures how many places ahead in its sequence the token is that a row of logits is compared with.

Two things are read off in the program's own backward pass. The targets are found again in the tokens that the embedding
got, moved by some places. The gradient of the embedding is zero behind the last token that a row with a target was
computed from, in a causal model: slices of the logits need not be followed for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

_BACK = 2
_ON = 5
"""Shifts that are tried: so many places back, and fewer than so many on."""
_MOST_SHIFTS = 64
_SHORTEST = 4
"""Tokens of a sequence."""
_LEAST = 16
"""Targets that differ from their neighbors; fewer agree with anything. Chosen, not measured."""
_AGREE = 0.95
"""The share of targets that are the token in that place. Chosen, not measured."""
_OTHERS = 0.8
"""With another shift, which would be as good an answer. Chosen, not measured."""
_SEQUENCES = 0.9
"""The share of sequences of one batch in which the measure is the same. Chosen, not measured."""


class Ahead(NamedTuple):
    """What one batch shows: see `TargetsAhead`."""

    ahead: int
    targets: int
    agreed: int
    by_gradient: bool


@dataclass
class Loss:
    """A cross entropy's targets, on the CPU, and which of them count. Both are flat, or sequences in rows."""

    place: Any
    target: torch.Tensor
    used: torch.Tensor
    found: Ahead | None = field(default=None)


def measured(loss: Loss, ids: torch.Tensor, seen: torch.Tensor | None) -> Ahead | None:
    """How far ahead of `ids` (two dimensions, on the CPU) the targets are; None where that cannot be told. `seen` says
    which of the ids have a gradient; without it rows of logits count as those of the tokens in the same place."""
    for sequences, gradient in _sequences(ids, seen):
        for target, used in _rows(loss, *sequences.shape):
            shift = _shift(target, used, sequences)
            if shift is not None:
                return _ahead(target, used, sequences, shift, gradient)
    return None


def _sequences(ids: torch.Tensor, seen: torch.Tensor | None) -> Iterator[tuple[torch.Tensor, torch.Tensor | None]]:
    """The ids with a sequence in each row, if their first dimension is the samples', and if it is time."""
    yield ids, seen
    yield ids.T, None if seen is None else seen.T


def _rows(loss: Loss, samples: int, length: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The targets with a sequence in each row."""
    target, used = loss.target, loss.used
    if length < _SHORTEST or not samples or target.numel() % samples:
        return
    columns = target.numel() // samples
    if not _SHORTEST <= columns + 1 <= length + 1 or length - columns + _BACK + _ON > _MOST_SHIFTS:
        return
    yield target.reshape(samples, columns), used.reshape(samples, columns)
    if samples > 1:
        yield target.reshape(columns, samples).T, used.reshape(columns, samples).T


def _shift(target: torch.Tensor, used: torch.Tensor, ids: torch.Tensor) -> int | None:
    """By how many places the targets are found in the ids, if one answer is better than all others."""
    # Runs of one token (padding, spaces, a background) agree with any shift.
    differs = target[:, 1:] != target[:, :-1]
    telling = used.clone()
    telling[:, 1:] &= differs
    telling[:, :-1] &= differs
    least = max(_LEAST, int(telling.sum()) // 2)
    shares = {}
    for shift in range(-_BACK, ids.shape[1] - target.shape[1] + _ON):
        targets, agreed = _agreement(target, telling, ids, shift)
        if targets >= least:
            shares[shift] = agreed / targets
    best = max(shares, key=lambda shift: shares[shift], default=None)
    if best is None or shares.pop(best) < _AGREE or max(shares.values(), default=0.0) > _OTHERS:
        return None
    return best


def _agreement(target: torch.Tensor, which: torch.Tensor, ids: torch.Tensor, shift: int) -> tuple[int, int]:
    """How many of some targets have a token `shift` places on, and how many are that token."""
    start, stop = max(0, -shift), min(target.shape[1], ids.shape[1] - shift)
    if stop <= start:
        return 0, 0
    where = which[:, start:stop]
    same = target[:, start:stop] == ids[:, start + shift : stop + shift]
    return int(where.sum()), int((same & where).sum())


def _ahead(
    target: torch.Tensor, used: torch.Tensor, ids: torch.Tensor, shift: int, seen: torch.Tensor | None
) -> Ahead | None:
    targets, agreed = _agreement(target, used, ids, shift)
    if seen is None:
        # Of fewer rows than tokens nobody knows which ones they are.
        return Ahead(shift, targets, agreed, False) if target.shape[1] == ids.shape[1] else None
    both = used.any(1) & seen.any(1)
    places = (_last(used) + shift - _last(seen))[both]
    if not places.numel():
        return None
    ahead = int(places.mode().values)
    # A row that depends on less than the token in its own place is left to people: a gradient can vanish.
    if int((places == ahead).sum()) < _SEQUENCES * places.numel() or ahead > max(1, shift):
        return None
    return Ahead(ahead, targets, agreed, True)


def _last(which: torch.Tensor) -> torch.Tensor:
    """The last place in each row that is true."""
    return (which * torch.arange(1, which.shape[1] + 1)).argmax(1)
