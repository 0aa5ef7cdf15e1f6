"""Logarithms of what the text shows to reach 0: of one minus an exponential, of a masked sum, of a difference."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.rules.numerics import _terms
from torchvet.rules.numerics._formulas import Form, Formula
from torchvet.source.model import Event, calls_in, is_call, name_set, terminal, walk

_ONE_MINUS_EXP = Form(
    "0 where {of} is below -17.3, and -inf where it is so near 0 that exp gives 1",
    "1 - exp(x) keeps nothing of an exp below 6e-8, and is 0 where exp(x) rounds to 1",
    "use log1p(-exp(x)) where exp(x) is small, log(-expm1(x)) where x is near 0",
    grave=False,
)
_MASKED_SUM = Form(
    "-inf where {of} leaves no term, or only such as underflow",
    "a sum of which every term is masked is 0",
    "add a small number to the sum, or use logsumexp of the scores filled with finfo.min",
    grave=False,
)
_DIFFERENCE = Form(
    "-inf where {of} is 0, as of a box without width",
    "two parts of one tensor may be equal, and nothing keeps their difference above 0",
    "clamp the difference to a small number, or add one",
    grave=False,
)
_MASKING = name_set("""
    eq ne gt lt ge le bool logical_not logical_and logical_or tril triu eye scatter scatter_ fill_diagonal_ isin
""")
"""Functions whose results are masks, or put zeros into one."""


def of_zeros(file: SourceFile) -> Iterator[Formula]:
    """Every such logarithm of a file."""
    if not file.mentions("log("):
        return
    for event in file.calls("log"):
        inner = _terms.operand_of(file, event.node, "log")
        if inner is not None:
            value, at = _terms.meaning(inner, event)
            found = _of_one_minus_exp(event, value, at) or _of_masked_sum(event, value, at)
            found = found or _of_difference(event, value, at)
            if found is not None:
                yield found


def _of_one_minus_exp(event: Event, value: ast.expr, at: Event) -> Formula | None:
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Sub):
        return None
    one = isinstance(value.left, ast.Constant) and value.left.value == 1
    exp, there = _terms.meaning(value.right, at)
    of = _terms.operand_of(there.unit.file, exp, "exp") if one else None
    if of is None:
        return None
    file, call = event.unit.file, event.call
    head = file.segment(call.func)
    # Only where all of it is one function in one piece.
    whole = len(call.args) == 1 and call.args[0] is value and exp is value.right and call.lineno == call.end_lineno
    twin = f"{head}1p(-{file.segment(exp)})" if whole and file.dotted(call.func) == "torch.log" else ""
    return Formula(event, call, _ONE_MINUS_EXP, of, twin)


def _of_masked_sum(event: Event, value: ast.expr, at: Event) -> Formula | None:
    file = event.unit.file
    summed = _terms.operand_of(file, value, "sum") if is_call(value, "sum") else None
    product, there = _terms.meaning(summed, at) if summed is not None else (value, at)
    if summed is None or not isinstance(product, ast.BinOp) or not isinstance(product.op, ast.Mult):
        return None
    for one, other in ((product.left, product.right), (product.right, product.left)):
        exp = _terms.operand_of(file, _terms.meaning(one, there)[0], "exp")
        if exp is not None and _is_mask(*_terms.meaning(other, there)):
            return Formula(event, event.call, _MASKED_SUM, other)
    return None


def _is_mask(node: ast.expr, at: Event) -> bool:
    """Whether an expression compares, or puts zeros among ones; products of masks are masks."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return any(_is_mask(*_terms.meaning(one, at)) for one in (node.left, node.right))
    if any(isinstance(n, (ast.Compare, ast.Invert)) for n in walk(node)):
        return True
    return any(terminal(call) in _MASKING for call in calls_in(node))


def _of_difference(event: Event, value: ast.expr, at: Event) -> Formula | None:
    """`log((box[:, 2:] - box[:, :2]) / size)`."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
        value, at = _terms.meaning(value.left, at)
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Sub):
        return None
    left, right = value.left, value.right
    parts = (
        isinstance(left, ast.Subscript) and isinstance(right, ast.Subscript) and _terms.same(left.value, right.value)
    )
    return Formula(event, event.call, _DIFFERENCE, value) if parts and _picks_columns(left, right) else None


def _picks_columns(*nodes: ast.expr) -> bool:
    """Whether each is `x[:, 2]` or `x[:, 2:]`: corners of boxes. `x[..., 1:] - x[..., :-1]` are steps of a sequence."""
    indices = [getattr(node, "slice", None) for node in nodes]
    signed = any(isinstance(n, ast.USub) for index in indices if index is not None for n in ast.walk(index))
    return not signed and all(
        isinstance(index, ast.Tuple) and isinstance(index.elts[0], ast.Slice) for index in indices
    )
