"""What the rules about loss scaling know of source: passes of a step that go through a scaler, what is scaled, and the
calls that make scalers."""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from torchvet.rules.kit import Effect, SourceFile, Step
from torchvet.rules.shared.order_rule import OrderRule, Pass
from torchvet.source.model import Event, Unit, is_attribute, is_set, origins, receiver, target_names, terminal, walk
from torchvet.source.syntax import expression

_PRECISION = re.compile(r"amp\b|amp_|_amp|scaler|fp16|bf16|float16|half|precision|mixed|dtype|cuda|device|autocast")
"""Words of a condition that chooses between training with and without a scaler."""
_MADE = frozenset(("GradScaler", "ShardedGradScaler"))


class ScaledPass(Pass):
    """One pass through a training step that has to do with a scaler."""

    def __init__(self, step: Step) -> None:
        super().__init__(step)
        self.scaled = [e for e in self.backwards if is_scaled(e)]
        self.steps = self.of("scaler_step")

    def chooses_precision(self, effect: Effect, other: Effect) -> bool:
        """Whether an effect stands under a condition of its own that may mean "without a scaler"."""
        return any(_PRECISION.search(text.lower()) for text, _ in self.conditions(effect) - self.conditions(other))


class ScalerOrderRule(OrderRule[ScaledPass]):
    """A rule about the order of what a step does through its scaler."""

    def passes(self, file: SourceFile) -> list[ScaledPass]:
        """See `scaled_passes`."""
        return scaled_passes(file)


@lru_cache(maxsize=1)
def scaled_passes(file: SourceFile) -> list[ScaledPass]:
    """The passes of a file that go through a scaler; a loop over calls of a function with a loop is none. Kept for the
    file that was asked about last."""
    if not file.mentions("caler"):
        return []
    # Where a loop calls a function that loops over batches, both are steps to the source model: the inner one counts.
    mine = [s for s in file.steps if any(goes_through(e) for e in s.effects)]
    return [ScaledPass(s) for s in mine if not _is_many(s, [o for o in mine if o.loop and o.unit is not s.unit])]


def scaler_steps(file: SourceFile) -> list[Effect]:
    """Every `scaler.step` of a file's passes."""
    return [step for one in scaled_passes(file) for step in one.steps]


def goes_through(effect: Effect) -> bool:
    """Whether an effect goes through a scaler, and not through one that is off by a constant: that one does nothing."""
    through = effect.kind in ("scaler_step", "unscale", "update") or effect.scaled
    return through and not _is_off(effect.through, effect.at.unit)


def _is_many(step: Step, others: list[Step]) -> bool:
    """Whether every backward of a step is run by the loop of another one, in a function that this one calls."""
    backwards = step.of("backward")
    return bool(backwards) and all(
        any(b.event is e.event for o in others for e in o.of("backward") if _runs_through(b, o.unit)) for b in backwards
    )


def _runs_through(effect: Effect, unit: Unit) -> bool:
    """Whether the calls that lead to an effect lead through a unit."""
    file, event = effect.event.unit.file, effect.event
    at: Event = effect.at
    while at is not event:
        callee = file.callee(at)
        if callee is None or callee is unit:
            return callee is unit
        at = next((e.at for e in file.effects(callee) if e.event is event), event)
    return False


# What is scaled ------------------------------------------------------------------------------------------------------


def is_scaled(backward: Effect) -> bool:
    """Whether a backward starts from a scaled loss, wherever that was scaled; also where only some paths scale it."""
    if backward.scaled or ".scale(" in backward.subject:
        return True
    return any(_made_scaled(one, backward.event, 0) for one in starts_of(backward))


def starts_of(backward: Effect) -> list[ast.expr]:
    """The expressions that a backward may start from: what it is called on, and its first argument."""
    call = backward.event.call
    return [one for one in (receiver(call), *call.args[:1]) if one is not None]


def _made_scaled(node: ast.AST, event: Event, depth: int) -> bool:
    """Whether an expression that an event evaluates is made of a scaled loss, here or in a function of this file."""
    for part in walk(node):
        if is_scale_call(part, event.unit):
            return True
        if depth < 3 and isinstance(part, ast.Name) and _stands_for_scaled(part.id, event, depth + 1):
            return True
        if depth < 3 and isinstance(part, ast.Call) and _returns_scaled(part, event.unit, depth + 1):
            return True
    return False


def _stands_for_scaled(name: str, event: Event, depth: int) -> bool:
    """Whether a name is bound, before an event, to something that is made of a scaled loss."""
    # Two bindings: with and without a scaler, the loss is often bound in both arms of a branch.
    before = [b for b in event.unit.bindings.get(name, ()) if b.index < event.index][-2:]
    values = [(getattr(b.node, "value", None), b) for b in before]
    return any(isinstance(value, ast.AST) and _made_scaled(value, b, depth) for value, b in values)


