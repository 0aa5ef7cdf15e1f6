"""What made a value: whether two names mean the same model, and which call built an optimizer."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from torchvet.source.model.roles import _KEEPS_ROLE, _WRAPPERS
from torchvet.source.model.units import Unit, receiver, terminal
from torchvet.source.model.walking import walk

if TYPE_CHECKING:
    from torchvet.source.model.file import SourceFile

Identity = frozenset[tuple[object, ...]]
_DEEPEST = 8
_KNOWN: WeakKeyDictionary[SourceFile, dict[tuple[int, int], Identity]] = WeakKeyDictionary()
"""What was found for a node in a unit, by file: rules ask for the same few again and again."""


def made_by(node: ast.AST | None, unit: Unit) -> list[tuple[ast.expr, Unit]]:
    """The expressions that a name, attribute or parameter stands for, followed to where they are made.

    Wrappers (`DDP(model)`, `model.to(device)`, `model.module`) are seen through; what cannot be followed stands for
    itself.
    """
    found: list[tuple[ast.expr, Unit]] = []
    if isinstance(node, ast.expr):
        _follow(node, unit, found, set(), 0)
    return found


def identity(node: ast.AST | None, unit: Unit) -> Identity:
    """What an expression is, comparable across units of a file: two that share an element may be the same object."""
    known = _KNOWN.setdefault(unit.file, {})
    key = (id(node), id(unit))
    if key not in known:
        known[key] = _identity(node, unit)
    return known[key]


def _identity(node: ast.AST | None, unit: Unit) -> Identity:
    keys: set[tuple[object, ...]] = set()
    for value, where in made_by(node, unit):
        if isinstance(value, ast.Name):
            home = where.home(value.id)
            keys.add(("name", id(home) if home is not None else 0, value.id))
        elif isinstance(value, ast.Attribute):
            owner = where.method_class()
            text = _written(value)
            on_self = owner is not None and text.startswith(f"{where.self_name()}.")
            keys.add(("attribute", id(owner) if on_self else id(where), text.partition(".")[2] if on_self else text))
        else:
            keys.add(("made", id(value)))
    return frozenset(keys)


def _follow(node: ast.expr, unit: Unit, found: list[tuple[ast.expr, Unit]], seen: set[object], depth: int) -> None:
    if depth > _DEEPEST:
        found.append((node, unit))
        return
    if isinstance(node, ast.Call):
        inner = _wrapped(node)
        if inner is not None:
            _follow(inner, unit, found, seen, depth + 1)
            return
    elif isinstance(node, ast.Attribute) and node.attr == "module":
        _follow(node.value, unit, found, seen, depth + 1)
        return
    elif isinstance(node, (ast.Name, ast.Attribute)):
        _follow_bound(node, unit, found, seen, depth)
        return
    elif isinstance(node, ast.IfExp):
        for part in (node.body, node.orelse):
            _follow(part, unit, found, seen, depth + 1)
        return
    found.append((node, unit))


def _follow_bound(node: ast.Name | ast.Attribute, unit: Unit, found: list[tuple[ast.expr, Unit]], seen: set[object],
                  depth: int) -> None:  # fmt: skip
    home = unit.home(node.id) if isinstance(node, ast.Name) else None
    owner = unit.method_class() if isinstance(node, ast.Attribute) else None
    key = (id(home), node.id) if isinstance(node, ast.Name) else (id(owner), _written(node))
    if key in seen:
        return
    seen.add(key)
    values = unit.file.roles.values(node, unit)
    if isinstance(node, ast.Name) and home is not None and node.id in home.parameters:
        values = [*values, *unit.file.arguments(home, node.id)]
    before = len(found)
    for value, where in values:
        if not (isinstance(value, ast.Constant) and value.value is None):
            _follow(value, where, found, seen, depth + 1)
    # A parameter may be given more in files that are not seen here: it stands for itself too.
    if len(found) == before or (home is not None and isinstance(node, ast.Name) and node.id in home.parameters):
        found.append((node, home or unit))


def _written(node: ast.expr) -> str:
    """What `ast.unparse` gives, which takes thirty times as long over a chain of names."""
    parts: list[str] = []
    one = node
    while isinstance(one, ast.Attribute):
        parts.append(one.attr)
        one = one.value
    return ".".join([one.id, *reversed(parts)]) if isinstance(one, ast.Name) else ast.unparse(node)


def _wrapped(call: ast.Call) -> ast.expr | None:
    """What a wrapper is given: it stands for that; None for any other call."""
    name, on = terminal(call), receiver(call)
    if on is not None and name in _KEEPS_ROLE and not isinstance(on, ast.Constant):
        return None if call.args and name == "type" else (on if name != "compile" else (call.args or [on])[0])
    if name in _WRAPPERS and call.args and not isinstance(call.args[0], ast.Starred):
        return None if name == "deepcopy" else call.args[0]
    return None


def models_in(arguments: ast.AST) -> list[ast.expr]:
    """The expressions whose `.parameters()` stand in what an optimizer is given."""
    return [
        on
        for one in walk(arguments)
        if isinstance(one, ast.Call) and terminal(one) in ("parameters", "named_parameters")
        for on in [receiver(one)]
        if on is not None
    ]
