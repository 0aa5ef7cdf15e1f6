"""The arithmetic of tensor sizes: broadcasting, indexing, reductions, and sizes as they are written down."""

from __future__ import annotations

import ast
from types import EllipsisType

from torchvet.source.model import is_literal, keyword, name_set, terminal

Dim = int | str | None | EllipsisType
Shape = tuple[Dim, ...]
"""Sizes from the first dimension on: a number, the name of one, None for a size that is not known, and at most one
`...` for dimensions whose number is not known."""

_KEEPING = name_set(
    "float double half bfloat16 long int bool to cuda cpu detach clone contiguous relu tanh sigmoid exp log abs sqrt "
    "square pow clamp softmax log_softmax gelu silu leaky_relu elu softplus dropout requires_grad_ type sin cos neg "
    "layer_norm normalize type_as sign data tanh_ relu_ Variable"
)
_ROW = (ast.Tuple, ast.List)
_REDUCING = name_set("sum mean amax amin max min argmax argmin norm prod std var any all logsumexp")


def broadcast(left: Shape, right: Shape) -> Shape | None:
    """The sizes of an elementwise operation's result; None where they are not sure."""
    if not left or not right:
        return left or right
    if ... in left or ... in right:
        return left if left == right else None
    width = max(len(left), len(right))
    padded = [(1,) * (width - len(s)) + s for s in (left, right)]
    # Two sizes that differ and are not 1 would raise: the left one is as good as any.
    return tuple(b if a == 1 else a for a, b in zip(*padded, strict=True))


def blows_up(left: Shape, right: Shape) -> bool:
    """Whether two operands stretch each other: the column and the row of `(N, 1)` against `(N,)`."""
    if ... in right:
        left, right = right, left
    if ... in right or not left or not right:
        return False
    if ... in left:
        # At least one dimension before the column: `("batch", ..., 1)` against `("batch",)`.
        return len(left) > 2 and left[-1] == 1 and len(right) == 1 and many(right[0])
    width = max(len(left), len(right))
    pairs = list(zip(*[(1,) * (width - len(s)) + s for s in (left, right)], strict=True))
    # Each is stretched by the other: one alone is ordinary broadcasting.
    return any(a == 1 and many(b) for a, b in pairs) and any(b == 1 and many(a) for a, b in pairs)


def indexed(shape: Shape, index: ast.expr) -> Shape | None:
    """The sizes of `x[index]`: numbers drop a dimension, slices keep it, None adds one; others are not followed."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    found: list[Dim] = []
    rest = list(shape)
    for part in parts:
        if is_literal(part, None):
            found.append(1)
            continue
        if isinstance(part, ast.Constant) and part.value is ...:
            # `...` takes what the indices behind it leave.
            keep = len(rest) - sum(1 for p in parts[parts.index(part) + 1 :])
            found, rest = [*found, *rest[:keep]], rest[keep:]
            continue
        if not rest or rest[0] is ...:
            return None
        size = rest.pop(0)
        if isinstance(part, ast.Slice):
            found.append(_sliced(size, part))
        # A name may be a number, a mask or a list of indices.
        elif not isinstance(part, (ast.Constant, ast.UnaryOp)):
            return None
    return (*found, *rest)


def _sliced(size: Dim, part: ast.Slice) -> Dim:
    lower, upper = number(part.lower), number(part.upper)
    if part.lower is None and part.upper is None and part.step is None:
        return size
    if part.step is None and upper is not None and upper >= 0 and (part.lower is None or lower is not None):
        return upper - max(lower or 0, 0)
    if part.step is None and part.upper is None and lower is not None and lower < 0:
        return -lower
    return None


def after(name: str, shape: Shape | None, given: list[ast.expr], keywords: list[ast.keyword]) -> Shape | None:
    """What a method or function makes of its operand's sizes."""
    if name in ("view", "reshape"):
        return _reshaped(_one_by_one(given))
    # Before the shape is asked for: `flatten(1)` says something even of an unknown one.
    if name == "flatten":
        return _flattened(shape, given) if given or keywords else (None,)
    if shape is None or name in _KEEPING:
        return shape
    named = {k.arg: k.value for k in keywords}
    dim = number(given[0] if given else named.get("dim"))
    if name == "unsqueeze":
        return _unsqueezed(shape, dim) if dim is not None else None
    if name == "squeeze":
        return _squeezed(shape, dim)
    if name in _REDUCING:
        keep = named.get("keepdim", given[1] if len(given) > 1 else None)
        return _reduced(shape, dim, keep, given=bool(given or "dim" in named))
    return None


