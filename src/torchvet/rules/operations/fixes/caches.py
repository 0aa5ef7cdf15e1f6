"""An edit for a model whose cache of keys and values the program turns off."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model import edits, walk


def left_on(file: SourceFile, finding: Finding) -> Edits:
    """`True` for `False` on the one line of the file that turns the cache off."""
    lines = [r.line for r in finding.related if r.role == "turned-off"]
    here = [r.line for r in finding.related if r.role == "turned-off" and r.path == file.path]
    if len(lines) != 1 or len(here) != 1:
        return ()
    off = [n for n in walk(file.tree) if isinstance(n, ast.Constant) and n.value is False and n.lineno == here[0]]
    return [edits.replace(file, off[0], "True")] if len(off) == 1 else ()
