"""Rules about the order of what a training step does: A and then B in one pass, unless C stands between."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from torchvet.rules.kit import Edit, Finding, Iterator, Rule, Sequence, Severity, SourceFile
from torchvet.source.model import Event, Loop, is_literal, walk
from torchvet.source.model.steps import Effect, Kind, Step

if TYPE_CHECKING:
    from torchvet.source.model.events import Arm

_ACCUMULATION = re.compile(
    r"accum|micro|is_last|last_batch|(need|do|should|can|is|will)_(update|step|sync|optimi)|update_(grad|now)|boundary"
)
_LEAVING = (ast.Return, ast.Continue, ast.Break, ast.Raise)

Conditions = frozenset[tuple[str, bool]]


class Pass(Step):
    """One pass through a training step: which of its effects belong together, exclude each other, or wait for the end
    of an accumulation."""

    def __init__(self, step: Step) -> None:
        super().__init__(step.unit, step.loop, step.effects)
        self.file: SourceFile = step.unit.file
        self.backwards = self.of("backward")
        # By the effect's order, which is unique within a step.
        self._conditions: dict[int, Conditions] = {}

    def conditions(self, effect: Effect) -> Conditions:
        """What holds wherever an effect runs, as far as the branches around it show."""
        found = self._conditions.get(effect.order)
        if found is None:
            found = self._conditions[effect.order] = frozenset(f for arm in around(effect) for f in _facts(*arm))
        return found

    def excludes(self, one: Effect, other: Effect) -> bool:
        """Whether no single pass does both: other arms of one branch, or of two that ask the same."""
        # By text, since `if use_amp:` is often asked anew around each call of a step.
        # The same text is taken to be true twice: a step rarely changes its own flags.
        mine = self.conditions(one)
        return one.excludes(other) or any((text, not truth) in mine for text, truth in self.conditions(other))

    def sure(self, one: Effect, other: Effect) -> bool:
        """Whether every pass that does `other` does `one`."""
        # Whatever `one` needs holds wherever `other` runs.
        return not self.excludes(one, other) and self.conditions(one) <= self.conditions(other)

    def with_(self, effect: Effect, *kinds: Kind) -> list[Effect]:
        """Effects of some kinds that may run in one pass with an effect."""
        return [e for e in self.of(*kinds) if not self.excludes(e, effect)]

    def before(self, effect: Effect, *kinds: Kind) -> list[Effect]:
        """Effects of some kinds before an effect that may run with it."""
        return [e for e in self.with_(effect, *kinds) if e.order < effect.order]

    def after(self, effect: Effect, *kinds: Kind) -> list[Effect]:
        """Effects of some kinds after an effect that may run with it."""
        return [e for e in self.with_(effect, *kinds) if e.order > effect.order]

    def between(self, one: Effect, other: Effect, *kinds: Kind) -> list[Effect]:
        """Effects of some kinds after one effect and before another that may run with both."""
        return [e for e in self.after(one, *kinds) if e.order < other.order and not self.excludes(e, other)]

    def waits(self, effect: Effect, other: Effect) -> bool:
        """Whether an effect runs in some passes only, at the end of an accumulation, and `other` in every pass."""
        known = self.conditions(other)
        mine = [arm for arm in around(effect) if not set(_facts(*arm)) <= known]
        # Behind a loop over micro-batches, for example.
        outside = effect.at.unit is other.at.unit and deeper(other.at.loop, effect.at.loop)
        return outside or any(accumulates(arm[0], effect) for arm in mine)

    def text(self, effect: Effect) -> str:
        """The code of an effect."""
        return self.file.segment(effect.event.node)


P = TypeVar("P", bound=Pass)


class EventRule(Rule):
    """A rule whose suspicions stand at events and effects, which know their file."""

    cause: ClassVar[str] = ""
    advice: ClassVar[str] = ""
    """What findings say that give no cause or advice of their own."""

    def suspect_at(
        self,
        at: Effect | Event,
        message: str,
        *,
        cause: str = "",
        advice: str = "",
        severity: Severity | None = None,
        node: ast.AST | None = None,
        edits: Sequence[Edit] = (),
        safe: bool = False,
        related: Mapping[str, Effect | Event | tuple[Event, str]] | None = None,
    ) -> Finding:
        """A suspicion at an event, as `suspect` gives it; `related` are other events by their role, with their code, or
        with the text that is given for them."""
        event = _event(at)
        file = event.unit.file
        others = [(role, one if isinstance(one, tuple) else (_event(one), "")) for role, one in (related or {}).items()]
        return self.suspect(
            file,
            event,
            message,
            cause=cause or self.cause,
            advice=advice or self.advice,
            severity=severity,
            node=node,
            edits=edits,
            safe=safe,
            related=[self.also(file, role, *one) for role, one in others],
        )


class OrderRule(EventRule, Generic[P]):
    """A fault in the order of what a training step does. Subclasses name the kinds of effects that are judged, find the
    other effect that makes one wrong, and report the two; or say in `in_pass` what is wrong in one pass."""

    judged: ClassVar[tuple[Kind, ...]] = ()

    def passes(self, file: SourceFile) -> Iterable[P]:
        """The passes of a file to be judged; none where the file deals with the matter in its own way."""
        raise NotImplementedError

    def wrong_by(self, one: P, effect: Effect) -> Effect | None:
        """The other effect that makes one wrong in a pass; None where all is well or not sure."""
        raise NotImplementedError

    def report(self, one: P, effect: Effect, other: Effect) -> Finding:
        """The finding at an effect that another one makes wrong."""
        raise NotImplementedError

    def in_pass(self, one: P) -> Iterator[Finding]:
        """Yield what is wrong in one pass."""
        for effect in one.of(*self.judged):
            other = self.wrong_by(one, effect)
            if other is not None:
                yield self.report(one, effect, other)

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """What is wrong in the file's passes."""
        return (finding for one in self.passes(file) for finding in self.in_pass(one))


