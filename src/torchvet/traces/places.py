"""Which function of the user's a call came from, as far as a trace recorded with stacks can say.

Since torch 1.11 a frame in a trace carries the line of its `def`, not of the statement (pytorch/kineto#630); before, it
was the statement's. The difference is kept in `Where.exact`.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from torchvet.readers.trace_facts import Where
from torchvet.traces.timeline import Item, Thread, Timeline

_FRAME = re.compile(r"^(?P<path>[^()<>]*\.(?:py|ipynb)|<ipython[^()]*>|<string>)\((?P<line>\d+)\): (?P<function>.+)$")
_FOREIGN = re.compile(
    r"(^|/)(torch|numpy|lightning|pytorch_lightning|accelerate|transformers|deepspeed|tqdm|multiprocessing|concurrent|"
    r"asyncio|importlib|collections|json|logging|ctypes|site-packages|dist-packages|lib/python3\.\d+)/|"
    r"^(contextlib|typing|functools|threading|queue|random|inspect|abc|enum|runpy|copy|weakref|warnings|types)\.py$"
)
_FARTHEST = 4000
"""Earlier frames of a thread that are looked at for one call."""


class Places:
    """Answers for the calls of one timeline; what it needs is sorted when it is first asked."""

    def __init__(self, timeline: Timeline) -> None:
        self._stacks = timeline.stacks
        self._exact = not timeline.frames
        self._frames: dict[Thread, list[Item]] = {}
        for frame in timeline.frames:
            self._frames.setdefault(frame.thread, []).append(frame)
        for frames in self._frames.values():
            frames.sort()
        self._stacked: dict[Thread, list[float]] = {}
        for start, thread in timeline.stacks:
            self._stacked.setdefault(thread, []).append(start)
        for starts in self._stacked.values():
            starts.sort()
        self._ends: dict[tuple[float, Thread], float] = {}
        if self._stacks:
            for items in (timeline.operators, *timeline.spans.values()):
                self._ends.update({(i.start, i.thread): i.end for i in items if (i.start, i.thread) in self._stacks})

    def at(self, time: float, thread: Thread) -> Where | None:
        """The innermost function of the user's that was running on a thread, or None when the trace does not say."""
        return self._by_stack(time, thread) or self._by_frame(time, thread)

    def _by_stack(self, time: float, thread: Thread) -> Where | None:
        starts = self._stacked.get(thread, [])
        index = bisect_right(starts, time) - 1
        for start in reversed(starts[max(0, index - 40) : index + 1]):
            if self._ends.get((start, thread), 0.0) >= time:
                text = self._stacks[start, thread].decode("utf-8", "replace").strip('"')
                for frame in text.split(";"):
                    found = self._user(frame.strip())
                    if found is not None:
                        return found
        return None

    def _by_frame(self, time: float, thread: Thread) -> Where | None:
        frames = self._frames.get(thread, [])
        index = bisect_right(frames, (time, float("inf"))) - 1
        for frame in reversed(frames[max(0, index - _FARTHEST) : index + 1]):
            if frame.end >= time:
                found = self._user(frame.name)
                if found is not None:
                    return found
        return None

    def _user(self, frame: str) -> Where | None:
        match = _FRAME.match(frame)
        if match is None or _FOREIGN.search(match["path"]):
            return None
        return Where(match["function"], match["path"], int(match["line"][:9]), self._exact)
