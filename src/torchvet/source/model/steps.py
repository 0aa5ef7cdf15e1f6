"""Training steps as source shows them: what one pass does to losses, gradients, optimizers and scalers, in order.

Calls of functions and methods of the same file are followed, so that a step that is spread over `train_step`,
`self.optimize()` and a closure reads as one sequence.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from torchvet.source.lazily import lazy
from torchvet.source.model.events import Event
from torchvet.source.model.expressions import is_call, is_literal
from torchvet.source.model.units import Unit, receiver, targets_of, terminal
from torchvet.source.syntax import given
from torchvet.source.text import name_set
from torchvet.source.walking import Arm, Loop, exclude

if TYPE_CHECKING:
    from torchvet.source.model.file import SourceFile

Kind = Literal["backward", "zero_grad", "step", "scheduler", "scaler_step", "unscale", "update", "clip"]
_BACKWARD = ("backward", "manual_backward")
_DEEPEST = 4
"""Calls within the file that are followed, one within another."""


@dataclass(eq=False, frozen=True)
class Effect:
    """One thing done in a step.

    `subject` is what it is done to, as the step's own unit would write it (`self.optimizer`, `opt`; empty where that
    is not known): the loss of a backward, the optimizer of the others, the scheduler. `through` is the scaler,
    accelerator or engine that does it. `event` is where it stands, `at` the event of the step's own unit that leads
    there. `arms` are all branches on the way, `guards` those that it is past: see `Context`.
    """

    kind: Kind
    subject: str
    event: Event
    at: Event
    through: str = ""
    scaled: bool = False
    arms: tuple[Arm, ...] = ()
    guards: tuple[Arm, ...] = ()
    # By place in the step: effects of one call all stand on the line of that call.
    order: int = 0

    @property
    def line(self) -> int:
        """The line that it stands on."""
        return self.event.line

    @property
    def is_step(self) -> bool:
        """Whether an optimizer steps, by itself or through a scaler."""
        return self.kind in ("step", "scaler_step")

    def excludes(self, other: Effect) -> bool:
        """Whether no single pass does both."""
        return exclude(self.arms, other.arms)

    def sure_with(self, other: Effect) -> bool:
        """Whether every pass that does `other` does this too, as far as branches show."""
        return all(arm in other.arms for arm in self.arms)


@dataclass(eq=False)
class Step:
    """One training step: the body of a loop, or of a function that no loop of this file calls."""

    unit: Unit
    loop: Loop | None
    effects: list[Effect]

    def of(self, *kinds: Kind) -> list[Effect]:
        """Effects of some kinds, in order."""
        return [e for e in self.effects if e.kind in kinds]

    @lazy
    def optimizers(self) -> set[str]:
        """What is stepped in it."""
        return {e.subject for e in self.of("step", "scaler_step")}

    def repeats(self, event: Event) -> bool:
        """Whether its loop, where it has one, runs an event of its unit in each turn."""
        return self.loop is not None and event.inside(self.loop)

    @lazy
    def opaque(self) -> list[Event]:
        """Calls of other code that may act: methods of `self`, functions given the optimizer, scaler or loss."""
        loop = self.loop
        inside = (e for e in self.unit.events if e.inside(loop))
        # By class: this goes through every event of the step.
        return [e for e in inside if e.node.__class__ is ast.Call and _is_opaque(e)]

    def around(self) -> list[Loop]:
        """The step's loop and those around it in its unit, innermost first."""
        found, loop = [], self.loop
        while loop is not None:
            found.append(loop)
            loop = loop.parent
        return found