def _event(at: Effect | Event) -> Event:
    return at.event if isinstance(at, Effect) else at


def around(effect: Effect) -> tuple[Arm, ...]:
    """The branches that an effect is in, and those that it is past."""
    return (*effect.arms, *effect.guards)


def _facts(branch: ast.AST, number: int) -> Iterator[tuple[str, bool]]:
    """What an arm of a branch says: texts of conditions with their truth; `x is not None` says `x`."""
    if isinstance(branch, (ast.If, ast.IfExp)):
        yield from _said(branch.test, number == 0)
    else:
        # What decides about an arm of a `try` or a `match` has no text: such an arm is only the same as itself.
        yield f"{branch.__class__.__name__} {id(branch)} {number}", True


def _said(test: ast.expr, truth: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _said(test.operand, not truth)
    # `a and b` that holds says both; `a or b` that fails says that neither does. Else nothing of a part.
    elif isinstance(test, ast.BoolOp) and truth is isinstance(test.op, ast.And):
        for value in test.values:
            yield from _said(value, truth)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        yield _compared(test, truth)
    else:
        yield ast.unparse(test), truth


def _compared(test: ast.Compare, truth: bool) -> tuple[str, bool]:
    """A comparison with its truth; `x != y` is that `x == y` is false."""
    same, right = isinstance(test.ops[0], (ast.Is, ast.Eq)), test.comparators[0]
    if not same and not isinstance(test.ops[0], (ast.IsNot, ast.NotEq)):
        return ast.unparse(test), truth
    if is_literal(right, None):
        # `scaler is not None` and `if scaler:` ask the same.
        return ast.unparse(test.left), truth is not same
    return f"{ast.unparse(test.left)} == {ast.unparse(right)}", truth is same


def accumulates(branch: ast.AST, effect: Effect) -> bool:
    """Whether a branch is taken every so many passes: `(i + 1) % n == 0`, or a name that stands for it."""
    if not isinstance(branch, (ast.If, ast.IfExp)):
        return False
    if _counts(branch.test):
        return True
    # `if accumulation_steps > 1` has the words of an accumulation, and is the same in every pass.
    if _is_setting(branch.test):
        return False
    if _ACCUMULATION.search(ast.unparse(branch.test).lower()):
        return True
    named = [n.id for n in walk(branch.test) if isinstance(n, ast.Name)]
    bindings = [b for unit in {effect.at.unit, effect.event.unit} for n in named for b in unit.bindings.get(n, ())]
    # Bound in a loop: elsewhere `%` computes a setting.
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


def deeper(inner: Loop | None, outer: Loop | None) -> bool:
    """Whether one loop lies strictly within another."""
    return inner is not None and inner is not outer and (outer is None or inner.within(outer))


def leaves(effect: Effect, other: Effect) -> bool:
    """Whether an arm that `effect` is in, and `other` is not, ends by leaving the pass or the function."""
    own = [(b, number) for b, number in effect.arms if (b, number) not in other.arms and isinstance(b, ast.If)]
    return any(isinstance((b.orelse if number else b.body)[-1], _LEAVING) for b, number in own)
