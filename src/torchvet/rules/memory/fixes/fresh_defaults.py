"""An edit for a list that is the default of a parameter, and so one list for all calls: each call makes its own."""

from __future__ import annotations

import ast

from torchvet.rules.core.fixing import places_of
from torchvet.rules.kit import Edit, Edits, Finding, Iterator, SourceFile
from torchvet.source import holder
from torchvet.source.model import Unit, edits, is_call, is_name, walk
from torchvet.source.program.scopes import defaults

_EMPTY = ("list", "dict", "set", "deque", "defaultdict", "OrderedDict", "Counter")


def made_in_each_call(file: SourceFile, finding: Finding) -> Edits:
    """`None` as the default of the parameter that the finding's line stores into, and what it was made in the body."""
    held = holder.parse(finding.holder.name) if finding.holder is not None else None
    if held is None or held.special != "default":
        return ()
    for line in places_of(file, finding):
        unit = file.unit_at(line)
        found = [one for one in _shared(unit) if _is_stored_into(unit, one[0], line)]
        if len(found) == 1 and not _remembers(unit, found[0][0]):
            return _made(file, unit, *found[0])
    return ()


def _shared(unit: Unit) -> Iterator[tuple[str, ast.expr]]:
    """Parameters whose defaults are new and empty where the function is defined."""
    if isinstance(unit.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from ((name, value) for name, value in defaults(unit.node) if _is_empty(value))


def _is_empty(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        # `defaultdict(list)`, `deque()`.
        plain = not value.keywords and all(isinstance(a, (ast.Name, ast.Constant)) for a in value.args)
        return plain and is_call(value, *_EMPTY)
    return isinstance(value, (ast.List, ast.Dict)) and not (value.elts if isinstance(value, ast.List) else value.keys)


def _is_stored_into(unit: Unit, name: str, line: int) -> bool:
    statements = {id(e.statement): e.statement for e in unit.events if e.line == line}.values()
    return any(is_name(node, name) for statement in statements for node in walk(statement))


def _remembers(unit: Unit, name: str) -> bool:
    """Whether later calls look up what earlier ones have stored: then one object for all of them is meant."""
    for node in walk(unit.node):
        if isinstance(node, ast.Compare) and any(is_name(one, name) for one in node.comparators):
            return True
        if (
            is_call(node, "get", "setdefault")
            and isinstance(node.func, ast.Attribute)
            and is_name(node.func.value, name)
        ):
            return True
    return False


def _made(file: SourceFile, unit: Unit, name: str, value: ast.expr) -> list[Edit]:
    body = unit.node.body
    documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    first = body[1] if documented and len(body) > 1 else body[0]
    text, margin = file.segment(value), edits.margin(file, first)
    test = edits.before(file, first, f"if {name} is None:{file.newline}{margin}    {name} = {text}")
    return [edits.replace(file, value, "None"), *test] if test and edits.on_one_line(value) else []
