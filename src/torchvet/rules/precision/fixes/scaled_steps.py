"""Edits of a training step that goes through a scaler, or should: one object for both of its calls, a schedule that
waits for steps that were made, and a scaler where there is none."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.rules.kit import Edit, Effect, Finding, Sequence, SourceFile, Step
from torchvet.rules.precision.fixes.moves import alone, line_of, related_lines, together
from torchvet.source.model import Event, Unit, blocks, edits, is_attribute, names_in, receiver, terminal, walk
from torchvet.source.model.steps import text_of

if TYPE_CHECKING:
    from torchvet.rules.precision._scaling import ScaledPass


def one_object(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """`scaler.unscale_` of the object that `scaler.step` is given, where a run has seen them divide one after the
    other."""
    lines = {line_of(file, finding), *related_lines(file, finding, "divided")}
    unscales = [e for e in file.calls("unscale_") if e.line in lines and len(e.call.args) == 1]
    steps = _scaler_steps(file, lines)
    if len(unscales) != 1 or len(steps) != 1 or unscales[0].unit is not steps[0].unit:
        return ()
    unscale, step = unscales[0].call, steps[0].call
    given, wanted = unscale.args[0], step.args[0]
    stepped = {ast.unparse(e.call.args[0]) for e in file.calls("step") if e.call.args}
    alike = text_of(receiver(unscale)) == text_of(receiver(step))
    plain = all(isinstance(n, (ast.Name, ast.Attribute)) for n in (given, wanted))
    if not alike or not plain or ast.unparse(given) in stepped or unscales[0].index > steps[0].index:
        return ()
    return [edits.replace(file, given, file.segment(wanted))]


def unscaled_first(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """Gradients divided before the statement that clips them, itself or in a function of the file, and that stands in
    one block with the step: by the statement that does so too late, where there is one."""
    line, steps = line_of(file, finding), _scaler_steps(file, set(related_lines(file, finding, "stepped")))
    if line is None or len(steps) != 1:
        return ()
    step, unit = steps[0], steps[0].unit
    block = blocks.block_of(unit.node, step.statement)
    clip, last = _clip_before(file, line, step, block), blocks.holding(block, step.statement)
    scaler, given = receiver(step.call), step.call.args[0]
    if clip is None or last is None or clip >= last or scaler is None or isinstance(given, ast.Starred):
        return ()
    call = f"{file.segment(scaler)}.unscale_({file.segment(given)})"
    before, known = edits.before(file, block[clip], call), unit.calls.get("unscale_", ())
    if not known:
        return before
    late = [e for e in known if ast.unparse(e.call) == ast.unparse(ast.parse(call))]
    here = len(late) == 1 and late[0].statement in block[clip + 1 : last] and alone(file, late[0])
    return together(before, blocks.without(file, [late[0].statement])) if here else ()


def _clip_before(file: SourceFile, line: int, step: Event, block: list[ast.stmt]) -> int | None:
    """Where in a step's block the statement stands that clips on a line, or calls the function that does."""
    helper, events = file.unit_at(line), step.unit.events[: step.index]
    calls = (e for e in events if isinstance(e.node, ast.Call))
    own = step.unit is helper
    clip = next((e for e in calls if (e.line == line if own else file.callee(e) is helper)), None)
    return blocks.holding(block, clip.statement) if clip is not None else None


def _scaler_steps(file: SourceFile, lines: set[int | None] | set[int]) -> list[Event]:
    """The calls of `scaler.step` on some lines."""
    steps = [e for e in file.calls("step") if e.line in lines and len(e.call.args) == 1]
    return [e for e in steps if file.roles.is_a("scaler", receiver(e.call), e.unit)]


# A schedule that waits for its optimizer -----------------------------------------------------------------------------


def only_after_a_step(one: ScaledPass, step: Effect) -> list[Edit]:
    """The scale kept before a scaler's step, and its schedulers stepped only if it has not fallen since."""
    file, unit = one.file, step.event.unit
    block = blocks.block_of(unit.node, step.event.statement)
    update = next((e for e in one.of("update") if e.order > step.order and e.event.unit is unit), None)
    waiting = one.after(step, "scheduler")
    scaler, name = receiver(step.event.call), _free(unit, "scale", "scale_before", "old_scale")
    if update is None or scaler is None or not name or not waiting or len(one.steps) != 1:
        return []
    if update.event.statement not in block:
        return []
    # `update` lowers the scale exactly where `step` has left the optimizer's step out.
    text, settled = file.segment(scaler), block[block.index(update.event.statement) + 1 :]
    kept = edits.before(file, step.event.statement, f"{name} = {text}.get_scale()")
    made = together(*(_only_if(file, s.event, f"{text}.get_scale() >= {name}", unit, settled) for s in waiting))
    return [*kept, *made] if made else []


