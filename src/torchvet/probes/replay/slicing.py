"""Chooses the statements of one function that must run again so that a statement of it can.

A name whose value is still what the statement saw, and is no part of what went wrong, is taken as it is; any other is
computed anew by the statements that bound it, and so on backwards. Nothing else runs again: no logging, no other
loss, no optimizer step.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal

from torchvet.probes.replay.effects import SCOPES, Effects, effects_of

State = Literal["fine", "bad", "made", "absent"]
"""Of a name's value now: usable as it is; not finite; made by autograd, so that it must be made anew; not there."""
BATCH = "__torchvet_batch__"
"""The name under which the batch that the loader gave is handed to a slice."""

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@dataclass
class Step:
    """A statement on the way from the function to the one that is looked for."""

    node: ast.AST
    """What holds the block: the function, a loop, a `with`..."""
    before: list[ast.stmt]
    """The block's statements before the next on the way."""


@dataclass
class Way:
    """How a statement is reached: the blocks around it, outermost first, and itself."""

    steps: list[Step]
    target: ast.stmt

    @property
    def in_loop(self) -> bool:
        """Whether a loop of the function goes round the statement."""
        return any(isinstance(s.node, _LOOPS) for s in self.steps)


@dataclass
class Item:
    """A statement that could run again. `level` counts the blocks around it; `bound` is a loop's binding of its target
    from the batch."""

    node: ast.stmt
    level: int
    effects: Effects
    bound: bool = False


@dataclass
class Slice:
    """What is to run: statements by level, and names that could not be brought back, with the reason."""

    way: Way
    items: list[Item]
    chosen: set[int]
    missing: dict[str, str] = field(default_factory=dict)


def way_to(tree: ast.Module, first: int, last: int, column: int | None) -> Way | None:
    """The innermost statement that holds a position (lines from 1; a column narrows a line with several)."""
    way: list[Step] = []
    node: ast.AST = tree
    target: ast.stmt | None = None
    while True:
        found = _child(node, first, last, column)
        if found is None:
            break
        before, inner = found
        if isinstance(inner, ast.stmt):
            way = [*way, Step(node, before)]
            target = inner
        # Only the innermost function runs again: what is around it is not on the way.
        # Statements of an outer function are not this frame's.
        if isinstance(inner, SCOPES):
            way = []
        node = inner
    return Way(way, target) if target is not None and way else None


def _child(node: ast.AST, first: int, last: int, column: int | None) -> tuple[list[ast.stmt], ast.AST] | None:
    """The statement (or handler, case, lambda) right below a node that holds a position, and those before it."""
    for name in _BLOCKS:
        block = getattr(node, name, None)
        if not isinstance(block, list):
            continue
        for index, one in enumerate(block):
            if _holds(one, first, last, column):
                return [s for s in block[:index] if isinstance(s, ast.stmt)], one
    return None


def _holds(node: ast.AST, first: int, last: int, column: int | None) -> bool:
    # A `case` has no lines of its own, and the head of a handler is nothing that can run by itself.
    # Their bodies give the lines.
    inner = list(getattr(node, "body", [])) if isinstance(node, (ast.ExceptHandler, ast.match_case)) else []
    start = inner[0].lineno if inner else getattr(node, "lineno", 0)
    end = inner[-1].end_lineno if inner else getattr(node, "end_lineno", 0)
    if not start <= first <= last <= (end or 0):
        return False
    if column is None or inner:
        return True
    # Several statements may stand on a line: `x = f(); y = g()`.
    after_start = first > start or column >= getattr(node, "col_offset", 0)
    before_end = last < (end or 0) or column < (getattr(node, "end_col_offset", 0) or 0)
    return after_start and before_end


def slice_of(
    way: Way,
    state: Callable[[str], State],
    *,
    running: bool,
    overwritten: set[str],
    batch: bool,
    more: Collection[str] = (),
) -> Slice:
    """The least slice that brings the target's inputs back, from the innermost loop's body outwards.

    `running`: the target is being executed, so that what it binds is not bound yet. `overwritten` names were bound
    after it. `batch`: whether the loader's batch is at hand. `more` is read by what the target calls.
    """
    starts = [i for i, s in enumerate(way.steps) if isinstance(s.node, _LOOPS)] or [0]
    found: Slice | None = None
    # The body of the innermost loop is the least to do again. What it has lost may be bound further out.
    for start in [*reversed(starts), 0]:
        items = list(_items(way, start, batch))
        # What the target's callee reads of objects, as an attribute.
        items[-1].effects.reads.update(more)
        found = _choose(way, items, state, running, overwritten)
        # Overwritten names are not bound further out either: a larger piece would bring nothing.
        if all(why == "overwritten" for why in found.missing.values()):
            break
    assert found is not None
    return found


