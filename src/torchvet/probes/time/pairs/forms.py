"""What is known of a tensor of differences of all pairs of rows: its shapes, and what was done to each element."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch

from torchvet.recording.records.timing import Distance

Shape = tuple[int, ...]
_TIMES = 4
"""How many times as many elements as its larger operand a table has at least."""
_SHIFT = 1e-5
"""What `torch.nn.functional.pairwise_distance` adds is less: it keeps a root from zero."""


class Form(NamedTuple):
    """The operands' shapes without what is repeated, in as many dimensions as the result, which element-wise operators
    made it what it is, and the dimensions that are summed up.

    A factor is a step as well: the shape of the tensor (of one element for a number).
    """

    left: Shape
    right: Shape
    dtype: torch.dtype
    learned: tuple[bool, bool]
    """Which of the operands want gradients."""
    steps: tuple[str | Shape, ...]
    dims: tuple[int, ...] = ()

    @property
    def shape(self) -> Shape:
        """Of the differences."""
        return tuple(max(pair) for pair in zip(self.left, self.right, strict=True))

    @property
    def elements(self) -> int:
        """Of the differences."""
        return prod(self.shape)

    @property
    def own(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The dimensions that number the rows of the left operand, and those of the right one's."""
        sizes = list(enumerate(zip(self.left, self.right, strict=True)))
        return tuple(n for n, (a, b) in sizes if a > b == 1), tuple(n for n, (a, b) in sizes if b > a == 1)

    @property
    def rows(self) -> tuple[int, int]:
        """Of the left operand, and of the right one."""
        left, right = self.own
        return prod(self.left[n] for n in left), prod(self.right[n] for n in right)

    @property
    def width(self) -> int:
        """Elements of a row."""
        return prod(self.shape[n] for n in self.dims)

    @property
    def power(self) -> int:
        """0 for differences as they are, 1 for their sizes, 2 for squares."""
        return 2 if {"square", "mse_loss"}.intersection(self.steps) else int("abs" in self.steps)

    def then(self, step: str | Shape) -> Form:
        """With one more step."""
        return self._replace(steps=(*self.steps, step))


class Move(NamedTuple):
    """What an operator makes of a table: another one, or the distances."""

    form: Form
    distance: Distance | None = None


def shapes_of(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> tuple[Shape, Shape] | None:
    """The shapes of operands that both are repeated, in different dimensions, for a result that is several times larger
    than each; None where they are not, or have no further dimension in common."""
    shapes = _unrepeated(left, out.ndim), _unrepeated(right, out.ndim)
    form = Form(*shapes, out.dtype, (False, False), ())
    larger = _TIMES * max(prod(shapes[0]), prod(shapes[1])) <= out.numel()
    common = any(a == b > 1 for a, b in zip(*shapes, strict=True))
    # Where both are repeated in one dimension the table is larger than that of the pairs.
    return shapes if all(form.own) and larger and common and form.shape == tuple(out.shape) else None


def _unrepeated(tensor: torch.Tensor, ndim: int) -> Shape:
    """A shape as it was before `expand`, in this many dimensions."""
    own = [1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return (*(1,) * (ndim - len(own)), *own)


def move(form: Form, name: str, given: torch.Tensor, args: Sequence[Any], kwargs: Any, out: Any) -> Move | None:
    """What an operator with this name makes of a table, or of what was made of one element by element; None where that
    could not be had without the table."""
    name = name.rstrip("_")
    # Such as another dtype, or `alpha`.
    if tuple(given.shape) != form.shape or kwargs:
        return None
    if name in ("sum", "mean", "linalg_vector_norm", "norm"):
        return _reduced(form, name, args)
    if not isinstance(out, torch.Tensor) or tuple(out.shape) != form.shape or out.dtype is not form.dtype:
        return None
    if name in ("detach", "alias", "neg"):
        return Move(form)
    if name in ("mul", "div"):
        return _multiplied(form, name, given, args)
    further = _further(form, name, args)
    return None if further is None else Move(further)


def _further(form: Form, name: str, args: Sequence[Any]) -> Form | None:
    """By operators of one operand."""
    other = args[1] if len(args) > 1 else None
    if name == "abs":
        return form if form.power else form.then("abs")
    if name == "pow" and other == 2 and form.power < 2:
        return form.then("square")
    if name == "add" and isinstance(other, float) and abs(other) <= _SHIFT and not form.power and len(args) == 2:
        return form.then("shift")
    return None


def _multiplied(form: Form, name: str, given: torch.Tensor, args: Sequence[Any]) -> Move | None:
    """By itself, or by what is the same for all pairs: a number, or one for each element of a row."""
    left, right = args[:2]
    if _same(left, right):
        return Move(form.then("square")) if name == "mul" and not form.power else None
    if name == "div" and given is not left:
        return None
    shape = _shape_of_factor(form, right if given is left else left)
    if shape is None or any(shape[n] > 1 for own in form.own for n in own):
        return None
    return Move(form.then(shape))


def _same(left: Any, right: Any) -> bool:
    """Whether two tensors are one."""
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return False
    return left.data_ptr() == right.data_ptr() and left.stride() == right.stride() and left.shape == right.shape


def _shape_of_factor(form: Form, factor: Any) -> Shape | None:
    """In as many dimensions as the differences; None where it is of another dtype."""
    ndim = len(form.shape)
    if not isinstance(factor, torch.Tensor):
        return (1,) * ndim
    converts = factor.ndim > 0 and factor.dtype is not form.dtype
    return None if converts or factor.ndim > ndim else _unrepeated(factor, ndim)


def _reduced(form: Form, name: str, args: Sequence[Any]) -> Move | None:
    """Summed up over what rows have in common."""
    norm = name in ("linalg_vector_norm", "norm")
    given = args[2] if norm and len(args) > 2 else args[1] if not norm and len(args) > 1 else None
    dims = [given] if isinstance(given, int) else given
    if not isinstance(dims, (list, tuple)) or not dims:
        return None
    done = form._replace(dims=tuple(sorted(dim % len(form.shape) for dim in dims)))
    if any(n in own for own in form.own for n in done.dims) or done.width < 2:
        return None
    distance = _norm(form, args[1]) if norm else _sum(form)
    return None if distance is None else Move(done.then(name), distance)


def _norm(form: Form, order: Any) -> Distance | None:
    if form.power > 1 or order not in (1, 2):
        return None
    return "absolute" if order == 1 else "root"


def _sum(form: Form) -> Distance | None:
    # A sum of the differences themselves is no distance.
    found: tuple[Distance | None, ...] = (None, "absolute", "squares")
    return found[form.power]
