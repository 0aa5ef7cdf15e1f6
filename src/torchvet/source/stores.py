"""Answers, from source text, what a program does to a name that was found at run time.

The program is read, never run: where is something stored into `trainer.stats.losses`, what takes anything out again,
is it made anew inside the loop. Imports no torch.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Container, Mapping, Sequence

import msgspec

from torchvet.source import holder, limits, occasions, places, ranking, reach, removals, renewal, special, subjects
from torchvet.source.follow import Follower, Seen
from torchvet.source.holder import HolderName
from torchvet.source.module import Module
from torchvet.source.project import Project
from torchvet.source.scopes import Scope
from torchvet.source.touches import RemovalKind, StoreKind


class Store(msgspec.Struct, frozen=True):
    """A statement that puts something into a holder. Lines and columns count from 1.

    `function` is the qualified name of the function around it, empty at a module's top; `text` the first line without
    its indentation; `value` the source of what is stored, empty where it is not told. `in_loop` is true where a loop
    goes around the statement in its own function, or around a call that brings the holder there.
    """

    path: str
    line: int
    end_line: int
    column: int
    function: str
    kind: StoreKind
    text: str
    value: str
    in_loop: bool


class Removal(msgspec.Struct, frozen=True):
    """A line that takes something out of a holder, makes it anew or limits its length."""

    path: str
    line: int
    kind: RemovalKind
    in_loop: bool


class Limit(msgspec.Struct, frozen=True):
    """A removal that bounds a holder: on what occasion, and the turns of the loop that stores, where they are stated
    and it waits for the end of that loop."""

    removal: Removal
    occasion: occasions.Occasion
    turns: int | None = None


class FunctionSpan(msgspec.Struct, frozen=True):
    """A function's lines, from its `def` to the last of its body."""

    qualname: str
    first_line: int
    last_line: int


class Statement(msgspec.Struct, frozen=True):
    """A statement's lines and text; of a compound statement, its header's."""

    first_line: int
    last_line: int
    text: str


_TOLD = 3
"""Stores whose loops are looked at."""


