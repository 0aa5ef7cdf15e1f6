"""Times a normal distribution with a diagonal covariance as a matrix, and dimension by dimension, on made tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from torchvet.probes.internals import private
from torchvet.probes.time.real_time import clocked, medians, plain_torch

_MOST_BYTES = 64 << 20
"""Of what is made. The program may have left little memory."""
_COPIES = 8
_SECONDS = 0.4


class Form(NamedTuple):
    """A distribution: how many there are in a batch, of how many dimensions, and what is asked of it."""

    rows: int
    width: int
    dtype: torch.dtype
    asked: tuple[str, ...]
    learned: bool
    factored: bool = True
    """Whether it is made of a covariance, and not of its factor."""


def timed(form: Form) -> tuple[float, float] | None:
    """Seconds with a matrix and without, to make it, to ask it all that was asked, and of the backward pass."""
    rows = max(1, min(form.rows, _MOST_BYTES // (_COPIES * form.width**2 * form.dtype.itemsize)))
    if private.modes_on():
        return None
    with plain_torch(form.learned):
        every = [_way(form._replace(rows=rows), make) for make in (_whole if form.factored else _by_factor, _apart)]
        whole, apart = medians([clocked(way) for way in every], _SECONDS)
    return whole, apart


def _whole(mean: torch.Tensor, spread: torch.Tensor) -> Any:
    of: Any = torch.distributions.MultivariateNormal
    return of(mean, covariance_matrix=torch.diag_embed(spread**2))


def _by_factor(mean: torch.Tensor, spread: torch.Tensor) -> Any:
    of: Any = torch.distributions.MultivariateNormal
    return of(mean, scale_tril=torch.diag_embed(spread))


def _apart(mean: torch.Tensor, spread: torch.Tensor) -> Any:
    of: Any = torch.distributions
    return of.Independent(of.Normal(mean, spread), 1)


def _way(form: Form, make: Callable[[torch.Tensor, torch.Tensor], Any]) -> Callable[[], object]:
    shape = form.rows, form.width
    mean = torch.zeros(shape, dtype=form.dtype).requires_grad_(form.learned)
    spread = torch.full(shape, 0.5, dtype=form.dtype).requires_grad_(form.learned)
    value = torch.full(shape, 0.3, dtype=form.dtype)
    other = make(torch.zeros(form.width, dtype=form.dtype), torch.ones(form.width, dtype=form.dtype))
    kl: Any = torch.distributions.kl_divergence

    def way() -> object:
        one = make(mean, spread)
        outs = []
        if "rsample" in form.asked:
            outs.append(one.rsample())
        if "log_prob" in form.asked:
            outs.append(one.log_prob(value))
        if "entropy" in form.asked:
            outs.append(one.entropy())
        if "kl" in form.asked:
            outs.append(kl(one, other))
        wanted = [out for out in outs if out.requires_grad]
        if not wanted:
            return outs
        return torch.autograd.grad(wanted, [mean, spread], [torch.ones_like(out) for out in wanted], allow_unused=True)

    return way
