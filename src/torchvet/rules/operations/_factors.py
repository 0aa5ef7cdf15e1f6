"""Where the program's text may read factors of a decomposition, which no sampled step has read."""

from __future__ import annotations

import ast

from torchvet.rules.operations.fixes.values_alone import PARTS, takes_values
from torchvet.source.model import is_call, parents_in, walk
from torchvet.source.model.expressions import reads_of

_Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


def named_again(tree: ast.Module, statement: ast.AST, name: str) -> int | None:
    """The first line that reads what a decomposition's other factors are bound to, or hands them on. None where the
    text shows that there is none: then no step reads them, and no other thread."""
    line: int = getattr(statement, "lineno", 0)
    call = next((n for n in walk(statement) if isinstance(n, ast.Call) and is_call(n, name)), None)
    around = parents_in(statement).get(id(call)) if call is not None else None
    if isinstance(around, (ast.Subscript, ast.Attribute)) and takes_values(around, name):
        return None
    if not isinstance(around, ast.Assign) or len(around.targets) != 1:
        return line
    target = around.targets[0]
    scope = _scope(tree, line)
    if isinstance(target, ast.Tuple):
        _, place, length = PARTS[name]
        if len(target.elts) != length:
            return line
        others = target.elts[:place] + target.elts[place + 1 :]
        return min((n.lineno for other in others for n in _reads(tree, scope, other)), default=None)
    whole = _reads(tree, scope, target)
    parents = parents_in(tree)
    return min((n.lineno for n in whole if not _only_values(parents[id(n)], name)), default=None)


def _only_values(around: ast.AST, name: str) -> bool:
    return isinstance(around, (ast.Subscript, ast.Attribute)) and takes_values(around, name)


def _scope(tree: ast.Module, line: int) -> _Scope:
    found: _Scope = tree
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= line <= (node.end_lineno or 0):
            found = node
    return found


def _reads(tree: ast.Module, scope: _Scope, target: ast.expr) -> list[ast.expr]:
    """Reads of a variable in its function, of an attribute in the whole file; of all else the target itself."""
    if isinstance(target, ast.Name):
        return list(reads_of(scope, target.id))
    if isinstance(target, ast.Attribute):
        nodes = (n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == target.attr)
        return [n for n in nodes if isinstance(n.ctx, ast.Load)]
    return [target]
