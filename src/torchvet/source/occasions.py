"""How often a statement that takes something out of a holder comes, beside the one that puts something in: after how
many turns of the same loop, or with a turn of a loop around it. The text is read, never run."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from torchvet.source import numbers, places, syntax
from torchvet.source.module import CallSite, Module
from torchvet.source.project import CALLED_BY_FRAMEWORK, Project
from torchvet.source.scopes import Scope

_DEEPEST = 6
_MOST = 24
"""Ways out of a statement that are followed."""
_TESTS_OF_PRESENCE = {"hasattr", "isinstance", "callable"}

Place = tuple[str, int]
"""A path and a line."""
LoopAt = tuple[str, int]
"""A path and the first line of a loop."""


@dataclass(frozen=True)
class Occasion:
    """When a holder is emptied or kept from growing: at `items` items, after `turns` turns of the loop that stores, or
    with a turn of a loop around that one (`outer`, its line in `line`), which is `rounds` such turns late. With nothing
    of these known there is a limit whose number the text does not say."""

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
    """A condition that must hold, or fail, for a statement to be come to."""

    node: ast.expr
    holds: bool
    module: Module
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
        _climb(project, module, place[1], Way(), found, ())
    return found


def _climb(project: Project, module: Module, line: int, way: Way, found: list[Way], seen: tuple[Scope, ...]) -> None:
    scope = places.function_at(module, line)
    node = scope.node if scope is not None else module.tree
    way = Way([*way.loops], [*way.tests], rare=way.rare)
    _outward(module, scope or module.top, getattr(node, "body", []), line, way)
    way.last = scope
    if len(found) >= _MOST:
        return
    if scope is None:
        found.append(way)
        return
    sites = list(callers(project, module, scope))
    if scope.name in CALLED_BY_FRAMEWORK or any(scope.name in m.passed for m in project.containing(scope.name)):
        way.end = "framework"
        found.append(way)
    elif not sites:
        way.end = "framework" if _may_be_called(project, scope) else "uncalled"
        found.append(way)
    for where, site in sites:
        if len(seen) < _DEEPEST and scope not in seen:
            _climb(project, where, site.node.lineno, way, found, (*seen, scope))


def _may_be_called(project: Project, scope: Scope) -> bool:
    """Whether a method that nobody calls by name may be called by the base class or by its name's text."""
    owner = scope.owner_class()
    if owner is None or scope.parent is not owner:
        return False
    foreign = any(
        project.class_named(base) is None and base not in ("object", "Module", "Generic", "Protocol", "ABC")
        for name in project.lineage(owner.name)
        for known in [project.class_named(name)]
        if known is not None
        for base in known[1].bases
    )
    decorated = isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)) and bool(scope.node.decorator_list)
    return foreign or decorated or any(_spelled(m, scope.name) for m in project.containing(scope.name))


def _spelled(module: Module, name: str) -> bool:
    return any(isinstance(n, ast.Constant) and n.value == name for n in ast.walk(module.tree))


def callers(project: Project, module: Module, function: Scope) -> Iterator[tuple[Module, CallSite]]:
    """The calls that may run a function: of a method those on objects of its class, where the text says whose they
    are."""
    owner = function.parent if function.parent is not None and function.parent.kind == "class" else None
    constructs = owner is not None and function.name in ("__init__", "__new__", "__post_init__")
    called = owner.name if constructs and owner is not None else function.name
    unsure: list[tuple[Module, CallSite]] = []
    sure: list[tuple[Module, CallSite]] = []
    for one in project.containing(called):
        for site in one.calls.get(called, ()):
            fit = 2 if constructs or owner is None else _is_on(project, site, owner)
            (sure if fit == 2 else unsure if fit == 1 else []).append((one, site))
    yield from sure or unsure


def _is_on(project: Project, site: CallSite, owner: Scope) -> int:
    """2: a call on an object of a class or of one of its lineage; 1: of nobody knows what; 0: of another."""
    func = site.node.func
    if not isinstance(func, ast.Attribute):
        return 0
    receiver = func.value
    if isinstance(receiver, ast.Call) and syntax.ident(receiver.func) == "super":
        receiver = ast.Name("self")
    base, _ = syntax.peel(receiver)
    if base is None:
        return 1
    name = syntax.ident(base)
    home = site.scope.owner_class()
    if isinstance(base, ast.Name) and name in ("self", "cls") and home is not None:
        return 2 if project.related({home.name}, {owner.name}) else 0
    classes = {name} if project.class_named(name) is not None else project.classes_of(name)
    if not classes:
        return 1
    return 2 if project.related(classes, {owner.name}) else 0


