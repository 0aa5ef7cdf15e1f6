"""Training steps that TRN101 sees beside loops with an optimizer: a method that is one step, and updates by hand."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from torchvet.rules.kit import Iterator, SourceFile, Step
from torchvet.rules.shared import training_loops as loops
from torchvet.source.model import Event, Unit, is_attribute, is_call, is_name, name_set, names_in, root_of, target_names
from torchvet.source.model.steps import Step as OneStep
from torchvet.source.syntax import receiver, terminal
from torchvet.source.walking import Loop, walk

_CLEARS = re.compile(
    r"zero_grad|set_to_none|autograd\.grad\b|clear_grad|_foreach_|load_state_dict\(\w*initial"
    r"|\.grad(\.data)?\s*(=(?!=)|\.(zero|fill|mul|copy|detach)_)"
)
"""What clears gradients, or may, wherever it stands in a file."""
_CHANGES = name_set("add_ sub_ addcdiv_ addcmul_ copy_")


@dataclass(frozen=True)
class Uncleared:
    """A backward and an update in one unit, in a file that clears no gradient."""

    backward: Event
    update: Event
    """The optimizer's `step()`, or what changes the parameters by hand."""
    model: ast.expr | None
    """Whose parameters are changed by hand."""
    loop: Loop | None
    """The loop around both; None for a function that is one step."""

    @property
    def unit(self) -> Unit:
        """The function."""
        return self.backward.unit


def uncleared_steps(file: SourceFile) -> Iterator[Uncleared]:
    """Functions that are one step, and updates by hand, where nothing in the file clears."""
    if _CLEARS.search(file.text) or loops.is_test(file):
        return
    for step in file.steps:
        if step.loop is None and not step.unit.is_module:
            yield from _by_optimizer(file, step)
    if file.mentions(".grad") and file.mentions("parameters()"):
        for unit in file.units_calling("backward"):
            yield from _by_hand(file, unit)


def _by_optimizer(file: SourceFile, step: Step) -> Iterator[Uncleared]:
    for stepped in step.of("step", "scaler_step"):
        backward = next((b for b in step.of("backward") if not b.excludes(stepped) and b.order < stepped.order), None)
        subject = loops.subject_of(stepped)
        if backward is None or subject is None or stepped.at.unit is not stepped.event.unit:
            continue
        closure = stepped.kind == "step" and bool(stepped.event.call.args)
        sure = not closure and stepped.through != stepped.subject and not _hides(file, step)
        if (
            sure
            and _outlives(subject, step, stepped.at)
            and _made_here(backward.event)
            and backward.event.unit is step.unit
        ):
            yield Uncleared(backward.event, stepped.event, None, None)


def _hides(file: SourceFile, step: Step) -> bool:
    """Whether the step calls something from elsewhere that could clear, a method of a base class above all."""
    calls = (e for unit in loops.units_of(step) for e in unit.events if isinstance(e.node, ast.Call))
    return loops.may_do_more(file, step) or any(is_call(receiver(e.call), "super") for e in calls)


def _by_hand(file: SourceFile, unit: Unit) -> Iterator[Uncleared]:
    """`for p in model.parameters(): p.data -= rate * p.grad` after a backward in the same function."""
    found = next((e for e in unit.events if _changes_parameter(e)), None)
    if found is None or found.loop is None:
        return
    on, loop = receiver(found.loop.node.iter), found.loop.parent  # type: ignore[attr-defined]
    backwards = [e for e in unit.calls.get("backward", ()) if e.index < found.index and e.inside(loop)]
    step = OneStep(unit, loop, loops.effects_in(unit, loop))
    if on is None or not backwards or not _outlives(on, step, found):
        return
    if (loop is not None or _made_here(backwards[-1])) and _is_whole(file, step):
        yield Uncleared(backwards[-1], found, on, loop)


def _is_whole(file: SourceFile, step: Step) -> bool:
    """Whether no optimizer steps as well, and nothing is called that may clear."""
    return not step.of("step", "scaler_step") and not _hides(file, step)


def _changes_parameter(event: Event) -> bool:
    """`p.data.add_(p.grad, …)` or `p -= rate * p.grad` in a loop over all parameters of something."""
    node, loop = event.node, event.loop.node if event.loop is not None else None
    if not isinstance(loop, ast.For) or not is_call(loop.iter, "parameters", "named_parameters"):
        return False
    if isinstance(node, ast.AugAssign):
        changed: ast.expr | None = node.target
    else:
        changed = receiver(node) if isinstance(node, ast.Call) and terminal(node) in _CHANGES else None
    name = root_of(changed)
    reads = any(is_attribute(n, "grad") and is_name(n.value, name) for n in walk(node))
    data = isinstance(changed, ast.Name) or is_attribute(changed, "data")
    return data and reads and name in target_names(loop)


def _outlives(node: ast.expr, step: Step, at: Event) -> bool:
    """Whether what is stepped or changed is there before the step and stays after it: `self`'s, a parameter's, or
    what is made outside the loop."""
    name, loop = root_of(node), step.loop
    bound = [e for e in step.unit.bindings.get(name, ()) if loop is None or e.inside(loop)]
    outside = bool(name) and not bound and (loop is not None or not step.unit.is_module)
    return outside and not loops.made_anew(node, step.unit, step, at)


def _made_here(backward: Event) -> bool:
    """Whether the loss is computed in this very function: where it is handed in, its maker may clear."""
    on = receiver(backward.call)
    if isinstance(on, ast.Call):
        on = next((n for n in walk(on) if isinstance(n, ast.Name) and n.id in backward.unit.bindings), None)
    bindings = backward.bindings_before(on.id) if isinstance(on, ast.Name) else []
    values = [getattr(e.node, "value", None) for e in bindings]
    return any(isinstance(n, ast.Call) for v in values if v is not None for n in walk(v) if names_in(v))
