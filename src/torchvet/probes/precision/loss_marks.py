"""Shows by its autograd graph whether a loss has been multiplied by a scaler: the node that does it carries a mark."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from torchvet.probes.base.kit import Place, graphs, names
from torchvet.probes.internals.graph_teardown import all_below, nodes_below

_KEY = "torchvet scale"
_MOST_NODES = 48
_OPERATIONS = names(
    "Add Sub Neg Sum Mean Stack Cat View UnsafeView Reshape ReshapeAlias Squeeze Unsqueeze Expand Clone ToCopy Select "
    "Index Alias Unbind Permute T"
)
_LINEAR = {f"{name}Backward0" for name in _OPERATIONS} | names(
    "SumBackward1 MeanBackward1 SqueezeBackward1 Mul MulBackward0 DivBackward0"
)
"""Below these a scaled loss is still one; a loss that was scaled and then squared is another matter."""
_FACTORS = frozenset({"MulBackward0", "DivBackward0"})
_FP16_NODES = 400


class Mark(NamedTuple):
    """What a scaler made of a loss: its number, how often it was multiplied, under which of the scaler's scales (they
    are numbered by its updates) and where."""

    scaler: int
    power: int
    generation: int
    place: Place | None


def mark(outputs: Any, with_mark: Mark) -> None:
    """Note on what `scale` returned, a tensor or lists of them, that it is scaled."""
    if isinstance(outputs, torch.Tensor):
        node: Any = outputs.grad_fn
        if node is not None:
            # On the node, which lives as long as the graph: tensors may be bound anew.
            node.metadata[_KEY] = with_mark
    elif isinstance(outputs, (list, tuple)):
        for one in outputs:
            mark(one, with_mark)


def marks_of(roots: Any) -> set[Mark | None]:
    """The marks of the tensors that a backward starts from; None among them stands for a loss that nobody scaled."""
    found: set[Mark | None] = set()
    # A list, so that all branches of the recursion share one budget.
    left = [_MOST_NODES]
    for root in tensors_in(roots):
        if root.grad_fn is not None:
            found |= _below(root.grad_fn, left)
        elif root.requires_grad:
            # A leaf as a loss was scaled by nobody.
            found.add(None)
    return found


def tensors_in(values: Any) -> list[torch.Tensor]:
    """Tensors given alone or in a list."""
    if isinstance(values, torch.Tensor):
        return [values]
    return [v for v in values if isinstance(v, torch.Tensor)] if isinstance(values, (list, tuple)) else []


def _below(node: Any, left: list[int]) -> set[Mark | None]:
    known = node.metadata.get(_KEY)
    if known is not None:
        return {known}
    left[0] -= 1
    name = graphs.name_of(node)
    # Anything else makes another number of the loss: the scale cannot be taken out of its gradients any more.
    if left[0] <= 0 or name not in _LINEAR:
        return {None}
    found: set[Mark | None] = set()
    for following in nodes_below(node):
        found |= _below(following, left)
    # One factor is scaled and the other is not.
    if name in _FACTORS and len(found) > 1:
        # A scaled loss times a weight that is learnt is scaled.
        found.discard(None)
    return found or {None}


def multiplied(roots: Any) -> bool:
    """Whether the last thing that was done to a loss is a multiplication: somebody may have scaled it by hand."""
    return any(t.grad_fn is not None and graphs.name_of(t.grad_fn) == "MulBackward0" for t in tensors_in(roots))


def holds_half(outputs: Any) -> bool:
    """Whether the graph of a loss holds fp16 results, among its nodes next to the loss."""
    nodes = all_below(graphs.roots_of(outputs), _FP16_NODES)
    return any(result.dtype is torch.float16 for node in nodes for result in node._input_metadata)
