"""What runs at every step: bodies of training loops, `forward`, and what these call in the same file."""

from __future__ import annotations

import ast

from torchvet.rules.kit import SourceFile, Step
from torchvet.rules.shared.training_loops import events_in, is_test
from torchvet.source.model import ClassModel, Event, Loop, Unit

_HOOKS = frozenset(("forward", "training_step"))
# Spelled as programs do; `.to(` alone converts dtypes as well.
_MOVES = (".cuda(", "device=", ".to(dev", ".to(self.dev", ".to(args.", ".to(rank", "Accelerator(", "Fabric(", "device(")
_DEEPEST = 2
_FEW = 8


def uses_a_device(file: SourceFile) -> bool:
    """Whether the file moves anything to a device: on the CPU alone nothing waits for it."""
    return file.mentions(*_MOVES)


def per_step(file: SourceFile, event: Event, depth: int = 0) -> bool:
    """Whether an event runs at every training step, or at every forward, as far as source shows; loops included."""
    unit = event.unit
    if (unit.is_module and event.loop is None) or is_test(file):
        return False  # a test takes a step or two: what each costs is nothing
    # Whoever calls it does so at each step.
    if unit.name in _HOOKS and unit.owner is not None and "module" in file.roles.of_class(unit.owner):
        return True
    if any(step.unit is unit and event.inside(step.loop) for step in file.steps):
        return True
    if unit.is_module or depth >= _DEEPEST:
        return False
    # A call under a condition may be rare.
    return any(per_step(file, caller, depth + 1) for caller in file.callers(unit) if not caller.context.arms)


def runs_module(file: SourceFile, step: Step, module: ClassModel) -> bool:
    """Whether a training step runs a module, alone or as a part of another."""
    forwards = file.gradients.forwards
    calls = (e for e in events_in(step.unit, step.loop) if isinstance(e.node, ast.Call))
    return any(forwards.contains(forwards.class_run(e.call, step.unit), module) for e in calls)


def guarded(event: Event, loop: Loop | None) -> bool:
    """Whether a condition within a loop (an interval, a flag, the first batch) decides if an event happens."""
    first = getattr(loop.node, "lineno", 0) if loop is not None else 0
    # A condition around the loop holds for all of its turns.
    return any(isinstance(branch, (ast.If, ast.IfExp)) and branch.lineno >= first for branch, _ in event.context.arms)


def bound_in(loop: Loop, unit: Unit) -> set[str]:
    """Names that something in a loop binds anew, its own variables included."""
    return {name for name, events in unit.bindings.items() if any(e.inside(loop) for e in events)}


def few_turns(call: ast.Call, most: int = _FEW) -> bool:
    """Whether a `range(…)` is known to be short."""
    last = call.args[-1] if call.args else None
    # The last argument, as of `range(a, b)`; a third one only makes it shorter.
    return isinstance(last, ast.Constant) and isinstance(last.value, int) and last.value <= most
