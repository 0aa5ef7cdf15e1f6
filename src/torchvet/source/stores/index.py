"""Answers, from source text, what a program does to a name that was found at run time.

The program is read, never run: where is something stored into `trainer.stats.losses`, what takes anything out again,
is it made anew inside the loop. Imports no torch.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Container, Mapping, Sequence, Set

from torchvet.source import running, syntax
from torchvet.source.program.module import Module
from torchvet.source.program.project import Project
from torchvet.source.stores import (
    copies,
    handed,
    indirect_stores,
    limits,
    name_resolution,
    occasions,
    ranking,
    rebinding,
)
from torchvet.source.stores import removals as removing
from torchvet.source.stores.aliases import AliasSearch, Use
from torchvet.source.stores.answers import FunctionSpan, Limit, Removal, Store, stored
from torchvet.source.stores.copies import Copying
from torchvet.source.stores.makers import MakerSearch, Wrong
from torchvet.source.stores.name_resolution import Asked
from torchvet.source.text import SourceText

_MOST_STORES = 3
"""Stores whose loops decide on the occasions of removals."""


class SourceIndex:
    """The user's files by path. A file that does not parse answers nothing; none is read before it is needed.

    A holder is asked about as a recording has it: its name and scope, `path`, the file of its root, and `files`, those
    of the classes along it. A name that has no identifier has no stores and no limits.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._project = Project(sources)
        self._unread = Module("", SourceText(""), ast.Module([], []), self._project)
        self._searched: dict[tuple[Asked, int], AliasSearch] = {}

    def _module(self, path: str) -> Module:
        """A file; an empty one where it is not there or does not parse."""
        return self._project.module(path) or self._unread

    def copies_into_called(self, path: str, line: int, ran: Set[tuple[str, int]]) -> list[Copying]:
        """Copies of weights into a model that is called at a line, none of which has run in a long run; `ran` are lines
        that have. Empty where the text does not say why."""
        return copies.copies_into(self._project, copies.called_at(self._project, path, line), ran) or []

    def stores(self, name: str, scope: str, path: str, files: Sequence[str] = ()) -> list[Store]:
        """Where something is stored into a holder, the best candidate first.

        Where nothing stores into the last identifier, the one before it is tried, and so on.
        """
        asked = Asked.of(name, scope, path, files)
        if asked is None:
            return []
        found = indirect_stores.stores(self._project, asked)
        # Caches and hooks: nothing stores into them by name.
        if found and asked.has_no_statement:
            return found
        ranked = self._ranked(asked, asked.last)
        if not ranked:
            found += indirect_stores.set_by_name(self._project, asked)
            found += handed.handed_like(self._project, asked)
            ranked = self._ranked_outward(asked) if not found else []
        if not ranked:
            return found
        ordinary = [
            stored(m.node, m.scope, m.store, m.value, use.in_loop) for use in ranked if (m := use.mutation).store
        ]
        # A variable that a hook only reads grows with the number of hooks.
        # `outputs = []` in a hook's function binds a new one with each registration.
        first, then = (found, ordinary) if indirect_stores.binds_anew(ranked[0]) else (ordinary, found)
        return list(dict.fromkeys(first + then))

    def _ranked_outward(self, asked: Asked) -> list[Use]:
        """The stores into what holds the holder. `learner = Learner()` before the loop stores nothing in it."""
        for index in range(asked.last - 1, -1, -1):
            uses = self._ranked(asked, index)
            # What binds the whole object anew counts only where it is done again and again.
            # 3 is the hottest: see `ranking.heat`.
            found = [u for u in uses if not u.mutation.rebinds or ranking.heat(self._project, u) == 3]
            if found:
                return found
        return []

    def mentions(self, name: str) -> bool:
        """Whether a name stands anywhere in the program's own text."""
        return any(True for _ in self._project.containing(name))

    def makers(self, asked: Wrong) -> MakerSearch:
        """The lines that can make values that are not finite, of the kinds and in the places that were seen."""
        return MakerSearch(self._project, asked)

    def passed_by(self, store: Store) -> list[Store]:
        """The calls that hand in what a store puts away, where that is a bare parameter of the function around it, or
        a tuple, list or dict made of such.

        `self.rows.append(item)` in `push(self, item)` is every program's line; the one to change is `memory.push(x)`.
        """
        function = self._module(store.path).function_at(store.line)
        given = _given(store.value, function.params) if function is not None else ""
        passed = self._project.arguments(function, given) if function is not None else ()
        found = [stored(site.node, site.scope, "call", value, site.again) for site, value in passed]
        # `sorted` is stable: the order of the files remains among equals.
        return sorted(found, key=lambda s: not s.in_loop)

    def handed_to(self, path: str, line: int, name: str) -> Store | None:
        """The call that hands what the statement at a line binds to a holder, or to what that is an attribute of, and
        whose result is used: `model = pool.prepare(model)` for `pool._models`. None where there is none."""
        return handed.handed_to(self._module(path), line, name)

    def removals(self, name: str, scope: str, path: str, files: Sequence[str] = ()) -> list[Removal]:
        """What bounds a holder: removals from it, limits, and where it is made anew; in the order of the files."""
        asked = Asked.of(name, scope, path, files)
        if asked is None:
            return []
        found = list(indirect_stores.removals(self._project, asked))
        for index in range(asked.last, -1, -1) if not asked.has_no_statement else ():
            found += removing.of(self._project, self._search(asked, index), asked.name.parts[index])
            # The search goes outward as for stores, and ends with the part that something stores into.
            if found or self._ranked(asked, index):
                break
        return list(dict.fromkeys(found))

    def limits(
        self, name: str, scope: str, path: str, files: Sequence[str] = (), steps: Sequence[tuple[str, int]] = ()
    ) -> list[Limit]:
        """What bounds a holder, as far as the text says how often or at what length; in the order of the files.

        `steps` are lines of the loop whose turns are steps: what is done once a turn of a loop around it is `outer`.
        """
        asked = Asked.of(name, scope, path, files)
        if asked is None:
            return []
        stores = [(s.path, s.line) for s in self.stores(name, scope, path, files)[:_MOST_STORES]]
        beat = occasions.beat_of(self._project, stores, steps)
        held = {asked.name.terminal.name, *(alias.name for alias in self._search(asked, asked.last).aliases)}
        # What is done with each turn of an outer loop lets as much pile up as the loop that stores has turns.
        counted, line = beat.counted or ("", 0)
        turns = limits.turns_of(self._module(counted), line)
        found = []
        for removal in self.removals(name, scope, path, files):
            occasion = self._occasion(removal, beat, held)
            if occasion is not None:
                found.append(Limit(removal, occasion, turns if occasion.outer else None))
        return found

    def _occasion(self, removal: Removal, beat: occasions.Beat, held: Collection[str]) -> occasions.Occasion | None:
        module = self._module(removal.path)
        # These state a length themselves; all others wait for an occasion.
        if removal.kind == "len-guard":
            return occasions.Occasion(items=occasions.items_in_guard(module, removal.line, held))
        if removal.kind == "modulo":
            return occasions.Occasion(items=occasions.places_in_ring(module, removal.line))
        if removal.kind == "maxlen":
            return occasions.Occasion()
        # Once a turn, too: what it leaves is known.
        kept = occasions.items_kept(module, removal.line, held) if removal.kind in ("slice", "del") else None
        if kept is not None:
            return occasions.Occasion(items=kept)
        return occasions.occasion_of(self._project, (removal.path, removal.line), beat, held)

    def is_renewed(self, name: str, scope: str, path: str, files: Sequence[str] = ()) -> bool:
        """Whether every pass binds a holder to something new, made neither of its value before nor of what piles up.

        False where no statement is found that binds it, and where one cannot be followed.
        """
        asked = Asked.of(name, scope, path, files)
        if asked is None or asked.has_no_statement:
            return False
        return rebinding.is_rebound(self._project, self._search(asked, asked.last), asked.name.terminal)

    def turns_around(self, store: Store) -> tuple[int, int] | None:
        """How often a store is run at most, by the ranges that the loops around it go over, and the innermost loop's
        line; None where the program does not state it."""
        return limits.turns_around(self._module(store.path), store.line)

    def is_keyed_by_index(self, store: Store) -> bool:
        """Whether a dataset's method stores under a key that is made of the index that it is given."""
        return limits.is_keyed_by_index(self._module(store.path), store.line)

    def of_trainings(self, store: Store) -> int | None:
        """The line of the loop that makes and trains, in each turn, the model that is stored; else None."""
        return limits.of_trainings(self._module(store.path), store.line, store.value)

    def loop_bound(self, function: str, path: str, name: str, loop_line: int) -> bool:
        """Whether a function's local `name` is made anew so that it cannot outlive one run of the loop at a line.

        `function` is a qualified name, with or without its module; empty for the module's own level.
        """
        return removing.bound_by_loop(self._module(path), function, name, loop_line)

    def reached(self, path: str, seen: Collection[int], line: int) -> bool:
        """Whether the statement at a line ran, given lines of its file that did. False where that is not shown."""
        return running.reached(self._module(path).tree, seen, line)

    def function_at(self, path: str, line: int) -> FunctionSpan | None:
        """The innermost `def` around a line, its decorators included; None outside of all."""
        found = self._module(path).function_at(line)
        return FunctionSpan(found.qualname, found.first, found.last) if found is not None else None

    def enclosing_loop(self, path: str, line: int) -> tuple[int, int] | None:
        """First and last line of the innermost `for` or `while` around a line of the same function."""
        loop = self._module(path).loop_at(line)
        return (loop.first, loop.last) if loop is not None else None

    def _search(self, asked: Asked, index: int) -> AliasSearch:
        key = (asked, index)
        if key not in self._searched:
            files, path = asked.files, asked.path
            # An attribute is looked for in the files of its classes first, a variable in its own.
            search = AliasSearch(self._project, asked.first if asked.name.parts[index].free else [*files, path])
            search.run(name_resolution.start(self._project, asked, index))
            self._searched[key] = search
        return self._searched[key]

    def _ranked(self, asked: Asked, index: int) -> list[Use]:
        search = self._search(asked, index)
        return ranking.ranked(self._project, search, asked.name.parts[index], asked.first)


def _given(value: str, params: Container[str]) -> str:
    """The parameter that a value is, or the first of those that a container written down there is made of alone."""
    if value in params:
        return value
    made = syntax.expression(value)
    if not isinstance(made, (ast.Tuple, ast.List, ast.Dict, ast.BoolOp)) or None in getattr(made, "keys", ()):
        return ""
    parts = syntax.parts(made)
    names = [p.id for p in parts if isinstance(p, ast.Name) and p.id in params]
    return names[0] if names and len(names) == len(parts) else ""
