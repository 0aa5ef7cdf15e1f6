"""Edits that bring a tensor to the device of the others, where a run has named it and the line that failed."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, Iterable, SourceFile, about
from torchvet.source.model import Event, Unit, blocks, edits, is_name, steps, targets_of

ON_CPU = "on cpu"
"""One tensor was on the CPU and the others were not: `operands` are its name and that of one of the others."""


def brought_along(file: SourceFile, finding: Finding) -> Edits:
    """`mask` as `mask.to(x.device)` where it is read once, on the line that failed and that reads `x`; read more often
    it is moved where it is bound, to the device that the file gives a name."""
    line = _failed(file, finding)
    if line is None:
        return ()
    (name, other), unit = about(finding).operands, file.unit_at(line)
    named = _named_in(unit) if unit.home(name) is unit else []
    reads = [n for n in named if is_name(n, name) and isinstance(n.ctx, ast.Load)]
    there = [n for n in reads if n.lineno == line]
    beside = {steps.text_of(n) for n in named if n.lineno == line} - {name}
    once = len(reads) == 1
    device = f"{other}.device" if once and other in beside else _device(file, unit, line)
    if not there or not device:
        return ()
    if once:
        return [edits.replace(file, there[0], f"{name}.to({device})")]
    return _at_binding(file, unit, name, line, device)


def _failed(file: SourceFile, finding: Finding) -> int | None:
    """The line of the file on which one tensor was on the CPU and the others were not; None where it is elsewhere."""
    at = next((r for r in finding.related if r.role == "raised"), finding.location)
    here = at is not None and at.path == file.path and about(finding).variant == ON_CPU
    return at.line if at is not None and here else None


def _named_in(unit: Unit) -> list[ast.Name | ast.Attribute]:
    """The names and attributes in a unit, without those in functions defined in it."""
    found: list[ast.Name | ast.Attribute] = []
    waiting: list[ast.AST] = [unit.node]
    for node in waiting:
        if isinstance(node, (ast.Name, ast.Attribute)):
            found.append(node)
        inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
        waiting += [n for n in ast.iter_child_nodes(node) if not isinstance(n, inner)]
    return found


def _device(file: SourceFile, unit: Unit, line: int) -> str:
    """What the file calls the device that it moves things to, where it has one name for it that is bound there."""
    own = _said(file, unit.calls.get("to", ()))
    found = own or _said(file, file.calls("to"))
    name = found.pop() if len(found) == 1 else ""
    return name if _is_bound(unit, name, line) else ""


def _is_bound(unit: Unit, name: str, line: int) -> bool:
    """Whether a variable, or an attribute of `self`, surely has a value at a line of a unit."""
    if name.startswith("self."):
        owner = unit.method_class() if unit.self_name() == "self" else None
        bound = owner.attributes.get(name[5:], []) if owner is not None else []
        return any(e.unit.name == "__init__" and not e.context.arms for e, _ in bound)
    home = unit.home(name) if name else None
    if home is None:
        return False
    sure = (b for b in home.bindings.get(name, ()) if not b.context.arms)
    return name in home.parameters or any(home is not unit or b.line < line for b in sure)


def _said(file: SourceFile, calls: Iterable[Event]) -> set[str]:
    """What calls of `to` name a device by."""
    moves = (file.devices.move(event.call, event.unit) for event in calls)
    return {
        steps.text_of(moved[1])
        for moved in moves
        if moved is not None and moved[0] == "device" and moved[1] is not None
    }


def _at_binding(file: SourceFile, unit: Unit, name: str, line: int, device: str) -> Edits:
    """A line after the one statement that binds the name, or the first of the loop that does."""
    bound = unit.bindings.get(name, [])
    if len(bound) != 1 or bound[0].line >= line or any(device == steps.text_of(t) for t in targets_of(bound[0].node)):
        return ()
    code, head = f"{name} = {name}.to({device})", bound[0].node
    if isinstance(head, ast.For):
        return edits.before(file, head.body[0], code)
    plain = isinstance(head, ast.Assign) and blocks.block_of(file.tree, bound[0].statement)
    return edits.after(file, bound[0].statement, code) if plain else ()