class StepFinder:
    """Finds the steps of one file."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._sequences: dict[int, list[Effect]] = {}

    @lazy
    def steps(self) -> list[Step]:
        """All training steps, in the order of the file."""
        # Most files train nothing: their words show it without a walk.
        if not self._file.mentions("backward", "zero_grad", "unscale_"):
            return []
        calling = {id(u): u for word in _BACKWARD for u in self._file.units_calling(word)}
        training = self._reaching(calling)
        return [step for unit in self._file.units for step in self._steps_of(unit, training)]

    def sequence(self, unit: Unit) -> list[Effect]:
        """Everything that one run of a unit does, calls within the file followed."""
        return self._expand(unit, 0)

    def _steps_of(self, unit: Unit, training: set[int]) -> Iterator[Step]:
        if id(unit) not in training:
            return
        effects = self.sequence(unit)
        # A step is what has a backward: an optimizer alone may be stepped for another loop's.
        loops = [self._loop_of(effect, effects) for effect in effects if effect.kind == "backward"]
        found = {id(loop): loop for loop in loops if loop is not None}
        for loop in found.values():
            yield Step(unit, loop, [e for e in effects if e.at.inside(loop)])
        # A function that goes backward without a loop is a step by itself only if no caller has laid it out already.
        if loops and not found and not self._file.callers(unit):
            yield Step(unit, None, effects)

    @staticmethod
    def _loop_of(backward: Effect, effects: list[Effect]) -> Loop | None:
        """The innermost loop around a backward that also steps an optimizer, else the innermost."""
        loop = innermost = backward.at.loop.statement() if backward.at.loop is not None else None
        # Accumulation: the micro-batches are an inner loop, and a step ends where the optimizer runs.
        stepping = [e for e in effects if e.is_step and not e.excludes(backward)]
        while loop is not None:
            if any(effect.at.inside(loop) for effect in stepping):
                return loop
            loop = loop.parent
        return innermost

    @lazy
    def _acting(self) -> set[int]:
        """Units that act on a step in any way, or call what does in this file."""
        found = {id(u): u for word in _NAMES for u in self._file.units_calling(word)}
        if self._file.mentions("grad = None", "grad=None"):
            # `p.grad = None` is no call, so it is found by the word.
            found.update((id(u), u) for u in self._file.units_with("grad"))
        return self._reaching(found)

    @lazy
    def _acting_names(self) -> set[str]:
        return {u.name for u in self._file.units if id(u) in self._acting}

    def _reaching(self, found: dict[int, Unit]) -> set[int]:
        """Identities of units and of those that call them by name, a few calls deep."""
        new = list(found.values())
        for _ in range(_DEEPEST):
            # By name alone, which is quick. A unit too many does no harm: calls are resolved before they are followed.
            names = {u.name for u in new if not u.is_module}
            # An instance is called by its own name.
            called = [e.unit for u in new if u.name == "__call__" for e in self._file.callers(u)]
            calling = (*called, *(u for name in names for u in self._file.units_calling(name)))
            new = [u for u in calling if id(u) not in found]
            found.update((id(u), u) for u in new)
        return set(found)

    # One unit's effects ----------------------------------------------------------------------------------------------

    def _expand(self, unit: Unit, depth: int) -> list[Effect]:
        key = id(unit)
        if key in self._sequences:
            return self._sequences[key]
        # Also a cache: a helper that ten functions call is laid out once.
        self._sequences[key] = []  # recursion ends here
        # Only what the file's own functions do is followed: a name from elsewhere says nothing of what it runs.
        found: list[Effect] = []
        acting = self._acting_names
        instances = "__call__" in acting
        for event in unit.events:
            kind = event.node.__class__
            # Of all events these two alone can be effects.
            if kind is not ast.Call and kind is not ast.Assign:
                continue
            own = self._own(event, len(found))
            if own is not None:
                found.append(own)
            # A call may run what acts: by its name, or an instance that can be called by any.
            elif kind is ast.Call and depth < _DEEPEST and (instances or terminal(event.node) in acting):
                found.extend(self._called(event, depth, len(found)))
        self._sequences[key] = found
        return found

    def _called(self, event: Event, depth: int, order: int) -> list[Effect]:
        """The effects of a function of this file, in the caller's names."""
        callee = self._file.callee(event)
        if callee is None or id(callee) not in self._acting:
            return []
        # Rules compare subjects as texts: `opt` in a helper is `self.optimizer` in the loop that calls it.
        renamed = self._names_for(event, callee)
        found, around = [], event.context
        for number, effect in enumerate(self._expand(callee, depth + 1), order):
            subject, through = _renamed(effect.subject, renamed), _renamed(effect.through, renamed)
            # Both: the call may be under a condition, and what it does may be under another.
            arms, guards = (*around.arms, *effect.arms), (*around.guards, *effect.guards)
            found.append(
                replace(effect, subject=subject, at=event, through=through, arms=arms, guards=guards, order=number)
            )
        return found

    @staticmethod
    def _names_for(event: Event, callee: Unit) -> dict[str, str]:
        """The caller's names of a function's parameters."""
        renamed: dict[str, str] = {}
        if callee.is_bound and callee.parameters:
            # In `step(x)` of an instance, `self` is what is called and not what stands before a dot.
            instance = callee.name == "__call__" and terminal(event.node) != "__call__"
            # `self.optimizer` in a method of `trainer` is `trainer.optimizer` to the caller.
            renamed[callee.parameters[0]] = text_of(event.call.func if instance else receiver(event.call))
        for name, value in zip(callee.given_parameters, event.call.args, strict=False):
            renamed[name] = text_of(value)
        renamed.update({k.arg: text_of(k.value) for k in event.call.keywords if k.arg})
        return renamed

    def _own(self, event: Event, order: int) -> Effect | None:
        """What an event does by itself: a call by its name, or `p.grad = None`."""
        node = event.node
        act: _Act | None = None
        if isinstance(node, ast.Call):
            find = _NAMES.get(terminal(node))
            act = find(self, event) if find is not None else None
        elif isinstance(node, ast.Assign) and is_literal(node.value, None):
            attributes = (t for t in targets_of(node) if isinstance(t, ast.Attribute))
            act = _Act("zero_grad", "*") if any(t.attr == "grad" for t in attributes) else None
        if act is None:
            return None
        context = event.context
        # `p.grad = None` stands behind `if p.grad is not None:`, which is no condition on the step.
        guards = context.guards if isinstance(node, ast.Call) else ()
        return Effect(act.kind, act.subject, event, event, act.through, act.scaled, context.arms, guards, order)

    # What a call does ------------------------------------------------------------------------------------------------

    def _backward(self, event: Event) -> _Act | None:
        call, on = event.call, receiver(event.call)
        roles, first = self._file.roles, _first(event.call)
        if on is None and self._file.callee(event) is not None:
            return None  # a function of this file: what it does is followed
        if on is None or self._file.dotted(on) in ("torch.autograd", "super()"):
            # A function from elsewhere does the backward: who it is, nobody knows here.
            by = "" if self._file.dotted(call.func).startswith("torch.") else text_of(call.func)
            return _Act("backward", first, by) if call.args else None
        if terminal(call) == "manual_backward":
            return _Act("backward", first, text_of(on))
        # accelerator.backward(loss), fabric.backward(loss), engine.backward(loss), scaler.backward?
        # `loss.backward(gradient)` has an argument too.
        if call.args and roles.is_a("loss", call.args[0], event.unit) and not roles.is_a("loss", on, event.unit):
            return _Act("backward", first, text_of(on))
        return _scaled(self._bound_to(on, event) if isinstance(on, ast.Name) else on) or _Act("backward", text_of(on))

    @staticmethod
    def _bound_to(on: ast.Name, event: Event) -> ast.AST | None:
        """What a name was bound to last: `scaled = scaler.scale(loss); scaled.backward()`."""
        before = event.bindings_before(on.id)
        return getattr(before[-1].node, "value", None) if before else None

    def _step(self, event: Event) -> _Act | None:
        call, on, roles = event.call, receiver(event.call), self._file.roles
        if on is None:
            return None
        known = roles.of(on, event.unit)
        # First: `scaler.step(optimizer)` has the optimizer as its argument.
        if roles.is_a("scaler", on, event.unit):
            return _Act("scaler_step", _first(call), text_of(on))
        if roles.is_a("scheduler", on, event.unit):
            return _Act("scheduler", text_of(on))
        if roles.is_a("optimizer", on, event.unit):
            return _Act("step", text_of(on))
        return _Act("step", text_of(on), text_of(on)) if "engine" in known else None

    def _zero_grad(self, event: Event) -> _Act | None:
        on = receiver(event.call)
        return _Act("zero_grad", text_of(on)) if on is not None else None

    def _unscale(self, event: Event) -> _Act | None:
        return _Act("unscale", _first(event.call), text_of(receiver(event.call)))

    def _update(self, event: Event) -> _Act | None:
        on = receiver(event.call)
        is_scaler = on is not None and self._file.roles.is_a("scaler", on, event.unit)
        return _Act("update", "", text_of(on)) if is_scaler else None

    def _clip(self, event: Event) -> _Act | None:
        from_torch = self._file.dotted(event.call.func).startswith("torch.")
        return _Act("clip", _first(event.call), "" if from_torch else text_of(receiver(event.call)))


