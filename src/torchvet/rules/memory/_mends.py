"""Edits where a run has seen what is stored: the line and the holder are known, and that it is a tensor."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torchvet.finding import Edit
from torchvet.rules.memory._stored import Kept, store
from torchvet.rules.mending import events_at, held, may_be_tensor, with_method
from torchvet.source.model.units import terminal
from torchvet.source.model.walking import walk

if TYPE_CHECKING:
    from torchvet.finding import Finding
    from torchvet.source.model import Event, SourceFile


def stored_at(file: SourceFile, finding: Finding) -> Iterator[Kept]:
    """What the line of a finding stores into what holds the memory."""
    for event in events_at(file, finding):
        kept = store(event) or _bound(event)
        if kept is not None and terminal(ast.parse(kept.name, mode="eval").body) in ("", held(finding)):
            yield kept


def _bound(event: Event) -> Kept | None:
    """`holder[key] = value`, and the whole of `holder = 0.9 * holder + 0.1 * value`."""
    node = event.node
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    if target is None or not isinstance(node, ast.Assign):
        return None
    file = event.unit.file
    if isinstance(target, ast.Subscript):
        return Kept(file.segment(target.value), node.value, event, key=target.slice)
    own = ast.unparse(target)
    again = any(ast.unparse(one) == own for one in walk(node.value) if isinstance(one, (ast.Name, ast.Attribute)))
    return Kept(file.segment(target), node.value, event) if again else None


def stored_with(file: SourceFile, finding: Finding, method: str) -> Sequence[Edit]:
    """What is stored goes in by way of a method: `losses.append(loss.detach())`."""
    for kept in stored_at(file, finding):
        if not (isinstance(kept.event.node, ast.Call) and terminal(kept.event.node) == "extend"):
            return with_method(file, kept.value, method)
    given = [value for value in _handed_in(file, finding) if may_be_tensor(value)]
    return with_method(file, given[0], method) if len(given) == 1 else ()


def _handed_in(file: SourceFile, finding: Finding) -> list[ast.expr]:
    """What a call on the line of a finding gives to the method that stores it: `memory.push(loss)`."""
    stored = next((r for r in finding.related if r.role == "stored"), None)
    calls = [e for e in events_at(file, finding) if isinstance(e.parent, ast.Expr) and isinstance(e.node, ast.Call)]
    if stored is None or stored.line is None or len(calls) != 1:
        return []
    call = calls[0].call
    if stored.path != file.path:
        return [*call.args, *(k.value for k in call.keywords)]
    unit = file.unit_at(stored.line)
    found = (store(e) or _bound(e) for e in unit.events if e.line == stored.line)
    names = [k.value.id for k in found if k is not None and isinstance(k.value, ast.Name)]
    return file.passed(calls[0], unit, names[0]) if names and terminal(call) == unit.name else []


def without_decorator(file: SourceFile, decorator: ast.expr) -> list[Edit]:
    """Take a decorator's line out; nothing where it shares it or goes over several."""
    line = file.lines[decorator.lineno - 1]
    if decorator.lineno != decorator.end_lineno or line.strip() != f"@{file.segment(decorator)}":
        return []
    return [Edit(path=file.path, start=(decorator.lineno, 1), end=(decorator.lineno + 1, 1), text="")]
