"""Where a program divides by a standard deviation with nothing to keep it from 0."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Iterator, Recording, Related, SourceFile
from torchvet.source.model import terminal, walk

_SPREADS = ("std", "var", "std_mean", "nanstd")
_GUARDED = re.compile(r"\+|clamp|clip|maximum|where|eps")
_MOST = 2


def divided_by(recording: Recording) -> list[Related]:
    """The lines, if there are few: of a column that is constant the spread is 0."""
    found = []
    for path in recording.sources:
        file = recording.model(path)
        if file is not None and file.mentions(*_SPREADS):
            found += [_related(file, node) for node in _divisions(file)]
    return found if len(found) <= _MOST else []


def _related(file: SourceFile, node: ast.BinOp) -> Related:
    message = "divides by a spread, which is 0 for a constant column"
    return Related(role="in-source", message=message, path=file.path, line=node.lineno)


def _divisions(file: SourceFile) -> Iterator[ast.BinOp]:
    spreads = {name for node in walk(file.tree) for name in _bound_to_spreads(node)}
    for node in walk(file.tree):
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Div)
            and not _GUARDED.search(file.segment(node.right))
        ):
            names = {terminal(n) for n in walk(node.right) if isinstance(n, (ast.Name, ast.Attribute))}
            if names & spreads or _is_spread(node.right):
                yield node


def _bound_to_spreads(node: ast.AST) -> Iterator[str]:
    """The names that an assignment gives to a spread, also within a tuple."""
    if isinstance(node, ast.Assign) and _is_spread(node.value) and not _GUARDED.search(ast.unparse(node.value)):
        for target in node.targets:
            places = zip(target.elts, _parts(node.value), strict=False) if isinstance(target, ast.Tuple) else ()
            spreads = [one for one, part in places if _is_spread(part)] if places else [target]
            yield from (terminal(one) for one in spreads if isinstance(one, (ast.Name, ast.Attribute)))


def _parts(value: ast.expr) -> list[ast.expr]:
    """What a tuple of names is given, one by one: of `std_mean` the spread comes first."""
    made = next((n for n in walk(value) if isinstance(n, ast.Tuple)), None)
    return made.elts if made is not None else [value]


def _is_spread(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Call) and terminal(n.func) in _SPREADS for n in walk(node))
