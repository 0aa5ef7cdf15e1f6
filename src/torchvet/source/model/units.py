"""Units of code (a module's own statements, or a function) and classes, with their names and bindings."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchvet.source.lazily import lazy
from torchvet.source.model.events import Event, UnitWalker
from torchvet.source.statements import first_line, last_line
from torchvet.source.syntax import argument, bindings, parameters
from torchvet.source.syntax import keyword as keyword
from torchvet.source.syntax import receiver as receiver
from torchvet.source.syntax import terminal as terminal
from torchvet.source.walking import Context, Loop, walk

if TYPE_CHECKING:
    from torchvet.source.model.file import SourceFile

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def behind_progress(node: ast.expr) -> ast.expr:
    """What a loop goes through within `tqdm(…)` or `track(…)`, which show how far it is."""
    while isinstance(node, ast.Call) and terminal(node) in ("tqdm", "track") and node.args:
        node = node.args[0]
    return node


_WHOLE = frozenset((ast.Name, ast.Attribute, ast.Subscript))
BINDING_NOTHING = frozenset((ast.Call, ast.Return, ast.Raise, ast.Yield, ast.YieldFrom))
"""What most events are."""


def targets_of(node: ast.AST) -> list[ast.expr]:
    """What a binding node binds, tuples taken apart, starred names bare."""
    # First: asked of every event, and most are calls.
    if node.__class__ in BINDING_NOTHING:
        return []
    found: list[ast.expr]
    if isinstance(node, (ast.Assign, ast.Delete)):
        found = list(node.targets)
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension)):
        found = [node.target]
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        found = [i.optional_vars for i in node.items if i.optional_vars is not None]
    else:
        return []
    if len(found) == 1 and found[0].__class__ in _WHOLE:
        # No new list for it: this runs for every assignment of a file.
        return found  # most targets are
    return [one for target in found for one in _flat(target)]


def _flat(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return [one for element in target.elts for one in _flat(element)]
    return [target.value if isinstance(target, ast.Starred) else target]


@dataclass(eq=False)
class Unit:
    """A module's own statements or a function's. `owner` is the class whose method it is."""

    file: SourceFile
    node: ast.Module | FunctionNode
    qualname: str = ""
    parent: Unit | None = None
    owner: ClassModel | None = None

    def __post_init__(self) -> None:
        self.is_module = self.parent is None
        """Whether this is the file's own level."""
        # A module's lines never end: a text may go on after its last statement.
        self.name, self.first, self.last = "", 1, 10**9
        """The function's name, empty for the module; its first line, decorators included, and its last."""
        if not isinstance(self.node, ast.Module):
            self.name = self.node.name
            self.first, self.last = first_line(self.node), last_line(self.node)

    @lazy
    def parameters(self) -> list[str]:
        """Names of all parameters in order, `self` included, `*args` and `**kwargs` last."""
        if isinstance(self.node, ast.Module):
            return []
        starred = (self.node.args.vararg, self.node.args.kwarg)
        return [p.arg for p in (*parameters(self.node), *starred) if p is not None]

    @property
    def is_bound(self) -> bool:
        """Whether its first parameter is the object that it is called on."""
        return self.owner is not None and "staticmethod" not in self.decorators

    @property
    def given_parameters(self) -> list[str]:
        """Names of the parameters that a call names or fills in order: without `self`."""
        return self.parameters[self.is_bound :]

    def annotation(self, name: str) -> ast.expr | None:
        """What a parameter is annotated with; None without that, and for `*args`, which holds several such values."""
        named = parameters(self.node) if not isinstance(self.node, ast.Module) else []
        return next((p.annotation for p in named if p.arg == name), None)

    def default(self, name: str) -> ast.expr | None:
        """What a parameter is where no call gives it; None without that."""
        if isinstance(self.node, ast.Module):
            return None
        given = self.node.args
        positional = zip([*given.posonlyargs, *given.args][::-1], given.defaults[::-1], strict=False)
        named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
        return next((value for one, value in (*positional, *named) if one.arg == name), None)

    @lazy
    def decorators(self) -> list[str]:
        """Dotted names of the decorators, calls of them likewise; in source order."""
        if isinstance(self.node, ast.Module):
            return []
        return [self.file.dotted(d.func if isinstance(d, ast.Call) else d) for d in self.node.decorator_list]

    @lazy
    def events(self) -> list[Event]:
        """Everything it does, in the order of evaluation."""
        walker = UnitWalker(self)
        walker.block(self.node.body, Context())
        return walker.events

    @property
    def returns(self) -> list[Event]:
        """Its `return` statements."""
        return [e for e in self.events if isinstance(e.node, ast.Return)]

    @lazy
    def calls(self) -> dict[str, list[Event]]:
        """Calls by the last identifier of what is called."""
        found: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            if event.node.__class__ is ast.Call:
                found[terminal(event.node)].append(event)
        return found

    def calls_of(self, names: Set[str]) -> Iterator[Event]:
        """Calls of what has one of these names, name by name."""
        for name in sorted(names & self.calls.keys()):
            yield from self.calls[name]

    def calls_inside(self, loop: Loop | None) -> list[Event]:
        """Calls that run in every turn of a loop, in the order of evaluation; all of them without one."""
        return [e for e in self.events if e.node.__class__ is ast.Call and e.inside(loop)]

    @lazy
    def returned(self) -> list[tuple[ast.expr | None, Event]]:
        """What each `return` gives back, with its event; None for a bare one."""
        return [(e.node.value, e) for e in self.events if isinstance(e.node, ast.Return)]

    @lazy
    def bindings(self) -> dict[str, list[Event]]:
        """Events that bind a name, by name. Comprehension variables count as the unit's own."""
        found: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            if event.node.__class__ not in BINDING_NOTHING:
                for target in targets_of(event.node):
                    if target.__class__ is ast.Name:
                        found[target.id].append(event)
        return found

    @lazy
    def outer_names(self) -> set[str]:
        """Names declared `global` or `nonlocal`."""
        if self.is_module or not self.file.mentions("global ", "nonlocal "):
            return set()
        return {n for s in walk(self.node) if isinstance(s, (ast.Global, ast.Nonlocal)) for n in s.names}

    def home(self, name: str) -> Unit | None:
        """The unit that a name used here belongs to; None for builtins and what is only imported."""
        if name not in self._homes:
            # What is bound here by `global` or `nonlocal` is an outer unit's.
            # A `global` name in a nested function: the parents are asked, and the module is the last of
            # them.
            unit = self.parent if name in self.outer_names else self
            while unit is not None and name not in unit.bindings and name not in unit.parameters:
                unit = unit.parent
            self._homes[name] = unit
        return self._homes[name]

    @lazy
    def _homes(self) -> dict[str, Unit | None]:
        return {}

    @lazy
    def _method(self) -> Unit | None:
        """The method that this is, or that it is nested in."""
        unit: Unit | None = self
        while unit is not None and unit.owner is None:
            unit = unit.parent
        return unit

    def method_class(self) -> ClassModel | None:
        """The class whose method this is, or whose method it is nested in."""
        # A function nested in a method sees the same `self`.
        return self._method.owner if self._method is not None else None

    def self_name(self) -> str:
        """What the method around calls its object; empty outside methods."""
        return self._self_name

    @lazy
    def _self_name(self) -> str:
        method = self._method
        return method.parameters[0] if method is not None and method.parameters and method.is_bound else ""

    def call_of(self, node: ast.AST | None) -> Event | None:
        """The event of a call of this unit; None for a call that stands elsewhere, and for what is no call."""
        return next((event for event in self.calls.get(terminal(node), ()) if event.node is node), None)


