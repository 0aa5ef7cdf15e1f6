"""What Python containers in a constructor hold: their members, those added later among them."""

from __future__ import annotations

import ast

from torchvet.rules.kit import SourceFile
from torchvet.source.model import Unit, is_call, is_name, receiver, targets_of, terminal

_DISPLAYS = (ast.List, ast.Tuple, ast.Dict, ast.ListComp, ast.DictComp)
_ADDING = ("append", "extend", "insert")
_DEEPEST = 3


def is_container(node: ast.AST | None) -> bool:
    """Whether an expression makes a list, tuple or dict: a display, `list(…)`, `[…] * n`."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, (ast.Add, ast.Mult)) and (is_container(node.left) or is_container(node.right))
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("list", "tuple", "dict")
    return isinstance(node, _DISPLAYS)


def is_keyed(node: ast.AST) -> bool:
    """Whether the container is a dict."""
    return isinstance(node, (ast.Dict, ast.DictComp)) or is_call(node, "dict")


def members(node: ast.AST, depth: int = 0) -> list[ast.expr]:
    """The expressions that make a container's members, containers in it taken apart."""
    if depth > _DEEPEST:
        return []
    nested = (ast.GeneratorExp, ast.BinOp, *_DISPLAYS)
    return [m for one in _inside(node) for m in (members(one, depth + 1) if isinstance(one, nested) else [one])]


def _inside(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return [node.elt]
    if isinstance(node, (ast.List, ast.Tuple)):
        return node.elts
    if isinstance(node, ast.Dict):
        return node.values
    if isinstance(node, ast.DictComp):
        return [node.value]
    if isinstance(node, ast.BinOp):
        return [one for one in (node.left, node.right) if is_container(one)]
    if isinstance(node, ast.Call):
        shown = [a for a in node.args if isinstance(a, ast.GeneratorExp) or is_container(a)]
        return [*shown, *(k.value for k in node.keywords)]
    return []


def added(unit: Unit, name: str) -> list[ast.expr]:
    """What a unit puts into a container of a name, or an attribute of one, after it was made."""
    found: list[ast.expr] = []
    for event in unit.events:
        node = event.node
        if isinstance(node, ast.Call) and terminal(node) in _ADDING and terminal(receiver(node)) == name and node.args:
            last = node.args[-1]
            found.extend(members(last) if terminal(node) == "extend" else [last])
        elif isinstance(node, ast.AugAssign) and terminal(node.target) == name:
            found.extend(members(node.value))
        elif isinstance(node, ast.Assign):
            target = targets_of(node)[0]
            if isinstance(target, ast.Subscript) and terminal(target.value) == name:
                found.append(node.value)
    return found


def local_value(unit: Unit, name: str) -> ast.expr | None:
    """What a local name is bound to, if once and by itself."""
    bound = [e.node for e in unit.bindings.get(name, ()) if not isinstance(e.node, ast.AugAssign)]
    alone = len(bound) == 1 and isinstance(bound[0], ast.Assign) and is_name(bound[0].targets[0], name)
    return bound[0].value if alone else None  # type: ignore[attr-defined]


def bound(file: SourceFile, unit: Unit, value: ast.expr) -> tuple[Unit, str, ast.expr | None]:
    """The container that a value stands for, the unit that makes it, and its name there: a display; what a name is
    bound to; what a function of the file returns, if it has one `return`."""
    if isinstance(value, ast.Name):
        return unit, value.id, local_value(unit, value.id)
    call = unit.call_of(value) if isinstance(value, ast.Call) and not is_container(value) else None
    made = file.callee(call) if call is not None else None
    returned = made.returned if made is not None else []
    if made is None or len(returned) != 1 or returned[0][0] is None:
        return unit, "", value
    given = returned[0][0]
    return (made, given.id, local_value(made, given.id)) if isinstance(given, ast.Name) else (made, "", given)
