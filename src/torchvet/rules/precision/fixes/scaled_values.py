"""Edits that divide gradients where they are read or clipped, and that read a loss before it is scaled."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.rules.kit import Edit, Effect, Finding, Iterator, Sequence, SourceFile, calls_at
from torchvet.source.model import Event, Unit, blocks, edits, receiver, terminal, walk

if TYPE_CHECKING:
    from torchvet.rules.precision._scaling import Pass

_LEAVING = (ast.Continue, ast.Break, ast.Return, ast.Raise)


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
    found = [n for n in walk(read.node) if isinstance(n, ast.Name) and n.id == name]
    return [edits.replace(file, found[0], given.id)] if len(found) == 1 else []


def _scaled_at_its_backward(file: SourceFile, scaled: Event, name: str) -> list[Edit]:
    unit, statement = scaled.unit, scaled.statement
    after = [b.index for b in unit.bindings.get(name, ()) if b.index > scaled.index + 1]
    window = unit.events[scaled.index + 1 : min(after, default=len(unit.events))]
    calls = [e for e in window if isinstance(e.node, ast.Call)]
    backward = [e for e in calls if terminal(e.node) in ("backward", "manual_backward", "grad")]
    if len(backward) != 1 or terminal(backward[0].node) != "backward":
        return []
    on, alike = receiver(backward[0].call), backward[0].context.arms == scaled.context.arms
    block = blocks.block_of(unit.node, statement)
    if not isinstance(on, ast.Name) or on.id != name or not alike or backward[0].loop is not scaled.loop:
        return []
    if len(block) < 2 or scaled.node.lineno != getattr(scaled.node, "end_lineno", 0):  # type: ignore[attr-defined]
        return []
    taken = blocks.without(file, [statement])
    return [*taken, edits.replace(file, on, file.segment(scaled.node))] if taken else []


def unscaled_here(file: SourceFile, finding: Finding) -> Sequence[Edit]:
    """`scaler.scale(loss).item()` on the line that a run has named: the loss."""
    made = []
    for _, on in calls_at(file, finding, "item", "tolist", "detach"):
        if isinstance(on, ast.Call) and terminal(on) == "scale" and len(on.args) == 1 and not on.keywords:
            given, plain = on.args[0], (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
            named = "caler" in ast.unparse(on.func)
            if named and isinstance(given, plain) and on.lineno == on.end_lineno:
                made.append(edits.replace(file, on, file.segment(given)))
    return made if len(made) == 1 else ()


# Gradients that are read while they are scaled -----------------------------------------------------------------------


def divided_before(
    file: SourceFile, one: Pass, measures: Sequence[Event], backward: Effect, end: Effect
) -> list[Edit]:  # fmt: skip
    """`scaler.unscale_` before the first statement that measures gradients; where it is called later it moves there.
    Nothing where some pass may measure and not step."""
    unit, statement = end.event.unit, end.event.statement
    if not isinstance(statement, ast.Expr) or statement.value is not end.event.node or not measures:
        return []
    if one.step.optimizers != {end.subject} or any(m.unit is not unit for m in measures):
        return []
    block = blocks.block_of(unit.node, statement)
    first, last = _place(block, measures[0]), _place(block, end.event)
    start = _position(block, unit, backward)
    if first is None or last is None or start is None or not start < first < last:
        return []
    clipped = end.kind == "scaler_step" and one.between(backward, end, "clip")  # then it is missing there, too
    leaves = any(isinstance(n, _LEAVING) for s in block[first:last] for n in walk(s))
    if clipped or leaves or one.between(backward, end, "backward"):
        return []
    put = edits.before(file, block[first], _unscale(file, end))
    taken = blocks.without(file, [statement]) if end.kind == "unscale" else []
    return [*put, *taken] if put and (taken or end.kind != "unscale") else []


def _unscale(file: SourceFile, end: Effect) -> str:
    call = end.event.call
    if end.kind == "unscale":
        return file.segment(call)
    given = file.segment(call.args[0]) if call.args else end.subject
    return f"{file.segment(receiver(call) or call)}.unscale_({given})"


def _place(block: Sequence[ast.stmt], event: Event) -> int | None:
    return blocks.holding(block, event.statement)


def _position(block: Sequence[ast.stmt], unit: Unit, effect: Effect) -> int | None:
    """Where in a block of a unit an effect is done, be it in a function called there."""
    event = effect.event if effect.event.unit is unit else effect.at
    return _place(block, event) if event.unit is unit else None


def divided_penalty(file: SourceFile, event: Event) -> list[Edit]:
    """`grad(scaler.scale(…), x, create_graph=True)[0]` divided by the scale."""
    scaler = receiver(event.call)
    part = next((n for n in walk(event.statement) if isinstance(n, ast.Subscript) and n.value is event.parent), None)
    if scaler is None or part is None or not isinstance(part.slice, ast.Constant):
        return []
    whole = isinstance(event.statement, ast.Assign) and event.statement.value is part
    divided = f" / {file.segment(scaler)}.get_scale()"
    end = edits.end_of(file, part)
    if whole:
        return [Edit(path=file.path, start=end, end=end, text=divided)]
    start = edits.start_of(file, part)
    return [
        Edit(path=file.path, start=start, end=start, text="("),
        Edit(path=file.path, start=end, end=end, text=f"{divided})"),
    ]


# A backward that comes too late --------------------------------------------------------------------------------------


def divided_after(file: SourceFile, one: Pass, unscale: Effect, late: Effect) -> list[Edit]:
    """`scaler.unscale_`, with the clipping that follows it, moved below the last backward of the step; nothing where
    what stands between reads what they give."""
    unit = unscale.event.unit
    block = _common_block(unit, unscale, late)
    begin = _position(block, unit, unscale)
    stops = [_position(block, unit, s) for s in one.steps if s.order > late.order and not one.excludes(s, late)]
    before = min((s.order for s in one.steps if s.order > late.order), default=0)
    others = [b for b in one.scaled if unscale.order < b.order < before and not one.excludes(b, unscale)]
    places = [_position(block, unit, b) for b in others]
    ends = [p for p in places if p is not None]
    if begin is None or len(ends) != len(places) or not ends or any(s is None or s <= max(ends) for s in stops):
        return []
    run = [block[begin], *_clips(one, block[begin + 1 : max(ends) + 1])]
    if not _only_divides(one, block[begin]):
        return []
    between = block[begin + len(run) : max(ends) + 1]
    bound = {n.id for s in run for n in walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    read = [n for s in between for n in walk(s)]
    if any((isinstance(n, ast.Name) and n.id in bound) or getattr(n, "attr", "") == "grad" for n in read):
        return []
    taken = blocks.without(file, run) if blocks.have_lines_of_their_own(file, [*run, block[max(ends)]]) else []
    after = (blocks.last_line(block[max(ends)]) + 1, 1)
    text = blocks.text_of_lines(file, blocks.first_line(run[0]), blocks.last_line(run[-1]))
    return [*taken, Edit(path=file.path, start=after, end=after, text=text)] if taken else []


def _common_block(unit: Unit, one: Effect, other: Effect) -> list[ast.stmt]:
    """The innermost block of a unit that both effects are done in."""
    for effect in (one, other):
        event = effect.event if effect.event.unit is unit else effect.at
        block = blocks.block_of(unit.node, event.statement) if event.unit is unit else []
        if block and all(_position(block, unit, e) is not None for e in (one, other)):
            return block
    return []


def _clips(one: Pass, statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements right after an `unscale_` that clip, or divide for another optimizer."""
    for statement in statements:
        if not _only_divides(one, statement):
            return
        yield statement


