"""Edits of a training step that goes through a scaler, or should: one object for both of its calls, a schedule that
waits for steps that were made, and a scaler where there is none."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.rules.kit import Edit, Effect, Finding, Sequence, SourceFile, Step
from torchvet.source.model import Event, Unit, blocks, edits, receiver, terminal, walk

if TYPE_CHECKING:
    from torchvet.rules.precision._scaling import Pass


def one_object(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """`scaler.unscale_` of the object that `scaler.step` is given, where a run has seen them divide one after the
    other."""
    at = finding.location
    lines = {r.line for r in finding.related if r.role == "divided" and r.path == file.path}
    lines |= {at.line} if at is not None and at.path == file.path else set()
    unscales = [e for e in file.calls("unscale_") if e.line in lines and len(e.call.args) == 1]
    steps = [e for e in file.calls("step") if e.line in lines and len(e.call.args) == 1 and _is_scaler(e)]
    if len(unscales) != 1 or len(steps) != 1 or unscales[0].unit is not steps[0].unit:
        return ()
    unscale, step = unscales[0].call, steps[0].call
    given, wanted = unscale.args[0], step.args[0]
    stepped = {ast.unparse(e.call.args[0]) for e in file.calls("step") if e.call.args}
    alike = ast.unparse(receiver(unscale) or given) == ast.unparse(receiver(step) or wanted)
    plain = all(isinstance(n, (ast.Name, ast.Attribute)) for n in (given, wanted))
    if not alike or not plain or ast.unparse(given) in stepped or unscales[0].index > steps[0].index:
        return ()
    return [edits.replace(file, given, file.segment(wanted))]


def unscaled_first(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """Gradients divided before the statement that clips them, be it in a function of the file, and that stands in one
    block with the step: by the statement that does so too late, where there is one."""
    at = finding.location
    lines = {r.line for r in finding.related if r.role == "stepped" and r.path == file.path}
    steps = [e for e in file.calls("step") if e.line in lines and len(e.call.args) == 1 and _is_scaler(e)]
    if at is None or at.path != file.path or len(steps) != 1:
        return ()
    step, unit, helper = steps[0], steps[0].unit, file.unit_at(at.line)
    block = blocks.block_of(unit.node, step.statement)
    own = unit is helper
    clips = [e for e in unit.events if isinstance(e.node, ast.Call) and e.index < step.index
             and (e.line == at.line if own else file.callee(e) is helper)]  # fmt: skip
    clip = blocks.holding(block, clips[0].statement) if clips else None
    last = blocks.holding(block, step.statement)
    scaler, given = receiver(step.call), step.call.args[0]
    if clip is None or last is None or clip >= last or scaler is None or isinstance(given, ast.Starred):
        return ()
    call = f"{file.segment(scaler)}.unscale_({file.segment(given)})"
    late = [e for e in unit.calls.get("unscale_", ()) if ast.unparse(e.call) == ast.unparse(ast.parse(call))]
    if not late:
        return edits.before(file, block[clip], call) if not unit.calls.get("unscale_") else ()
    here = len(late) == 1 and any(s is late[0].statement for s in block[clip + 1 : last]) and _alone(file, late[0])
    taken = blocks.without(file, [late[0].statement]) if here else []
    return [*edits.before(file, block[clip], call), *taken] if taken else ()


def _is_scaler(event: Event) -> bool:
    return event.unit.file.roles.is_a("scaler", receiver(event.call), event.unit)


# A schedule that waits for its optimizer -----------------------------------------------------------------------------


def only_after_a_step(file: SourceFile, one: Pass, step: Effect) -> list[Edit]:
    """The scale kept before a scaler's step, and its schedulers stepped only if it has not fallen since."""
    unit = step.event.unit
    block = blocks.block_of(unit.node, step.event.statement)
    update = next((e for e in one.step.of("update") if e.order > step.order and e.event.unit is unit), None)
    waiting = [s for s in one.step.of("scheduler") if s.order > step.order and not one.excludes(s, step)]
    scaler, name = receiver(step.event.call), _free(unit, "scale", "scale_before", "old_scale")
    if update is None or scaler is None or not name or not waiting or len(one.steps) != 1:
        return []
    begin, settled = (blocks.holding(block, e.event.statement) for e in (step, update))
    text = file.segment(scaler)
    if begin is None or settled is None or not any(s is update.event.statement for s in block):
        return []
    made = edits.before(file, block[begin], f"{name} = {text}.get_scale()")
    for scheduler in waiting:
        statement = scheduler.event.statement
        at = blocks.holding(block, statement) if scheduler.event.unit is unit else None
        lone = isinstance(statement, ast.Expr) and statement.value is scheduler.event.node
        more = blocks.step_of(file, getattr(unit.node, "body", []), None if unit.is_module else unit.node)  # type: ignore[arg-type]
        put = blocks.opened_around(file, [statement], f"if {text}.get_scale() >= {name}:", more) if lone else []
        if at is None or at <= settled or not put or not more:
            return []
        made += put
    return made


