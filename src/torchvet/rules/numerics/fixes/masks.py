"""Edits for a softmax over rows that a mask has left nothing of: filled with a finite number, a row is uniform."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Finding, Sequence, SourceFile, events_at
from torchvet.source.model import Event, edits, keyword, receiver, terminal

_FILLS = ("masked_fill", "masked_fill_")
_INFINITE = ("math.inf", "torch.inf", "numpy.inf")


def filled_finitely(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """`torch.finfo(scores.dtype).min` in the place of each -inf that the scores of the one softmax on a line have been
    filled with, by name, in the same function; nothing where another filling of them is not understood."""
    found = [e for e in events_at(file, finding) if isinstance(e.node, ast.Call) and _is_softmax(e.call)]
    scores = _scores(file, found[0]) if len(found) == 1 else None
    if scores is None or not knows_finfo(file):
        return ()
    made: list[Edit] = []
    for name in _FILLS:
        for event in found[0].unit.calls.get(name, ()):
            on, value = receiver(event.call), _value(event.call)
            if event.index >= found[0].index or on is None or value is None or ast.unparse(on) != scores:
                continue
            if _is_minus_infinity(file, value):
                made.append(edits.replace(file, value, f"torch.finfo({scores}.dtype).min"))
    return made


def knows_finfo(file: SourceFile) -> bool:
    """Whether `torch.finfo` can be written in a file: its name is bound, and nothing is scripted, which lacks it."""
    return file.imports.names.get("torch") == "torch" and not file.mentions("jit.script")


def _is_softmax(call: ast.Call) -> bool:
    return terminal(call) in ("softmax", "log_softmax")


def _scores(file: SourceFile, event: Event) -> str | None:
    """What a softmax is over, as a chain of names; where it is filled right there, what is filled."""
    dotted = file.dotted(event.call.func)
    node: ast.expr | None = receiver(event.call)
    if dotted.startswith("torch."):
        node = event.call.args[0] if event.call.args else None
    while isinstance(node, ast.Call) and terminal(node) in _FILLS:
        node = receiver(node)
    chain: ast.AST | None = node
    while isinstance(chain, ast.Attribute):
        chain = chain.value
    return ast.unparse(node) if node is not None and isinstance(chain, ast.Name) else None


def _value(call: ast.Call) -> ast.expr | None:
    return call.args[1] if len(call.args) == 2 else keyword(call, "value")


def _is_minus_infinity(file: SourceFile, node: ast.expr) -> bool:
    """`float("-inf")`, `-float("inf")`, `-math.inf` and their like."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    if isinstance(inner, ast.Call) and terminal(inner) == "float" and len(inner.args) == 1:
        text = inner.args[0].value if isinstance(inner.args[0], ast.Constant) else None
        return text in (("inf", "infinity") if negative else ("-inf", "-infinity"))
    return negative and file.dotted(inner) in _INFINITE
