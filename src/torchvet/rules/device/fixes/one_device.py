"""Edits that bring a tensor to the device of the others, where a run has named it and the line that failed."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from torchvet.rules.kit import Edits, Finding, SourceFile, about
from torchvet.source.model import Event, Unit, blocks, edits, targets_of
from torchvet.source.model.steps import text_of

ON_CPU = "on cpu"
"""One tensor was on the CPU and the others were not: `operands` are its name and that of one of the others."""


def brought_along(file: SourceFile, finding: Finding) -> Edits:
    """`mask` as `mask.to(x.device)` where it is read once, on the line that failed and that reads `x`; read more often
    it is moved where it is bound, to the device that the file gives a name."""
    said = about(finding)
    raised = next(((r.path, r.line) for r in finding.related if r.role == "raised"), None)
    at = finding.location
    path, line = raised or ((at.path, at.line) if at is not None else (None, None))
    if said.variant != ON_CPU or path != file.path or line is None:
        return ()
    name, other = said.operands
    unit = file.unit_at(line)
    if unit.home(name) is not unit:
        return ()
    own = [n for n in _own_nodes(unit) if isinstance(n, ast.Name) and n.id == name]
    reads = [n for n in own if isinstance(n.ctx, ast.Load)]
    there = [n for n in reads if n.lineno == line]
    if not there:
        return ()
    device = _device(file, unit, line)
    if len(reads) == 1:
        known = {text_of(n) for n in _own_nodes(unit) if isinstance(n, (ast.Name, ast.Attribute)) and n.lineno == line}
        where = f"{other}.device" if other in known and other != name else device
        return [edits.replace(file, there[0], f"{name}.to({where})")] if where else ()
    return _at_binding(file, unit, name, line, device) if device else ()


def _own_nodes(unit: Unit) -> list[ast.AST]:
    """The nodes of a unit, without those of functions defined in it."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [unit.node]
    while waiting:
        node = waiting.pop()
        found.append(node)
        inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
        waiting += [n for n in ast.iter_child_nodes(node) if not isinstance(n, inner)]
    return found


def _device(file: SourceFile, unit: Unit, line: int) -> str:
    """What the file calls the device that it moves things to, where it has one name for it that is bound there."""
    own = _said(file, unit.calls.get("to", ()))
    found = own or _said(file, file.calls("to"))
    name = found.pop() if len(found) == 1 else ""
    if name.startswith("self.") and name.count(".") == 1:
        owner = unit.method_class()
        bound = owner.attributes.get(name[5:], []) if owner is not None and unit.self_name() == "self" else []
        return name if any(e.unit.name == "__init__" and not e.context.arms for e, _ in bound) else ""
    home = unit.home(name) if name.isidentifier() else None
    if home is None:
        return ""
    bindings = home.bindings.get(name, [])
    seen = name in home.parameters or any(not b.context.arms and (home is not unit or b.line < line) for b in bindings)
    return name if seen else ""


def _said(file: SourceFile, calls: Iterable[Event]) -> set[str]:
    """What calls of `to` name a device by."""
    moves = (file.devices.move(event.call, event.unit) for event in calls)
    return {text_of(moved[1]) for moved in moves if moved is not None and moved[0] == "device" and moved[1] is not None}


def _at_binding(file: SourceFile, unit: Unit, name: str, line: int, device: str) -> Edits:
    """A line after the one statement that binds the name, or the first of the loop that does."""
    bound = unit.bindings.get(name, [])
    if len(bound) != 1 or bound[0].line >= line or any(device == text_of(t) for t in targets_of(bound[0].node)):
        return ()
    code, head = f"{name} = {name}.to({device})", bound[0].node
    if isinstance(head, ast.For):
        return edits.before(file, head.body[0], code)
    plain = isinstance(head, ast.Assign) and blocks.block_of(file.tree, bound[0].statement)
    return edits.after(file, bound[0].statement, code) if plain else ()
