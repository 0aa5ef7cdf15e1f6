"""Edits that keep an operator away from the place where it, or its gradient, has no value."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Edit, Finding, Sequence, SourceFile, about, events_at
from torchvet.source import model

_WITHIN = "clamp(-1 + 1e-6, 1 - 1e-6)"
_BEFORE = {
    **dict.fromkeys(("sqrt", "rsqrt"), "add(1e-12)"),
    **dict.fromkeys(("log", "log2", "log10"), "clamp(min=1e-12)"),
    **dict.fromkeys(("acos", "arccos", "asin", "arcsin", "atanh"), _WITHIN),
}
"""What an operand goes through first. A root's gradient at 1e-12 is 5e5, an arc cosine's a millionth within its domain
702 in float32 (torch 2.13.0, measured); a logarithm at 1e-12 is -27.6."""
_SPREADS = ("std", "var", "std_mean", "var_mean")
_DIVISORS = dict.fromkeys(("norm", "std", "vector_norm"), "clamp(min=1e-12)")
"""What is never negative and is divided by."""
_COUNTS = re.compile(r"mask|valid|weight|count|keep|present|visible|active|select|attend")
_ALIGNING, _LEAVES_OUT = ("torch.nn.CTCLoss", "torch.nn.functional.ctc_loss"), "zero_infinity"
_SAME = model.name_set(
    "to float double half bfloat16 int long bool type type_as view unsqueeze squeeze detach reshape expand eq ne gt ge "
    "lt le"
)
"""What leaves a mask one, or makes one."""
_DIVIDES = model.name_set("div divide reciprocal")
_NEGATIVE = ("log-of-negative", "root-of-negative")
"""What no small amount brings back into the operator's domain."""


def guarded(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """The edit for the operator on a finding's line that gave what is not finite; for a division, for its divisor."""
    variant = about(finding).variant
    if variant == "single-sample":
        return _of_one(file, finding)
    if variant == "no-alignment":
        return _left_out(file, finding)
    return () if variant in _NEGATIVE else _of_operator(file, finding)


def _left_out(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """`zero_infinity=True` for the CTC loss of the line, or where its module is made."""
    made = [
        call
        for event in events_at(file, finding)
        if isinstance(event.node, ast.Call)
        for call in model.origins.modules_made(event) or [event.call]
        if file.dotted(call.func) in _ALIGNING and all(one.arg != _LEAVES_OUT for one in call.keywords)
    ]
    return model.edits.with_argument(file, made[0], f"{_LEAVES_OUT}=True") if len(made) == 1 else ()


def _of_operator(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    seen = about(finding)
    calls = [e.call for e in events_at(file, finding) if isinstance(e.node, ast.Call)]
    wanted = [one for one in calls if model.terminal(one) in _BEFORE and model.terminal(one) in seen.operands]
    if not wanted and not _DIVIDES.isdisjoint(seen.operands):
        wanted = [one for one in calls if model.is_call(one, "sqrt", *_DIVISORS)]
    if not wanted and seen.variant == "zero-by-zero":
        return _counted(file, finding)
    if len(wanted) != 1:
        return ()
    name = model.terminal(wanted[0])
    return _after(file, wanted[0], _DIVISORS[name]) if name in _DIVISORS else _before(file, wanted[0], _BEFORE[name])


def _of_one(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """`x.std(correction=min(1, x.numel() - 1))`, which is 0 for a single sample, and what it was for more."""
    calls = [e.call for e in events_at(file, finding) if model.is_call(e.node, *_SPREADS)]
    calls = [one for one in calls if model.terminal(one) in about(finding).operands]
    of = model.receiver(calls[0]) if len(calls) == 1 else None
    number = _number_of_samples(file, calls[0]) if of is not None else ""
    # It is written twice: a call would run twice.
    if of is None or not number or not model.root_of(of) or file.dotted(of).startswith("torch"):
        return ()
    return model.edits.with_argument(file, calls[0], f"correction=min(1, {model.edits.operand(file, of)}.{number} - 1)")


def _number_of_samples(file: SourceFile, call: ast.Call) -> str:
    """The method that gives how many values a spread is of; empty for several dimensions, and where the call says how
    to correct."""
    given = {k.arg: k.value for k in call.keywords}
    if len(call.args) > 1 or not given.keys() <= {"keepdim", "dim"}:
        return ""
    over = call.args[0] if call.args else given.get("dim")
    if over is None:
        return "numel()"
    value = over.operand if isinstance(over, ast.UnaryOp) else over
    # A bool would be `unbiased`.
    return f"size({file.segment(over)})" if isinstance(value, ast.Constant) and type(value.value) is int else ""


def _counted(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """`total / mask.sum(1)`, by itself or by a name that is nothing else: what was selected may be nothing."""
    events = events_at(file, finding)
    whole = {id(e.statement): e.statement for e in events}.values()
    divisions = {
        id(n): n for s in whole for n in model.walk(s) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)
    }
    divisors = [n.right for n in divisions.values()]
    if len(divisors) != 1 or not _is_count(file, _meant(divisors[0], events[0])):
        return ()
    return _after(file, divisors[0], "clamp(min=1e-6)")


def _meant(node: ast.expr, event: model.Event) -> ast.expr | None:
    """What a name stands for where it is bound once, by itself."""
    if not isinstance(node, ast.Name):
        return node
    bound = event.unit.bindings.get(node.id, ())
    made = bound[0].node if len(bound) == 1 else None
    lone = isinstance(made, ast.Assign) and len(made.targets) == 1 and isinstance(made.targets[0], ast.Name)
    return made.value if lone and isinstance(made, ast.Assign) else None


def _is_count(file: SourceFile, node: ast.expr | None) -> bool:
    """Whether a call adds up a mask, which is never negative, and gives a tensor."""
    node = model.under_methods(node, _SAME)
    of = model.under_methods(model.operand(file, node), _SAME) if model.is_call(node, "sum", "count_nonzero") else None
    return isinstance(of, ast.Compare) or (of is not None and bool(_COUNTS.search(model.terminal(of).lower())))


def _after(file: SourceFile, call: ast.expr, method: str) -> Sequence[Edit]:
    return [model.edits.insert(file, model.edits.end_of(file, call), f".{method}")]


def _before(file: SourceFile, call: ast.Call, method: str) -> Sequence[Edit]:
    """`x.sqrt()` and `torch.sqrt(x)`, the operand by way of a method."""
    if file.dotted(call.func).startswith("torch."):
        given = call.args[0] if len(call.args) == 1 and not call.keywords else None
        plain = given is not None and model.edits.on_one_line(given) and not isinstance(given, ast.Starred)
        return [model.edits.called_on(file, given, method)] if plain and given is not None else ()
    if model.receiver(call) is None:
        return ()
    line, column = model.edits.end_of(file, call.func)
    start = column - len(f".{model.terminal(call)}")
    dotted = file.lines[line - 1][start - 1 : column - 1] == f".{model.terminal(call)}"
    return [model.edits.insert(file, (line, start), f".{method}")] if dotted else ()
