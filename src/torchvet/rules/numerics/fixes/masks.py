"""Edits for a softmax over rows that a mask has left nothing of: filled with a finite number, a row is uniform."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Finding, Sequence, SourceFile, events_at
from torchvet.source.model import Event, argument, edits, is_call, operand, receiver, root_of, steps, under_methods

_FILLS = ("masked_fill", "masked_fill_")
_INFINITE = ("math.inf", "torch.inf", "numpy.inf")


def filled_finitely(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """`torch.finfo(scores.dtype).min` in the place of each -inf that the scores of the one softmax on a line have been
    filled with, by name, in the same function; nothing where another filling of them is not understood."""
    found = [event for event in events_at(file, finding) if is_call(event.node, "softmax", "log_softmax")]
    scores = _scores(file, found[0]) if len(found) == 1 else None
    if scores is None or not knows_finfo(file):
        return ()
    fills = [e for name in _FILLS for e in found[0].unit.calls.get(name, ()) if e.index < found[0].index]
    values = [argument(e.call, "value", 1) for e in fills if steps.text_of(receiver(e.call)) == scores]
    lowest = f"torch.finfo({scores}.dtype).min"
    return [edits.replace(file, one, lowest) for one in values if one is not None and _is_minus_infinity(file, one)]


def knows_finfo(file: SourceFile) -> bool:
    """Whether `torch.finfo` can be written in a file: its name is bound, and nothing is scripted, which lacks it."""
    return file.imports.names.get("torch") == "torch" and not file.mentions("jit.script")


def _scores(file: SourceFile, event: Event) -> str | None:
    """What a softmax is over, as a chain of names; where it is filled right there, what is filled."""
    node = under_methods(operand(file, event.call), _FILLS)
    return steps.text_of(node) if root_of(node) else None


def _is_minus_infinity(file: SourceFile, node: ast.expr) -> bool:
    """`float("-inf")`, `-float("inf")`, `-math.inf` and their like."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    if is_call(inner, "float") and len(inner.args) == 1:
        text = inner.args[0].value if isinstance(inner.args[0], ast.Constant) else None
        return text in (("inf", "infinity") if negative else ("-inf", "-infinity"))
    return negative and file.dotted(inner) in _INFINITE
