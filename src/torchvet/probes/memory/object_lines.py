"""Traces Python's own allocations for a few steps: which lines make objects that live on, where the heap rises?

`tracemalloc` sees the memory of Python objects, NumPy's arrays included, on every thread, with the lines that asked for
it. It does not see tensors' storages and other native memory, but the Python objects that own them.
"""

from __future__ import annotations

import gc
import itertools
import os
import threading
import time
import tracemalloc
from collections import defaultdict

import torch

from torchvet.probes.base import frames, graphs
from torchvet.recording.records.base import Place
from torchvet.recording.records.memory import ObjectLine, ObjectLines

_FRAMES = 24
"""Frames that are kept of each allocation: the program's line may be far outside of a library. Each takes time."""
# So that what is made in one step and dropped in the next has gone in between.
_APART = 3
_SAMPLES = 4
_FEWEST = 3
"""Samples, so many steps apart; what grew in all of them grew in each. At least so many where time runs out."""
_SECONDS = 5.0
_SHARE = 0.05
_OWN_SECONDS = 1.0
"""Seconds of this thread's work that this may go on, or the share of the run so far, as each allocation of Python's
takes some times longer; and those that counting may take. By the clock a busy machine would end it too early."""
_MOST_BYTES = 1 << 26
"""Memory of the traces themselves from which on this is given up."""
_SHOWN = 6
# Their frames stand between the program's line and the library below it.
_TRANSPARENT = (os.path.join("base", "_importlib_bootstrap_taps.py"), os.path.join("base", "hooks.py"))
"""Of torchvet's own files those through which calls of the program's pass."""

Line = tuple[str, int]
under_way = threading.Event()
"""Set while objects are traced: what makes many objects of its own then takes several times as long."""


def _end_in_child() -> None:
    # A loader's worker that is forked meanwhile would trace to its end.
    if under_way.is_set():
        tracemalloc.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_in_child)


class ObjectTracing:
    """Off until it is begun, and off again after a few steps."""

    def __init__(self) -> None:
        self.on = False
        self._began = 0.0
        self._at: list[int] = []
        self._bytes: list[dict[Line, int]] = []
        self._storages: list[int] = []

    def begin(self, tick: int) -> None:
        """Trace from this boundary on, unless the program traces itself."""
        # Its settings and its traces are the program's.
        if tracemalloc.is_tracing():
            return
        self._at, self._bytes, self._storages, self._began = [], [], [], time.thread_time()
        self._next, self._spent, self._collections = tick + _APART, 0.0, _collections()
        tracemalloc.start(_FRAMES)
        under_way.set()
        self.on = True

    def boundary(self, tick: int, elapsed: float) -> ObjectLines | None:
        """A step ended, `elapsed` seconds after the run began: what was found, once it is."""
        began = time.thread_time()
        # Asked before the sample, which itself may take a second.
        late = began - self._began > max(_SECONDS, _SHARE * elapsed)
        if not tracemalloc.is_tracing():  # the program has ended it
            self.end()
            return None
        if tick >= self._next:
            self._next = tick + _APART
            self._at.append(tick)
            self._bytes.append(_by_line())
            self._storages.append(_of_tensors())
            self._spent += time.thread_time() - began
        # Four where counting is cheap: one sample more rules out more chance.
        enough = _FEWEST if self._spent > _OWN_SECONDS else _SAMPLES
        if len(self._at) < enough and not late and tracemalloc.get_tracemalloc_memory() < _MOST_BYTES:
            return None
        self.end()
        return self._found() if len(self._at) >= _FEWEST else None

    def end(self) -> None:
        """Trace no longer."""
        if self.on:
            self.on = False
            under_way.clear()
            tracemalloc.stop()

    def _found(self) -> ObjectLines:
        """The lines whose objects were ever more."""
        steps = self._at[-1] - self._at[0]
        last = self._bytes[-1]
        series = {line: [each.get(line, 0) for each in self._bytes] for line in last}
        risen = {line: (sizes[-1] - sizes[0]) / steps for line, sizes in series.items() if _rises(sizes)}
        storages = (self._storages[-1] - self._storages[0]) / steps if _rises(self._storages) else 0.0
        self._bytes = []
        largest = sorted(risen, key=lambda line: -risen[line])[:_SHOWN]
        lines = [ObjectLine(place=Place(file, line, ""), bytes=risen[file, line]) for file, line in largest]
        found = ObjectLines(first=self._at[0], last=self._at[-1], bytes=sum(risen.values()), lines=lines)
        found.storages = storages
        # Garbage in cycles looks like growth as long as no full collection has run.
        found.collected = _collections() > self._collections
        return found


def _collections() -> int:
    """How often the cyclic collector has looked through all objects."""
    return int(gc.get_stats()[-1]["collections"])


def _rises(sizes: list[int]) -> bool:
    """Whether there was never less and more than once more: what is kept every third step is not in each sample."""
    pairs = list(itertools.pairwise(sizes))
    return all(a <= b for a, b in pairs) and sum(a < b for a, b in pairs) > 1


def _classes(cls: type) -> set[type]:
    """A class and all that are derived from it."""
    # `type.__subclasses__`, because a metaclass of the program's may define its own.
    return {cls}.union(*map(_classes, type.__subclasses__(cls)))


def _of_tensors() -> int:
    """Bytes of the host's storages of all tensors that Python's collector knows."""
    kinds = _classes(torch.Tensor)
    found: dict[int, int] = {}
    # By the type alone: to ask half a million objects takes as long as a second otherwise.
    for one in [o for o in gc.get_objects() if type(o) in kinds]:
        # By storage: views count once.
        found.update((s._cdata, s.nbytes()) for s in graphs.storages_of(one) if s.device.type == "cpu")
    return sum(found.values())


def _by_line() -> dict[Line, int]:
    """Bytes that are alive of what was traced, by the innermost line of the program's that led to them."""
    # The raw tuples behind `Snapshot`: domain, bytes, frames from the innermost outward. Its own objects take a hundred
    # times as long to make. Allocations by one way share its tuple.
    raw = tracemalloc.take_snapshot().traces._traces  # type: ignore[attr-defined]
    ways = {id(way): way for _, _, way, *_ in raw}
    sizes = dict.fromkeys(ways, 0)
    for _, size, way, *_ in raw:
        sizes[id(way)] += size
    found: dict[Line, int] = defaultdict(int)
    kinds: dict[str, int] = {}
    for key, way in ways.items():
        line = _line_of(way, kinds)
        if line is not None:
            found[line] += sizes[key]
    return found


def _line_of(way: tuple[Line, ...], kinds: dict[str, int]) -> Line | None:
    """The line of the program's that an allocation goes back to, else a library's. `kinds` has the owners of files."""
    library = None
    for line in way:
        file = line[0]
        whose = kinds.get(file)
        if whose is None:
            whose = kinds[file] = frames.TORCH if file.endswith(_TRANSPARENT) else frames.owner(file)
        if whose == frames.USER:
            return line
        # What torchvet allocates for a look is not the program's, though the program's line is further out.
        if whose == frames.OWN:
            return None
        if whose == frames.INSTALLED:
            library = library or line
    return library
