"""An edit for a list that is the default of a parameter, and so one list for all calls: each call makes its own."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Edits, Finding, Iterator, SourceFile, places_of
from torchvet.source import holder
from torchvet.source.model import Unit, edits, is_call, is_name, parents_in, reads_of, walk
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
        made_of = [a.id for a in value.args if isinstance(a, ast.Name)] if is_call(value, "defaultdict") else []
        plain = not value.keywords and len(made_of) == len(value.args) and set(made_of) <= {"list", "dict", "set"}
        return plain and is_call(value, *_EMPTY)
    return isinstance(value, (ast.List, ast.Dict)) and not (value.elts if isinstance(value, ast.List) else value.keys)


def _is_stored_into(unit: Unit, name: str, line: int) -> bool:
    statements = {id(e.statement): e.statement for e in unit.events if e.line == line}.values()
    return any(is_name(node, name) for statement in statements for node in walk(statement))


def _remembers(unit: Unit, name: str) -> bool:
    """Whether a call may read what earlier ones have stored: then one object for all of them may be meant."""
    parents = parents_in(unit.node)
    return not all(_is_of_this_call(parents, read) for read in reads_of(unit.node, name))


def _is_of_this_call(parents: dict[int, ast.AST], read: ast.Name) -> bool:
    """Whether a use of a container stores into it, or reads what this call has stored last: `rows[-len(parts):]`."""
    outer = parents.get(id(read))
    if isinstance(outer, ast.Attribute):
        call = parents.get(id(outer))
        alone = isinstance(parents.get(id(call)), ast.Expr)
        return alone and is_call(call, "append", "extend", "add", "update", "appendleft")
    if not isinstance(outer, ast.Subscript) or outer.value is not read:
        return False
    if isinstance(outer.ctx, ast.Store):
        return True
    cut = outer.slice
    if isinstance(cut, ast.Slice):
        counted = isinstance(cut.lower, ast.UnaryOp) and is_call(cut.lower.operand, "len")
        return counted and cut.upper is None and cut.step is None
    return isinstance(cut, ast.UnaryOp) and isinstance(cut.operand, ast.Constant) and cut.operand.value == 1


def _made(file: SourceFile, unit: Unit, name: str, value: ast.expr) -> list[Edit]:
    body = unit.node.body
    documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    first = body[1] if documented and len(body) > 1 else body[0]
    if isinstance(first, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return []  # decorators stand above its line
    text, margin = file.segment(value), edits.margin(file, first)
    test = edits.before(file, first, f"if {name} is None:{file.newline}{margin}    {name} = {text}")
    return [edits.replace(file, value, "None"), *test] if test and edits.on_one_line(value) else []
