"""Times many small linear maps one after the other, and as one batched product, on tensors that it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional

from torchvet.probes.internals import private
from torchvet.probes.time.real_time import clocked, medians, plain_torch

_MOST_BYTES = 128 << 20
"""Of what is made for one loop. The program may have left little memory."""
_SECONDS = 0.5
_ROUNDS = (3, 15)


class Maps(NamedTuple):
    """A loop over linear maps of one shape."""

    number: int
    rows: int
    inputs: int
    outputs: int
    biased: bool
    shared: bool
    """Whether each is given the same tensor."""
    selected: bool
    """Whether each is given a part of one tensor that has one for each."""
    learned: bool
    """Whether a gradient of what they are given is wanted."""
    assigned: bool
    """Whether each result is written into a part of one tensor."""


def timed(maps: Maps) -> tuple[float, float] | None:
    """Seconds of all maps with their backward pass, as they are and by one product."""
    numbers = maps.number * (maps.inputs * maps.outputs + maps.rows * (maps.inputs + maps.outputs))
    if private.modes_on() or 6 * 4 * numbers > _MOST_BYTES:
        return None
    with plain_torch(gradients=True):
        plain, together = medians([clocked(way) for way in (_one_by_one(maps), _at_once(maps))], _SECONDS, _ROUNDS)
    return plain, together


def _made(*shape: int, learned: bool = True) -> torch.Tensor:
    """No value is drawn by chance, which would change what the program draws next."""
    size = torch.Size(shape).numel()
    return torch.arange(size, dtype=torch.float32).mul_(0.7).sin_().reshape(shape).requires_grad_(learned)


def _given(maps: Maps) -> list[torch.Tensor]:
    if maps.shared:
        return [_made(maps.rows, maps.inputs, learned=maps.learned)]
    if maps.selected:
        return [_made(maps.rows, maps.number, maps.inputs, learned=maps.learned)]
    return [_made(maps.rows, maps.inputs, learned=maps.learned) for _ in range(maps.number)]


def _one_by_one(maps: Maps) -> Callable[[], object]:
    weights = [_made(maps.outputs, maps.inputs) for _ in range(maps.number)]
    biases = [_made(maps.outputs) for _ in range(maps.number)] if maps.biased else []
    given = _given(maps)

    def way() -> object:
        outs = []
        out = torch.zeros(maps.rows, maps.number, maps.outputs)
        for number, weight in enumerate(weights):
            x = given[0] if maps.shared else given[0][:, number] if maps.selected else given[number]
            one = functional.linear(x, weight, biases[number] if biases else None)
            if maps.assigned:
                out[:, number] = one
            else:
                outs.append(one)
        wanted = [*weights, *biases, *(one for one in given if one.requires_grad)]
        found = [out] if maps.assigned else outs
        return torch.autograd.grad(found, wanted, [torch.ones_like(one) for one in found])

    return way


def _at_once(maps: Maps) -> Callable[[], object]:
    weight = _made(maps.number, maps.inputs, maps.outputs)
    bias = [_made(maps.number, 1, maps.outputs)] if maps.biased else []
    given = _given(maps)

    def way() -> object:
        if maps.shared:
            x = given[0].expand(maps.number, maps.rows, maps.inputs)
        else:
            x = given[0].transpose(0, 1) if maps.selected else torch.stack(given)
        out = torch.baddbmm(bias[0], x, weight) if bias else torch.bmm(x, weight)
        out = out.transpose(0, 1).contiguous()
        wanted = [weight, *bias, *(one for one in given if one.requires_grad)]
        return torch.autograd.grad(out, wanted, torch.ones_like(out))

    return way
