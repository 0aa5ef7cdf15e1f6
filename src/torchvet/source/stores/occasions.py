"""How often a statement that takes something out of a holder runs, compared with the one that puts something in: after
how many turns of the same loop, or with each turn of a loop around it. The text is read, never run."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from torchvet.source import syntax
from torchvet.source.program.module import Module
from torchvet.source.program.project import Project
from torchvet.source.program.scopes import Scope
from torchvet.source.stores import numbers
from torchvet.source.stores.ways import LoopAt, Place, Test, Way, ways

_TESTS_OF_PRESENCE = {"hasattr", "isinstance", "callable"}


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
class Beat:
    """The loops around the statements that store: `own`, whose turns are steps or parts of steps, and `outer`, those
    around them, innermost first. `counted` is the loop whose turns are counted."""

    own: frozenset[LoopAt]
    outer: tuple[LoopAt, ...]
    counted: LoopAt | None


def beat_of(project: Project, stores: Sequence[Place], steps: Sequence[Place]) -> Beat:
    """The loops around some stores. `steps` are lines of the loop whose turns are steps: an optimizer's step, say."""
    of_steps = [way.loops for place in steps for way in ways(project, place) if way.loops]
    counted = {loops[0][0] for loops in of_steps} | set(steps)
    own: dict[LoopAt, None] = {}
    outer: dict[LoopAt, None] = {}
    first: LoopAt | None = None
    for place in stores:
        for way in ways(project, place):
            loops = [loop for loop, _ in way.loops]
            turn = next((i for i, loop in enumerate(loops) if loop in counted), 0)
            # Dictionaries as ordered sets: the innermost loop comes first.
            own.update(dict.fromkeys(loops[: turn + 1]))
            outer.update(dict.fromkeys(loops[turn + 1 :]))
            # The best store's: they come in that order.
            first = first or (loops[turn] if loops else None)
    return Beat(frozenset(own), tuple(loop for loop in outer if loop not in own), first)


def occasion_of(project: Project, place: Place, beat: Beat, held: Collection[str]) -> Occasion | None:
    """When a removal runs. None where nothing shows that it ever does, or where it runs with every store, so that the
    growth goes on. `held` are the holder's names, as tests of its length read them."""
    found = [o for way in ways(project, place) if (o := _of_way(way, beat, held)) is not None]
    known = [o for o in found if o.known]
    # What states a number says most; of several ways any one bounds the holder.
    return next(iter([*known, *(o for o in found if o.outer), *found]), None)


def _of_way(way: Way, beat: Beat, held: Collection[str]) -> Occasion | None:
    around = next(((loop, n) for loop, n in way.loops if loop in beat.own or loop in beat.outer), None)
    # Tests beyond the loop decide whether the loop runs at all, which it does: its stores were seen.
    said = _together([_read(test, held) for test in (way.tests[: around[1]] if around is not None else way.tests)])
    # In an `except` it runs only when something fails.
    if way.rare or said is None:
        return None
    if around is None:
        # A framework's hook, such as `on_epoch_end`, is called after each epoch.
        epoch = way.last is not None and "epoch" in way.last.name
        if way.end != "framework":
            return None
        return Occasion(said.items, said.turns, said.outer or epoch, always=said.always)
    if around[0] in beat.outer:
        return Occasion(said.items, outer=True, rounds=said.turns or 1)
    # In each turn of the loop that stores: what it leaves is what grew, so it bounds nothing.
    return said if not said.always else None


def _together(conditions: Sequence[Occasion | None]) -> Occasion | None:
    """When all of several conditions hold. One that cannot be read, and the removal may never happen."""
    known = [one for one in conditions if one is not None]
    if len(known) < len(conditions):
        return None
    # Of several tests the innermost that states a number.
    items = next((o.items for o in known if o.items is not None), None)
    turns = next((o.turns for o in known if o.turns is not None), None)
    return Occasion(items, turns, any(o.outer for o in known), always=all(o.always for o in known))


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
    # Else it is true in all turns but every n-th.
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and not test.holds:
        return _every(node, test.scope)  # `if step % 100: return`
    return None


