"""Edits that keep an operator away from the place where it, or its gradient, has no value."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchvet.finding import Edit
from torchvet.rules.mending import events_at
from torchvet.source.model import edits
from torchvet.source.model.units import receiver, terminal

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.source.model import SourceFile

_WITHIN = "clamp(-1 + 1e-6, 1 - 1e-6)"
_BEFORE = {
    **dict.fromkeys(("sqrt", "rsqrt"), "add(1e-12)"),
    **dict.fromkeys(("log", "log2", "log10"), "clamp(min=1e-12)"),
    **dict.fromkeys(("acos", "arccos", "asin", "arcsin", "atanh"), _WITHIN),
}
"""What an operand goes through first. A root's gradient at 1e-12 is 5e5, an arc cosine's a millionth within its domain
702 in float32 (torch 2.13.0, measured); a logarithm at 1e-12 is -27.6."""
_DIVISORS = {"norm": "clamp(min=1e-12)", "std": "clamp(min=1e-12)", "vector_norm": "clamp(min=1e-12)"}
"""What is never negative and is divided by."""
_WORD = re.compile(r"[a-z]\w*")


def guarded(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """The edit for the operator on a finding's line that its message names; for a division, for its divisor."""
    told = set(_WORD.findall(finding.message))
    calls = [e.call for e in events_at(file, finding) if isinstance(e.node, ast.Call)]
    named = [one for one in calls if terminal(one) in _BEFORE and terminal(one) in told]
    divides = bool(told & {"div", "division", "divide", "reciprocal"})
    roots = [one for one in calls if divides and terminal(one) in ("sqrt", *_DIVISORS)]
    if "negative" in finding.cause or len(named or roots) != 1:
        return ()
    call = (named or roots)[0]
    name = terminal(call)
    return _after(file, call, _DIVISORS[name]) if name in _DIVISORS else _before(file, call, _BEFORE[name])


def _after(file: SourceFile, call: ast.Call, method: str) -> Sequence[Edit]:
    place = edits.end_of(file, call)
    return [Edit(path=file.path, start=place, end=place, text=f".{method}")]


def _before(file: SourceFile, call: ast.Call, method: str) -> Sequence[Edit]:
    """`x.sqrt()` and `torch.sqrt(x)`, the operand by way of a method."""
    if file.dotted(call.func).startswith("torch."):
        given = call.args[0] if len(call.args) == 1 and not call.keywords else None
        if given is None or given.lineno != given.end_lineno or isinstance(given, ast.Starred):
            return ()
        text = file.segment(given)
        plain = isinstance(given, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
        return [edits.replace(file, given, f"{text if plain else f'({text})'}.{method}")]
    if receiver(call) is None:
        return ()
    line, column = edits.end_of(file, call.func)
    dotted = f".{terminal(call)}"
    start = column - len(dotted)
    if file.lines[line - 1][start - 1 : column - 1] != dotted:
        return ()
    return [Edit(path=file.path, start=(line, start), end=(line, start), text=f".{method}")]
