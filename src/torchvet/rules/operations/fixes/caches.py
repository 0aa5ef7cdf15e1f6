"""An edit for a model whose cache of keys and values the program turns off."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model import edits, terminal, walk

CACHE = re.compile(r"use_(\w+_)?cache")
"""What a configuration calls it."""


def left_on(file: SourceFile, finding: Finding) -> Edits:
    """`True` for `False` on the one line of the file that turns the cache off."""
    lines = [r.line for r in finding.related if r.role == "turned-off"]
    here = [r.line for r in finding.related if r.role == "turned-off" and r.path == file.path]
    if len(lines) != 1 or len(here) != 1:
        return ()
    off = [value for node in walk(file.tree) for value in _given(node) if value.lineno == here[0]]
    return [edits.replace(file, off[0], "True")] if len(off) == 1 else ()


def _given(node: ast.AST) -> list[ast.Constant]:
    """The False that a statement or a keyword gives to what is called so."""
    if isinstance(node, ast.keyword):
        named = bool(CACHE.fullmatch(node.arg or ""))
    else:
        named = isinstance(node, ast.Assign) and any(CACHE.fullmatch(terminal(t)) for t in node.targets)
    value = getattr(node, "value", None)
    return [value] if named and isinstance(value, ast.Constant) and value.value is False else []