def _only_divides(one: Pass, statement: ast.stmt) -> bool:
    """Whether what a statement does in a step is to divide or to clip gradients."""
    within = {id(n) for n in walk(statement)}
    kinds = {e.kind for e in one.effects if id(e.event.node) in within or id(e.at.node) in within}
    return bool(kinds) and kinds <= {"unscale", "clip"}


def divided_at_the_end(file: SourceFile, one: Pass, unscale: Effect) -> list[Edit]:
    """`scaler.unscale_`, with the clipping that follows it, moved into the branch that steps; nothing where more stands
    between that may read gradients."""
    unit, statement = unscale.event.unit, unscale.event.statement
    block = blocks.block_of(unit.node, statement)
    step = next((s for s in one.steps if s.order > unscale.order and s.event.unit is unit), None)
    begin, end = _place(block, unscale.event), _place(block, step.event) if step is not None else None
    if step is None or begin is None or end is None or not begin < end or block[begin] is not statement:
        return []
    branch, run = block[end], [statement, *_clips(one, block[begin + 1 : end])]
    if not isinstance(branch, ast.If) or not any(s is step.event.statement for s in branch.body):
        return []
    ahead = branch.body[: next(i for i, s in enumerate(branch.body) if s is step.event.statement)]
    between = [n for s in (*block[begin + len(run) : end], *ahead) for n in walk(s)]
    bound = any(isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) for s in run for n in walk(s))
    if bound or any(getattr(n, "attr", "") == "grad" for n in between) or not _only_divides(one, statement):
        return []
    outer, inner = blocks.margin(file, statement), blocks.margin(file, step.event.statement)
    strings = any(isinstance(n, ast.JoinedStr) for s in run for n in walk(s))
    taken = blocks.without(file, run) if inner.startswith(outer) and not strings else []
    if not taken or not edits.stands_alone(file, step.event.statement):
        return []
    rows = blocks.text_of_lines(file, blocks.first_line(run[0]), blocks.last_line(run[-1]))
    more = inner[len(outer) :]
    text = "".join(f"{more}{row}" if row.strip() else row for row in rows.splitlines(keepends=True))
    place = (step.event.statement.lineno, 1)
    return [*taken, Edit(path=file.path, start=place, end=place, text=text)]