def everything(way: Way, batch: bool) -> Slice:
    """All statements of the innermost loop's body (else of the function) up to the target."""
    start = max((i for i, s in enumerate(way.steps) if isinstance(s.node, _LOOPS)), default=0)
    items = list(_items(way, start, batch))
    missing: dict[str, str] = {}
    for index, item in enumerate(items):
        for name in item.effects.reads:
            # `x = x / x.std()`: what stands there now is what the statement has made.
            written = any(name in later.effects.writes for later in items[index:])
            # A value that the loop carries from step to step.
            if written and not _definitions(items, index, name):
                missing[name] = "overwritten"
    return Slice(way, items, set(range(len(items))), missing)


def _items(way: Way, start: int, batch: bool) -> Iterator[Item]:
    for level, step in enumerate(way.steps):
        if level < start:
            continue
        node = step.node
        if isinstance(node, (ast.For, ast.AsyncFor)) and batch:
            bound = _binding(node)
            if bound is not None:
                effects = effects_of(bound)
                # It is given with the names; no statement binds it.
                # See the docstring of `BATCH`.
                effects.reads.discard(BATCH)
                yield Item(bound, level, effects, bound=True)
        for statement in step.before:
            yield Item(statement, level, effects_of(statement))
    yield Item(way.target, len(way.steps) - 1, effects_of(way.target))


def _binding(loop: ast.For | ast.AsyncFor) -> ast.stmt | None:
    """`for i, (x, y) in enumerate(loader)` as `(x, y) = <batch>`; None for a loop that is plainly not over batches."""
    target, source = loop.target, loop.iter
    while isinstance(source, ast.Call) and isinstance(source.func, (ast.Name, ast.Attribute)) and source.args:
        word = source.func.id if isinstance(source.func, ast.Name) else source.func.attr
        if word == "enumerate" and isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == 2:
            target = target.elts[1]
        # Several iterators: which part is the batch cannot be told.
        if word in ("range", "zip"):
            return None
        source = source.args[0]
    if isinstance(source, (ast.List, ast.Tuple, ast.Constant)):
        return None
    assign = ast.Assign(targets=[target], value=ast.Name(BATCH, ast.Load()))
    return ast.fix_missing_locations(ast.copy_location(assign, loop.target))


def _choose(way: Way, items: list[Item], state: Callable[[str], State], running: bool, overwritten: set[str]) -> Slice:
    last = len(items) - 1
    # Backwards from the target: each statement that is chosen has reads of its own.
    found = Slice(way, items, {last})
    work = [last]
    while work:
        index = work.pop()
        for name in sorted(items[index].effects.reads):
            # The target's own writes count only once it has run.
            later = range(index, last if running else last + 1)
            # What stands there now was bound after this statement had read the name.
            stale = name in overwritten or any(name in items[j].effects.writes for j in later)
            why = "overwritten" if stale else state(name)
            if why == "fine":
                continue
            definitions = _definitions(items, index, name)
            # A name that is not there and that nothing binds is left to fail when it is read.
            if not definitions and why != "absent":
                found.missing.setdefault(name, why)
            work += definitions - found.chosen
            # All of them: a method of `self` may or may not bind the attribute.
            found.chosen |= definitions
    return found


def _definitions(items: list[Item], index: int, name: str) -> set[int]:
    """The last statement before that binds a name; of `self.x` also methods of `self` called after that, any of which
    may bind it."""
    base, _, attribute = name.partition(".")
    found: set[int] = set()
    for j in range(index - 1, -1, -1):
        effects = items[j].effects
        if name in effects.writes or (attribute and base in effects.writes):
            return found | {j}
        # `self.encode()` as a statement may set `self.state`.
        if attribute and base in effects.called_on:
            found.add(j)
    return found