def _only_if(file: SourceFile, event: Event, condition: str, unit: Unit, block: list[ast.stmt]) -> list[Edit]:
    """A call in a block of a unit put under a condition; nothing where it is no statement there."""
    statement, owner = event.statement, unit.node
    more = blocks.step_of(file, owner.body, None if isinstance(owner, ast.Module) else owner)
    lone = isinstance(event.parent, ast.Expr) and event.unit is unit
    if not lone or not more or blocks.holding(block, statement) is None:
        return []
    return blocks.opened_around(file, [statement], f"if {condition}:", more)


def _free(unit: Unit, *names: str) -> str:
    """The first of some names that means nothing in a unit; empty where all do."""
    used = names_in(unit.node)
    return next((n for n in names if n not in used and unit.home(n) is None), "")


# A scaler where there is none ----------------------------------------------------------------------------------------


def with_scaler(file: SourceFile, step: Step, device: str) -> list[Edit]:
    """A scaler made beside the optimizer, and the step's backward, clipping and step made through it; nothing where the
    file has more than one training step, or its parts are spread over functions."""
    backwards, stepped = step.of("backward"), step.of("step")
    if len(backwards) != 1 or len(stepped) != 1 or not device or not _trains_once(file):
        return []
    backward, steps = backwards[0].event, stepped[0].event
    loss, optimizer = receiver(backward.call), receiver(steps.call)
    if loss is None or optimizer is None or not _is_plain(file, step, backward, steps, loss):
        return []
    made, name = _made_beside(file, steps.unit, optimizer, f'torch.amp.GradScaler("{device}")')
    own = file.segment(optimizer)
    parts = [
        made,
        [edits.replace(file, loss, f"{name}.scale({file.segment(loss)})")],
        [edits.replace(file, steps.call, f"{name}.step({own})")],
        edits.after(file, steps.statement, f"{name}.update()"),
    ]
    for clip in step.of("clip")[:1]:
        sure = clip.arms == stepped[0].arms and clip.order > backwards[0].order
        parts.append(edits.before(file, clip.event.statement, f"{name}.unscale_({own})") if sure else [])
    return together(*parts)


def _is_plain(file: SourceFile, step: Step, backward: Event, steps: Event, loss: ast.expr) -> bool:
    """Whether a step's calls are statements of one function that does nothing else with gradients."""
    unit, call = steps.unit, steps.call
    if not alone(file, backward) or not alone(file, steps) or call.args or call.keywords:
        return False
    if backward.unit is not unit or any(c.event.unit is not unit for c in step.of("clip")):
        return False
    reads = any(is_attribute(n, "grad") for n in walk(unit.node))
    return not reads and loss.lineno == loss.end_lineno


def _trains_once(file: SourceFile) -> bool:
    """Whether one backward is all that the file trains by, and `torch` is torch's name in it."""
    backwards = {id(b.event) for s in file.steps for b in s.of("backward")}
    return len(backwards) == 1 and not file.mentions("closure") and file.imports.names.get("torch") == "torch"


def _made_beside(file: SourceFile, unit: Unit, optimizer: ast.expr, text: str) -> tuple[list[Edit], str]:
    """The line that makes a scaler after the one that makes an optimizer, and how a unit calls that scaler."""
    if isinstance(optimizer, ast.Name):
        return _beside_name(file, unit, optimizer.id, text)
    owner, own = unit.method_class(), unit.self_name()
    if not isinstance(optimizer, ast.Attribute) or terminal(optimizer.value) != own or owner is None or not own:
        return [], ""
    where = [event for event, _ in owner.attributes.get(optimizer.attr, ())]
    names = {n.attr for n in walk(owner.node) if isinstance(n, ast.Attribute)}
    name = next((n for n in ("scaler", "grad_scaler") if n not in names), "")
    if len(where) != 1 or where[0].context.arms or where[0].unit.name != "__init__" or not name:
        return [], ""
    return edits.after(file, where[0].statement, f"{where[0].unit.self_name()}.{name} = {text}"), f"{own}.{name}"


def _beside_name(file: SourceFile, unit: Unit, optimizer: str, text: str) -> tuple[list[Edit], str]:
    home = unit.home(optimizer)
    if home is None or home not in (unit, file.top) or optimizer in unit.parameters:
        return [], ""
    bound, name = home.bindings.get(optimizer, []), _free(unit, "scaler", "grad_scaler")
    if not name or name in home.bindings or file.mentions(f"{name} =") or len(bound) != 1 or bound[0].context.arms:
        return [], ""
    return edits.after(file, bound[0].statement, f"{name} = {text}"), name
