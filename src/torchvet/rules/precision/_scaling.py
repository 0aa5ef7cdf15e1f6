"""What the rules about loss scaling share: passes of a step that go through a scaler, and which of their effects
belong together, exclude each other or wait for the end of an accumulation."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from torchvet.rules.kit import Edit, Effect, Iterator, SourceFile, Step
from torchvet.source.model import Event, Loop, Unit, edits, keyword, origins, receiver, targets_of, terminal, walk

if TYPE_CHECKING:
    from torchvet.source.model.events import Arm

_ACCUMULATION = re.compile(
    r"accum|micro|is_last|last_batch|(need|do|should|can|is|will)_(update|step|sync|optimi)|update_(grad|now)|boundary"
)
_PRECISION = re.compile(r"amp\b|amp_|_amp|scaler|fp16|bf16|float16|half|precision|mixed|dtype|cuda|device|autocast")
"""Words of a condition that chooses between training with and without a scaler."""
_MADE = frozenset(("GradScaler", "ShardedGradScaler"))

Conditions = frozenset[tuple[str, bool]]


class Pass:
    """One pass through a training step that has to do with a scaler."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.effects = step.effects
        self.file: SourceFile = step.unit.file
        self._conditions: dict[int, Conditions] = {}
        self.backwards = step.of("backward")
        self.scaled = [e for e in self.backwards if is_scaled(e)]
        self.steps = step.of("scaler_step")

    def conditions(self, effect: Effect) -> Conditions:
        """What holds wherever an effect runs, as far as the branches around it tell."""
        found = self._conditions.get(effect.order)
        if found is None:
            found = self._conditions[effect.order] = frozenset(f for arm in around(effect) for f in facts(*arm))
        return found

    def excludes(self, one: Effect, other: Effect) -> bool:
        """Whether no single pass does both: other arms of one branch, or of two that ask the same."""
        mine = self.conditions(one)
        return one.excludes(other) or any((text, not truth) in mine for text, truth in self.conditions(other))

    def sure(self, one: Effect, other: Effect) -> bool:
        """Whether every pass that does `other` does `one`."""
        return not self.excludes(one, other) and self.conditions(one) <= self.conditions(other)

    def between(self, one: Effect, other: Effect, *kinds: str) -> list[Effect]:
        """Effects of some kinds after one effect and before another that may run with both."""
        return [
            e for e in self.effects
            if e.kind in kinds and one.order < e.order < other.order
            and not self.excludes(e, one) and not self.excludes(e, other)
        ]  # fmt: skip

    def waits(self, effect: Effect, other: Effect) -> bool:
        """Whether an effect runs in some passes only, at the end of an accumulation, and `other` in every pass."""
        known = self.conditions(other)
        mine = [arm for arm in around(effect) if not set(facts(*arm)) <= known]
        return any(accumulates(arm[0], effect) for arm in mine) or outside(effect, other)

    def chooses_precision(self, effect: Effect, other: Effect) -> bool:
        """Whether an effect stands under a condition of its own that may mean "without a scaler"."""
        return any(_PRECISION.search(text.lower()) for text, _ in self.conditions(effect) - self.conditions(other))


def around(effect: Effect) -> tuple[Arm, ...]:
    """The branches that an effect is in, and those that it is past."""
    return (*effect.arms, *effect.guards)


def facts(branch: ast.AST, number: int) -> Iterator[tuple[str, bool]]:
    """What an arm of a branch says: texts of conditions with their truth; `x is not None` says `x`."""
    if isinstance(branch, (ast.If, ast.IfExp)):
        yield from _said(branch.test, number == 0)
    else:
        yield f"{branch.__class__.__name__} {id(branch)} {number}", True