class _Act(NamedTuple):
    """What one call does, before it has a place: see `Effect`."""

    kind: Kind
    subject: str
    through: str = ""
    scaled: bool = False


def _scaled(value: ast.AST | None) -> _Act | None:
    """The backward of `scaler.scale(loss)`; None for any other value."""
    if is_call(value, "scale") and value.args:
        return _Act("backward", _first(value), text_of(receiver(value)), True)
    return None


def _first(call: ast.Call) -> str:
    return text_of(call.args[0]) if call.args else ""


def _renamed(text: str, names: dict[str, str]) -> str:
    # The first name is the parameter; what hangs from it is the same object's.
    head, dot, rest = text.partition(".")
    return names.get(head, head) + dot + rest


_NAMES = {
    **dict.fromkeys(_BACKWARD, StepFinder._backward),
    "step": StepFinder._step,
    "zero_grad": StepFinder._zero_grad,
    "unscale_": StepFinder._unscale,
    "update": StepFinder._update,
    **dict.fromkeys(("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_"), StepFinder._clip),
}
"""How calls that act on a step are read, by their names."""
_HARMLESS = name_set("""
    print len float int str range enumerate zip isinstance tqdm.tqdm next iter min max sum round sorted abs format
    append
""")


def _is_opaque(event: Event) -> bool:
    file, unit = event.unit.file, event.unit
    name = terminal(event.node)
    dotted = file.dotted(event.call.func)
    if name in _NAMES or name == "scale" or dotted in _HARMLESS or file.callee(event) is not None:
        return False
    if dotted.startswith(("torch.", "numpy.", "math.", "wandb.")):
        return False
    if file.roles.of(event.call.func, unit) & {"module", "criterion"}:
        return False
    on = receiver(event.call)
    # A method that this file does not define is a base class's, which may step or clear.
    if isinstance(on, ast.Name) and on.id and on.id == unit.self_name():
        return True
    roles = ("optimizer", "scaler", "loss")
    return any(file.roles.is_a(role, one, unit) for one in given(event.call) for role in roles)


def text_of(node: ast.AST | None) -> str:
    """A chain of names and constant subscripts as it is written; other expressions unparsed; empty for None."""
    if node is None:
        return ""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{text_of(node.value)}.{node.attr}"
    return ast.unparse(node)
