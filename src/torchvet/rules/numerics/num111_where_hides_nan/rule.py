"""NUM111: `torch.where` picks the good branch, but the gradient of the other one is NaN."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Finding, Iterator, Recording, Sequence, Severity, SourceFile, count, unit_of
from torchvet.rules.numerics import _runs, _terms
from torchvet.rules.numerics.fixes.where_branches import Hidden, chosen_first
from torchvet.source.model import Event, calls_in, destinations, is_call, name_set, terminal, walk

_SINGULAR = name_set("log log2 log10 sqrt rsqrt reciprocal acos asin arccos arcsin atanh acosh")
_OVERFLOWING = name_set("exp exp2 expm1 cosh sinh")
_SAFE = name_set("clamp clamp_min clip where maximum exp sigmoid softplus masked_fill softmax ones_like cosh relu")
"""Calls whose result is away from the singular point, or (relu) whose backward drops what is NaN there."""
_SHAPING = name_set("view reshape unsqueeze squeeze sum mean float to expand square abs sqrt")
"""Methods whose result is at the singular point only where what they are called on is."""
_NO_VARIABLES = ("torch", "self", "F", "math", "np")
_CAUSE = "backward runs through both branches, and the one not taken multiplies 0 by an infinite derivative"


class WhereHidesNan(_runs.NumberRule):
    """`torch.where` hides a branch whose gradient is NaN all the same."""

    severity = "warning"
    specialises = "NUM101"
    reasons = ("where-branch",)
    words = ("where(",)
    fix_changes_results = True
    fix_keeps_finite = True

    def failed(self, failure: _runs.Failure, recording: Recording) -> Iterator[Finding]:
        """A gradient that went into the branch not taken and came out NaN."""
        record = failure.record
        backward = record.phase == "backward"
        # Of the operands one is the gradient, which is 0 wherever nothing was chosen.
        zeros = record.argument.zeros if record.argument is not None and backward and record.exact else 0
        at = f"; its argument is 0 at {count(zeros, 'element')}" if zeros else ""
        gives = "NaN" if backward else "an infinity, and NaN as its gradient,"
        message = f"{failure.operator} gives {gives} in the branch that torch.where did not take{at}"
        advice = "make the argument safe before the function, e.g. `torch.where(taken, x, 1.0)`, and compute from that"
        yield self.in_step(failure, message, _CAUSE, advice)

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """The argument of what overflows chosen first. That it gets so large, only a run shows."""
        unit, at = unit_of(file, finding), finding.location
        for where in unit.calls.get("where", ()) if unit is not None else ():
            found = list(_overflowing(file, where)) if _is_choice(file, where) else []
            if at is not None and any(at.line in (where.line, one.whole.lineno) for one in found):
                return chosen_first(file, where, found)
        return ()

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A branch with a singular function of what the condition asks about."""
        for event in file.calls("where"):
            if not _is_choice(file, event):
                continue
            if file.gradients.enabled(event) == "no" or file.gradients.carries(event.node, event) == "no":
                continue
            found = list(self._hidden(event)) if not _ends_without_gradient(file, event) else []
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
                asks = bool(asked & (_names(argument) | _names(about))) and not _is_threshold(argument, condition)
                if asks and not _is_safe(about, where) and event.unit.file.gradients.carries(argument, at) != "no":
                    yield Hidden(whole, argument, branch, value, at)

    def _finding(self, file: SourceFile, event: Event, found: list[Hidden]) -> Finding:
        whole, argument = found[0].whole, found[0].argument
        trained = any(e.index > event.index for e in event.unit.calls.get("backward", ()))
        named = event.unit.name in ("forward", "loss", "compute_loss", "training_step")
        sure = trained or named or file.gradients.carries(argument, event) == "yes"
        severity: Severity = "warning" if sure else "info"
        name, what = file.segment(argument), file.segment(whole)
        message = f"torch.where hides {what}, but its gradient where the condition fails is 0 times inf: NaN"
        advice = f"make {name} safe first, e.g. `torch.where(<condition>, {name}, 1.0)`, and compute from that"
        made = chosen_first(file, event, found)
        return self.suspect(file, event, message, severity=severity, cause=_CAUSE, advice=advice, edits=made)


def _is_choice(file: SourceFile, event: Event) -> bool:
    return file.dotted(event.call.func) == "torch.where" and len(event.call.args) == 3