def _said(test: ast.expr, truth: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _said(test.operand, not truth)
    elif isinstance(test, ast.BoolOp) and truth is isinstance(test.op, ast.And):
        for value in test.values:
            yield from _said(value, truth)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        same, right = isinstance(test.ops[0], (ast.Is, ast.Eq)), test.comparators[0]
        if not same and not isinstance(test.ops[0], (ast.IsNot, ast.NotEq)):
            yield ast.unparse(test), truth
        elif isinstance(right, ast.Constant) and right.value is None:
            yield ast.unparse(test.left), truth is not same
        else:
            yield f"{ast.unparse(test.left)} == {ast.unparse(right)}", truth is same
    else:
        yield ast.unparse(test), truth


def accumulates(branch: ast.AST, effect: Effect) -> bool:
    """Whether a branch is taken every so many passes: `(i + 1) % n == 0`, or a name that stands for it."""
    if not isinstance(branch, (ast.If, ast.IfExp)):
        return False
    if _counts(branch.test):
        return True
    if _is_setting(branch.test):
        return False
    if _ACCUMULATION.search(ast.unparse(branch.test).lower()):
        return True
    named = [n.id for n in walk(branch.test) if isinstance(n, ast.Name)]
    bindings = [b for unit in {effect.at.unit, effect.event.unit} for n in named for b in unit.bindings.get(n, ())]
    return any(_counts(getattr(b.node, "value", None)) for b in bindings if b.loop is not None)


def counts_alone(effect: Effect, other: Effect) -> bool:
    """Whether an effect stands in a branch taken every so many passes, or is past one, and `other` does not."""
    return any(accumulates(arm[0], effect) for arm in around(effect) if arm not in around(other))


def _is_setting(test: ast.expr) -> bool:
    """Whether a condition asks for a setting, the same in every pass: `accumulation_steps > 1`."""
    if not isinstance(test, ast.Compare) or not isinstance(test.left, (ast.Name, ast.Attribute)):
        return False
    return isinstance(test.ops[0], (ast.Gt, ast.NotEq)) and isinstance(test.comparators[0], ast.Constant)


def _counts(node: ast.AST | None) -> bool:
    return node is not None and any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in walk(node))


def outside(effect: Effect, other: Effect) -> bool:
    """Whether `other` is repeated by a loop that an effect of the same unit stands outside of."""
    return effect.at.unit is other.at.unit and deeper(other.at.loop, effect.at.loop)


def deeper(inner: Loop | None, outer: Loop | None) -> bool:
    """Whether one loop lies strictly within another."""
    return inner is not None and inner is not outer and (outer is None or inner.within(outer))


@lru_cache(maxsize=1)
def passes(file: SourceFile) -> list[Pass]:
    """The passes of a file that go through a scaler; a loop over calls of a function with a loop is none. Kept for the
    file that was asked about last."""
    if not file.mentions("caler"):
        return []
    mine = [s for s in file.steps if any(goes_through(e) for e in s.effects)]
    return [Pass(s) for s in mine if not _is_many(s, [o for o in mine if o.loop is not None and o.unit is not s.unit])]


def goes_through(effect: Effect) -> bool:
    """Whether an effect goes through a scaler, and not through one that is off by a constant: that one does nothing."""
    through = effect.kind in ("scaler_step", "unscale", "update") or effect.scaled
    return through and not is_off(effect.through, effect.at.unit)


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


def is_scaled(backward: Effect) -> bool:
    """Whether a backward starts from a scaled loss, wherever that was scaled; also where only some paths scale it."""
    if backward.scaled or ".scale(" in backward.subject:
        return True
    call = backward.event.call
    starts = [one for one in (receiver(call), *call.args[:1]) if one is not None]
    return any(_made_scaled(one, backward.event, 0) for one in starts)


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
    before = [b for b in event.unit.bindings.get(name, ()) if b.index < event.index][-2:]
    values = [(getattr(b.node, "value", None), b) for b in before]
    return any(isinstance(value, ast.AST) and _made_scaled(value, b, depth) for value, b in values)


def _returns_scaled(call: ast.Call, unit: Unit, depth: int) -> bool:
    """Whether a call runs a function of this file that may return a scaled loss."""
    event = next((e for e in unit.calls.get(terminal(call), ()) if e.node is call), None)
    callee = unit.file.callee(event) if event is not None else None
    returned = [(e.node.value, e) for e in callee.events if isinstance(e.node, ast.Return)] if callee else []
    return any(value is not None and _made_scaled(value, e, depth) for value, e in returned)


def is_scale_call(node: ast.AST, unit: Unit) -> bool:
    """Whether a node is `scaler.scale(…)`."""
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "scale"
        and unit.file.roles.is_a("scaler", node.func.value, unit)
    )  # fmt: skip


def is_scaler(text: str, unit: Unit) -> bool:
    """Whether a name, as a step's effect gives it, is a scaler."""
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return False
    return unit.file.roles.is_a("scaler", node, unit)


def is_off(text: str, unit: Unit) -> bool:
    """Whether a name, as a step's effect gives it, is a scaler that this file makes with `enabled=False` only."""
    if not text or not unit.file.mentions("enabled"):
        return False
    try:
        made = origins.made_by(ast.parse(text, mode="eval").body, unit)
    except (SyntaxError, ValueError):
        return False
    # A parameter stands for itself too, beside what it is given.
    known = [one for one, where in made if not (isinstance(one, ast.Name) and one.id in where.parameters)]
    return bool(known) and all(
        isinstance(one, ast.Call) and terminal(one) in _MADE and is_constant(keyword(one, "enabled"), False)
        for one in known
    )


