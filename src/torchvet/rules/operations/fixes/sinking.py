"""An edit for what each step works out and a rare one reads: it is done where it is read."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model import Event, blocks, edits, names_bound, names_in, reads_of, walk

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def where_it_is_read(file: SourceFile, finding: Finding) -> Edits:
    """`name = work()` moved into the one branch below it that reads the name: `if step % 100 == 0:`."""
    places = [finding.location, *(r for r in finding.related if r.role == "called-from")]
    for place in places:
        if place is not None and place.path == file.path and place.line is not None:
            for event in file.events_on(place.line):
                made = _moved(file, event) if isinstance(event.node, ast.Assign) else ()
                if made:
                    return made
    return ()


def _moved(file: SourceFile, event: Event) -> Edits:
    statement, loop = event.statement, event.loop
    name = event.node.targets[0] if isinstance(event.node, ast.Assign) and len(event.node.targets) == 1 else None
    block = loop.node.body if loop is not None and isinstance(loop.node, _LOOPS) else []
    if not isinstance(name, ast.Name) or statement not in block or not edits.on_one_line(statement):
        return ()
    below = block[block.index(statement) + 1 :]
    branch = next((s for s in below if name.id in names_in(s)), None)
    if not isinstance(branch, ast.If) or _calls(branch.test) or name.id in names_in(branch.test):
        return ()
    between = below[: below.index(branch)]
    # Whatever is called may change what the work reads.
    if any(map(_calls, between)) or names_bound(between) & names_in(statement):
        return ()
    within = {id(n) for inner in branch.body for n in reads_of(inner, name.id)}
    once = len(event.unit.bindings.get(name.id, ())) == 1
    everywhere = reads_of(file.tree if event.unit.is_module else event.unit.node, name.id)
    if not once or any(id(n) not in within for n in everywhere):
        return ()
    return blocks.moved(file, statement, branch.body[0])


def _calls(node: ast.AST) -> bool:
    return any(isinstance(n, (ast.Call, ast.Await, ast.Yield, ast.YieldFrom)) for n in walk(node))
