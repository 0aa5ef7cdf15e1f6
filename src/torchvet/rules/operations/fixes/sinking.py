"""An edit for what each step works out and a rare one reads: it is done where it is read."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model import Event, Unit, blocks, edits, is_call, name_set, names_bound, names_in, reads_of, walk

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_PURE = name_set(
    "len sum min max sorted abs float int str round list tuple dict set zip enumerate range any all unique cumsum mean "
    "std var sort argsort where concatenate cat stack array asarray zeros ones full zeros_like ones_like empty tolist "
    "item detach cpu numpy astype clip sqrt exp log log2 searchsorted bincount histogram percentile quantile median "
    "reshape view dot matmul copy values keys items get trapz trapezoid isnan nan_to_num"
)
"""What may be called by work that leaves everything as it was."""


def where_it_is_read(file: SourceFile, finding: Finding) -> Edits:
    """`name = work()` moved into the one branch below it that reads the name: `if step % 100 == 0:`. Only where the
    file has the work's code, and that changes nothing: a call that does is there for more than its result."""
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
    branch = _only_reader(event, name.id, block[block.index(statement) + 1 :])
    if branch is None or not edits.stands_alone(file, branch.body[0]) or not changes_nothing(file, statement):
        return ()
    between = block[block.index(statement) + 1 : block.index(branch)]
    plain = all(map(_is_plain, between)) and not names_bound(between) & names_in(statement)
    return blocks.moved(file, statement, branch.body[0]) if plain else ()


def _only_reader(event: Event, name: str, below: Sequence[ast.stmt]) -> ast.If | None:
    """The branch below that has all reads of a name, which is bound once; its test reads other things, and calls
    nothing."""
    branch = next((s for s in below if name in names_in(s)), None)
    if not isinstance(branch, ast.If) or name in names_in(branch.test) or not _is_plain(branch.test):
        return None
    within = {id(n) for inner in branch.body for n in reads_of(inner, name)}
    whole = event.unit.file.tree if event.unit.is_module else event.unit.node
    once = len(event.unit.bindings.get(name, ())) == 1
    return branch if once and all(id(n) in within for n in reads_of(whole, name)) else None


def _is_plain(node: ast.AST) -> bool:
    """Whether code calls nothing, and stores nothing into an object."""
    calls = any(isinstance(n, (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.Delete)) for n in walk(node))
    return not calls and not _stores(node)


def _stores(node: ast.AST) -> bool:
    return any(isinstance(n, (ast.Attribute, ast.Subscript)) and not isinstance(n.ctx, ast.Load) for n in walk(node))


def changes_nothing(file: SourceFile, statement: ast.AST) -> bool:
    """Whether all that a statement calls only reads."""
    return all(_is_pure(file, call, 0) for call in walk(statement) if isinstance(call, ast.Call))


def _is_pure(file: SourceFile, call: ast.Call, depth: int) -> bool:
    if is_call(call, *_PURE):
        return True
    named = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    units = file.functions(named)
    # Of several by one name any may be meant.
    return depth < 2 and bool(units) and all(_only_reads(file, unit, depth + 1) for unit in units)


def _only_reads(file: SourceFile, unit: Unit, depth: int) -> bool:
    code = unit.node.body
    changing = (ast.Global, ast.Nonlocal, ast.Delete, ast.Await, ast.Yield, ast.YieldFrom, ast.With, ast.NamedExpr)
    if any(isinstance(n, changing) or _stores(n) for s in code for n in walk(s)):
        return False
    return all(_is_pure(file, n, depth) for s in code for n in walk(s) if isinstance(n, ast.Call))