def may_catch(event: Event) -> bool:
    """Whether a `try` with handlers is around an event: what raises there is dealt with."""
    if not event.unit.file.mentions("except"):
        return False
    tries = (n for n in walk(event.unit.node) if isinstance(n, ast.Try) and n.handlers)
    return any(n.body[0].lineno <= event.line <= (n.body[-1].end_lineno or 0) for n in tries)


def made_by(file: SourceFile) -> list[Event]:
    """Calls that make a scaler."""
    if not file.mentions("GradScaler"):
        return []
    names = [local for local, dotted in file.imports.names.items() if dotted.rpartition(".")[2] in _MADE]
    return [e for e in file.calls(*_MADE.union(names)) if "scaler" in file.roles.of(e.node, e.unit)]


def by_hand(file: SourceFile) -> bool:
    """Whether something is multiplied or divided by a scale that was asked for: a loss, or gradients."""
    return any(_reckons(event.parent, event) for event in file.calls("get_scale"))


def _reckons(parent: ast.AST, event: Event) -> bool:
    if isinstance(parent, (ast.BinOp, ast.AugAssign, ast.Return)):
        return True
    if isinstance(parent, ast.Call):
        multiplies = terminal(parent) in ("mul", "mul_", "div", "div_")
        return multiplies or event.unit.file.roles.is_a("loss", parent, event.unit)
    names = {t.id for t in targets_of(parent) if isinstance(t, ast.Name)}
    if isinstance(parent, (ast.Assign, ast.AnnAssign)) and not names:
        return True  # kept in an attribute: who knows who reads it
    used = (n for n in walk(event.unit.node) if isinstance(n, (ast.BinOp, ast.AugAssign))) if names else ()
    return any(isinstance(n, ast.Name) and n.id in names for one in used for n in walk(one))


def is_constant(node: ast.AST | None, value: object) -> bool:
    """Whether an expression is that constant."""
    return isinstance(node, ast.Constant) and node.value is value


def without(file: SourceFile, at: Event) -> list[Edit]:
    """Take a statement out with its line; nothing where it is the only one of its block or shares its line."""
    statement = at.statement
    block = next(
        (
            body for node in walk(at.unit.node) for name in ("body", "orelse", "finalbody")
            if isinstance(body := getattr(node, name, None), list) and statement in body
        ),
        [],
    )  # fmt: skip
    if len(block) < 2 or not edits.stands_alone(file, statement) or not isinstance(statement, ast.Expr):
        return []
    return [Edit(path=file.path, start=(statement.lineno, 1), end=((statement.end_lineno or 0) + 1, 1), text="")]


def bound_to(event: Event) -> str:
    """The name or attribute that a statement binds to a call's value; empty where it binds none."""
    statement = event.statement
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
        return ""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    return ast.unparse(target) if isinstance(target, (ast.Name, ast.Attribute)) else ""


def dtype_of(node: ast.AST | None, unit: Unit) -> str:
    """`torch.float16` or another dtype's dotted name, also through a name that is bound to one; else empty."""
    if node is None:
        return ""
    dotted = unit.file.dotted(node)
    if dotted in _DTYPES:
        return _DTYPES[dotted]
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return ""
    values = {_DTYPES.get(unit.file.dotted(value), "") for value, _ in unit.file.roles.values(node, unit)}
    return values.pop() if len(values) == 1 else ""


_DTYPES = {"torch.float16": "float16", "torch.half": "float16", "torch.bfloat16": "bfloat16",
           "torch.float32": "float32", "torch.float": "float32"}  # fmt: skip


def leaves(effect: Effect, other: Effect) -> bool:
    """Whether an arm that `effect` is in, and `other` is not, ends by leaving the pass or the function."""
    for branch, number in effect.arms:
        if (branch, number) not in other.arms and isinstance(branch, ast.If):
            body = branch.orelse if number else branch.body
            if isinstance(body[-1], (ast.Return, ast.Continue, ast.Break, ast.Raise)):
                return True
    return False


def visible(text: str, unit: Unit) -> bool:
    """Whether a name that the effects give means something in a unit: an effect tells it as its step's unit would."""
    head = text.partition(".")[0].partition("[")[0]
    return head.isidentifier() and (head == unit.self_name() or unit.home(head) is not None)