@dataclass(eq=False)
class ClassModel:
    """A class: its methods together."""

    file: SourceFile
    node: ast.ClassDef
    qualname: str
    unit: Unit

    def __post_init__(self) -> None:
        self.methods: dict[str, Unit] = {}
        self.first, self.last = self.node.lineno, last_line(self.node)

    @property
    def name(self) -> str:
        """The class's own name."""
        return self.node.name

    @lazy
    def bases(self) -> list[str]:
        """Dotted names of the direct bases."""
        # `Dataset[int]` is `Dataset`.
        return [self.file.dotted(b.value if isinstance(b, ast.Subscript) else b) for b in self.node.bases]

    @lazy
    def lineage(self) -> list[ClassModel]:
        """This class and those of its ancestors that stand in the same file, nearest first."""
        found: list[ClassModel] = [self]
        # The list grows while it is gone through, nearest ancestors first.
        for one in found:
            for base in one.bases:
                known = self.file.classes.get(base)
                if known is not None and known not in found:
                    found.append(known)
        return found

    @lazy
    def ancestors(self) -> set[str]:
        """Dotted names of all known ancestors, those outside the file included as they are named there."""
        return {base for one in self.lineage for base in one.bases}

    def method(self, name: str) -> Unit | None:
        """A method by name, here or in an ancestor of the same file."""
        return next((one.methods[name] for one in self.lineage if name in one.methods), None)

    @lazy
    def attributes(self) -> dict[str, list[tuple[Event, ast.expr | None]]]:
        """Bindings of `self.NAME` in any method of the class and its ancestors in the file: event and value, None where
        the value is a part of something (a tuple taken apart, a loop variable)."""
        found: dict[str, list[tuple[Event, ast.expr | None]]] = defaultdict(list)
        for one in self.lineage:
            for method in one.methods.values():
                own = method.self_name()
                for event in method.events:
                    for target in targets_of(event.node):
                        # Each method's own first name: it need not be `self`.
                        if isinstance(target, ast.Attribute) and terminal(target.value) == own:
                            found[target.attr].append((event, value_for(event.node, target)))
        return found


def value_for(node: ast.AST, target: ast.expr) -> ast.expr | None:
    """The expression that a binding gives a target; None where that is only a part of an expression."""
    if isinstance(node, ast.Assign) and node.targets[0] is target:
        return node.value  # most bindings are such
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return next((item.context_expr for item in node.items if item.optional_vars is target), None)
    return next((value for one, value, own in bindings(node) if one is target and own), None)


def passed(unit: Unit, name: str, call: ast.Call) -> ast.expr | None:
    """What one call gives for a parameter of a function of the file; None also for what `*args` may hold."""
    if isinstance(unit.node, ast.Module):
        return None
    a = unit.node.args
    # A keyword-only parameter has no position.
    positional = [p.arg for p in (*a.posonlyargs, *a.args)][unit.is_bound :]
    given = argument(call, name, positional.index(name) if name in positional else -1)
    return None if isinstance(given, ast.Starred) else given
