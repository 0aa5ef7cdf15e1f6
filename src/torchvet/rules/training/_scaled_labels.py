"""Finds the line that makes whole numbers of scaled labels, in the sources of a run."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable

from torchvet.rules.kit import Location, Recording, SourceFile
from torchvet.source.model import terminal, walk

_LABELS = re.compile(r"mask|label|target|seg|annot|gt", re.IGNORECASE)
_MOST_LINKS = 16
_INTEGERS = re.compile(r"\b(?:torch\.|np\.|numpy\.)?(?:long|int64|int32|int|uint8|LongTensor)\b")


def scaled_conversion(recording: Recording) -> Location | None:
    """The only line that makes whole numbers of labels that a data set has scaled; None where it is not one."""
    return _only(recording, _conversions)


def scaling(recording: Recording) -> Location | None:
    """The only line that divides labels by 255; None where it is not one."""
    return _only(recording, _scalings)


def _only(recording: Recording, within: Callable[[SourceFile, ast.FunctionDef], Iterable[ast.expr]]) -> Location | None:
    found = {
        (path, node.lineno)
        for path in recording.sources
        if (file := recording.model(path)) is not None
        for unit in walk(file.tree)
        if isinstance(unit, ast.FunctionDef)
        for node in within(file, unit)
    }
    if len(found) != 1:
        return None
    path, line = found.pop()
    return Location(path=path, line=line)


def _conversions(file: SourceFile, unit: ast.FunctionDef) -> list[ast.Call]:
    bound = {
        node.targets[0].id: node.value
        for node in ast.walk(unit)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    }
    calls = [node for node in ast.walk(unit) if isinstance(node, ast.Call) and _makes_whole(file, node)]
    return [call for call in calls if _LABELS.search(file.segment(call)) and _is_scaled(call.func, bound)]


def _scalings(file: SourceFile, unit: ast.FunctionDef) -> list[ast.expr]:
    """`mask / 255` and `mask.div(255)`."""
    return [
        node
        for node in ast.walk(unit)
        if isinstance(node, (ast.BinOp, ast.Call)) and _divides(node) and _LABELS.search(file.segment(node))
    ]


def _divides(node: ast.BinOp | ast.Call) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Div) and _is_255(node.right)
    return terminal(node) in ("div", "div_", "divide") and bool(node.args) and _is_255(node.args[0])


def _is_255(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 255


def _makes_whole(file: SourceFile, call: ast.Call) -> bool:
    name = terminal(call)
    if not isinstance(call.func, ast.Attribute) or name not in ("long", "int", "to", "type", "astype"):
        return False
    return name in ("long", "int") or any(_INTEGERS.search(file.segment(one)) for one in call.args[:1])


def _is_scaled(node: ast.expr | None, bound: dict[str, ast.expr]) -> bool:
    """Whether a chain of methods, indices and names begins with a picture that is scaled to 0 to 1."""
    for _ in range(_MOST_LINKS):
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        elif isinstance(node, ast.Call) and _scales(node):
            return True
        elif isinstance(node, ast.Call):
            node = node.func if isinstance(node.func, ast.Attribute) else None
        elif isinstance(node, ast.BinOp):
            return _divides(node)
        elif isinstance(node, ast.Name):
            node = bound.get(node.id)
        else:
            return False
    return False


def _scales(call: ast.Call) -> bool:
    named = call.func.func if isinstance(call.func, ast.Call) else call.func
    return (
        isinstance(named, (ast.Name, ast.Attribute))
        and ((named.id if isinstance(named, ast.Name) else named.attr) in ("to_tensor", "ToTensor"))
        and bool(call.args)
    )
