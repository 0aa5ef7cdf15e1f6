"""Edits for exceptions that are kept: without the traceback they keep no frames."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, Iterator, SourceFile, unit_of, with_method
from torchvet.source.model import is_call, is_name, receiver, walk
from torchvet.source.syntax import DISPLAYS, parts

_PUTS = ("append", "appendleft", "add", "put", "insert", "setdefault")


def without_traceback(file: SourceFile, finding: Finding) -> Edits:
    """`error.with_traceback(None)` where a handler stores its exception: that of the finding's function, else the only
    one of the file."""
    handlers = [n for n in walk(file.tree) if isinstance(n, ast.ExceptHandler) and n.name is not None]
    kept = [(h, names) for h in handlers if (names := list(_kept(h)))]
    own = unit_of(file, finding)
    mine = [names for h, names in kept if file.unit_at(h.lineno) is own]
    # A cycle names no line: where the file stores one exception only, it is that.
    if not mine and len(kept) == 1:
        mine = [kept[0][1]]
    return [e for names in mine for name in names for e in with_method(file, name, "with_traceback(None)")]


def _kept(handler: ast.ExceptHandler) -> Iterator[ast.Name]:
    """Where a handler puts its exception into something that is not the handler's own."""
    for node in (n for s in handler.body for n in walk(s)):
        if isinstance(node, ast.Assign):
            values = [node.value]
        elif is_call(node, *_PUTS) and receiver(node) is not None:
            values = list(node.args)
        else:
            continue
        for value in values:
            stored = parts(value) if isinstance(value, DISPLAYS) else [value]
            yield from (p for p in stored if is_name(p, handler.name or ""))
