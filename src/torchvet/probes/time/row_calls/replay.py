"""Times an iteration's operators for one row, and for many at once by `torch.vmap`, after the program has ended."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import bare_name
from torchvet.probes.internals import private
from torchvet.probes.time.real_time import clock, clocked, medians, plain_torch
from torchvet.probes.time.row_calls.tapes import Entry, Slot, Tape, View, mapped, slots_in

_MOST_BYTES = 256 << 20
"""Of what is made for one loop, in all. The program may have left little memory."""
_CACHES = 32 << 20
"""Bytes, about, of a processor's caches."""
_SECONDS = 0.5
_ROUNDS = (3, 15)
_LEAST_ROWS = 4
_TURNS = 8
"""How many times one row is computed before all are: the first time the caches are cold, as they are in no loop."""

Tensors = list[torch.Tensor]


class Taken(NamedTuple):
    """Seconds of one row, and of `rows` at once."""

    one: float
    together: float
    rows: int


def timed(tape: Tape, rows: int, differentiated: bool) -> Taken | None:
    """What an iteration's operators take for one row and for so many, or for as many as there is room for; None where
    there is not room for a few. With `differentiated` a backward pass of the sum is part of it. Raises what torch
    raises where `torch.vmap` does not take an operator."""
    shared, each = _bytes(tape)
    rows = min(rows, (_MOST_BYTES - shared) // max(1, 2 * each))
    if private.modes_on() or rows < _LEAST_ROWS:
        return None
    with plain_torch(differentiated):
        ways = _ways(tape, rows, differentiated)
        if tape.has_backward and not differentiated:
            ways += [_gradients(tape, rows), _ways(_passes(tape), rows, False)[1]]
        one, together, *more = medians(_measures(ways), _SECONDS, _ROUNDS)
    if more:
        # What is computed of the gradients comes after them, as it does in the record.
        gradients, passes = more
        together = max(together, gradients + together - passes)
    return Taken(one, together, rows)


def _measures(ways: list[Callable[[], object]]) -> list[Callable[[], float]]:
    """Seconds of one row, which comes first, and of each way to compute many at once."""
    other = torch.ones(_CACHES, dtype=torch.uint8, device="cpu")
    now = clock()

    def one() -> float:
        started = now()
        for _ in range(_TURNS):
            ways[0]()
        return (now() - started) / _TURNS

    def at_once(way: Callable[[], object]) -> float:
        # A step comes to one call after all its other work, and to a row after another row.
        other.add_(1)
        return clocked(way)()

    return [one, *(partial(at_once, way) for way in ways[1:])]


def _ways(tape: Tape, rows: int, differentiated: bool) -> list[Callable[[], object]]:
    """One row, and many at once."""
    tensors = [_made(view, differentiated) for view in tape.given]
    varying = sorted(tape.rows)
    batches = [_made(tape.given[number], differentiated, rows) for number in varying]
    run = _program(tape, differentiated)

    def row(*given: torch.Tensor) -> Any:
        now = list(tensors)
        for number, tensor in zip(varying, given, strict=True):
            now[number] = tensor
        return run(*now)

    at_once = torch.vmap(row, randomness="different")

    def one() -> object:
        return _ended(run(*tensors), tensors, differentiated)

    def together() -> object:
        outs = at_once(*batches)
        return _ended([out.sum(0) for out in outs], [*tensors, *batches], differentiated)

    return [one, together]


def _gradients(tape: Tape, rows: int) -> Callable[[], object]:
    """The gradients of each row as a program gets them: `torch.func.grad` within `torch.vmap` dispatches each operator
    through two more levels, which the recorded operators of a backward pass do not."""
    tensors = [_made(view, False) for view in tape.given]
    varying = sorted(tape.rows)
    batches = [_made(tape.given[number], False, rows) for number in varying]
    learned = [number for number, view in enumerate(tape.given) if view.learned and number not in tape.rows]
    run = _program(tape, True)

    def loss(weights: Tensors, *given: torch.Tensor) -> torch.Tensor:
        now = list(tensors)
        for number, tensor in zip((*learned, *varying), (*weights, *given), strict=True):
            now[number] = tensor
        return run(*now)[-1].sum()

    each = torch.vmap(torch.func.grad(loss), in_dims=(None, *[0] * len(varying)), randomness="different")
    weights = [tensors[number] for number in learned]
    return lambda: each(weights, *batches)


def _passes(tape: Tape) -> Tape:
    """Up to the end of the backward pass."""
    last = max(at for at, entry in enumerate(tape.entries) if entry.backward)
    return Tape(tape.entries[: last + 1], tape.given, tape.rows)


def _forward(entries: list[Entry]) -> list[Entry]:
    """Without the backward pass and what is computed from it: autograd runs another one."""
    gone: set[int] = set()
    kept = []
    for entry in entries:
        needs = (slot.number for slot in slots_in([entry.args, entry.kwargs]) if slot.made)
        if entry.backward or not gone.isdisjoint(needs):
            gone.update(entry.outs)
        else:
            kept.append(entry)
    return kept


def _ended(outs: Tensors, given: Tensors, differentiated: bool) -> object:
    """With its backward pass."""
    learned = [one for one in given if one.requires_grad]
    if not differentiated or not learned:
        return outs
    return torch.autograd.grad(outs[-1].sum(), learned, allow_unused=True)


def _program(tape: Tape, differentiated: bool) -> Callable[..., Tensors]:
    """The operators as a function of what is given. It returns what is added up over the rows and the last result; of
    those that have a gradient the last."""
    from torch import fx

    graph = fx.Graph()
    given = [graph.placeholder(f"given_{number}") for number in range(len(tape.given))]
    learned = {Slot(False, number) for number, view in enumerate(tape.given) if view.learned}
    made: dict[int, fx.Node] = {}

    def node(slot: Slot) -> fx.Node:
        return made[slot.number] if slot.made else given[slot.number]

    last = given[-1]
    for entry in _forward(tape.entries) if differentiated else tape.entries:
        made.update(zip(entry.outs, _nodes(graph, entry, node), strict=True))
        if differentiated and (learned.isdisjoint(slots_in([entry.args, entry.kwargs])) or _cuts(entry)):
            continue
        # Where an operator has several results, the first is the one that is meant.
        if entry.views[0].dtype.is_floating_point:
            learned.update(Slot(True, out) for out in entry.outs)
            last = made[entry.outs[0]]
    graph.output([*(node(slot) for slot in tape.sums if not slot.made or slot.number in made), last])
    return fx.GraphModule({}, graph).forward


def _cuts(entry: Entry) -> bool:
    name = bare_name(entry.func)
    # `backward` itself begins with `ones_like` of the loss.
    return name == "detach" or name.endswith("_like") or name.startswith("new_")


def _nodes(graph: Any, entry: Entry, node: Callable[[Slot], Any]) -> list[Any]:
    """The results of one operator."""
    args, kwargs = mapped(entry.args, node), mapped(entry.kwargs, node)
    name = bare_name(entry.func)
    if not name.startswith("_foreach_"):
        made = graph.call_function(entry.func, args, kwargs)
        several = len(entry.func._schema.returns) > 1 or str(entry.func._schema.returns[0].type) != "Tensor"
        count = len(entry.outs)
        return [graph.call_function(operator.getitem, (made, number)) for number in range(count)] if several else [made]
    # `torch.vmap` takes none of these.
    name = name.removeprefix("_foreach_")
    single = torch.linalg.vector_norm if name == "norm" else getattr(torch.ops.aten, name)
    return [
        graph.call_function(single, tuple(one[at] if isinstance(one, (list, tuple)) else one for one in args), kwargs)
        for at in range(len(args[0]))
    ]


def _made(view: View, differentiated: bool, rows: int = 0) -> torch.Tensor:
    """A tensor alike, or `rows` of them. No value is drawn by chance; an index of zero is always one."""
    least = 1 + sum((size - 1) * stride for size, stride in zip(view.shape, view.stride, strict=True) if size)
    shape = ((rows,) if rows else ()) + (least,)
    if view.dtype.is_floating_point:
        base = torch.arange(prod(shape), dtype=torch.float32).mul_(0.7).sin_().mul_(0.4).add_(0.5)
        base = base.to(view.dtype).reshape(shape)
    else:
        base = torch.full(shape, view.dtype is torch.bool, dtype=view.dtype)
    if rows:
        made = base.as_strided((rows, *view.shape), (least, *view.stride))
    else:
        made = base.as_strided(view.shape, view.stride)
    return made.requires_grad_(differentiated and view.learned)


def _bytes(tape: Tape) -> tuple[int, int]:
    """Of what is given to all rows, and of what a row has of its own."""

    def size(view: View) -> int:
        return prod(view.shape) * view.dtype.itemsize

    shared = sum(size(view) for number, view in enumerate(tape.given) if number not in tape.rows)
    each = sum(size(tape.given[number]) for number in tape.rows)
    storages: dict[int, int] = {}
    for entry in tape.entries:
        for view in entry.views:
            storages[view.storage] = max(storages.get(view.storage, 0), size(view))
    return shared, each + sum(storages.values())
