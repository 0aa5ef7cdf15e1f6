"""How often a statement that takes something out of a holder runs, compared with the one that puts something in: after
how many turns of the same loop, or with each turn of a loop around it. The text is read, never run."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from torchvet.source import numbers, syntax
from torchvet.source.module import CallSite, Module
from torchvet.source.project import CALLED_BY_FRAMEWORK, CONSTRUCTORS, Project
from torchvet.source.scopes import Scope
from torchvet.source.statements import path_to_line

_DEEPEST = 6
_MOST = 24
"""Ways out of a statement that are followed."""
_TESTS_OF_PRESENCE = {"hasattr", "isinstance", "callable"}
_PLAIN_BASES = ("object", "Module", "Generic", "Protocol", "ABC")
"""Bases from outside the program that call no method of a class by themselves."""

Place = tuple[str, int]
"""A path and a line."""
LoopAt = tuple[str, int]
"""A path and the first line of a loop."""


@dataclass(frozen=True)
class Occasion:
    """When a holder is emptied or kept from growing: at `items` items, after `turns` turns of the loop that stores, or
    once in `rounds` turns of a loop around that one (`outer`). Where none of these is known, there is a limit whose
    number the text does not state."""

    items: int | None = None
    turns: int | None = None
    outer: bool = False
    rounds: int = 1
    always: bool = False
    """Of a condition: it holds whenever there is something to take out."""

    @property
    def known(self) -> bool:
        """Whether a number is stated."""
        return self.items is not None or self.turns is not None


@dataclass(frozen=True)
class Test:
    """A condition that must hold, or fail, for a statement to run."""

    node: ast.expr
    holds: bool
    scope: Scope


@dataclass
class Way:
    """One way from a statement outward through the calls of its function: the loops that it passes, each with the tests
    that were passed before it. `end` says where it stops."""

    loops: list[tuple[LoopAt, int]] = field(default_factory=list)
    tests: list[Test] = field(default_factory=list)
    end: str = "top"
    """`top`: a module's own level; `uncalled`; `framework`: something else than this program calls."""
    last: Scope | None = None
    rare: bool = False
    """Whether it stands where only an exception leads."""


def ways(project: Project, place: Place) -> list[Way]:
    """All ways outward from a line."""
    module = project.module(place[0])
    found: list[Way] = []
    if module is not None:
        _climb(module, place[1], Way(), found, ())
    return found


def _climb(module: Module, line: int, before: Way, found: list[Way], seen: tuple[Scope, ...]) -> None:
    project, scope = module.project, module.function_at(line)
    way = Way([*before.loops], [*before.tests], last=scope, rare=before.rare)
    _outward(scope or module.top, line, way)
    if len(found) >= _MOST:
        return
    if scope is None:
        found.append(way)
        return
    sites = list(callers(project, scope))
    if scope.name in CALLED_BY_FRAMEWORK or project.is_passed(scope.name):
        way.end = "framework"
        found.append(way)
    elif not sites:
        way.end = "framework" if _may_be_called(project, scope) else "uncalled"
        found.append(way)
    for site in sites:
        if len(seen) < _DEEPEST and scope not in seen:
            _climb(site.file, site.line, way, found, (*seen, scope))


def _may_be_called(project: Project, scope: Scope) -> bool:
    """Whether a method without calls may be called by a base class, by a decorator, or by its name as a text."""
    owner = scope.method_class()
    if owner is None:
        return False
    known = filter(None, map(project.class_named, project.lineage(owner.name)))
    foreign = any(project.class_named(base) is None and base not in _PLAIN_BASES for c in known for base in c.bases)
    return foreign or bool(scope.decorators) or any(_spelled(m, scope.name) for m in project.containing(scope.name))


def _spelled(module: Module, name: str) -> bool:
    return any(isinstance(n, ast.Constant) and n.value == name for n in ast.walk(module.tree))


def callers(project: Project, function: Scope) -> list[CallSite]:
    """The calls that may run a function: of a method those on objects of its class, where the text says whose they
    are."""
    owner = function.method_class()
    if owner is None:
        return list(project.calls(function.name))
    if function.name in CONSTRUCTORS:
        return list(project.calls(owner.name))
    by_fit: dict[int, list[CallSite]] = {0: [], 1: [], 2: []}
    for site in project.calls(function.name):
        by_fit[_is_on(project, site, owner)].append(site)
    return by_fit[2] or by_fit[1]


