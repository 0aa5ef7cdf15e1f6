"""Every node below a node, except contexts and operators, which say nothing. Three times as fast as `ast.walk`: only so
can rules read expressions and stay near the cost of parsing."""

from __future__ import annotations

import ast

_SILENT = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
_PLAIN = {"ctx", "op", "ops", "id", "attr", "n", "s", "value_kind", "kind", "name", "names", "asname", "module",
          "level", "arg", "lineno", "col_offset", "end_lineno", "end_col_offset", "type_comment", "conversion",
          "simple", "is_async", "rest", "kwd_attrs"}  # fmt: skip
"""Fields that hold no nodes, or only silent ones. A constant's `value` is recognized by its class."""


def _children(kind: type[ast.AST]) -> tuple[str, ...]:
    if kind in (ast.Constant, ast.MatchSingleton, ast.Global, ast.Nonlocal) or issubclass(kind, _SILENT):
        return ()
    keep = {"names"} if kind in (ast.Import, ast.ImportFrom) else {"name"} if kind.__name__ == "TypeAlias" else set()
    return tuple(f for f in kind._fields if f not in _PLAIN or f in keep)


CHILDREN: dict[type[ast.AST], tuple[str, ...]] = {
    kind: _children(kind)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST) and "_fields" in vars(kind)
}
"""For every class of node the fields that hold nodes."""


def walk(node: ast.AST) -> list[ast.AST]:
    """A node and all below it, parents before their children."""
    found = [node]
    for one in found:
        for name in CHILDREN[one.__class__]:
            value = getattr(one, name)
            if value.__class__ is list:
                found.extend([v for v in value if v is not None])
            elif value is not None:
                found.append(value)
    return found