def _one_by_one(sizes: list[ast.expr]) -> list[ast.expr]:
    """Sizes that are given as arguments, or as one tuple."""
    return sizes[0].elts if len(sizes) == 1 and isinstance(sizes[0], _ROW) else sizes


def _is_shape(size: ast.expr) -> bool:
    """Whether an argument may stand for several sizes: `x.shape`, `*sizes`."""
    return isinstance(size, ast.Starred) or terminal(size) in ("shape", "size")


def _reshaped(sizes: list[ast.expr]) -> Shape | None:
    # `x.view(self.size)` may be a whole shape.
    if len(sizes) == 1 and (_is_shape(sizes[0]) or isinstance(sizes[0], ast.Attribute)):
        return None
    # What -1 stands for is not written there.
    return tuple(None if number(s) == -1 else size_of(s) for s in sizes) or None


def _flattened(shape: Shape | None, given: list[ast.expr]) -> Shape | None:
    """The sizes of `x.flatten(1)`."""
    first = shape[0] if shape and len(given) == 1 and number(given[0]) == 1 else ...
    return None if first is ... else (first, None)


def _unsqueezed(shape: Shape, dim: int) -> Shape | None:
    if ... in shape:
        return (*shape, 1) if dim == -1 else None
    place = dim if dim >= 0 else len(shape) + 1 + dim
    return (*shape[:place], 1, *shape[place:])


def _squeezed(shape: Shape, dim: int | None) -> Shape | None:
    if dim is None:
        return None if ... in shape or None in shape else tuple(d for d in shape if d != 1)
    if (... in shape and dim != -1) or not -len(shape) <= dim < len(shape):
        return None
    place = dim % len(shape)
    # `squeeze` of a dimension that is not 1 does nothing.
    return (*shape[:place], *shape[place + 1 :]) if shape[place] == 1 else (shape if many(shape[place]) else None)


def _reduced(shape: Shape, dim: int | None, keep: ast.expr | None, given: bool) -> Shape | None:
    if not given:
        return ()
    if dim is None or (... in shape and dim != -1) or not -len(shape) <= dim < len(shape) or shape[dim] is ...:
        return None
    place = dim % len(shape)
    kept: Shape = (1,) if is_literal(keep, True) else ()
    return (*shape[:place], *kept, *shape[place + 1 :])


def written(node: ast.Call, name: str) -> Shape | None:
    """The sizes that a factory is given; for `torch.tensor` those of the list."""
    if name in ("arange", "linspace", "randperm"):
        return (None,)
    if name in ("tensor", "as_tensor"):
        return _of_list(node.args[0] if node.args else None)
    sizes = node.args
    if name in ("randint", "full", "normal"):
        # Beside the bounds, or the value that fills it, the size is the last tuple.
        given = keyword(node, "size") or next((a for a in reversed(node.args) if isinstance(a, _ROW)), None)
        if not isinstance(given, _ROW):
            return None
        sizes = [given]
    sizes = _one_by_one(sizes)
    return None if any(map(_is_shape, sizes)) else tuple(map(size_of, sizes))


def _of_list(value: ast.expr | None) -> Shape | None:
    """The sizes of nested lists of numbers, by the first element of each."""
    shape: list[Dim] = []
    while isinstance(value, _ROW) and value.elts:
        shape.append(len(value.elts))
        value = value.elts[0]
    return tuple(shape) if isinstance(value, (ast.Constant, ast.UnaryOp)) else None


def size_of(node: ast.expr | None) -> Dim:
    """A size as it is written: its number, else the name that stands for it."""
    plain = number(node)
    if plain is not None:
        return plain
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else None


def number(node: ast.AST | None) -> int | None:
    """A whole number that is written down, negative ones included."""
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    # `True` is an `int` as well, and no size.
    plain = isinstance(node, ast.Constant) and type(node.value) is int
    return sign * node.value if plain else None  # type: ignore[union-attr]


def many(size: Dim) -> bool:
    """Whether a dimension has more than one entry, batches of one aside."""
    return size != 1 and size is not ...
