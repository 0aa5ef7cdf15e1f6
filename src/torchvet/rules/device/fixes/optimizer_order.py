"""Edits that put the making of an optimizer after what replaces the parameters it is made on."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, SourceFile
from torchvet.source.model import Event, blocks, edits, names_in, steps, targets_of, terminal

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.If, ast.For, ast.With)
_LEAVING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Return, ast.Raise, ast.Break, ast.Continue)


def made_after(file: SourceFile, made: Event, event: Event, model: str) -> Edits:
    """The statement that makes the optimizer, moved to after the one that replaces; where something in between uses
    the optimizer, what replaces is moved to before it. Nothing where neither leaves all else as it was."""
    block = blocks.block_of(file.tree, made.statement)
    first, last = (blocks.holding(block, e.statement) for e in (made, event))
    if first is None or last is None or first >= last or not isinstance(made.statement, ast.Assign):
        return []
    *before, replacing = block[first : last + 1]
    between, holders = before[1:], {steps.text_of(t) for t in targets_of(made.statement)}
    if not all(_may_be_passed(file, s) for s in (*before, replacing)):
        return []
    root = model.partition(".")[0].partition("[")[0]
    if not _mentions(file, [*between, replacing], holders):
        rebound = _bound([*between, replacing]) & (names_in(made.statement.value) - {root})
        return [] if rebound else blocks.moved(file, made.statement, replacing, behind=True)
    alone = isinstance(replacing, (ast.Assign, ast.Expr)) and not _mentions(file, [replacing], holders)
    if not alone or _mentions(file, between, {root}) or _bound(before) & names_in(replacing):
        return []
    return blocks.moved(file, replacing, made.statement)


def _may_be_passed(file: SourceFile, statement: ast.stmt) -> bool:
    """Whether others may be moved past a statement: it has its lines to itself, and control goes on behind it."""
    simple = isinstance(statement, _SIMPLE) and edits.stands_alone(file, statement)
    return simple and not any(isinstance(n, _LEAVING) for n in ast.walk(statement))


def _bound(statements: list[ast.stmt]) -> set[str]:
    """The names that statements bind."""
    names = (n for s in statements for n in ast.walk(s) if isinstance(n, ast.Name))
    return {n.id for n in names if isinstance(n.ctx, (ast.Store, ast.Del))}


def _mentions(file: SourceFile, statements: list[ast.stmt], names: set[str]) -> bool:
    """Whether statements read one of the names, or call a function of this file that knows the last part of one."""
    last = {name.rpartition(".")[2] for name in names}
    for node in (n for s in statements for n in ast.walk(s)):
        if isinstance(node, (ast.Name, ast.Attribute)) and steps.text_of(node) in names:
            return True
        if isinstance(node, ast.Call):
            for unit in file.functions(terminal(node)):
                if any(terminal(n) in last for n in ast.walk(unit.node) if isinstance(n, (ast.Name, ast.Attribute))):
                    return True
    return False