class SourceIndex:
    """The user's files by path. A file that does not parse answers nothing; none is read before it is needed."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._project = Project(sources)
        self._followed: dict[tuple[str, str, str, tuple[str, ...], int], Follower] = {}

    def stores(self, name: str, scope: str, path: str, files: Sequence[str] = ()) -> list[Store]:
        """Where something is stored into a holder, the best candidate first.

        `name` and `scope` are those of a recording's holding, `path` is the file of its root and `files` those of the
        classes along it. Where nothing stores into the last identifier, the one before it is tried, and so on.
        """
        parsed = holder.parse(name)
        if parsed is None:
            return []
        found = [self._special(s) for s in special.stores(self._project, parsed, [path, *files])]
        if found and parsed.special in ("cache", "hooks"):
            return found
        for index in reversed(range(len(parsed.parts))):
            follower = self._follow(parsed, index, scope, path, files)
            ranked = ranking.ranked(self._project, follower, parsed.parts[index], [path, *files])
            if index < len(parsed.parts) - 1:
                # `learner = Learner()` before the loop makes what holds the holder: it stores nothing in it.
                ranked = [one for one in ranked if not one.touch.rebinds or ranking.heat(self._project, one) == 3]
            if not ranked and index == len(parsed.parts) - 1:
                found += [self._special(s) for s in special.set_by_name(self._project, parsed, [path, *files])]
                if found:
                    return found
            if ranked:
                stored = [self._store(one) for one in ranked]
                # A variable that a hook only reads grows with the number of hooks.
                return list(dict.fromkeys(found + stored if special.binds_anew(ranked[0]) else stored + found))
        return found

    def passed_by(self, store: Store) -> list[Store]:
        """The calls that hand in what a store puts away, where that is a bare parameter of the function around it, or
        a tuple, list or dict made of such.

        `self.rows.append(item)` in `push(self, item)` is every program's line; the one to change is `memory.push(x)`.
        """
        module = self._project.module(store.path)
        function = places.function_at(module, store.line) if module is not None else None
        given = _given(store.value, function.params) if function is not None else ""
        if function is None or not given:
            return []
        found = []
        for where, site, value in self._project.arguments(function, given):
            again = site.loop is not None or self._project.is_hot(site.scope.function())
            text = where.source.segment(value)
            found.append(self._made(where, site.node, site.scope.function(), "call", text, again))
        return sorted(found, key=lambda s: not s.in_loop)

    def removals(self, name: str, scope: str, path: str, files: Sequence[str] = ()) -> list[Removal]:
        """What bounds a holder: removals from it, limits, and where it is made anew; in the order of the files."""
        parsed = holder.parse(name)
        if parsed is None:
            return []
        found = [Removal(*one) for one in special.removals(self._project, parsed, [path, *files])]
        if parsed.special not in ("cache", "hooks"):
            for index in reversed(range(len(parsed.parts))):
                follower = self._follow(parsed, index, scope, path, files)
                found += [Removal(*one) for one in removals.of(self._project, follower, parsed.parts[index])]
                if found or ranking.ranked(self._project, follower, parsed.parts[index], [path, *files]):
                    break
        return list(dict.fromkeys(found))

    def limits(self, name: str, scope: str, path: str, files: Sequence[str] = (),
               steps: Sequence[tuple[str, int]] = ()) -> list[Limit]:  # fmt: skip
        """What bounds a holder, as far as the text says how often or at what length; in the order of the files.

        `steps` are lines of the loop whose turns are steps: what is done once a turn of a loop around it is `outer`.
        """
        parsed = holder.parse(name)
        if parsed is None:
            return []
        stores = [(s.path, s.line) for s in self.stores(name, scope, path, files)[:_TOLD]]
        beat = occasions.beat_of(self._project, stores, steps)
        held = self._names_of(parsed, scope, path, files)
        found = []
        for removal in self.removals(name, scope, path, files):
            occasion = self._occasion(removal, beat, held)
            if occasion is not None:
                found.append(Limit(removal, occasion, self._length(beat) if occasion.outer else None))
        return found

    def _occasion(self, removal: Removal, beat: occasions.Beat, held: Collection[str]) -> occasions.Occasion | None:
        module = self._project.module(removal.path)
        if module is None:
            return None
        if removal.kind == "len-guard":
            return occasions.Occasion(items=occasions.items_in_guard(self._project, module, removal.line, held))
        if removal.kind == "modulo":
            return occasions.Occasion(items=occasions.places_in_ring(self._project, module, removal.line))
        if removal.kind == "maxlen":
            return occasions.Occasion()
        return occasions.occasion_of(self._project, (removal.path, removal.line), beat, held)

    def _length(self, beat: occasions.Beat) -> int | None:
        """The turns of the loop that stores, where the program states them."""
        module = self._project.module(beat.counted[0]) if beat.counted is not None else None
        if module is None or beat.counted is None:
            return None
        return limits.turns_of(self._project, module, beat.counted[1])

    def _names_of(self, parsed: HolderName, scope: str, path: str, files: Sequence[str]) -> set[str]:
        follower = self._follow(parsed, len(parsed.parts) - 1, scope, path, files)
        return {parsed.terminal.name, *(lead.name for lead in follower.leads)}

    def is_renewed(self, name: str, scope: str, path: str, files: Sequence[str] = ()) -> bool:
        """Whether every pass binds a holder to something new, made neither of its value before nor of what piles up.

        False where no statement is found that binds it, and where one cannot be followed.
        """
        parsed = holder.parse(name)
        if parsed is None or parsed.special in ("cache", "hooks"):
            return False
        last = len(parsed.parts) - 1
        follower = self._follow(parsed, last, scope, path, files)
        return renewal.is_renewed(self._project, follower, parsed.parts[last])

    def turns_around(self, store: Store) -> tuple[int, int] | None:
        """How often a store is run at most, by the ranges that the loops around it go over, and the innermost loop's
        line; None where the program does not state it."""
        module = self._project.module(store.path)
        return limits.turns_around(self._project, module, store.line) if module is not None else None

    def is_keyed_by_index(self, store: Store) -> bool:
        """Whether a dataset's method stores under a key that is made of the index that it is given."""
        module = self._project.module(store.path)
        return module is not None and limits.is_keyed_by_index(module, store.line)

    def of_trainings(self, store: Store) -> int | None:
        """The line of the loop that makes and trains, in each turn, the model that is stored; else None."""
        module = self._project.module(store.path)
        return limits.of_trainings(module, store.line, store.value) if module is not None else None

    def loop_bound(self, function: str, path: str, name: str, loop_line: int) -> bool:
        """Whether a function's local `name` is made anew so that it cannot outlive one run of the loop at a line.

        `function` is a qualified name, with or without its module; empty for the module's own level.
        """
        module = self._project.module(path)
        return module is not None and removals.bound_by_loop(module, function, name, loop_line)

    def reached(self, path: str, seen: Collection[int], line: int) -> bool:
        """Whether the statement at a line ran, given lines of its file that did. False where that cannot be told."""
        module = self._project.module(path)
        return module is not None and reach.reached(module.tree, seen, line)

    def function_at(self, path: str, line: int) -> FunctionSpan | None:
        """The innermost `def` around a line, its decorators included; None outside of all."""
        module = self._project.module(path)
        found = places.function_at(module, line) if module is not None else None
        return FunctionSpan(found.qualname, found.first, found.last) if found is not None else None

    def enclosing_loop(self, path: str, line: int) -> tuple[int, int] | None:
        """First and last line of the innermost `for` or `while` around a line of the same function."""
        module = self._project.module(path)
        loop = places.loop_at(module, line) if module is not None else None
        return (loop.first, loop.last) if loop is not None else None

    def statement_at(self, path: str, line: int) -> Statement | None:
        """The innermost statement at a line."""
        module = self._project.module(path)
        found = places.statements_at(module, line) if module is not None else []
        return Statement(found[0].first, found[0].last, found[0].text) if found else None

    def calls_in(self, path: str, line: int) -> list[str]:
        """Dotted names of what the statement at a line calls, in order: `["model", "model().sum"]`."""
        module = self._project.module(path)
        found = places.statements_at(module, line) if module is not None else []
        return [name for one in found for name in places.calls(one)]

    def _follow(self, parsed: HolderName, index: int, scope: str, path: str, files: Sequence[str]) -> Follower:
        key = (str(parsed), scope, path, tuple(files), index)
        if key not in self._followed:
            follower = Follower(self._project, [*files, path] if not parsed.parts[index].free else [path, *files])
            follower.run(subjects.start(self._project, parsed, index, scope, path, files))
            self._followed[key] = follower
        return self._followed[key]

    def _store(self, seen: Seen) -> Store:
        touch, module = seen.touch, seen.module
        assert touch.store is not None
        value = module.source.segment(touch.value) if touch.value is not None else ""
        again = touch.loop is not None or seen.again
        return self._made(module, touch.node, touch.scope.function(), touch.store, value, again)

    def _special(self, one: special.SpecialStore) -> Store:
        value = one.module.source.segment(one.value) if one.value is not None else ""
        return self._made(one.module, one.node, one.scope.function(), one.kind, value, one.in_loop)

    def _made(self, module: Module, node: ast.expr | ast.stmt, function: Scope | None, kind: StoreKind,
              value: str, in_loop: bool) -> Store:  # fmt: skip
        line = node.lineno
        return Store(module.path, line, node.end_lineno or line, module.source.column(node),
                     function.qualname if function is not None else "", kind, module.source.line(line), value,
                     in_loop)  # fmt: skip


def _given(value: str, params: Container[str]) -> str:
    """The parameter that a value is, or the first of those that a container written down there is made of alone."""
    if value in params:
        return value
    try:
        made = ast.parse(value, mode="eval").body
    except SyntaxError:
        return ""
    parts = made.elts if isinstance(made, (ast.Tuple, ast.List)) else getattr(made, "values", ())
    if isinstance(made, ast.Dict) and None in made.keys:
        return ""
    names = [p.id for p in parts if isinstance(p, ast.Name) and p.id in params] if isinstance(parts, list) else []
    return names[0] if names and len(names) == len(parts) else ""
