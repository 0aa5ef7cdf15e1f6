"""What makes an iterator that can be gone through once, and the names and attributes that are bound to one."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.source.model import Event, Unit, is_name, receiver, sole_target, terminal, walk
from torchvet.source.text import name_set

_PARTS = name_set("parameters named_parameters named_buffers named_modules named_children")
_PARTS_OF_MODULES = name_set("buffers modules children")
"""Methods that many other classes have, too, and that often give lists there."""
_LAZY = name_set("filter map zip enumerate iter reversed")
_TOOLS = name_set("chain from_iterable product combinations starmap pairwise")
_METHODS = tuple(sorted((*_PARTS, *_PARTS_OF_MODULES, "filter")))
_BOUND = tuple(sorted((*_LAZY, *_TOOLS)))
"""What is looked for where it is bound: most calls of these stand in the head of a loop."""
MAKERS = tuple(sorted({*_METHODS, *_BOUND}))
WORDS = (*MAKERS, "yield")
_FIRST_IS_NO_ITERABLE = ("filter", "map", "starmap")

_ASSIGNED = re.compile(r"=\s*[\w.]*\w\(")


@dataclass(frozen=True)
class Made:
    """An iterator that a name of a unit, or an attribute of a class's instances, is bound to once.

    `event` is the binding; of a parameter, which callers give one, the call, and `unit` is the function that is called.
    `parts` says that it gives parts of a module, so that a list of them costs nothing.
    """

    name: str
    value: ast.expr
    event: Event
    unit: Unit
    parts: bool
    attribute: bool = False

    @property
    def given(self) -> bool:
        """Whether it is an argument of a call."""
        return self.event.unit is not self.unit


def made_in(file: SourceFile) -> Iterator[Made]:
    """The iterators of a file, in its order."""
    seen: set[int] = set()
    for event in _candidates(file):
        statement = event.statement
        target = sole_target(statement)
        if isinstance(statement, ast.Assign) and target is not None and id(statement) not in seen:
            seen.add(id(statement))
            yield from _bound(statement.value, target, event)
        if event.node.__class__ is ast.Call:
            yield from _passed(file, event)


def _candidates(file: SourceFile) -> list[Event]:
    found = list(file.calls(*_METHODS))
    for name in _BOUND:
        lines = [n for n in file.words.lines_calling(name) if _ASSIGNED.search(file.lines[n - 1])]
        found += [e for unit in file.units_at(lines) for e in unit.calls.get(name, ())]
    if file.mentions("yield"):
        names = {unit.name for unit in file.units_with("yield")} - {""}
        found += file.calls(*sorted(names))
    # A generator expression is no event: its first `for` is.
    for unit in file.units_at(_lines_with_generators(file)):
        found += [e for e in unit.events if e.node.__class__ is ast.comprehension]
    return sorted(found, key=lambda e: (e.line, e.index))


def _lines_with_generators(file: SourceFile) -> list[int]:
    """Lines that may bind a name to a generator expression: `x = (…`."""
    return [
        n for n in file.lines_with("for") if "= (" in file.lines[n - 1] or file.lines[n - 2].rstrip().endswith("= (")
    ]


def _bound(value: ast.expr, target: ast.expr, event: Event) -> Iterator[Made]:
    unit = event.unit
    kind = kind_of(value, unit)
    own = next((e for e in unit.events if e.node is event.statement), None) if kind else None
    if own is None:
        return
    if isinstance(target, ast.Name) and target.id not in unit.outer_names:
        yield Made(target.id, value, own, unit, kind == "parts")
    elif isinstance(target, ast.Attribute) and unit.self_name() and is_name(target.value, unit.self_name()):
        yield Made(target.attr, value, own, unit, kind == "parts", attribute=True)


def _passed(file: SourceFile, event: Event) -> Iterator[Made]:
    """An iterator that is made in a call of a function of this file, as an argument of it."""
    outer = event.parent.value if isinstance(event.parent, ast.keyword) else event.parent
    call = event.unit.call_of(outer)
    callee = file.callee(call) if call is not None else None
    kind = kind_of(event.call, event.unit) if callee is not None and _runs_its_body(callee) else ""
    if call is None or callee is None or not kind:
        return
    for name in callee.given_parameters:
        if any(one is event.node for one in file.passed(call, callee, name)):
            yield Made(name, event.call, call, callee, kind == "parts")


def _runs_its_body(unit: Unit) -> bool:
    return not unit.decorators and not any(isinstance(e.node, (ast.Yield, ast.YieldFrom)) for e in unit.events)


def kind_of(node: ast.AST, unit: Unit) -> str:
    """ "parts" of what gives parts of a module once, "data" of any other iterator, empty of what may be no iterator."""
    if isinstance(node, ast.IfExp):
        kinds = {kind_of(node.body, unit), kind_of(node.orelse, unit)}
        return "" if "" in kinds else min(kinds)
    if isinstance(node, ast.GeneratorExp):
        plain = not any(one.is_async for one in node.generators)
        return ("parts" if kind_of(node.generators[0].iter, unit) == "parts" else "data") if plain else ""
    return _kind_of_call(node, unit) if isinstance(node, ast.Call) else ""


def _kind_of_call(call: ast.Call, unit: Unit) -> str:
    name, on = terminal(call), receiver(call)
    if name in _PARTS or name in _PARTS_OF_MODULES:
        return "parts" if on is not None and _is_plain(call) and _gives_parts(name, on, unit) else ""
    if on is None and name in _LAZY and unit.home(name) is None and unit.file.dotted(call.func) == name:
        return _kind_of_lazy(call, name, unit)
    if name in _TOOLS and unit.file.dotted(call.func).startswith("itertools."):
        return _kind_of_lazy(call, name, unit)
    event = unit.call_of(call)
    run = unit.file.callee(event) if event is not None else None
    return "data" if run is not None and _ends_by_itself(run) else ""


def _is_plain(call: ast.Call) -> bool:
    """Whether it is given prefixes and switches at most: a function of a method's name is given what it looks into."""
    return all(isinstance(one, (ast.Constant, ast.JoinedStr)) for one in call.args)


