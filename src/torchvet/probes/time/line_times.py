"""Keeps the clock of lines of a session: which thread it looks at, when time counts, and what it writes down."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from torchvet.probes.base.kit import Host, Record, StepKind, Unchecked
from torchvet.probes.environment.loggers import lowest_levels
from torchvet.probes.internals import private
from torchvet.probes.memory.object_lines import under_way
from torchvet.probes.time.line_clock import LineClock, Now
from torchvet.probes.time.real_time import TimeWatcher
from torchvet.probes.time.worker_clocks import line_of, of_workers, watched
from torchvet.recording.records.timing import LineTimes

_FIRST = 3
"""Steps that pass before time counts: they import, compile and fill caches."""
_MOST = 60
"""Lines that are written down."""


class LineTimer(TimeWatcher):
    """Where the time of steps goes, by line."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._thread = threading.main_thread().ident or 0
        self.clock = LineClock(self._now)
        self._loggers: dict[str, int] = {}

    def install(self) -> None:
        """Have loaders' workers watched, which are forked."""
        directory = self.host.options.directory
        self.replace(private.loader_workers, "_worker_loop", lambda original: watched(original, directory))

    def look(self, tick: int, kind: StepKind) -> None:
        """The thread that comes here trains."""
        self._thread = threading.get_ident()
        # Started late, and on the thread that trains.
        if not self.clock.running and self.host.clock.main_steps >= _FIRST and "lines" not in self.host.broken:
            self.clock.start()

    def finish(self, how: str, error: BaseException | None) -> None:
        """See `Watcher`."""
        self.clock.stop()
        found = of_workers(self.host.options.directory)
        if found is not None:
            self.host.write(found)

    def remove(self) -> None:
        """End the thread."""
        self.clock.stop()
        super().remove()

    def _now(self) -> Now:
        """Called on the clock's own thread: it reads, and changes nothing."""
        host = self.host
        thread = self._thread
        # Operators that are noted, and objects that are traced, take longer than they do.
        # `watching`, and not `active`, which is false while the thread looks.
        counts = host.watching and not under_way.is_set() and (not host.sampling or host.lightly)
        own, collecting = host.costs.busy(thread), host.ledger.collecting
        loading, backward = host.phase_seconds("data"), host.phase_seconds("backward")
        return Now(thread, host.clock.main_steps, host.disturbed_steps, counts, own, collecting, loading, backward)

    def totals(self, tick: int) -> Iterable[Record]:
        """The lines so far."""
        clock = self.clock
        tally = clock.tally
        if not tally.steps:
            return
        cells = sorted(tally.cells.values(), key=lambda cell: -cell.seconds)
        # A cell may have been made for a step that has not ended.
        listed = [line_of(cell, tally.steps) for cell in cells[:_MOST] if cell.looks]
        self._loggers = lowest_levels(self._loggers)
        yield LineTimes(
            seconds=round(tally.seconds, 6),
            steps=tally.steps,
            looks=tally.looks,
            interval=round(tally.seconds / max(1, tally.looks), 6),
            own=round(clock.own, 6),
            rest=round(max(0.0, tally.seconds - sum(line.seconds for line in listed)), 6),
            calls={"data": round(tally.loading, 6), "backward": round(tally.backward, 6)},
            thirds=tally.course.thirds(tally.steps),
            loggers=self._loggers,
            lines=listed,
        )

    def unchecked(self) -> Iterable[Unchecked]:
        """Where the thread could not go on."""
        if self.clock.failure:
            yield Unchecked(check="which lines take the time", reason=self.clock.failure[:500])
