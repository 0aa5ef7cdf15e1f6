"""Edits that put the making of an optimizer after what replaces the parameters it is made on."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, SourceFile
from torchvet.source.model import Event, blocks, edits, names_in, targets_of, terminal
from torchvet.source.model.steps import text_of

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.If, ast.For, ast.With)
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Return, ast.Raise, ast.Break, ast.Continue)


def made_after(file: SourceFile, made: Event, event: Event, model: str) -> list[Edit]:
    """The statement that makes the optimizer, moved to after the one that replaces; where something in between uses
    the optimizer, what replaces is moved to before it. Nothing where neither leaves all else as it was."""
    block = blocks.block_of(file.tree, made.statement)
    first = next((n for n, s in enumerate(block) if s is made.statement), None)
    last = next((n for n, s in enumerate(block) if blocks.within(event.statement, s)), None)
    if first is None or last is None or first >= last or not isinstance(made.statement, ast.Assign):
        return []
    moved, between = block[first : last + 1], block[first + 1 : last]
    if not all(isinstance(s, _SIMPLE) and edits.stands_alone(file, s) for s in moved) or _defines(moved):
        return []
    holders = {text_of(t) for t in targets_of(made.statement)}
    root = model.partition(".")[0].partition("[")[0]
    if not _mentions(file, moved[1:], holders):
        rebound = _bound(moved[1:]) & (names_in(made.statement.value) - {root})
        return [] if rebound else blocks.moved(file, made.statement, block[last], behind=True)
    alone = isinstance(block[last], (ast.Assign, ast.Expr)) and not _mentions(file, [block[last]], holders)
    if not alone or _mentions(file, between, {root}) or _bound(moved[:-1]) & names_in(block[last]):
        return []
    return blocks.moved(file, block[last], made.statement)


def _defines(statements: list[ast.stmt]) -> bool:
    """Whether statements define something, or may leave the block."""
    return any(isinstance(n, _DEFINES) for s in statements for n in ast.walk(s))


def _bound(statements: list[ast.stmt]) -> set[str]:
    """The names that statements bind."""
    names = (n for s in statements for n in ast.walk(s) if isinstance(n, ast.Name))
    return {n.id for n in names if isinstance(n.ctx, (ast.Store, ast.Del))}


def _mentions(file: SourceFile, statements: list[ast.stmt], names: set[str]) -> bool:
    """Whether statements read one of the names, or call a function of this file that knows the last part of one."""
    last = {name.rpartition(".")[2] for name in names}
    for node in (n for s in statements for n in ast.walk(s)):
        if isinstance(node, (ast.Name, ast.Attribute)) and text_of(node) in names:
            return True
        if isinstance(node, ast.Call):
            for unit in file.functions(terminal(node)):
                if any(terminal(n) in last for n in ast.walk(unit.node) if isinstance(n, (ast.Name, ast.Attribute))):
                    return True
    return False