def _kind_of_lazy(call: ast.Call, name: str, unit: Unit) -> str:
    """Of what goes through others: parts where all of these are."""
    # `iter(function, sentinel)` may give more each time.
    if not call.args or (name == "iter" and len(call.args) > 1):
        return ""
    given = call.args[1:] if name in _FIRST_IS_NO_ITERABLE else call.args
    return "parts" if given and all(kind_of(one, unit) == "parts" for one in given) else "data"


def _gives_parts(name: str, on: ast.expr, unit: Unit) -> bool:
    """Whether a method that modules have is called on one, or may well be."""
    file = unit.file
    if _is_no_module(on, file):
        return False
    known = file.roles.class_of(on, unit)
    own = known.method(name) if known is not None else None
    if own is not None:
        return _ends_by_itself(own)
    roles = file.roles.of(on, unit) if known is None else file.roles.of_class(known)
    if roles:
        return "module" in roles
    # A class of this file has such a method of its own: whose this one is, is not known.
    return not file.functions(name) and (name in _PARTS or file.roles.hinted("module", on))


def _is_no_module(on: ast.expr, file: SourceFile) -> bool:
    """Whether it is a library, or `super()`, whose own method this may be."""
    imported = isinstance(on, ast.Name) and on.id in file.imports.names
    is_super = isinstance(on, ast.Call) and is_name(on.func, "super")
    return is_super or (imported and not file.roles.hinted("module", on))


def _ends_by_itself(unit: Unit) -> bool:
    """Whether a function is a generator that comes to an end."""
    yields = any(isinstance(e.node, (ast.Yield, ast.YieldFrom)) and not e.context.deferred for e in unit.events)
    if not yields or unit.decorators or isinstance(unit.node, ast.AsyncFunctionDef):
        return False
    endless = any(isinstance(one, ast.While) and isinstance(one.test, ast.Constant) for one in walk(unit.node))
    return not endless and not unit.calls.keys() & {"cycle", "count", "repeat"}
