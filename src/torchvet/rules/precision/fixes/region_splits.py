"""Edits that end an autocast region before weights change, and open it anew after that."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Finding, Sequence, SourceFile
from torchvet.rules.precision.fixes.region_openings import Opening, header_before, is_rebound, opening
from torchvet.rules.precision.fixes.regions import Pass, computes, narrowed
from torchvet.rules.shared import autocast_regions
from torchvet.source.model import Event, Unit, blocks, terminal, walk

_ACTING = {"zero_grad", "backward", "step", "update", "unscale_", "clip_grad_norm_", "clip_grad_value_",
           "load_state_dict", "copy_to", "apply_shadow", "restore", "swap_parameters"}  # fmt: skip

_BESIDE = {"scale", "parameters", "named_parameters", "state_dict", "load", "mean", "sum", "values"}
"""Calls within those that run no forward pass."""


def around_changes(file: SourceFile, region: autocast_regions.Region, change: Event) -> list[Edit]:
    """A region without the change of weights in it: opened anew after it, or in the loop that changes them each time.
    Nothing where its lines are not simple."""
    opened = opening(file, region.node, change.unit)
    if opened is None or region.framework:
        return []
    body = opened.node.body
    if any(change.statement is one for one in body):
        return _without(file, opened, [_acts(one) for one in body])
    return _in_the_loop(file, opened, change)


def around_calls(file: SourceFile, finding: Finding) -> list[Edit]:
    """The same where a run has named the line that changes weights: in a function that statements of the region call,
    or in the region itself."""
    at = finding.location
    line = next((r.line for r in finding.related if r.role == "region" and r.path == file.path), None)
    if at is None or at.path != file.path or line is None:
        return []
    unit, changing = file.unit_at(line), file.unit_at(at.line)
    events = [e for e in unit.events if isinstance(e.node, ast.With) and e.node.lineno == line]
    region = autocast_regions.region(file, events[0].node.items[0].context_expr, unit) if len(events) == 1 else None  # type: ignore[attr-defined]
    opened = opening(file, region.node, unit) if region is not None and not region.framework else None
    if opened is None:
        return []
    changes = [_changes(file, s, unit, changing, at.line) for s in opened.node.body]
    if any(changes):
        return _without(file, opened, [_acts(s) or c for s, c in zip(opened.node.body, changes, strict=True)])
    return _ended_before(file, opened, at.line) if _is_stale(finding) else []


def _is_stale(finding: Finding) -> bool:
    """Whether a run has named the forward pass, and not what changed the weights before it."""
    at = finding.location
    return at is not None and any(r.role == "stale" and (r.path, r.line) == (at.path, at.line) for r in finding.related)


def _ended_before(file: SourceFile, opened: Opening, line: int) -> list[Edit]:
    """A region that ends before the statement on a line, and another from there on."""
    body = opened.node.body
    at = next((s for s in body[1:] if s.lineno <= line <= blocks.last_line(s)), None)
    if at is None or not blocks.have_lines_of_their_own(file, body) or is_rebound(file, opened):
        return []
    head = header_before(file, opened, at)
    return [head] if head is not None else []


def _changes(file: SourceFile, statement: ast.stmt, unit: Unit, changing: Unit, line: int) -> bool:
    """Whether a statement is the one on a line, or one call of the function that has the line, which computes
    nothing."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    if changing is unit:
        return statement.lineno <= line <= blocks.last_line(statement)
    event = next((e for e in unit.calls.get(terminal(statement.value), ()) if e.node is statement.value), None)
    return event is not None and file.callee(event) is changing and not any(computes(file, e) for e in changing.events)


def _acts(statement: ast.stmt) -> bool:
    """Whether a statement is one call that acts on gradients or weights, and computes nothing beside."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    call = statement.value
    inner = [n for n in walk(call) if isinstance(n, ast.Call) and n is not call]
    closes = any(isinstance(n, ast.Lambda) or (isinstance(n, ast.Name) and "closure" in n.id) for n in walk(call))
    return terminal(call) in _ACTING and all(terminal(n) in _BESIDE for n in inner) and not closes


def _without(file: SourceFile, opened: Opening, acting: Sequence[bool]) -> list[Edit]:
    """A region that ends before each run of acting statements and begins anew after it; one that only clears gradients
    stays in it."""
    body = opened.node.body
    if not blocks.have_lines_of_their_own(file, body) or acting[0] or is_rebound(file, opened):
        return []
    out = list(acting)
    for number in range(len(body)):
        clears = out[number] and all(
            terminal(getattr(s, "value", None)) == "zero_grad" for s in _run(body, acting, number)
        )
        out[number] = out[number] and not clears
    made: list[Edit] = []
    for number, statement in enumerate(body):
        if out[number]:
            lines = range(blocks.last_line(body[number - 1]) + 1, blocks.last_line(statement) + 1)
            moved = blocks.dedented(file, lines, opened.inner, opened.outer)
            if moved is None:
                return []
            made += moved
        elif number and out[number - 1]:
            head = header_before(file, opened, statement)
            if head is None:
                return []
            made.append(head)
    return made


def _run(body: Sequence[ast.stmt], acting: Sequence[bool], at: int) -> list[ast.stmt]:
    """The neighbouring acting statements around one of them."""
    first = next((i + 1 for i in range(at, -1, -1) if not acting[i]), 0)
    last = next((i for i in range(at, len(body)) if not acting[i]), len(body))
    return list(body[first:last])


def _in_the_loop(file: SourceFile, opened: Opening, change: Event) -> list[Edit]:
    """A region around a loop that loads weights and computes with them, opened after they are loaded."""
    loop, unit = change.loop, change.unit
    if loop is None or not isinstance(loop.node, (ast.For, ast.While)) or not _holds(opened.node.body, loop.node):
        return []
    block = loop.node.body
    at = next((i for i, s in enumerate(block) if s is change.statement), None)
    if at is None or not _acts(change.statement):
        return []
    body = range(opened.lines[1] + 1, blocks.last_line(opened.node) + 1)
    computing = [e for e in unit.events if e.line in body and e is not change and computes(file, e)]
    places = [blocks.holding(block, e.statement) for e in computing]
    known = [i for i in places if i is not None and i > at]
    if not known or len(known) != len(places):
        return []
    made = Pass(unit, block, min(known), max(known))
    return narrowed(file, opened, made) if blocks.have_lines_of_their_own(file, made.statements) else []


def _holds(block: Sequence[ast.stmt], node: ast.AST) -> bool:
    return any(one is node for one in block)
