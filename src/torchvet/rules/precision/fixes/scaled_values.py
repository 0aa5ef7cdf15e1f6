"""Edits that divide gradients where they are read or clipped, and that read a loss before it is scaled."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.rules.kit import Edit, Effect, Finding, Sequence, SourceFile, calls_at
from torchvet.rules.precision.fixes.moves import together
from torchvet.source.model import Event, Unit, blocks, edits, is_call, is_name, names_bound, receiver, terminal, walk

if TYPE_CHECKING:
    from torchvet.rules.precision._scaling import ScaledPass

_LEAVING = (ast.Continue, ast.Break, ast.Return, ast.Raise)
_PLAIN = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


# A loss that is read while it is scaled ------------------------------------------------------------------------------


def read_before_scaling(file: SourceFile, scaled: Event, name: str, read: Event) -> list[Edit]:
    """The loss itself read in the place of what the scaler gave; where both have one name, it is scaled only as it goes
    backward."""
    given = scaled.call.args[0] if scaled.call.args else None
    if not isinstance(given, ast.Name):
        return []
    if given.id == name:
        return _scaled_at_its_backward(file, scaled, name)
    between = range(scaled.index, read.index)
    if any(b.index in between for b in scaled.unit.bindings.get(given.id, ())) or read.loop is not scaled.loop:
        return []
    found = [n for n in walk(read.node) if is_name(n, name)]
    return [edits.replace(file, found[0], given.id)] if len(found) == 1 else []


def _scaled_at_its_backward(file: SourceFile, scaled: Event, name: str) -> list[Edit]:
    unit, call = scaled.unit, scaled.call
    after = [b.index for b in unit.bindings.get(name, ()) if b.index > scaled.index + 1]
    window = unit.events[scaled.index + 1 : min(after, default=len(unit.events))]
    calls = [e for e in window if isinstance(e.node, ast.Call)]
    backward = [e for e in calls if terminal(e.node) in ("backward", "manual_backward", "grad")]
    if len(backward) != 1 or terminal(backward[0].node) != "backward":
        return []
    on, alike = receiver(backward[0].call), backward[0].context.arms == scaled.context.arms
    if not is_name(on, name) or not alike or backward[0].loop is not scaled.loop:
        return []
    if len(blocks.block_of(unit.node, scaled.statement)) < 2 or call.lineno != call.end_lineno:
        return []
    return together(blocks.without(file, [scaled.statement]), [edits.replace(file, on, file.segment(call))])


def unscaled_here(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """`scaler.scale(loss).item()` on the line that a run has named: the loss."""
    made = []
    for _, on in calls_at(file, finding, "item", "tolist", "detach"):
        if is_call(on, "scale") and len(on.args) == 1 and not on.keywords:
            named = "caler" in ast.unparse(on.func)
            if named and isinstance(on.args[0], _PLAIN) and on.lineno == on.end_lineno:
                made.append(edits.replace(file, on, file.segment(on.args[0])))
    return made if len(made) == 1 else ()


# Gradients that are read while they are scaled -----------------------------------------------------------------------


def divided_before(one: ScaledPass, measures: Sequence[Event], backward: Effect, end: Effect) -> list[Edit]:
    """`scaler.unscale_` before the first statement that measures gradients; where it is called later it moves there.
    Nothing where some pass may measure and not step."""
    unit, statement = end.event.unit, end.event.statement
    if not isinstance(end.event.parent, ast.Expr) or not measures:
        return []
    if one.optimizers != {end.subject} or any(m.unit is not unit for m in measures):
        return []
    block = blocks.block_of(unit.node, statement)
    first, last = _place(block, measures[0]), _place(block, end.event)
    if not 0 <= _position(block, unit, backward) < first < last:
        return []
    # Where it clips before the step, an `unscale_` is missing there, too.
    clipped = end.kind == "scaler_step" and one.between(backward, end, "clip")
    leaves = any(isinstance(n, _LEAVING) for s in block[first:last] for n in walk(s))
    if clipped or leaves or one.between(backward, end, "backward"):
        return []
    before = edits.before(one.file, block[first], _unscale(one.file, end))
    return together(before, blocks.without(one.file, [statement])) if end.kind == "unscale" else before


def _unscale(file: SourceFile, end: Effect) -> str:
    call = end.event.call
    if end.kind == "unscale":
        return file.segment(call)
    given = file.segment(call.args[0]) if call.args else end.subject
    return f"{file.segment(receiver(call) or call)}.unscale_({given})"


def _place(block: Sequence[ast.stmt], event: Event) -> int:
    """Where in a block an event stands; -1 where it stands elsewhere."""
    place = blocks.holding(block, event.statement)
    return -1 if place is None else place


def _position(block: Sequence[ast.stmt], unit: Unit, effect: Effect) -> int:
    """Where in a block of a unit an effect is done, also by a function called there; -1 where it is done elsewhere."""
    event = effect.event if effect.event.unit is unit else effect.at
    return _place(block, event) if event.unit is unit else -1


def divided_penalty(file: SourceFile, event: Event) -> list[Edit]:
    """`grad(scaler.scale(…), x, create_graph=True)[0]` divided by the scale."""
    scaler = receiver(event.call)
    part = next((n for n in walk(event.statement) if isinstance(n, ast.Subscript) and n.value is event.parent), None)
    if scaler is None or part is None or not isinstance(part.slice, ast.Constant):
        return []
    whole = isinstance(event.statement, ast.Assign) and event.statement.value is part
    divided, end = f" / {file.segment(scaler)}.get_scale()", edits.end_of(file, part)
    if whole:
        return [edits.insert(file, end, divided)]
    return [edits.insert(file, edits.start_of(file, part), "("), edits.insert(file, end, f"{divided})")]


# A backward that comes too late --------------------------------------------------------------------------------------


def divided_after(one: ScaledPass, unscale: Effect, late: Effect) -> list[Edit]:
    """`scaler.unscale_`, with the clipping that follows it, moved below the last backward of the step; nothing where
    what stands between reads what they give."""
    file, unit = one.file, unscale.event.unit
    block = _common_block(unit, unscale, late)
    begin, last = _position(block, unit, unscale), _last_backward(one, block, unscale, late)
    if begin < 0 or last < 0 or not _only_divides(one, block[begin]):
        return []
    run = _dividing(one, block[begin : last + 1])
    between = [n for s in block[begin + len(run) : last + 1] for n in walk(s)]
    bound = names_bound(run)
    if _reads_gradients(between) or any(isinstance(n, ast.Name) and n.id in bound for n in between):
        return []
    if not blocks.have_lines_of_their_own(file, [*run, block[last]]):
        return []
    after = (blocks.last_line(block[last]) + 1, 1)
    return together(blocks.without(file, run), [edits.insert(file, after, _lines(file, run))])


def _last_backward(one: ScaledPass, block: Sequence[ast.stmt], unscale: Effect, late: Effect) -> int:
    """Where in a block the last scaled backward before a step stands; -1 where that step does not come after it."""
    unit, steps = unscale.event.unit, [s for s in one.steps if s.order > late.order]
    before = min((s.order for s in steps), default=0)
    others = [b for b in one.scaled if unscale.order < b.order < before and not one.excludes(b, unscale)]
    places = [_position(block, unit, b) for b in others]
    last = max(places, default=-1) if -1 not in places else -1
    stops = [_position(block, unit, s) for s in steps if not one.excludes(s, late)]
    return -1 if any(stop <= last for stop in stops) else last


def _common_block(unit: Unit, one: Effect, other: Effect) -> list[ast.stmt]:
    """The innermost block of a unit that both effects are done in."""
    for effect in (one, other):
        event = effect.event if effect.event.unit is unit else effect.at
        block = blocks.block_of(unit.node, event.statement) if event.unit is unit else []
        if block and all(_position(block, unit, e) >= 0 for e in (one, other)):
            return block
    return []


def _dividing(one: ScaledPass, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """An `unscale_` with the statements right after it that clip, or divide for another optimizer."""
    stop = next((n for n, s in enumerate(statements) if n and not _only_divides(one, s)), len(statements))
    return list(statements[:stop])


def _only_divides(one: ScaledPass, statement: ast.stmt) -> bool:
    """Whether what a statement does in a step is to divide or to clip gradients."""
    within = {id(n) for n in walk(statement)}
    kinds = {e.kind for e in one.effects if id(e.event.node) in within or id(e.at.node) in within}
    return bool(kinds) and kinds <= {"unscale", "clip"}


def _reads_gradients(nodes: Sequence[ast.AST]) -> bool:
    return any(getattr(n, "attr", "") == "grad" for n in nodes)


def _lines(file: SourceFile, statements: Sequence[ast.stmt]) -> str:
    return blocks.text_of_lines(file, blocks.first_line(statements[0]), blocks.last_line(statements[-1]))


def divided_at_the_end(one: ScaledPass, unscale: Effect) -> list[Edit]:
    """`scaler.unscale_`, with the clipping that follows it, moved into the branch that steps; nothing where more stands
    between that may read gradients."""
    file, unit, statement = one.file, unscale.event.unit, unscale.event.statement
    block = blocks.block_of(unit.node, statement)
    step = next((s for s in one.steps if s.order > unscale.order and s.event.unit is unit), None)
    begin, end = _place(block, unscale.event), _place(block, step.event) if step is not None else -1
    if step is None or not 0 <= begin < end:
        return []
    branch, target = block[end], step.event.statement
    if not isinstance(branch, ast.If) or target not in branch.body or not _only_divides(one, statement):
        return []
    run, ahead = _dividing(one, block[begin:end]), branch.body[: branch.body.index(target)]
    between = [n for s in (*block[begin + len(run) : end], *ahead) for n in walk(s)]
    if names_bound(run) or _reads_gradients(between):
        return []
    return _moved_in(file, run, target)


def _moved_in(file: SourceFile, run: Sequence[ast.stmt], target: ast.stmt) -> list[Edit]:
    """Statements moved to right before one that is indented more; nothing where their lines hold long strings."""
    outer, inner = blocks.margin(file, run[0]), blocks.margin(file, target)
    strings = any(isinstance(n, ast.JoinedStr) for s in run for n in walk(s))
    if strings or not inner.startswith(outer) or not edits.stands_alone(file, target):
        return []
    rows, more = _lines(file, run).splitlines(keepends=True), inner[len(outer) :]
    text = "".join(f"{more}{row}" if row.strip() else row for row in rows)
    return together(blocks.without(file, run), [edits.insert(file, (target.lineno, 1), text)])
