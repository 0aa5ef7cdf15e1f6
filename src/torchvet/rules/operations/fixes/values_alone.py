"""An edit that asks a decomposition for its values alone, where the program binds or takes nothing else of it."""

from __future__ import annotations

import ast

from torchvet.rules.core.fixing import unit_of
from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model import edits, parents_in, terminal
from torchvet.source.model.expressions import calls_in, reads_of

ALONE = {"svd": "svdvals", "eigh": "eigvalsh", "eig": "eigvals"}
"""What gives the values alone, by the decomposition."""
PARTS = {"svd": ("S", 1, 3), "eigh": ("eigenvalues", 0, 2), "eig": ("eigenvalues", 0, 2), "qr": ("R", 1, 2)}
"""By the decomposition what its values are called, their place among its results, and how many results there are."""


def values_alone(file: SourceFile, finding: Finding) -> Edits:
    """`s = torch.linalg.svdvals(A)` for `_, s, _ = torch.linalg.svd(A)`, for `torch.linalg.svd(A)[1]` and `….S`.

    Nothing where another result is bound to a name that the file reads anywhere.
    """
    unit = unit_of(file, finding)
    line = finding.location.line if finding.location is not None else None
    if unit is None:
        return ()
    calls = [n for n in calls_in(unit.node) if n.lineno == line and _is_one(file, n)]
    if len(calls) != 1 or not edits.on_one_line(calls[0]):
        return ()
    return _edits(file, calls[0], parents_in(unit.node)[id(calls[0])])


def _edits(file: SourceFile, call: ast.Call, around: ast.AST) -> Edits:
    name = terminal(call)
    text = _text(file, call, name)
    if isinstance(around, (ast.Subscript, ast.Attribute)):
        return [edits.replace(file, around, text)] if takes_values(around, name) else ()
    bound = _bound(file, around, name) if isinstance(around, ast.Assign) else None
    return [edits.replace(file, bound[0], bound[1]), edits.replace(file, call, text)] if bound else ()


def takes_values(around: ast.Subscript | ast.Attribute, name: str) -> bool:
    """Whether what stands around a decomposition takes the values alone: `.S`, `[1]`."""
    if isinstance(around, ast.Attribute):
        return around.attr == PARTS[name][0]
    return isinstance(around.slice, ast.Constant) and around.slice.value == PARTS[name][1]


def _is_one(file: SourceFile, call: ast.Call) -> bool:
    """Whether a call, written out, decomposes one matrix with nothing but the option of full matrices."""
    dotted, name = file.dotted(call.func), terminal(call)
    known = name in ALONE and isinstance(call.func, ast.Attribute) and dotted == f"torch.linalg.{name}"
    return known and len(call.args) == 1 and {k.arg for k in call.keywords} <= {"full_matrices"}


def _text(file: SourceFile, call: ast.Call, name: str) -> str:
    before = file.segment(call.func).removesuffix(name)
    return f"{before}{ALONE[name]}({file.segment(call.args[0])})"


def _bound(file: SourceFile, binding: ast.Assign, name: str) -> tuple[ast.expr, str] | None:
    """What is bound, and the one name of it that is read."""
    target, (_, taken, length) = binding.targets[0], PARTS[name]
    if len(binding.targets) != 1 or not isinstance(target, ast.Tuple) or len(target.elts) != length:
        return None
    bound = [one.id for one in target.elts if isinstance(one, ast.Name)]
    values = bound[taken] if len(bound) == len(target.elts) else None
    others = [one for place, one in enumerate(bound) if place != taken]
    if values is None or values in others or any(reads_of(file.tree, other) for other in others):
        return None
    return target, values
