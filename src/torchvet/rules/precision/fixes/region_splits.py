"""Edits that end an autocast region before weights change, and open it anew after that."""

from __future__ import annotations

import ast
from itertools import groupby

from torchvet.rules.kit import Edit, Finding, Sequence, SourceFile
from torchvet.rules.precision._scaling import run_by
from torchvet.rules.precision.fixes.moves import line_of, related_lines
from torchvet.rules.precision.fixes.region_openings import Opening, opening
from torchvet.rules.precision.fixes.regions import computes, narrowed, spanned
from torchvet.rules.shared import autocast_regions as autocast
from torchvet.source.model import Event, Unit, blocks, calls_in, is_call, name_set, terminal, walk

_ACTING = name_set(
    "zero_grad backward step update unscale_ clip_grad_norm_ clip_grad_value_ load_state_dict copy_to apply_shadow "
    "restore swap_parameters"
)
_BESIDE = name_set("scale parameters named_parameters state_dict load mean sum values")
"""Calls within those that run no forward pass."""


def around_changes(file: SourceFile, region: autocast.Region, change: Event) -> list[Edit]:
    """A region without the change of weights in it: opened anew after it, or in the loop that changes them each time.
    Nothing where its lines are not simple."""
    opened = opening(file, region.node, change.unit)
    if opened is None or region.framework:
        return []
    if change.statement in opened.body:
        return _without(opened, [_acts(one) for one in opened.body])
    return _in_the_loop(opened, change)


def around_calls(file: SourceFile, finding: Finding) -> list[Edit]:
    """The same where a run has named the line that changes weights: in a function that statements of the region call,
    or in the region itself."""
    at, lines = line_of(file, finding), related_lines(file, finding, "region")
    if at is None or not lines:
        return []
    unit, changing = file.unit_at(lines[0]), file.unit_at(at)
    opened = _opened_on(file, lines[0], unit)
    if opened is None:
        return []
    changes = [_changes(s, unit, changing, at) for s in opened.body]
    if any(changes):
        return _without(opened, [_acts(s) or c for s, c in zip(opened.body, changes, strict=True)])
    # The run has named the forward pass, and not what changed the weights: a region ends before it, another begins.
    after = next((s for s in opened.body[1:] if s.lineno <= at <= blocks.last_line(s)), None)
    sure = blocks.have_lines_of_their_own(file, opened.body) and opened.can_move
    return opened.header_before(after) if after and sure and at in related_lines(file, finding, "stale") else []


def _opened_on(file: SourceFile, line: int, unit: Unit) -> Opening | None:
    """The one `with` on a line, where it opens a region that no framework manages."""
    nodes = [e.node for e in unit.events if isinstance(e.node, ast.With) and e.node.lineno == line]
    region = autocast.region(file, nodes[0].items[0].context_expr, unit) if len(nodes) == 1 else None
    return opening(file, region.node, unit) if region is not None and not region.framework else None


def _changes(statement: ast.stmt, unit: Unit, changing: Unit, line: int) -> bool:
    """Whether a statement is the one on a line, or one call of the function that has the line, which computes
    nothing."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    if changing is unit:
        return statement.lineno <= line <= blocks.last_line(statement)
    return run_by(statement.value, unit) is changing and not any(computes(unit.file, e) for e in changing.events)


def _acts(statement: ast.stmt) -> bool:
    """Whether a statement is one call that acts on gradients or weights, and computes nothing beside."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if call is None or not is_call(call, *_ACTING):
        return False
    closes = any(isinstance(n, ast.Lambda) or (isinstance(n, ast.Name) and "closure" in n.id) for n in walk(call))
    return not closes and all(terminal(n) in _BESIDE for n in calls_in(call) if n is not call)


def _without(opened: Opening, acting: Sequence[bool]) -> list[Edit]:
    """A region that ends before each run of acting statements and begins anew after it; one that only clears gradients
    stays in it."""
    body = opened.body
    if not blocks.have_lines_of_their_own(opened.file, body) or acting[0] or not opened.can_move:
        return []
    made: list[Edit] = []
    for acts, numbers in groupby(range(len(body)), key=acting.__getitem__):
        run = list(numbers)
        # Clearing gradients leaves the weights as they are, and the half copies with them.
        if not acts or all(terminal(getattr(body[n], "value", None)) == "zero_grad" for n in run):
            continue
        lines = range(blocks.last_line(body[run[0] - 1]) + 1, blocks.last_line(body[run[-1]]) + 1)
        moved = blocks.dedented(opened.file, lines, opened.inner, opened.outer)
        after = body[run[-1] + 1 :]
        head = opened.header_before(after[0]) if after else []
        if moved is None or (after and not head):
            return []
        made += [*moved, *head]
    return made


def _in_the_loop(opened: Opening, change: Event) -> list[Edit]:
    """A region around a loop that loads weights and computes with them, opened after they are loaded."""
    loop, unit, file = change.loop, change.unit, opened.file
    if loop is None or not isinstance(loop.node, (ast.For, ast.While)) or loop.node not in opened.body:
        return []
    block = loop.node.body
    if change.statement not in block or not _acts(change.statement):
        return []
    computing = [e for e in unit.events if e.line in opened.lines and e is not change and computes(file, e)]
    made = spanned(unit, block[block.index(change.statement) + 1 :], computing)
    return narrowed(opened, made) if made is not None and blocks.have_lines_of_their_own(file, made.all) else []
