"""Fused calls that the CPU cannot do fused, composed of the CPU's operators: their graphs lie behind the kernel's
random state, as which a program, or what it does to saved tensors, holds and drops them.

Saved tensors may come back as copies. Then the call is composed anew, from the state that the host's generator had,
which goes with the node of the graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from torchvet.simulate.tensors import numbers_of

_aten = torch.ops.aten
_AS_A_PROGRAM = (torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set())
"""What is dispatched to outside of operators, so autograd too."""
_NAME = "torchvet_generator"


class Composed(NamedTuple):
    """What a call was given and gave, the state of the generator before it, and its random state's storage."""

    given: list[torch.Tensor | None]
    out: torch.Tensor
    drawn: torch.Tensor
    state: weakref.ref[Any] | None = None


_composed: dict[int, Composed] = {}
"""By the storage of the call's random state, with which each of them goes."""


def compose(given: Sequence[Any], dropout: float, causal: bool, scale: Any) -> Composed:
    """Query, key, value and bias of the host to a result with its graph."""
    query, key = given[0], given[1]
    # Dropout draws: the same numbers are needed if the call is composed anew.
    drawn = torch.default_generator.get_state()
    guard = torch._C._ForceDispatchKeyGuard(*_AS_A_PROGRAM)
    with guard, torch._C._DisableTorchDispatch(), torch.enable_grad():
        leaves = [None if t is None else t.detach().requires_grad_() for t in given]
        out = _aten._scaled_dot_product_attention_math.default(
            *leaves, dropout, causal, scale=scale, enable_gqa=query.size(1) != key.size(1)
        )[0]
    return Composed(leaves, out, drawn)


def keep(composed: Composed, seed: torch.Tensor) -> None:
    """For the backward pass, as long as the random state's storage lives."""
    storage = numbers_of(seed).untyped_storage()
    number = storage._cdata
    # The graph goes when nobody holds the random state any more, as a saved tensor or by hand.
    _composed[number] = composed._replace(state=weakref.ref(storage, lambda _: _composed.pop(number, None)))


def tell_node(out: torch.Tensor, seed: torch.Tensor) -> None:
    """Let the result's node know the state that its call began with."""
    if out.grad_fn is None or torch._C._functorch.is_functorch_wrapped_tensor(seed):
        return
    composed = _composed.get(numbers_of(seed).untyped_storage()._cdata)
    if composed is not None:
        _known_to(out.grad_fn)[_NAME] = composed.drawn


def _known_to(node: Any) -> dict[str, Any]:
    return node.metadata  # type: ignore[no-any-return]


def found_by(seed: torch.Tensor, given: Sequence[Any], dropout: float, causal: bool, scale: Any) -> Composed | None:
    """The graph of the call whose backward pass runs; None for one that the CPU did fused."""
    composed = _composed.get(numbers_of(seed).untyped_storage()._cdata)
    if composed is not None:
        return composed
    node = torch._C._current_autograd_node()
    drawn = None if node is None else _known_to(node).get(_NAME)
    if drawn is None:
        return None
    before = torch.default_generator.get_state()
    torch.default_generator.set_state(drawn)
    try:
        return compose(given, dropout, causal, scale)
    finally:
        torch.default_generator.set_state(before)


def gradients(composed: Composed, by_out: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of all that it was given."""
    leaves = [t for t in composed.given if t is not None]
    # The engine itself: `torch.autograd.grad` is what a program calls, and is watched as such.
    with torch._C._ForceDispatchKeyGuard(*_AS_A_PROGRAM), torch._C._DisableTorchDispatch():
        # Kept: a program may go backward twice with `retain_graph`.
        return torch.autograd.Variable._execution_engine.run_backward(
            (composed.out,), (by_out,), True, False, tuple(leaves), allow_unreachable=True, accumulate_grad=False
        )
