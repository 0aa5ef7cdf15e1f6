"""Times distances of all pairs of rows, from a tensor of their differences and without, on tensors that it makes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from math import prod
from typing import NamedTuple

import torch

from torchvet.probes.internals import private
from torchvet.probes.time.pairs.forms import Form, Shape
from torchvet.probes.time.real_time import medians, plain_torch
from torchvet.recording.records.timing import Distance

MEETING = frozenset(["sub", "rsub", "mse_loss"])
_MOST_BYTES = 64 << 20
"""Of what is made for one line. The program may have left little memory."""
_COPIES = 5
"""Tensors as large as the differences that are alive at once, about, the backward pass's among them."""
_SECONDS = 0.4

Operands = list[torch.Tensor]
Way = Callable[[Operands], torch.Tensor]


class Taken(NamedTuple):
    """Seconds of the differences, of a matrix product, and of what subtracts without keeping the differences."""

    plain: float
    product: float
    subtracting: float


def timed(form: Form, distance: Distance) -> Taken | None:
    """What each way takes with its backward pass, if gradients were wanted. Of many rows a part is timed."""
    part = _fitting(form)
    if private.modes_on() or _bytes(part) > _MOST_BYTES:
        return None
    with plain_torch(any(part.learned)):
        given = _operands(part)
        every: list[Way] = [
            lambda some: _plain(part, some, distance),
            lambda some: _product(part, some, distance),
            lambda some: _subtracting(part, some, distance),
        ]
        taken = medians([partial(_seconds, way, given) for way in every], _SECONDS)
    scale = form.elements / part.elements
    return Taken(*(scale * seconds for seconds in taken))


def _bytes(form: Form) -> int:
    return _COPIES * form.elements * form.dtype.itemsize


def _fitting(form: Form) -> Form:
    """With as many rows as there is room for."""
    while _bytes(form) > _MOST_BYTES:
        most, dim = max((size, n) for n, size in enumerate(form.shape) if n not in form.dims)
        if most < 2:
            break

        def cut(shape: Shape, at: int = dim, size: int = most // 2) -> Shape:
            return (*shape[:at], min(shape[at], size), *shape[at + 1 :])

        form = form._replace(
            left=cut(form.left),
            right=cut(form.right),
            steps=tuple(cut(step) if isinstance(step, tuple) else step for step in form.steps),
        )
    return form


def _operands(form: Form) -> Operands:
    """Both operands, and a tensor for each factor. No value is drawn by chance, which would change what the program
    draws next."""
    shapes = [form.left, form.right, *(step for step in form.steps if isinstance(step, tuple) and prod(step) > 1)]
    made = [torch.arange(prod(shape), dtype=form.dtype).mul_(0.7).sin_().reshape(shape) for shape in shapes]
    for tensor, learned in zip(made, form.learned, strict=False):
        tensor.requires_grad_(learned)
    return made


def _seconds(way: Way, given: Operands) -> float:
    """Of one call, and of its backward pass."""
    learned = [one for one in given if one.requires_grad]
    started = time.perf_counter()
    out = way(given)
    if learned:
        torch.autograd.grad(out, learned, torch.ones_like(out))
    return time.perf_counter() - started


def _plain(form: Form, given: Operands, distance: Distance) -> torch.Tensor:
    """As the program does it."""
    left, right, *factors = given
    further = iter(factors)
    now = left - right
    for step in form.steps:
        if isinstance(step, tuple):
            now = now * (next(further) if prod(step) > 1 else 2.0)
        elif step == "abs":
            now = now.abs()
        elif step in ("square", "mse_loss"):
            now = now * now
        elif step == "shift":
            now = now + 1e-6
        elif step in ("sum", "mean"):
            now = now.sum(form.dims) if step == "sum" else now.mean(form.dims)
        elif step in ("norm", "linalg_vector_norm"):
            now = torch.linalg.vector_norm(now, 1 if distance == "absolute" else 2, form.dims)
    return now


def _rows(form: Form, given: Operands) -> tuple[torch.Tensor, torch.Tensor]:
    """Both operands as matrices of rows, with what is no row in front."""
    left, right, *factors = given
    for factor in factors:
        left, right = left * factor, right * factor
    before, after = form.own
    own = (*before, *after)
    rest = [n for n in range(len(form.shape)) if n not in own and n not in form.dims]
    order, batch = [*rest, *own, *form.dims], [form.shape[n] for n in rest]
    rows, others = form.rows
    return (
        left.permute(order).reshape(*batch, rows, form.width),
        right.permute(order).reshape(*batch, others, form.width),
    )


def _product(form: Form, given: Operands, distance: Distance) -> torch.Tensor:
    """The way with the least work: a matrix product, but for absolute differences."""
    left, right = _rows(form, given)
    if distance == "squares":
        squares = left.square().sum(-1, keepdim=True) + right.square().sum(-1).unsqueeze(-2)
        return (squares - 2 * (left @ right.mT)).clamp_min(0)
    return torch.cdist(left, right, 2.0 if distance == "root" else 1.0)


def _subtracting(form: Form, given: Operands, distance: Distance) -> torch.Tensor:
    """The way that loses no digits."""
    left, right = _rows(form, given)
    p = 1.0 if distance == "absolute" else 2.0
    found = torch.cdist(left, right, p, compute_mode="donot_use_mm_for_euclid_dist")
    return found.square() if distance == "squares" else found