def _returns_scaled(call: ast.Call, unit: Unit, depth: int) -> bool:
    """Whether a call runs a function of this file that may return a scaled loss."""
    callee = run_by(call, unit)
    return any(value is not None and _made_scaled(value, e, depth) for value, e in returned(callee))


def run_by(call: ast.expr, unit: Unit) -> Unit | None:
    """The function of this file that a call of a unit runs."""
    event = unit.call_of(call)
    return unit.file.callee(event) if event is not None else None


def returned(unit: Unit | None) -> list[tuple[ast.expr | None, Event]]:
    """What a function returns, with the `return` as an event."""
    return [(e.node.value, e) for e in unit.returns] if unit is not None else []  # type: ignore[attr-defined]


def is_scale_call(node: ast.AST, unit: Unit) -> bool:
    """Whether a node is `scaler.scale(…)`."""
    called = isinstance(node, ast.Call) and is_attribute(node.func, "scale")
    return called and unit.file.roles.is_a("scaler", node.func.value, unit)  # type: ignore[attr-defined]


def scale_calls(file: SourceFile) -> list[Event]:
    """Every `scaler.scale(…)` of a file."""
    return [e for e in file.calls("scale") if is_scale_call(e.node, e.unit)]


def by_hand(file: SourceFile) -> bool:
    """Whether something is multiplied or divided by a scale that was asked for: a loss, or gradients."""
    return any(_computes_with(event.parent, event) for event in file.calls("get_scale"))


def _computes_with(parent: ast.AST, event: Event) -> bool:
    if isinstance(parent, (ast.BinOp, ast.AugAssign, ast.Return)):
        return True
    if isinstance(parent, ast.Call):
        multiplies = terminal(parent) in ("mul", "mul_", "div", "div_")
        return multiplies or event.unit.file.roles.is_a("loss", parent, event.unit)
    names = target_names(parent)
    if not names:
        # Kept in an attribute, it may be read anywhere.
        return isinstance(parent, (ast.Assign, ast.AnnAssign))
    used = (n for n in walk(event.unit.node) if isinstance(n, (ast.BinOp, ast.AugAssign)))
    return any(isinstance(n, ast.Name) and n.id in names for one in used for n in walk(one))


# Scalers -------------------------------------------------------------------------------------------------------------


def is_scaler(text: str, unit: Unit) -> bool:
    """Whether a name, as a step's effect gives it, is a scaler."""
    node = expression(text)
    return node is not None and unit.file.roles.is_a("scaler", node, unit)


def _is_off(text: str, unit: Unit) -> bool:
    """Whether a name, as a step's effect gives it, is a scaler that this file makes with `enabled=False` only."""
    node = expression(text) if text and unit.file.mentions("enabled") else None
    made = origins.made_by(node, unit) if node is not None else []
    # A parameter stands for itself too, beside what it is given.
    known = [one for one, where in made if not (isinstance(one, ast.Name) and one.id in where.parameters)]
    return bool(known) and all(
        isinstance(one, ast.Call) and terminal(one) in _MADE and is_set(one, "enabled", False) for one in known
    )


def made_by(file: SourceFile) -> list[Event]:
    """Calls that make a scaler."""
    if not file.mentions("GradScaler"):
        return []
    names = [local for local, dotted in file.imports.names.items() if dotted.rpartition(".")[2] in _MADE]
    return [e for e in file.calls(*_MADE.union(names)) if "scaler" in file.roles.of(e.node, e.unit)]


def named_scalers(file: SourceFile) -> list[Event]:
    """Calls that make a scaler and bind it to a name or attribute."""
    return [made for made in made_by(file) if bound_to(made)]


def bound_to(event: Event) -> str:
    """The name or attribute that a statement binds to a call's value; empty where it binds none."""
    statement = event.statement
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return ""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    return ast.unparse(target) if isinstance(target, (ast.Name, ast.Attribute)) else ""


def may_catch(event: Event) -> bool:
    """Whether a `try` with handlers is around an event: what raises there is dealt with."""
    if not event.unit.file.mentions("except"):
        return False
    tries = (n for n in walk(event.unit.node) if isinstance(n, ast.Try) and n.handlers)
    return any(n.body[0].lineno <= event.line <= (n.body[-1].end_lineno or 0) for n in tries)


def visible(text: str, unit: Unit) -> bool:
    """Whether a name that the effects give means something in a unit: it is written as in the step's own unit."""
    head = text.partition(".")[0].partition("[")[0]
    return head.isidentifier() and (head == unit.self_name() or unit.home(head) is not None)
