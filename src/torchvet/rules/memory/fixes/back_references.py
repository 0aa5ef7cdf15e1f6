"""Edits for a cycle of objects that refer back to what holds them: the way back holds its object weakly."""

from __future__ import annotations

import ast
import sys

from torchvet.rules.kit import Edit, Edits, Finding, Iterable, SourceFile
from torchvet.rules.memory._hooks import base_of
from torchvet.source.model import ClassModel, Event, edits, is_call, is_literal, receiver, targets_of, terminal

_STORED_WHOLE = (
    "pickle",
    "__slots__",
    "__getstate__",
    "__reduce__",
    "__dict__",
    "vars(",
    "dataclass",
    "attrs",
    "spawn",
)
"""Words of a file that may go by an object's attributes as they are stored, or writes it down: a weak reference cannot
be."""


def held_weakly(file: SourceFile, finding: Finding) -> Edits:
    """The one attribute of a garbage cycle that `__init__` is given its owner for: stored as a weak reference, and read
    through a property, so that whoever reads it reads what it read before."""
    named = finding.holder.path if finding.holder is not None else []
    # `Owner.attribute` in two: `partition` gives the dot between them, which `[::2]` leaves out.
    found = [edited for name in dict.fromkeys(named) if (edited := _weak(file, *name.rpartition(".")[::2]))]
    # Two attributes would both do; which of them is the way back nobody knows.
    return found[0] if len(found) == 1 else ()


def _weak(file: SourceFile, owner: str, attribute: str) -> list[Edit]:
    model = file.classes.get(owner)
    first = model.methods.get("__init__") if model is not None else None
    if model is None or first is None or not _may_be_private(file, model, attribute):
        return []
    stored = _only_store(file, model, attribute)
    value = stored.value if stored is not None else None
    if stored is None or not isinstance(value, ast.Name) or value.id not in first.parameters[1:]:
        return []
    # The parameter must reach the attribute as it was given.
    if first.bindings.get(value.id) or not _is_given_its_owner(file, model, value.id):
        return []
    own, name = first.self_name(), value.id
    weak = f"{own}._{attribute} = weakref.ref({name}) if {name} is not None else None"
    put = _property(file, first.node, own, attribute)
    imports = imported(file, "weakref", model.node.lineno)
    if not put or imports is None or not edits.stands_alone(file, stored):
        return []
    return [*imports, edits.replace(file, stored, weak), *put]


def _may_be_private(file: SourceFile, model: ClassModel, attribute: str) -> bool:
    """Whether an attribute may become a property of the same name, with what it gives under a private name."""
    # The private name must be free, and nothing may list the attributes or write them down.
    if file.mentions(*_STORED_WHOLE, f"_{attribute}"):
        return False
    # A module registers what is assigned to it, and a subclass may bind the attribute by itself.
    derived = any(c is not model and model in c.lineage for c in file.classes.values())
    return not derived and "module" not in file.roles.of_class(model)


def _only_store(file: SourceFile, model: ClassModel, attribute: str) -> ast.Assign | None:
    """The statement of `__init__` that binds an attribute, whatever comes, where nothing else in the file does."""
    bound = model.attributes.get(attribute, [])
    event = bound[0][0] if len(bound) == 1 else None
    # Under a condition the attribute may not be there, and a property always is.
    if event is None or event.unit is not model.methods["__init__"] or event.context.arms:
        return None
    others = (e.node for unit in file.units_with(attribute) for e in unit.events if e is not event)
    if _binds(others, ast.Attribute, attribute) or _binds(model.node.body, ast.Name, attribute):
        return None
    return event.node if isinstance(event.node, ast.Assign) and len(event.node.targets) == 1 else None


def _binds(nodes: Iterable[ast.AST], kind: type[ast.expr], name: str) -> bool:
    """Whether one of some nodes binds an attribute, or a variable, by this name."""
    return any(isinstance(t, kind) and terminal(t) == name for node in nodes for t in targets_of(node))


def _is_given_its_owner(file: SourceFile, model: ClassModel, name: str) -> bool:
    """Whether an object is made by a method that gives itself as its owner, or for a name that keeps what is made
    (`node.children.append(Node(x, node))`), and nothing but that or None is given."""
    first = model.methods["__init__"]
    given = [(one, e) for e in file.calls(model.name) for one in file.passed(e, first, name)]
    mine = [one for one, e in given if isinstance(one, ast.Name) and one.id in (e.unit.self_name(), _keeper(e))]
    none = [one for one, _ in given if is_literal(one, None)]
    # Anything else that is given may have no other reference, and would die at once.
    return bool(mine) and len(mine) + len(none) == len(given)


def _keeper(made: Event) -> str:
    """The name whose attribute a new object is put into by the statement that makes it; empty for none."""
    into: ast.expr | None = None
    if is_call(made.parent, "append", "add", "insert", "setdefault"):
        into = receiver(made.parent)
    elif isinstance(made.statement, ast.Assign) and made.statement.value is made.node:
        into = made.statement.targets[0]
    return terminal(base_of(into)) if not isinstance(into, ast.Name) else ""


def _property(file: SourceFile, method: ast.AST, own: str, attribute: str) -> list[Edit]:
    """A property after `__init__` that gives what the weak reference refers to."""
    assert isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef))
    last = method.body[-1]
    margin = file.lines[method.lineno - 1][: edits.start_of(file, method)[1] - 1]
    # The margins as they are written: tabs, two spaces or four.
    inner = file.lines[last.lineno - 1][: edits.start_of(file, last)[1] - 1]
    if margin.strip() or not inner.startswith(margin) or inner == margin or not edits.stands_alone(file, last):
        return []
    line = last.end_lineno or last.lineno
    place = (line, len(file.lines[line - 1]) + 1)
    rows = [
        "",
        f"{margin}@property",
        f"{margin}def {attribute}({own}):",
        f"{inner}return {own}._{attribute}() if {own}._{attribute} is not None else None",
    ]
    return [Edit(path=file.path, start=place, end=place, text="".join(file.newline + row for row in rows))]


def imported(file: SourceFile, module: str, before: int) -> list[Edit] | None:
    """`import module` among the imports at the top of a file, those of the standard library in order; nothing where it
    is there already, None where no import stands before a line."""
    if file.imports.names.get(module) == module:
        return []
    above = [s for s in file.tree.body if isinstance(s, (ast.Import, ast.ImportFrom)) and s.lineno < before]
    plain = [s for s in above if getattr(s, "module", "") != "__future__"]
    earlier = [s for s in plain if isinstance(s, ast.Import) and _is_standard_before(s.names[0].name, module)]
    if earlier:
        return edits.after(file, earlier[-1], f"import {module}") or None
    return edits.before(file, plain[0], f"import {module}") or None if plain else None


def _is_standard_before(name: str, module: str) -> bool:
    return name < module and name.partition(".")[0] in sys.stdlib_module_names