def _is_on(project: Project, site: CallSite, owner: Scope) -> int:
    """2: a call on an object of a class or of one related to it; 1: of an unknown class; 0: of another class."""
    receiver = syntax.receiver(site.node)
    if receiver is None:
        return 0
    if isinstance(receiver, ast.Call) and syntax.ident(receiver.func) == "super":
        receiver = ast.Name("self")
    base, _ = syntax.peel(receiver)
    if base is None:
        return 1
    name, home = syntax.ident(base), site.scope.owner_class()
    if isinstance(base, ast.Name) and name in ("self", "cls") and home is not None:
        return 2 if project.related({home.name}, {owner.name}) else 0
    classes = project.classes_meant(name)
    if not classes:
        return 1
    return 2 if project.related(classes, {owner.name}) else 0


def _outward(scope: Scope, line: int, way: Way) -> None:
    """Add to a way what is passed from a line to the outside of its function, innermost first."""
    for place in reversed(path_to_line(scope.node or scope.file.tree, line)):
        for before in reversed(place.before):
            # `if test: return` before a statement: the statement runs where the test fails.
            ends = isinstance(before, ast.If) and isinstance(before.body[-1], (ast.Return, ast.Continue))
            if isinstance(before, ast.If) and ends and not before.orelse:
                way.tests.append(Test(before.test, False, scope))
        owner = place.owner
        if place.field == "handlers":
            way.rare = True
        elif isinstance(owner, ast.If):
            way.tests.append(Test(owner.test, place.field == "body", scope))
        elif isinstance(owner, (ast.While, ast.For, ast.AsyncFor)) and place.field == "body":
            if isinstance(owner, ast.While):
                way.tests.append(Test(owner.test, True, scope))
            way.loops.append(((scope.file.path, owner.lineno), len(way.tests)))


@dataclass(frozen=True)
class Beat:
    """The loops around the statements that store: `own`, whose turns are steps or parts of steps, and `outer`, those
    around them, innermost first. `first` is the line of the loop whose turns are counted."""

    own: frozenset[LoopAt]
    outer: tuple[LoopAt, ...]
    counted: LoopAt | None


def beat_of(project: Project, stores: Sequence[Place], steps: Sequence[Place]) -> Beat:
    """The loops around some stores. `steps` are lines of the loop whose turns are steps: an optimizer's step, the head
    of a loop over a loader."""
    of_steps = [way.loops for place in steps for way in ways(project, place) if way.loops]
    counted = {loops[0][0] for loops in of_steps} | set(steps)
    own: dict[LoopAt, None] = {}
    outer: dict[LoopAt, None] = {}
    first: LoopAt | None = None
    for place in stores:
        for way in ways(project, place):
            loops = [loop for loop, _ in way.loops]
            turn = next((i for i, loop in enumerate(loops) if loop in counted), 0)
            own.update(dict.fromkeys(loops[: turn + 1]))
            outer.update(dict.fromkeys(loops[turn + 1 :]))
            first = first or (loops[turn] if loops else None)
    return Beat(frozenset(own), tuple(loop for loop in outer if loop not in own), first)


def occasion_of(project: Project, place: Place, beat: Beat, held: Collection[str]) -> Occasion | None:
    """When a removal runs. None where nothing shows that it ever does, or where it runs with every store, so that the
    growth goes on. `held` are the holder's names, as tests of its length read them."""
    found = [o for way in ways(project, place) if (o := _of_way(way, beat, held)) is not None]
    known = [o for o in found if o.known]
    return next(iter([*known, *(o for o in found if o.outer), *found]), None)


def _of_way(way: Way, beat: Beat, held: Collection[str]) -> Occasion | None:
    around = next(((loop, n) for loop, n in way.loops if loop in beat.own or loop in beat.outer), None)
    read = [_read(test, held) for test in (way.tests[: around[1]] if around is not None else way.tests)]
    known = [occasion for occasion in read if occasion is not None]
    if way.rare or len(known) < len(read):
        return None
    items = next((o.items for o in known if o.items is not None), None)
    turns = next((o.turns for o in known if o.turns is not None), None)
    outer = any(o.outer for o in known)
    if around is not None and around[0] in beat.outer:
        return Occasion(items, outer=True, rounds=turns or 1)
    if around is not None:
        limited = any(not o.always for o in known)
        return Occasion(items, turns, outer) if limited else None
    if way.end == "framework":
        return Occasion(items, turns, outer or (way.last is not None and "epoch" in way.last.name))
    return None


_ALWAYS = Occasion(always=True)
_SOMETIME = Occasion()
_COUNTS = 2
"""A number that a counter is compared with; 0 and 1 are flags."""


def _read(test: Test, held: Collection[str]) -> Occasion | None:
    """What a condition says of how often it holds; None where it may never."""
    node = test.node
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _read(Test(node.operand, not test.holds, test.scope), held)
    if isinstance(node, ast.BoolOp):
        return _joined(node, test, held)
    if isinstance(node, ast.Constant):
        return _ALWAYS if bool(node.value) == test.holds else None
    if _is_about(node, held) or (isinstance(node, ast.Call) and syntax.ident(node.func) in _TESTS_OF_PRESENCE):
        return _ALWAYS
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _compared(node, test.scope, held)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and not test.holds:
        return _every(node, test.scope)  # `if step % 100: return`
    return None


