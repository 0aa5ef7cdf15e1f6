"""Finds labels that are the result of a comparison, and so 0 and 1 whatever is compared."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.rules.shared import training_loops as loops
from torchvet.rules.shared.normalised import Losses, losses
from torchvet.rules.training.fixes.fitting_labels import given_to
from torchvet.source.model import Event, is_name, receiver, terminal

SIGNED = Losses(
    ("soft_margin_loss", "hinge_embedding_loss", "cosine_embedding_loss"),
    ("SoftMarginLoss", "HingeEmbeddingLoss", "CosineEmbeddingLoss"),
)
"""Losses that know -1 and 1, and in which 0 has no meaning of its own."""
_FUNCTIONS = dict(zip(SIGNED.classes, SIGNED.functions, strict=True))
_KEEPING = {"float", "long", "int", "double", "half", "bfloat16", "to", "view", "reshape", "squeeze", "unsqueeze"}
_ORDERS = (ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.Eq, ast.NotEq)
_MOST_LINKS = 8


def compared_labels(file: SourceFile) -> Iterator[tuple[Event, ast.Call, str, ast.expr, ast.Compare]]:
    """Calls of such losses, each with its function's name, its labels, and the comparison that these are."""
    for event, call, made in losses(file, SIGNED):
        loss = _FUNCTIONS.get(made, made)
        labels = given_to(call, loss)
        found = _comparison(labels, event) if labels is not None else None
        if labels is not None and found is not None:
            yield event, call, loss, labels, found


def _comparison(node: ast.expr, event: Event) -> ast.Compare | None:
    """The comparison that an expression is, as numbers of another type or shape."""
    value: ast.expr | None = node
    cast = False
    for _ in range(_MOST_LINKS):
        if isinstance(value, ast.Compare):
            return value if cast and len(value.ops) == 1 and isinstance(value.ops[0], _ORDERS) else None
        if isinstance(value, ast.Call) and terminal(value) in _KEEPING:
            value, cast = receiver(value), True
        elif isinstance(value, ast.Name):
            binding = event.binding_of(value.id) if not _changed(value.id, event) else None
            value = loops.bound_value(binding, value.id)[0] if binding is not None else None
        else:
            return None
    return None


def _changed(name: str, event: Event) -> bool:
    """Whether anything but one binding may change what a name stands for: `labels[labels == 0] = -1`."""
    if event.unit.home(name) is not event.unit or len(event.unit.bindings.get(name, ())) != 1:
        return True
    for node in ast.walk(event.unit.node):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and is_name(node.value, name):
            return True
        if isinstance(node, ast.Call) and is_name(receiver(node), name) and terminal(node).endswith("_"):
            return True
    return False
