"""What stands at a line: the function, the loop and the statement around it."""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass

from torchvet.source import syntax
from torchvet.source.module import Module
from torchvet.source.scopes import Loop, Scope


@dataclass(frozen=True, eq=False)
class Span:
    """A statement, or the header of a compound one, with its lines."""

    first: int
    last: int
    text: str
    nodes: tuple[ast.AST, ...]


def function_at(module: Module, line: int) -> Scope | None:
    """The innermost `def` around a line, decorators included."""
    found = None
    for scope in module.scopes:
        if (
            scope.kind == "function"
            and _first(scope) <= line <= scope.last
            and (found is None or scope.first >= found.first)
        ):
            found = scope
    return found


def _first(scope: Scope) -> int:
    node = scope.node
    decorators = node.decorator_list if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else []
    return min([scope.first, *(d.lineno for d in decorators)])


def loop_at(module: Module, line: int) -> Loop | None:
    """The innermost loop statement around a line, in the line's own function."""
    function = function_at(module, line)
    found = None
    for loop in module.loops:
        if not loop.first <= line <= loop.last or (found is not None and loop.first < found.first):
            continue
        # A `def` within the loop: its body is not run by the loop. Its own lines are the loop's statement.
        if function is None or not (loop.first < function.first and loop.last >= function.last):
            found = loop
    return found


def statements_at(module: Module, line: int) -> list[Span]:
    """The innermost statements at a line: one, or several that share it."""
    best: list[Span] = []
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.stmt):
            continue
        first, last, nodes = _extent(node)
        if not first <= line <= last:
            continue
        size, least = last - first, best[0].last - best[0].first if best else last - first
        if size < least:
            best = []
        if size <= least:
            text = textwrap.dedent("\n".join(module.source.lines[first - 1 : last])).strip()
            best.append(Span(first, last, text, nodes))
    return best


def _extent(node: ast.stmt) -> tuple[int, int, tuple[ast.AST, ...]]:
    """First and last line of a statement without the statements in it, and the nodes that are its own."""
    own = tuple(child for child in ast.iter_child_nodes(node) if not _is_block(child))
    blocks = [child for child in ast.iter_child_nodes(node) if _is_block(child)]
    if not blocks:
        return node.lineno, node.end_lineno or node.lineno, own
    last = max([node.lineno, *(_last(child) for child in own)])
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)]), last, own


def _is_block(node: ast.AST) -> bool:
    return isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case))


def _last(node: ast.AST) -> int:
    return max([getattr(n, "end_lineno", None) or 0 for n in ast.walk(node)])


def calls(span: Span) -> list[str]:
    """Dotted names of the calls in a statement, inner and earlier ones first."""
    found = [n for node in span.nodes for n in ast.walk(node) if isinstance(n, ast.Call)]
    found.sort(key=lambda n: (n.func.end_lineno or 0, n.func.end_col_offset or 0))
    return [syntax.dotted(n.func) for n in found]
