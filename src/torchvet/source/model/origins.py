"""What made a value: whether two names mean the same model, and which call built an optimizer."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from torchvet.source import syntax
from torchvet.source.model.expressions import is_literal
from torchvet.source.model.roles import KEEPS_ROLE, WRAPPERS
from torchvet.source.model.units import Unit, receiver, terminal
from torchvet.source.walking import walk

if TYPE_CHECKING:
    from torchvet.source.model.events import Event
    from torchvet.source.model.file import SourceFile

Identity = frozenset[tuple[object, ...]]
_DEEPEST = 8
# Weak: it must not keep files that are done.
_KNOWN: WeakKeyDictionary[SourceFile, dict[tuple[int, int], Identity]] = WeakKeyDictionary()
"""What was found for a node in a unit, by file: rules ask for the same few again and again."""


def made_by(node: ast.AST | None, unit: Unit) -> list[tuple[ast.expr, Unit]]:
    """The expressions that a name, attribute or parameter stands for, followed to where they are made.

    Wrappers (`DDP(model)`, `model.to(device)`, `model.module`) are seen through; what cannot be followed stands for
    itself.
    """
    search = _Origins()
    if isinstance(node, ast.expr):
        search.follow(node, unit, 0)
    return search.found


def modules_made(event: Event) -> list[ast.Call]:
    """The calls that make the module that is called; nothing where it may be another too, or none."""
    made = [value for value, _ in made_by(event.call.func, event.unit)]
    calls = [value for value in made if isinstance(value, ast.Call)]
    return calls if len(calls) == len(made) else []


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
            # With its unit, as two functions may have a variable of one name.
            keys.add(("name", id(home) if home is not None else 0, value.id))
        elif isinstance(value, ast.Attribute):
            owner = where.method_class()
            text = _written(value)
            on_self = owner is not None and text.startswith(f"{where.self_name()}.")
            # Of `self` by the class: all its methods mean the same one, whatever they call it.
            keys.add(("attribute", id(owner) if on_self else id(where), text.partition(".")[2] if on_self else text))
        else:
            keys.add(("made", id(value)))
    return frozenset(keys)


class _Origins:
    """One search: what was found, and which names were followed."""

    def __init__(self) -> None:
        self.found: list[tuple[ast.expr, Unit]] = []
        self._seen: set[tuple[int, str]] = set()

    def follow(self, node: ast.expr, unit: Unit, depth: int) -> None:
        """Add what an expression stands for."""
        if depth > _DEEPEST:
            self.found.append((node, unit))
        # `.module` is what DDP and DataParallel keep the model under.
        elif isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and node.attr != "module"):
            self._bound(node, unit, depth)
        else:
            inner = _seen_through(node)
            for one in inner:
                self.follow(one, unit, depth + 1)
            if not inner:
                self.found.append((node, unit))

    def _bound(self, node: ast.Name | ast.Attribute, unit: Unit, depth: int) -> None:
        home = None
        if isinstance(node, ast.Name):
            home, name = unit.home(node.id), node.id
            key = (id(home), name)
        else:
            name = _written(node)
            key = (id(unit.method_class()), name)
        if key in self._seen:
            return
        self._seen.add(key)
        values = unit.file.roles.values(node, unit)
        is_parameter = home is not None and name in home.parameters
        if home is not None and is_parameter:
            values = [*values, *unit.file.arguments(home, name)]
        before = len(self.found)
        for value, where in values:
            # `self.model = None` in `__init__` is a place kept free.
            if not is_literal(value, None):
                self.follow(value, where, depth + 1)
        # A parameter may be given more in files that are not seen here: it stands for itself too.
        if len(self.found) == before or is_parameter:
            self.found.append((node, home or unit))


def _seen_through(node: ast.expr) -> list[ast.expr]:
    """The expressions that an expression hands on as they are; empty for any other."""
    if isinstance(node, ast.IfExp):
        return syntax.parts(node)
    if isinstance(node, ast.Attribute):
        return [node.value]  # `model.module` of a wrapper
    inner = _wrapped(node) if isinstance(node, ast.Call) else None
    return [inner] if inner is not None else []


def _written(node: ast.expr) -> str:
    """What `ast.unparse` gives, which takes thirty times as long over a chain of names."""
    written = syntax.dotted(node)
    return written if written.replace(".", "").isidentifier() else ast.unparse(node)


def _wrapped(call: ast.Call) -> ast.expr | None:
    """What a wrapper is given: it stands for that; None for any other call."""
    name, on = terminal(call), receiver(call)
    if on is not None and name in KEEPS_ROLE and not isinstance(on, ast.Constant):
        # `x.type(torch.half)` is a cast of a tensor; `torch.compile(model)` has the model as its argument.
        return None if call.args and name == "type" else (on if name != "compile" else (call.args or [on])[0])
    # A deep copy has the role of what it copies, and is another object.
    if name in WRAPPERS and call.args and not isinstance(call.args[0], ast.Starred):
        return None if name == "deepcopy" else call.args[0]
    return None


def models_in(arguments: ast.AST) -> list[ast.expr]:
    """The expressions whose `.parameters()` stand in what an optimizer is given."""
    calls = (n for n in walk(arguments) if isinstance(n, ast.Call))
    owners = (receiver(c) for c in calls if terminal(c) in ("parameters", "named_parameters"))
    return [on for on in owners if on is not None]
