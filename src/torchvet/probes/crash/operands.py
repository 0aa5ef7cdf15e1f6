"""The parts of a failing expression that may hold the value that was refused."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from typing import Any

import torch

from torchvet.probes.base.operators import names as names_of
from torchvet.probes.crash import expressions

_SAME = names_of(
    "unsqueeze squeeze view reshape flatten expand expand_as transpose permute t long int float double contiguous "
    "clone detach to cuda cpu view_as T mT"
)
"""Methods whose result has the values that the tensor has."""
_INDEXED = names_of(
    "gather scatter scatter_add scatter_reduce index_select index_add index_copy index_fill take take_along_dim"
)


def indices_of(node: ast.AST, names: dict[str, Any], dimension: int | None) -> list[ast.expr]:
    """The parts of a failing expression that may be its indices; those of one `dimension`, where it tells."""
    if isinstance(node, ast.Subscript):
        return _subscripts(node, names, dimension)
    if not isinstance(node, ast.Call):
        return []
    owner = expressions.value_of(node.func.value, names) if isinstance(node.func, ast.Attribute) else None
    as_function = owner is None or isinstance(owner, types.ModuleType)
    # `torch.gather(x, ...)` has what it selects from first; `x.gather(...)` has it before the dot.
    skipped = int(as_function and expressions.called(node) in _INDEXED)
    return [*node.args[skipped:], *(k.value for k in node.keywords)]


def _subscripts(node: ast.Subscript, names: dict[str, Any], dimension: int | None) -> list[ast.expr]:
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    # torch counts the dimensions that tensors index, not slices and numbers; a mask may be several.
    tensors = [p for p in parts if not isinstance(p, (ast.Slice, ast.Constant))]
    masked = any(one.dtype == torch.bool for p in tensors for _, one in values_in(p, names))
    # All parts rather than a wrong one.
    if dimension is None or dimension >= len(tensors) or masked:
        return parts
    return [tensors[dimension]]


def operands_of(node: ast.AST) -> list[ast.expr]:
    """What a failing call was given, what it is a method of first."""
    if not isinstance(node, ast.Call):
        return []
    owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
    return [*owner, *node.args, *(k.value for k in node.keywords)]


def values_in(node: ast.AST, names: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that an expression has the values of, seen through methods that change nothing but the shape."""
    value = expressions.value_of(node, names)
    if value is not expressions.MISSING:
        yield from ((text, one) for text, one in expressions.listed(ast.unparse(node), value) if one is not None)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME:
        yield from values_in(node.func.value, names)
    elif isinstance(node, (ast.Tuple, ast.List)):
        for one in node.elts:
            yield from values_in(one, names)