def _free(unit: Unit, *names: str) -> str:
    """The first of some names that means nothing in a unit; empty where all do."""
    used = {n.id for n in walk(unit.node) if isinstance(n, ast.Name)}
    return next((n for n in names if n not in used and unit.home(n) is None), "")


# A scaler where there is none ----------------------------------------------------------------------------------------


def with_scaler(file: SourceFile, step: Step, device: str) -> list[Edit]:
    """A scaler made beside the optimizer, and the step's backward, clipping and step made through it; nothing where the
    file has more than one training step, or its parts are spread over functions."""
    backwards, stepped, clips = step.of("backward"), step.of("step"), step.of("clip")
    if len(backwards) != 1 or len(stepped) != 1 or file.imports.names.get("torch") != "torch" or not device:
        return []
    if len({id(b.event) for s in file.steps for b in s.of("backward")}) != 1 or file.mentions("closure"):
        return []
    backward, steps, unit = backwards[0].event, stepped[0].event, stepped[0].event.unit
    loss, optimizer = receiver(backward.call), receiver(steps.call)
    alone = all(_alone(file, e) for e in (backward, steps)) and not steps.call.args and not steps.call.keywords
    if backward.unit is not unit or loss is None or optimizer is None or not alone:
        return []
    if any(c.event.unit is not unit for c in clips) or _reads_gradients(file, unit) or loss.lineno != loss.end_lineno:
        return []
    made, name = _made_beside(file, unit, optimizer, f'torch.amp.GradScaler("{device}")')
    if not made:
        return []
    own = file.segment(optimizer)
    put = edits.after(file, steps.statement, f"{name}.update()")
    found = [
        *made,
        edits.replace(file, loss, f"{name}.scale({file.segment(loss)})"),
        edits.replace(file, steps.call, f"{name}.step({own})"),
        *put,
    ]
    if clips:
        before = edits.before(file, clips[0].event.statement, f"{name}.unscale_({own})")
        sure = before and all(arm in clips[0].arms for arm in stepped[0].arms) and clips[0].order > backwards[0].order
        return [*found, *before] if sure and clips[0].arms == stepped[0].arms else []
    return found if put else []


def _alone(file: SourceFile, event: Event) -> bool:
    """Whether a call is a statement with a line of its own."""
    statement = event.statement
    return isinstance(statement, ast.Expr) and statement.value is event.node and edits.stands_alone(file, statement)


def _reads_gradients(file: SourceFile, unit: Unit) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in walk(unit.node))


def _made_beside(file: SourceFile, unit: Unit, optimizer: ast.expr, text: str) -> tuple[list[Edit], str]:
    """The line that makes a scaler after the one that makes an optimizer, and how a unit calls that scaler."""
    if isinstance(optimizer, ast.Name):
        home = unit.home(optimizer.id)
        bound = home.bindings.get(optimizer.id, []) if home is not None else []
        name = _free(unit, "scaler", "grad_scaler") if home is unit or (home is file.top) else ""
        taken = home is not None and name and (name in home.bindings or file.mentions(f"{name} ="))
        if len(bound) != 1 or not name or taken or optimizer.id in unit.parameters or bound[0].context.arms:
            return [], ""
        return edits.after(file, bound[0].statement, f"{name} = {text}"), name
    owner, own = unit.method_class(), unit.self_name()
    if not isinstance(optimizer, ast.Attribute) or terminal(optimizer.value) != own or owner is None or not own:
        return [], ""
    where = [event for event, _ in owner.attributes.get(optimizer.attr, ())]
    names = {n.attr for n in walk(owner.node) if isinstance(n, ast.Attribute)}
    name = next((n for n in ("scaler", "grad_scaler") if n not in names), "")
    if len(where) != 1 or where[0].context.arms or where[0].unit.name != "__init__" or not name:
        return [], ""
    return edits.after(file, where[0].statement, f"{where[0].unit.self_name()}.{name} = {text}"), f"{own}.{name}"
