"""Traces Python's own allocations for a few steps: which lines make objects that live on, where the heap rises?

`tracemalloc` sees the memory of Python objects, NumPy's arrays included, on every thread, with the lines that asked for
it. It does not see tensors' storages and other native memory, but the Python objects that own them.
"""

from __future__ import annotations

import gc
import itertools
import time
import tracemalloc
from collections import defaultdict

import torch

from torchvet.probes.base import frames, graphs
from torchvet.recording.records.base import Place
from torchvet.recording.records.memory import ObjectLine, ObjectLines

_FRAMES = 32
"""Frames that are kept of each allocation: the program's line may be far outside of a library."""
_APART = 2
_SAMPLES = 4
_FEWEST = 3
"""Samples, so many steps apart; what grew in all of them grew in each. At least so many where time runs out."""
_SECONDS = 5.0
_SHARE = 0.05
"""Seconds that this may go on, or the share of the run so far: each allocation of Python's takes some times longer."""
_MOST_BYTES = 1 << 26
"""Memory of the traces themselves from which on this is given up."""
_SHOWN = 6
_TRANSPARENT = ("_importlib_bootstrap_taps.py", "hooks.py")
"""Of torchvet's own files those through which calls of the program's pass."""

Line = tuple[str, int]


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
        if tracemalloc.is_tracing():
            return
        self._at, self._bytes, self._storages, self._began = [], [], [], time.perf_counter()
        self._next = tick + _APART
        tracemalloc.start(_FRAMES)
        self.on = True

    def boundary(self, tick: int, elapsed: float) -> ObjectLines | None:
        """A step ended, `elapsed` seconds after the run began: what was found, once it is."""
        late = time.perf_counter() - self._began > max(_SECONDS, _SHARE * elapsed)
        if not tracemalloc.is_tracing():  # the program has ended it
            self.on = False
            return None
        if tick >= self._next:
            self._next = tick + _APART
            self._at.append(tick)
            self._bytes.append(_by_line())
            self._storages.append(_of_tensors())
        if len(self._at) < _SAMPLES and not late and tracemalloc.get_tracemalloc_memory() < _MOST_BYTES:
            return None
        self.end()
        return self._found() if len(self._at) >= _FEWEST else None

    def end(self) -> None:
        """Trace no longer."""
        if self.on:
            self.on = False
            tracemalloc.stop()

    def _found(self) -> ObjectLines:
        """The lines whose objects were more in each sample than in the one before."""
        steps = self._at[-1] - self._at[0]
        last = self._bytes[-1]
        series = {line: [each.get(line, 0) for each in self._bytes] for line in last}
        risen = {line: (sizes[-1] - sizes[0]) / steps for line, sizes in series.items() if _rises(sizes)}
        storages = (self._storages[-1] - self._storages[0]) / steps if _rises(self._storages) else 0.0
        self._bytes = []
        largest = sorted(risen, key=lambda line: -risen[line])[:_SHOWN]
        lines = [ObjectLine(place=Place(file, line, ""), bytes=risen[file, line]) for file, line in largest]
        whole = sum(risen.values())
        return ObjectLines(first=self._at[0], last=self._at[-1], bytes=whole, storages=storages, lines=lines)


def _rises(sizes: list[int]) -> bool:
    return all(before < after for before, after in itertools.pairwise(sizes))


def _classes(cls: type) -> set[type]:
    """A class and all that are derived from it."""
    return {cls}.union(*map(_classes, type.__subclasses__(cls)))


def _of_tensors() -> int:
    """Bytes of the host's storages of all tensors that Python's collector knows."""
    kinds = _classes(torch.Tensor)
    found: dict[int, int] = {}
    # By the type alone: to ask half a million objects takes as long as a second otherwise.
    for one in [o for o in gc.get_objects() if type(o) in kinds]:
        found.update((s._cdata, s.nbytes()) for s in graphs.storages_of(one) if s.device.type == "cpu")
    return sum(found.values())


def _by_line() -> dict[Line, int]:
    """Bytes that are alive of what was traced, by the innermost line of the program's that led to them."""
    found: dict[Line, int] = defaultdict(int)
    # The raw tuples behind `Snapshot`: domain, bytes, frames from the innermost outward. Its own objects take a hundred
    # times as long to make.
    for _, size, trace, *_ in tracemalloc.take_snapshot().traces._traces:  # type: ignore[attr-defined]
        line = _line_of(trace)
        if line is not None:
            found[line] += size
    return found


def _line_of(trace: tuple[Line, ...]) -> Line | None:
    library = None
    for line in trace:
        whose = frames.owner(line[0])
        if whose == frames.USER:
            return line
        if whose == frames.OWN and not line[0].endswith(_TRANSPARENT):
            return None
        if whose == frames.INSTALLED:
            library = library or line
    return library