def _joined(node: ast.BoolOp, test: Test, held: Collection[str]) -> Occasion | None:
    """What several conditions say together: all of them must be read, or one, as `and` and `or` have it."""
    parts = [_read(Test(v, test.holds, test.scope), held) for v in node.values]
    # `not (a or b)` needs both, as `a and b` does.
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
    # Some other length: the loader's, as a rule.
    if any(syntax.measured(node)) and not any(_is_length_of(s, held) for s in sides):
        return Occasion(outer=True)  # `if i == len(loader) - 1`
    if isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
        return None
    known = [n for s in sides if (n := numbers.number(s, scope)) is not None]
    if len(known) == 1 and known[0] >= _COUNTS:
        return Occasion(items=known[0])
    ordered = isinstance(node.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
    # `len(x) > self.limit`: a limit, although the text does not state its number.
    return _SOMETIME if ordered and not known else None


def _is_length_of(node: ast.expr, held: Collection[str]) -> bool:
    bases = (syntax.peel(on)[0] for on in syntax.measured(node))
    return any(base is not None and syntax.ident(base) in held for base in bases)


def _every(remainder: ast.BinOp, scope: Scope) -> Occasion:
    """`i % n`: with every n-th turn."""
    if any(syntax.measured(remainder.right)):
        return Occasion(outer=True)
    # `step % args.every`: unknown unless an option's default states it.
    turns = numbers.number(remainder.right, scope)
    return Occasion(turns=turns) if turns is not None and turns > 0 else _SOMETIME


def items_in_guard(module: Module, line: int, held: Collection[str]) -> int | None:
    """The number of items that a guard at a line compares the holder's length with."""
    for guard, scope in module.guards:
        compares = (n for n in ast.walk(guard.test) if isinstance(n, ast.Compare) and len(n.ops) == 1)
        for node in compares if guard.lineno == line else ():
            sides = (node.left, node.comparators[0])
            others = [s for s in sides if not _is_length_of(s, held)]
            # One side is the length; the other is the number.
            if len(others) < len(sides):
                found = (numbers.number(s, scope) for s in others)
                return next((n for n in found if n is not None), None)
    return None


def items_kept(module: Module, line: int, held: Collection[str]) -> int | None:
    """How many items the slices at a line leave: `x = x[-n:]`, `x = x[:n]`, or what `del x[:-n]` does not take."""
    scope = module.scope_at(line)
    for statement in ast.walk(module.tree):
        if isinstance(statement, (ast.Assign, ast.Delete)) and statement.lineno == line:
            deleted = isinstance(statement, ast.Delete)
            for node in ast.walk(statement if isinstance(statement, ast.Delete) else statement.value):
                if isinstance(node, ast.Subscript) and _is_about(node.value, held):
                    kept = _kept(node.slice, scope, deleted)
                    if kept is not None:
                        return kept
    return None


def _kept(cut: ast.expr, scope: Scope, deleted: bool) -> int | None:
    if not isinstance(cut, ast.Slice) or cut.step is not None:
        return None
    ends = [end for end in (cut.lower, cut.upper) if end is not None]
    number = numbers.number(ends[0], scope) if len(ends) == 1 else None
    # `x[1:]` leaves as many as there are, but one.
    counted_from_end = cut.upper is None if not deleted else cut.upper is not None
    return abs(number) if number and (number < 0) == counted_from_end else None


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
        # `i = (i + 1) % n; x[i] = y`.
        values.append((mutation.scope, mutation.value or mutation.base))
        if isinstance(mutation.node, ast.AugAssign) and isinstance(mutation.node.op, ast.Mod):
            yield mutation.scope, ast.BinOp(mutation.base, ast.Mod(), mutation.node.value)
    for where, value in values:
        yield from ((where, remainder) for remainder in syntax.remainders(value))
