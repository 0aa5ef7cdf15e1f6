"""Judges whether labels are what a loss takes them for: signs, probabilities, shares of 1, or lists of classes."""

from __future__ import annotations

from typing import NamedTuple

import torch

from torchvet.recording.records.labels import Unfit

_ROUNDING = 0.01
"""How far a probability may lie outside of 0 to 1, and a sum from 1 where numbers are rounded."""
_NOISE = 0.5
"""How far noise, as that on a GAN's labels, may lead out of 0 to 1. Chosen, not measured."""
_APART = 0.05
"""How far a sum of shares is from 1 where it is none, and the share of rows from which on it counts. Chosen."""
_CLASSES = 3
"""The least number of classes of which a list cannot hold 0 and 1 alone."""
Dims = tuple[int, ...]


class Judged(NamedTuple):
    """Labels: in which `form` they do not `fit` (None: they neither fit nor not), and how many of them."""

    form: Unfit
    fit: bool | None
    low: float
    high: float
    labels: int
    strays: int = 0
    doubtful: bool = False
    pair: bool = False
    """All labels are one of two numbers."""
    marked: bool = False
    """The strays may be marks of what is left out later."""


def signs(labels: torch.Tensor) -> Judged | None:
    """Labels of a loss that knows -1 and 1."""
    ends = _ends(labels)
    if ends is None:
        return None
    low, high = ends
    whole = low >= 0 and high <= 2 and not bool((labels.float().frac() != 0).any())
    strays = int((labels != 1).sum()) if whole else 0
    # Positive pairs alone say nothing.
    fit = not whole if not whole or strays else None
    return Judged("signs", fit, low, high, labels.numel(), strays, pair=_are_two(labels, low, high))


def outside(labels: torch.Tensor, weight: torch.Tensor | None, reduced: bool) -> Judged | None:
    """Labels of a binary cross entropy with logits, which expects probabilities."""
    if weight is not None:
        # What weighs nothing is left out.
        labels = labels[(weight != 0).expand_as(labels)]
    ends = _ends(labels)
    if ends is None:
        return None
    low, high = ends
    if low >= -_ROUNDING and high <= 1 + _ROUNDING:
        # One class alone does not say that what lies outside in other steps is a mark.
        return Judged("outside", True if reduced or low < high else None, low, high, labels.numel())
    strays = labels[(labels < -_ROUNDING) | (labels > 1 + _ROUNDING)]
    # What is not reduced yet may be masked: by a mark that is one number, or two. Of -1 beside one class the other may
    # be unlabeled.
    least, most = float(strays.min()), float(strays.max())
    marked = not reduced and _are_two(strays, least, most)
    doubtful = low > -_NOISE and high < 1 + _NOISE
    pair = _are_two(labels, low, high)
    fit = (None if low < 0 or low == high else not pair) if marked else False
    return Judged("outside", fit, low, high, labels.numel(), strays.numel(), doubtful, pair, marked)


def shares(labels: torch.Tensor, dims: Dims) -> Judged | None:
    """Labels whose sums over these dimensions should be 1. Rows of zeros are left out."""
    ends = _ends(labels)
    if ends is None:
        return None
    labels = labels.float()
    filled = labels != 0
    kept = filled.any(dim=dims[0]) if len(dims) == 1 else filled.sum(dims) > 0
    rows = int(kept.sum())
    apart = ((labels.sum(dims) - 1).abs() > _APART) & kept
    if ends[0] < -_ROUNDING:
        form, strays = _below_zero(labels, dims, ends[1])
        return Judged(form, False if strays > 0.5 * rows else None, *ends, rows, strays)
    if bool(((labels == 0) | (labels == 1)).all()):
        strays = int(apart.sum())
        return Judged("several", strays < _APART * rows or not rows, *ends, rows, strays)
    # A row with one number is a class with a weight.
    strays = int((apart & (filled.sum(dims) > 1)).sum())
    fit = True if int(apart.sum()) < _APART * rows else None
    return Judged("sums", False if strays >= _APART * rows else fit, *ends, rows, strays, doubtful=True)


def _below_zero(labels: torch.Tensor, dims: Dims, high: float) -> tuple[Unfit, int]:
    if high <= _ROUNDING:
        return "logarithms", int(((labels.exp().sum(dims) - 1).abs() < 2 * _ROUNDING).sum())
    mixed = (labels.amin(dims) < -_APART) & (labels.amax(dims) > _APART)
    return "scores", int(mixed.sum())


def normalized_over(logarithms: torch.Tensor) -> Dims | None:
    """The dimensions over which the exponentials of numbers sum to 1."""
    ends = _ends(logarithms.clamp(min=-1e4))
    if ends is None or ends[1] > _ROUNDING:
        return None
    given, count = logarithms.float().exp(), logarithms.dim()
    some = [(dim,) for dim in (-1, *range(count - 1)) if given.shape[dim] > 1]
    for dims in (*some, tuple(range(1, count)), tuple(range(count))):
        if dims and bool(((given.sum(dims) - 1).abs() < 2 * _ROUNDING).all()):
            return dims
    return None


def indices(labels: torch.Tensor) -> Judged | None:
    """Labels of a loss that takes a row for a list of classes, up to the first -1: no class is in it twice."""
    ends = _ends(labels)
    if ends is None or labels.shape[-1] < _CLASSES:
        return None
    ones = ends[0] >= 0 and ends[1] <= 1
    rows = labels.numel() // labels.shape[-1]
    return Judged("indices", not ones, *ends, rows, rows if ones else 0)


def _are_two(labels: torch.Tensor, low: float, high: float) -> bool:
    return bool(((labels == low) | (labels == high)).all())


def _ends(labels: torch.Tensor) -> tuple[float, float] | None:
    """The least and the largest label; None where there are none, or some are no finite numbers."""
    if not labels.numel() or labels.is_complex():
        return None
    low, high = (float(end) for end in torch.aminmax(labels))
    # What is infinite or not a number marks what is left out.
    return (low, high) if abs(low) < 1e30 and abs(high) < 1e30 else None
