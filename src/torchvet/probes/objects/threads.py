"""Threads of the program beside the one that looks: what they run, and where they are."""

from __future__ import annotations

import types
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from torchvet.probes.base import frames
from torchvet.probes.base.callers import place_in, user_lines
from torchvet.recording.records.base import Place

if TYPE_CHECKING:
    from torchvet.probes.objects.heap import Root


class RunningThread(NamedTuple):
    """A thread, the program's function that it runs, and the program's line that it is at."""

    ident: int
    module: str
    function: str
    at: Place


def thread_of(ident: int, stack: list[types.FrameType]) -> RunningThread | None:
    """The thread of a stack, the innermost frame first; None where it runs nothing of the program's."""
    mine = [f for f in stack if frames.owner(f.f_code.co_filename) == frames.USER]
    if not mine:
        return None
    outermost = mine[-1]
    # A name's angle brackets would end there.
    # `<threads in run.<locals>.work>` would end at the first bracket.
    function = place_in(outermost.f_code).function.replace("<", "").replace(">", "")
    return RunningThread(ident, str(outermost.f_globals.get("__name__", "?")), function, user_lines(mine[0], 1)[0])


class Crew(NamedTuple):
    """Threads that run the same function, and the keys of the names that their variables are."""

    module: str
    function: str
    size: int
    at: Place
    """Where most of them are."""
    keys: list[int]


def crews_of(roots: Mapping[int, Root], more_than: int) -> list[Crew]:
    """The functions that so many threads run at once."""
    keys: dict[tuple[str, str], list[int]] = defaultdict(list)
    threads: dict[tuple[str, str], set[RunningThread]] = defaultdict(set)
    for key, root in roots.items():
        if root.thread is not None:
            what = (root.thread.module, root.thread.function)
            # By function and module: two pools may run functions of one name.
            keys[what].append(key)
            threads[what].add(root.thread)
    return [
        Crew(*what, len(some), _most_common(thread.at for thread in some), keys[what])
        for what, some in threads.items()
        if len(some) > more_than
    ]


def _most_common(places: Iterable[Place]) -> Place:
    return Counter(places).most_common(1)[0][0]