def _joined(node: ast.BoolOp, test: Test, held: Collection[str]) -> Occasion | None:
    """What several conditions say together: all of them must be read, or one, as `and` and `or` have it."""
    parts = [_read(Test(v, test.holds, test.scope), held) for v in node.values]
    every = isinstance(node.op, ast.And) == test.holds
    known = [p for p in parts if p is not None]
    if every and len(known) < len(parts) and not (any(syntax.remainders(node)) and _only_counters(node)):
        return None
    return next((p for p in known if p.known or p.outer), known[0] if known else None)


def _only_counters(node: ast.BoolOp) -> bool:
    """`step and step % n == 0`: what is tested beside is the counter itself."""
    plain = [v for v in node.values if isinstance(v, (ast.Name, ast.Attribute))]
    within = [v for v in node.values if v not in plain]
    read = {syntax.dotted(n) for v in within for n in ast.walk(v) if isinstance(n, (ast.Name, ast.Attribute))}
    named = any(isinstance(n, ast.Name) for n in ast.walk(node))
    return named and len(within) == 1 and all(syntax.dotted(v) in read for v in plain)


def _is_about(node: ast.expr, held: Collection[str]) -> bool:
    """Whether a test asks for the holder itself: is there one, has it anything."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
        return any(_is_about(side, held) for side in (node.left, *node.comparators))
    if isinstance(node, ast.Call) and syntax.ident(node.func) == "len" and node.args:
        return _is_about(node.args[0], held)
    base, _ = syntax.peel(node)
    return base is not None and syntax.ident(base) in held


def _compared(node: ast.Compare, scope: Scope, held: Collection[str]) -> Occasion | None:
    sides = (node.left, node.comparators[0])
    remainder = next(syntax.remainders(node), None)
    if remainder is not None:
        return _every(remainder, scope)
    if any(syntax.measured(node)) and not any(_is_length_of(s, held) for s in sides):
        return Occasion(outer=True)  # `if i == len(loader) - 1`
    if isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
        return None
    known = [n for s in sides if (n := numbers.number(s, scope)) is not None]
    if len(known) == 1 and known[0] >= _COUNTS:
        return Occasion(items=known[0])
    ordered = isinstance(node.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
    return _SOMETIME if ordered and not known else None


def _is_length_of(node: ast.expr, held: Collection[str]) -> bool:
    bases = (syntax.peel(on)[0] for on in syntax.measured(node))
    return any(base is not None and syntax.ident(base) in held for base in bases)


def _every(remainder: ast.BinOp, scope: Scope) -> Occasion:
    """`i % n`: with every n-th turn."""
    if any(syntax.measured(remainder.right)):
        return Occasion(outer=True)
    turns = numbers.number(remainder.right, scope)
    return Occasion(turns=turns) if turns is not None and turns > 0 else _SOMETIME


def items_in_guard(module: Module, line: int, held: Collection[str]) -> int | None:
    """The number of items that a guard at a line compares the holder's length with."""
    for guard, scope in module.guards:
        compares = (n for n in ast.walk(guard.test) if isinstance(n, ast.Compare) and len(n.ops) == 1)
        for node in compares if guard.lineno == line else ():
            sides = (node.left, node.comparators[0])
            others = [s for s in sides if not _is_length_of(s, held)]
            if len(others) < len(sides):
                found = (numbers.number(s, scope) for s in others)
                return next((n for n in found if n is not None), None)
    return None


def places_in_ring(module: Module, line: int) -> int | None:
    """The number of places of a ring buffer that a statement at a line writes to: `x[i % n] = v`."""
    scope = module.scope_at(line)
    statements = (n for n in ast.walk(module.tree) if isinstance(n, ast.Assign) and n.lineno == line)
    targets = (t for statement in statements for t in statement.targets if isinstance(t, ast.Subscript))
    found = (numbers.number(r.right, where) for t in targets for where, r in _remainders(t.slice, scope))
    return next((n for n in found if n is not None), None)


def _remainders(index: ast.expr, scope: Scope) -> Iterator[tuple[Scope, ast.BinOp]]:
    """The `a % b` that an index is computed with, those of what it is bound to included, each with its scope."""
    values = [(scope, index)]
    for mutation in scope.file.mutations_of(index, scope):
        values.append((mutation.scope, mutation.value or mutation.base))
        if isinstance(mutation.node, ast.AugAssign) and isinstance(mutation.node.op, ast.Mod):
            yield mutation.scope, ast.BinOp(mutation.base, ast.Mod(), mutation.node.value)
    for where, value in values:
        yield from ((where, remainder) for remainder in syntax.remainders(value))