def _outward(module: Module, scope: Scope, block: Sequence[ast.stmt], line: int, way: Way) -> None:
    """Add to a way what is passed from a line to the outside of a block, innermost first."""
    index = next((i for i, s in enumerate(block) if _first(s) <= line <= (s.end_lineno or s.lineno)), None)
    if index is None:
        return
    statement = block[index]
    for name in ("body", "orelse", "finalbody"):
        inner = [s for s in getattr(statement, name, ()) if isinstance(s, ast.stmt)]
        if _holds(inner, line) and not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            _outward(module, scope, inner, line, way)
            _pass(module, scope, statement, name, way)
    for handler in getattr(statement, "handlers", ()):
        if _holds(handler.body, line):
            way.rare = True
            _outward(module, scope, handler.body, line, way)
    for before in reversed(block[:index]):
        if isinstance(before, ast.If) and not before.orelse and isinstance(before.body[-1], (ast.Return, ast.Continue)):
            way.tests.append(Test(before.test, False, module, scope))


def _pass(module: Module, scope: Scope, statement: ast.stmt, block: str, way: Way) -> None:
    if isinstance(statement, ast.If):
        way.tests.append(Test(statement.test, block == "body", module, scope))
    elif isinstance(statement, (ast.While, ast.For, ast.AsyncFor)) and block == "body":
        if isinstance(statement, ast.While):
            way.tests.append(Test(statement.test, True, module, scope))
        way.loops.append(((module.path, statement.lineno), len(way.tests)))


def _first(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(d.lineno for d in decorators)])


def _holds(block: Sequence[ast.stmt], line: int) -> bool:
    return bool(block) and _first(block[0]) <= line <= (block[-1].end_lineno or block[-1].lineno)


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
    """When a removal comes; None where nothing says that it ever does, or it comes with every store and the growth goes
    on all the same. `held` are the holder's names, as tests of its length read them."""
    found = [o for way in ways(project, place) if (o := _of_way(project, way, beat, held)) is not None]
    known = [o for o in found if o.known]
    return next(iter([*known, *(o for o in found if o.outer), *found]), None)


def _of_way(project: Project, way: Way, beat: Beat, held: Collection[str]) -> Occasion | None:
    if way.rare:
        return None
    around = next(((loop, n) for loop, n in way.loops if loop in beat.own or loop in beat.outer), None)
    tests = way.tests[: around[1]] if around is not None else way.tests
    found = Occasion()
    limited = False
    for test in tests:
        read = _read(project, test, held)
        if read is None:
            return None
        limited = limited or not read.always
        found = Occasion(
            items=read.items if found.items is None else found.items,
            turns=read.turns if found.turns is None else found.turns, outer=found.outer or read.outer,
        )  # fmt: skip
    if around is not None and around[0] in beat.outer:
        return Occasion(items=found.items, outer=True, rounds=found.turns or 1)
    if around is not None:
        return found if limited else None
    named = way.last is not None and "epoch" in way.last.name
    if way.end == "framework":
        return Occasion(items=found.items, turns=found.turns, outer=named or found.outer)
    return None


_ALWAYS = Occasion(always=True)
_SOMETIME = Occasion()


def _read(project: Project, test: Test, held: Collection[str]) -> Occasion | None:
    """What a condition says of how often it holds; None where it may never."""
    node = test.node
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _read(project, Test(node.operand, not test.holds, test.module, test.scope), held)
    if isinstance(node, ast.BoolOp):
        parts = [_read(project, Test(v, test.holds, test.module, test.scope), held) for v in node.values]
        every = isinstance(node.op, ast.And) == test.holds
        told = [p for p in parts if p is not None]
        counts = any(isinstance(n, ast.Mod) for v in node.values for n in ast.walk(v))
        if every and len(told) < len(parts) and not (counts and _only_counters(node)):
            return None
        return next((p for p in told if p.known or p.outer), told[0] if told else None)
    if isinstance(node, ast.Constant):
        return _ALWAYS if bool(node.value) == test.holds else None
    if _is_about(node, held) or _asks_presence(node):
        return _ALWAYS
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _compared(project, test, node, held)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and not test.holds:
        return _every(project, test, node)  # `if step % 100: return`
    return None


