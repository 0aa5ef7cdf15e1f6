"""Suspects growth by the heap's floor and by what survives windows, and counts names while it is suspected."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from torchvet.probes.base.gradients import is_alone
from torchvet.probes.base.host import record as host_record
from torchvet.probes.base.kit import Host, StepKind, Unchecked, Watcher, frames
from torchvet.probes.base.schedule import EARLY_ALLOWANCE, SUSPECT_CENSUSES
from torchvet.probes.base.unchecked import of_unreadable
from torchvet.probes.memory.census import CensusTaker
from torchvet.probes.memory.cohorts import Cohort, Cohorts
from torchvet.probes.memory.gathering import Gathering
from torchvet.probes.memory.heap_trend import HeapTrend
from torchvet.probes.memory.object_lines import under_way
from torchvet.recording.records.training import Host as HostRecord

_CENSUS_SECONDS = 0.03
"""What a census is expected to take before there was one."""
_GATHERED_SECONDS = 0.5
"""What one may take amid an evaluation that gathers much."""


class GrowthProbe(Watcher):
    """Which memory grows, and which names hold it."""

    always = True

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._schedule = host.schedule
        self._trend, self._cohorts = HeapTrend(), Cohorts()
        # Names amid an evaluation are compared only with each other: at a boundary its variables may be gone.
        # Two takers, because each compares with its own census before.
        self._census, self._amid = CensusTaker(host.known), CensusTaker(host.known)
        self._gathering = Gathering()
        self._suspected_at_end = False
        self._graphs_unread = False
        """Whether what graphs saved was not looked at, as another thread trained: see `internals/saved.py`."""

    def restarted(self) -> None:
        """See `Watcher`."""
        self._cohorts.forget()
        self._trend.restart()

    def settle(self, tick: int, kind: StepKind) -> None:
        """A heap that rises once may do so for many reasons; one that goes on is looked into at any cost."""
        # Sampled all the same: the trend needs every fourth boundary.
        if not self._trend.boundary(tick) or self._schedule.suspected:
            return
        seconds = self._census.seconds or _CENSUS_SECONDS
        if self._trend.times > 1 or self._schedule.cheap(self.host.elapsed(), seconds):
            self._schedule.suspect(tick)

    def window_closed(self, tick: int, peak: int, cohort: Cohort, final: bool) -> None:
        """One tensor that is replaced by a larger one leaves no survivors: the peak is all that tells."""
        # The last window may have been cut off amid a step.
        if not final and self._trend.peak(peak):
            self._schedule.suspect(tick)
        self._cohorts.add(cohort)

    def waits(self) -> bool:
        """Until growth has been measured: its first censuses are to be a step apart."""
        return self._schedule.suspected and self._schedule.censuses < SUSPECT_CENSUSES

    def look(self, tick: int, kind: StepKind) -> None:
        """Which storages of earlier windows live on? Who holds them?"""
        # Before the census, which a suspicion makes due at this very boundary.
        if self._cohorts.due(tick):
            self._survivors(tick)
            if self._cohorts.suspicious():
                self._schedule.suspect(tick)
        gathers = self._gathering.boundary(kind) and not under_way.is_set()
        if gathers and not self.host.clock.provisional:
            # Rare, and known to be about tens of megabytes: worth what a suspicion is.
            self._count_amid(-self._gathering.evaluation, self._gathering.batches, kind, _GATHERED_SECONDS)
        # What is learnt about parts of steps is void once they are known for that: names cost too much for it.
        elapsed = self.host.elapsed()
        # `tracemalloc` makes a walk several times as slow, and the census's own objects would be traced.
        if under_way.is_set():
            return
        if not self.host.clock.provisional and self._schedule.takes_census(tick, elapsed, self._census.seconds):
            self._take_census(tick, kind, elapsed)

    def graphs_piled(self, stretch: int, passes: int, kind: StepKind) -> None:
        """Who keeps the graphs of an evaluation, or of a step, that is not over? Its variables may be gone at the next
        boundary."""
        self._count_amid(stretch, passes, kind)

    def _count_amid(self, stretch: int, passes: int, kind: StepKind, least: float = 0.0) -> None:
        if "names" not in self.host.broken:
            # No suspicion is noted: the schedule's censuses are those at boundaries.
            self._amid.budget = max(least, self._schedule.census_budget(time.perf_counter() - self.host.started))
            with self.host.looking("names amid an evaluation or a step", "censuses"):
                census = self._amid.take(self.host.tick, kind, self.host.ledger)
                self.host.write(msgspec.structs.replace(census, amid=stretch, passes=passes))
                self.host.tell("names_counted", self.host.tick)

    def last_look(self, how: str, error: BaseException | None) -> None:
        """When `main()` has returned its variables are gone; those of an exception's frames are not."""
        tick = self.host.tick
        # First, while the schedule's suspicion still can be raised by it.
        self._survivors(tick, everything=True)
        ended_badly = how in ("out-of-memory", "exception")
        self._suspected_at_end = self._schedule.suspected or self._cohorts.suspicious() or ended_badly
        if self._suspected_at_end or self._schedule.censuses:
            self._census.extra_frames = frames.traceback_frames(error)
            elapsed = time.perf_counter() - self.host.started
            self._take_census(tick, self.host.clock.level, elapsed, final=True)
            # They hold every variable of the frames that failed.
            self._census.extra_frames = []

    def unchecked(self) -> Iterator[Unchecked]:
        """See `Watcher`."""
        if self._suspected_at_end:  # else it is nobody's question
            yield from of_unreadable(self._census.unreadable)
            if self._graphs_unread:
                why = (
                    "several threads run backward passes, and one may free what another's graph saved while it is read"
                )
                yield Unchecked(check="what autograd graphs keep", reason=why)

    def totals(self, tick: int) -> tuple[HostRecord]:
        """See `Watcher`."""
        return (host_record(tick),)

    def _survivors(self, tick: int, everything: bool = False) -> None:
        self.host.flush_steps()
        for record in self._cohorts.check(tick, lambda: dict(self.host.known.storages()), everything):
            self.host.write(record)

    def _take_census(self, tick: int, kind: StepKind, elapsed: float, final: bool = False) -> None:
        # Counted as taken all the same, or it would be asked for at each boundary.
        if "names" in self.host.broken:
            return self._schedule.census_taken(tick, elapsed)
        self.host.flush_steps()
        self._census.budget = self._schedule.census_budget(elapsed, final)
        self._census.windows = self._cohorts.followed(tick)
        says = True
        self._graphs_unread |= not is_alone()
        with self.host.looking("names", "censuses"):
            census = self._census.take(tick, kind, self.host.ledger, final)
            says = census.complete or self._census.budget > EARLY_ALLOWANCE  # else an early look, cut off
            if says:
                self.host.write(census)
        if says:
            self._schedule.census_taken(tick, elapsed, self._census.anew)
        else:
            self._schedule.cut_off(tick, elapsed)
        self.host.tell("names_counted", tick)
