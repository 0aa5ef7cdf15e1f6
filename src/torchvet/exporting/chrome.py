"""Chrome's trace events as JSON, which Perfetto and chrome://tracing read. Times are microseconds.

After "Trace Event Format": `X` a slice, `C` a counter, `i` an instant, `M` a name of a process or a thread.
"""

from __future__ import annotations

from typing import Any, TextIO

from torchvet._version import __version__
from torchvet.exporting.plain import number, plain, to_json

OWN = 10_000_000
"""The first number of a process here: above those of Linux, so that a trace's own processes stay apart."""


class Chrome:
    """Writes event after event, and what holds for the whole file at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._events = 0
        self._process = OWN - 1
        self._notes: dict[str, Any] = {"exporter": f"torchvet {__version__}"}
        stream.write('{"displayTimeUnit":"ms","traceEvents":[')

    def finish(self, base: int | None) -> None:
        """What holds for the whole file. `base` is the time of its zero, in nanoseconds since the epoch."""
        end: dict[str, Any] = {"otherData": self._notes}
        if base is not None:
            end["baseTimeNanoseconds"] = base
        self._stream.write("\n]," + to_json(end)[1:] + "\n")

    def note(self, name: str, text: str) -> None:
        """Say something of the whole file."""
        self._notes[plain(name)] = plain(text)

    def begin(self, name: str, threads: dict[int, str]) -> None:
        """The following events are of a new process with these threads."""
        self._process += 1
        self._add("M", "process_name", args={"name": plain(name)})
        for thread, title in threads.items():
            self._add("M", "thread_name", tid=thread, args={"name": plain(title)})
            self._add("M", "thread_sort_index", tid=thread, args={"sort_index": thread})

    @property
    def process(self) -> int:
        """The number of the process that events are added to."""
        return self._process

    def slice(self, thread: int, name: str, start: float, end: float, process: int | None = None, **args: Any) -> None:
        """Something that lasted."""
        length = max(0, round(end - start, 3))
        self._add("X", plain(name), start, process, tid=thread, dur=length, args=_plain(args))

    def instant(self, thread: int, name: str, at: float, **args: Any) -> None:
        """Something that happened, drawn over the whole process."""
        self._add("i", plain(name), at, tid=thread, s="p", args=_plain(args))

    def counter(self, name: str, at: float, values: dict[str, int]) -> None:
        """What was counted from this time on."""
        self._add("C", name, at, args=values)

    def _add(self, kind: str, name: str, at: float = 0, process: int | None = None, **more: Any) -> None:
        event: dict[str, Any] = {"ph": kind, "name": name, "pid": process or self._process, "tid": 0, "ts": at}
        event |= {"cat": "torchvet", **more}
        self._stream.write((",\n" if self._events else "\n") + to_json(event))
        self._events += 1


def _plain(args: dict[str, Any]) -> dict[str, Any]:
    return {name: _one(value) for name, value in args.items() if value is not None}


def _one(value: Any) -> Any:
    if isinstance(value, float):
        return number(value)
    return plain(value) if isinstance(value, str) else value