def _only_counters(node: ast.BoolOp) -> bool:
    """`step and step % n == 0`: what is tested beside is the counter itself."""
    counters = {n.id for v in node.values for n in ast.walk(v) if isinstance(n, ast.Name)}
    plain = [v for v in node.values if isinstance(v, (ast.Name, ast.Attribute))]
    within = [v for v in node.values if v not in plain]
    read = {syntax.dotted(n) for v in within for n in ast.walk(v) if isinstance(n, (ast.Name, ast.Attribute))}
    return bool(counters) and all(syntax.dotted(v) in read for v in plain) and len(within) == 1


def _is_about(node: ast.expr, held: Collection[str]) -> bool:
    """Whether a test asks for the holder itself: is there one, has it anything."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
        return any(_is_about(side, held) for side in (node.left, *node.comparators))
    if isinstance(node, ast.Call) and syntax.ident(node.func) == "len" and node.args:
        return _is_about(node.args[0], held)
    base, _ = syntax.peel(node)
    return base is not None and syntax.ident(base) in held


def _asks_presence(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and syntax.ident(node.func) in _TESTS_OF_PRESENCE


def _compared(project: Project, test: Test, node: ast.Compare, held: Collection[str]) -> Occasion | None:
    sides = (node.left, node.comparators[0])
    remainder = next(
        (n for s in sides for n in ast.walk(s) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod)), None
    )
    if remainder is not None:
        return _every(project, test, remainder)
    if any(_is_length(s) for s in sides) and not any(_is_length_of(s, held) for s in sides):
        return Occasion(outer=True)  # `if i == len(loader) - 1`
    if isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
        return None
    found = [numbers.number(project, test.module, s, test.scope) for s in sides]
    most = [n for n in found if n is not None]
    if len(most) == 1 and most[0] >= _COUNTS:
        return Occasion(items=most[0])
    ordered = isinstance(node.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
    return _SOMETIME if ordered and not most else None


_COUNTS = 2
"""A number that a counter is compared with; 0 and 1 are flags."""


def _is_length(node: ast.expr) -> bool:
    return any(isinstance(n, ast.Call) and syntax.ident(n.func) in ("len", "qsize", "__len__") for n in ast.walk(node))


def _is_length_of(node: ast.expr, held: Collection[str]) -> bool:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and syntax.ident(call.func) in ("len", "qsize", "__len__"):
            on = call.args[0] if call.args else call.func.value if isinstance(call.func, ast.Attribute) else None
            base, _ = syntax.peel(on)
            if base is not None and syntax.ident(base) in held:
                return True
    return False


def _every(project: Project, test: Test, remainder: ast.BinOp) -> Occasion:
    """`i % n`: with every n-th turn."""
    if _is_length(remainder.right):
        return Occasion(outer=True)
    turns = numbers.number(project, test.module, remainder.right, test.scope)
    return Occasion(turns=turns) if turns is not None and turns > 0 else _SOMETIME


def items_in_guard(project: Project, module: Module, line: int, held: Collection[str]) -> int | None:
    """The number of items that a guard at a line compares the holder's length with."""
    for guard, scope in module.guards:
        if guard.lineno != line:
            continue
        for node in ast.walk(guard.test):
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                sides = (node.left, node.comparators[0])
                if any(_is_length_of(s, held) for s in sides):
                    found = [numbers.number(project, module, s, scope) for s in sides if not _is_length_of(s, held)]
                    return next((n for n in found if n is not None), None)
    return None


def places_in_ring(project: Project, module: Module, line: int) -> int | None:
    """The number of places of a ring buffer that a statement at a line writes to: `x[i % n] = v`."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Assign) or node.lineno != line:
            continue
        scope = places.function_at(module, line) or module.top
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                for where, remainder in _remainders(module, target.slice, scope):
                    if (found := numbers.number(project, module, remainder.right, where)) is not None:
                        return found
    return None


def _remainders(module: Module, index: ast.expr, scope: Scope) -> Iterator[tuple[Scope, ast.BinOp]]:
    values = [(scope, index)]
    for touch in module.touches.get(syntax.ident(index), ()):
        if not isinstance(index, ast.Name) or touch.scope.resolve(index.id) is scope.resolve(index.id):
            values.append((touch.scope, touch.value or touch.base))
            if isinstance(touch.node, ast.AugAssign) and isinstance(touch.node.op, ast.Mod):
                yield touch.scope, ast.BinOp(touch.base, ast.Mod(), touch.node.value)
    for where, value in values:
        yield from ((where, n) for n in ast.walk(value) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod))
