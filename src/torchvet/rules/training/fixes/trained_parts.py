"""An edit for a part that a library hands over in eval mode and that is trained."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model import edits, root_of, walk


def put_into_train_mode(file: SourceFile, finding: Finding) -> Edits:
    """`part.train()` behind the statement that asks a library for the part. Nothing where that is no plain assignment
    of one call to one name."""
    line = finding.location.line if finding.location is not None else 0
    found = [one for one in walk(file.tree) if isinstance(one, ast.Assign) and _spans(one, line)]
    if len(found) != 1 or len(found[0].targets) != 1 or not isinstance(found[0].value, ast.Call):
        return ()
    (part,) = found[0].targets
    return edits.after(file, found[0], f"{file.segment(part)}.train()") if root_of(part) else ()


def _spans(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or statement.lineno)
