"""Edits that keep an operator away from the place where it, or its gradient, has no value."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Edit, Finding, Sequence, SourceFile, about, events_at
from torchvet.source.model import Event, edits, receiver, terminal, walk

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
_COUNTS = re.compile(r"mask|valid|weight|count|keep|present|visible|active|select|attend")
_COUNTED = frozenset(("sum", "count_nonzero"))
_SAME = frozenset(("to", "float", "double", "half", "bfloat16", "int", "long", "bool", "type", "type_as", "view",
                   "unsqueeze", "squeeze", "detach", "reshape", "expand", "eq", "ne", "gt", "ge", "lt",
                   "le"))  # fmt: skip
"""What leaves a mask one, or makes one."""
_DIVIDES = frozenset(("div", "divide", "reciprocal"))
_NEGATIVE = ("log-of-negative", "root-of-negative")
"""What no small amount brings back into the operator's domain."""


def guarded(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """The edit for the operator on a finding's line that gave what is not finite; for a division, for its divisor."""
    seen = about(finding)
    if seen.variant in _NEGATIVE:
        return ()
    calls = [e.call for e in events_at(file, finding) if isinstance(e.node, ast.Call)]
    named = [one for one in calls if terminal(one) in _BEFORE and terminal(one) in seen.operands]
    divides = not _DIVIDES.isdisjoint(seen.operands)
    roots = [one for one in calls if divides and terminal(one) in ("sqrt", *_DIVISORS)]
    if len(named or roots) != 1:
        return _counted(file, finding) if seen.variant == "zero-by-zero" and not named and not roots else ()
    call = (named or roots)[0]
    name = terminal(call)
    return _after(file, call, _DIVISORS[name]) if name in _DIVISORS else _before(file, call, _BEFORE[name])


def _counted(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """`total / mask.sum(1)`, by itself or by a name that is nothing else: what was selected may be nothing."""
    events = events_at(file, finding)
    whole = {id(e.statement): e.statement for e in events}.values()
    divisions = {id(n): n for s in whole for n in walk(s) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)}
    divisors = [n.right for n in divisions.values()]
    counts = [d for d in divisors if _is_count(file, _meant(d, events[0]))]
    if len(divisors) != 1 or not counts:
        return ()
    return _after(file, counts[0], "clamp(min=1e-6)")


def _meant(node: ast.expr, event: Event) -> ast.expr | None:
    """What a name stands for where it is bound once, by itself."""
    if not isinstance(node, ast.Name):
        return node
    bound = event.unit.bindings.get(node.id, ())
    made = bound[0].node if len(bound) == 1 else None
    lone = isinstance(made, ast.Assign) and len(made.targets) == 1 and isinstance(made.targets[0], ast.Name)
    return made.value if lone and isinstance(made, ast.Assign) else None


def _is_count(file: SourceFile, node: ast.expr | None) -> bool:
    """Whether a call adds up a mask, which is never negative, and gives a tensor."""
    while isinstance(node, ast.Call) and terminal(node) in _SAME and receiver(node) is not None:
        node = receiver(node)
    if not isinstance(node, ast.Call) or terminal(node) not in _COUNTED:
        return False
    by_torch = file.dotted(node.func).startswith("torch.")
    of = (node.args[0] if node.args else None) if by_torch else receiver(node)
    while isinstance(of, ast.Call) and terminal(of) in _SAME and receiver(of) is not None:
        of = receiver(of)
    return isinstance(of, ast.Compare) or (of is not None and bool(_COUNTS.search(terminal(of).lower())))


def _after(file: SourceFile, call: ast.expr, method: str) -> Sequence[Edit]:
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