def _overflowing(file: SourceFile, event: Event) -> Iterator[Hidden]:
    """The expressions of branches that overflow for large arguments."""
    for branch in event.call.args[1:]:
        value, at = _terms.meaning(branch, event)
        for node in walk(value):
            argument = _terms.operand_of(file, node, *_OVERFLOWING)
            if argument is not None and isinstance(node, ast.expr):
                yield Hidden(node, argument, branch, value, at)


def _ends_without_gradient(file: SourceFile, event: Event) -> bool:
    """Whether all that is made of a result, as far as a name of its function, has no gradient: `argmax`, a number."""
    if not isinstance(event.statement, ast.Assign) or event.statement.value is not event.node:
        return False
    flow = destinations.Destinations(file)
    flow.bound_by(next(e for e in event.unit.events if e.node is event.statement))
    return flow.follow().harmless


def _names(node: ast.expr) -> set[str]:
    """Variables and attributes of `self` that an expression reads, without functions and modules."""
    functions = {id(call.func) for call in calls_in(node)}
    names = (n.id for n in walk(node) if isinstance(n, ast.Name) and id(n) not in functions)
    own = (n.attr for n in walk(node) if isinstance(n, ast.Attribute) and terminal(n.value) == "self")
    return {name for name in names if name not in _NO_VARIABLES} | {f"self.{name}" for name in own}


def _is_threshold(argument: ast.expr, condition: ast.expr) -> bool:
    """Whether the condition holds something else against an argument: `error < beta` does not ask if `beta` is 0."""
    compared = [(c.left, c.comparators[0]) for c in walk(condition) if isinstance(c, ast.Compare) and len(c.ops) == 1]
    both = [*compared, *((other, one) for one, other in compared)]
    against = [other for one, other in both if _terms.same(one, argument)]
    plain = isinstance(argument, (ast.Name, ast.Attribute))
    return plain and bool(against) and not any(map(_is_bound, against))


def _is_bound(node: ast.expr) -> bool:
    """Whether a side of a comparison is a number, or a small one by its name."""
    return isinstance(node, (ast.Constant, ast.UnaryOp)) or _terms.mentions(node, "eps", "EPS", "tol", "zero", "tiny")


def _singular(node: ast.expr, event: Event) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Singular functions in an expression, each with its argument."""
    for one in walk(node):
        argument = _argument(one, event)
        if argument is not None and isinstance(one, ast.expr):
            yield one, argument


def _argument(node: ast.AST, event: Event) -> ast.expr | None:
    """What a node has a singular point for: a logarithm's argument, a divisor, the base of a root."""
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Div):
            return None if isinstance(node.right, ast.Constant) else node.right
        return node.left if isinstance(node.op, ast.Pow) and _fractional(node.right, event) else None
    file = event.unit.file
    if is_call(node, "pow") and isinstance(node.func, ast.Attribute) and node.args:
        return _terms.operand_of(file, node, "pow") if _fractional(node.args[-1], event) else None
    return _terms.operand_of(file, node, *_SINGULAR)


def _fractional(node: ast.expr, event: Event) -> bool:
    value = _terms.number(node, event.unit)
    return value is not None and value < 1 and value != 0


def _is_safe(node: ast.expr, event: Event) -> bool:
    """Whether an argument is kept away from the singular point: clamped, chosen, or with something added."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.BinOp):
        return _is_safe_operation(node, event)
    if isinstance(node, (ast.Subscript, ast.UnaryOp)):
        return _is_safe(node.value if isinstance(node, ast.Subscript) else node.operand, event)
    shaped = _terms.operand_of(event.unit.file, node, *_SHAPING)
    if shaped is not None:
        return _is_safe(*_terms.meaning(shaped, event))
    return isinstance(node, ast.Call) and terminal(node) in _SAFE


def _is_safe_operation(node: ast.BinOp, event: Event) -> bool:
    if isinstance(node.op, ast.Add):
        parts = (node.left, node.right)
        return any((_terms.number(p, event.unit) or 0) > 0 or _terms.mentions(p, "eps", "EPS") for p in parts)
    if isinstance(node.op, ast.Mult):
        return _is_safe(node.left, event) and _is_safe(node.right, event)
    return isinstance(node.op, ast.Div) and _is_safe(node.left, event)
