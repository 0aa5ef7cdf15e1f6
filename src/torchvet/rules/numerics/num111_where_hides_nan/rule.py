"""NUM111: `torch.where` picks the good branch, but the gradient of the other one is NaN."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Finding, Iterator, Measured, Recording, Rule, Severity, SourceFile
from torchvet.rules.numerics import _nonfinite_words as say
from torchvet.rules.numerics import _runs, _terms
from torchvet.rules.numerics.fixes.where_branches import Hidden, chosen_first
from torchvet.source.model import Event, receiver, terminal, walk

_SINGULAR = (
    "log",
    "log2",
    "log10",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "acos",
    "asin",
    "arccos",
    "arcsin",
    "atanh",
    "acosh",
)
_SAFE = ("clamp", "clamp_min", "clip", "where", "maximum", "exp", "sigmoid", "softplus", "masked_fill", "softmax",
         "ones_like", "cosh", "relu")  # fmt: skip
"""Calls whose result is away from the singular point, or (relu) whose backward drops what is NaN there."""

_SHAPING = ("view", "reshape", "unsqueeze", "squeeze", "sum", "mean", "float", "to", "expand", "square", "abs", "sqrt")
"""Methods whose result is at the singular point only where what they are called on is."""


class WhereHidesNan(Rule):
    """`torch.where` picks the good branch, but the gradient of the other one is NaN."""

    code = "NUM111"
    name = "where-hides-nan"
    summary = "`torch.where` hides a branch whose gradient is NaN all the same"
    severity = "warning"
    specialises = "NUM101"
    words = ("where(",)

    fix_changes_results = True

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """A gradient that went into the branch not taken and came out NaN."""
        for rank, failure, severity in _runs.failures(recording, "where-branch"):
            zeros = max((o.zeros for o in failure.operands), default=0)
            at = f"; {zeros:,} elements are 0 there" if zeros else ""
            yield self.observed(
                rank, severity=severity, place=failure.place,
                message=f"in step {failure.tick} {say.operator(failure)} gives NaN in the branch that "
                f"torch.where did not take{at}",
                cause="backward runs through both branches, and the one not taken multiplies 0 by an infinite "
                "derivative",
                advice="make the argument safe before the function, e.g. `torch.where(x > 0, x, 1.0)`, and compute "
                "from that",
                measured=Measured(steps=failure.tick),
            )  # fmt: skip

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A branch with a singular function of what the condition asks about."""
        for event in file.calls("where"):
            if file.dotted(event.call.func) != "torch.where" or len(event.call.args) != 3:
                continue
            if file.gradients.enabled(event) == "no" or file.gradients.carries(event.node, event) == "no":
                continue
            found = list(self._hidden(event))
            if found:
                yield self._finding(file, event, found)

    def _hidden(self, event: Event) -> Iterator[Hidden]:
        """The singular expressions of branches, each with its argument, which the condition is about."""
        condition, _ = _terms.meaning(event.call.args[0], event)
        asked = _names(condition)
        for branch in event.call.args[1:]:
            value, at = _terms.meaning(branch, event)
            for whole, argument in _singular(value, at):
                about, where = _terms.meaning(argument, at)
                if _is_safe(about, where) or not asked & (_names(argument) | _names(about)):
                    continue
                if _is_threshold(argument, condition):
                    continue
                if event.unit.file.gradients.carries(argument, at) != "no":
                    yield Hidden(whole, argument, branch, value, at)

    def _finding(self, file: SourceFile, event: Event, found: list[Hidden]) -> Finding:
        whole, argument = found[0].whole, found[0].argument
        trained = any(e.index > event.index for e in event.unit.calls.get("backward", ()))
        named = event.unit.name in ("forward", "loss", "compute_loss", "training_step")
        sure = trained or named or file.gradients.carries(argument, event) == "yes"
        severity: Severity = "warning" if sure else "info"
        name, what = file.segment(argument), file.segment(whole)
        return self.suspect(
            file, event, f"torch.where hides {what}, but its gradient where the condition fails is 0 times inf: NaN",
            severity=severity,
            cause="backward runs through both branches, and the one not taken multiplies 0 by an infinite derivative",
            advice=f"make {name} safe first, e.g. `torch.where(<condition>, {name}, 1.0)`, and compute from that",
            edits=chosen_first(file, event, found),
        )  # fmt: skip


def _names(node: ast.expr) -> set[str]:
    """Variables and attributes of `self` that an expression reads, functions and modules left out."""
    functions = {id(n.func) for n in walk(node) if isinstance(n, ast.Call)}
    found = set()
    for one in walk(node):
        if (
            isinstance(one, ast.Name)
            and id(one) not in functions
            and one.id not in ("torch", "self", "F", "math", "np")
        ):
            found.add(one.id)
        elif isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self":
            found.add(f"self.{one.attr}")
    return found


def _is_threshold(argument: ast.expr, condition: ast.expr) -> bool:
    """Whether the condition holds something else against an argument: `error < beta` does not ask if `beta` is 0."""
    sides = [
        (one, other)
        for c in walk(condition) if isinstance(c, ast.Compare) and len(c.ops) == 1
        for one, other in ((c.left, c.comparators[0]), (c.comparators[0], c.left))
        if _terms.same(one, argument)
    ]  # fmt: skip
    plain = isinstance(argument, (ast.Name, ast.Attribute))
    return plain and bool(sides) and not any(_is_bound(other) for _, other in sides)


def _is_bound(node: ast.expr) -> bool:
    """Whether a side of a comparison is a number, or a small one by its name."""
    return isinstance(node, (ast.Constant, ast.UnaryOp)) or _terms.mentions(node, "eps", "EPS", "tol", "zero", "tiny")


def _singular(node: ast.expr, event: Event) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Singular functions in an expression, each with its argument."""
    file = event.unit.file
    for one in walk(node):
        if isinstance(one, ast.Call):
            argument = _terms.operand_of(file, one, *_SINGULAR)
            if argument is not None:
                yield one, argument
            if terminal(one) == "pow" and receiver(one) is not None and one.args:
                base = _terms.operand_of(file, one, "pow")
                if base is not None and _fractional(one.args[-1], event):
                    yield one, base
        elif isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div) and not isinstance(one.right, ast.Constant):
            yield one, one.right
        elif isinstance(one, ast.BinOp) and isinstance(one.op, ast.Pow) and _fractional(one.right, event):
            yield one, one.left


def _fractional(node: ast.expr, event: Event) -> bool:
    value = _terms.number(node, event.unit)
    return value is not None and value < 1 and value != 0


def _is_safe(node: ast.expr, event: Event) -> bool:
    """Whether an argument is kept away from the singular point: clamped, chosen, or with something added."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Add):
            parts = (node.left, node.right)
            return any((_terms.number(p, event.unit) or 0) > 0 or _terms.mentions(p, "eps", "EPS") for p in parts)
        if isinstance(node.op, ast.Mult):
            return _is_safe(node.left, event) and _is_safe(node.right, event)
        return isinstance(node.op, ast.Div) and _is_safe(node.left, event)
    if isinstance(node, (ast.Subscript, ast.UnaryOp)):
        return _is_safe(node.value if isinstance(node, ast.Subscript) else node.operand, event)
    shaped = _terms.operand_of(event.unit.file, node, *_SHAPING)
    if shaped is not None:
        return _is_safe(*_terms.meaning(shaped, event))
    return isinstance(node, ast.Call) and terminal(node) in _SAFE
