"""Decides when to look: early, then rarer, more when something grows, and never beyond a share of the run's time.

Pure logic over ticks and seconds, so that it can be tested exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchvet.recording.records.base import StepKind

FREE_WINDOWS, EARLY_WINDOWS = 2, 3
"""Windows that open whatever they cost: a run of ten steps deserves an answer too. And windows from which on those that
come are within the share: the ones between come early where the first ones were cheap."""
WINDOW_ALLOWANCE, WINDOW_SHARE = 0.5, 0.25
"""Seconds that the free windows may have taken, and their share of the run so far, for the next to come early."""
SUSPECT_CENSUSES = 3
"""Censuses at any cost once survivors are suspected: to see names, to see what lasts and is carried, to measure."""
CENSUS_ALLOWANCE = 0.15
"""Seconds that censuses may take once survivors are suspected, whatever their share: a short run on a fast machine has
no share to speak of, and deserves an answer too."""
EARLY = 24
"""Steps after which names are looked at without any suspicion: a graph that only gets longer keeps next to no storages
alive, so that nothing else would tell."""
EARLY_ALLOWANCE = 0.1
"""Seconds that these looks may take whatever their share, the first of them included."""
GRAPH_ALLOWANCE = 0.2
"""Seconds that may go into following autograd graphs between boundaries whatever their share."""
_GRAPH_SHARE = 0.01
_A_WHILE = 2.0
"""Seconds from which on half a second more at the end goes unnoticed."""
_THOROUGH = 10.0
"""Seconds that one search for names may take in a thorough run."""
_SHORT = 8
"""Steps below which a run is only warming up."""


@dataclass
class Schedule:
    """`share` of the elapsed seconds may be spent on looking; what is spent is reported by `spend`."""

    share: float = 0.03
    reserve: float = 0.01
    """Share that windows leave to censuses."""
    every_step: bool = False
    """Whether all steps are sampled, whatever that costs."""
    thorough: bool = False
    """Whether names are searched as if growth were suspected from the eighth step on, whatever that costs."""
    spent: float = 0.0
    given: float = 0.0
    """Seconds that free windows took."""
    window_at: int = 1
    window_length: int = 2
    windows: int = 0
    owed: bool = False
    """Whether a suspicion asks for a window: what a census finds in it is known by the line that made it."""
    awaited: int | None = None
    """The tick from which on a probe waits for a window: what it has seen begin shows late."""
    census_at: int | None = None
    censuses: int = 0
    """Those that are compared with each other."""
    compared_from: int = 0
    """The tick of the first of them."""
    expected: float = 0.0
    """Seconds that a census takes."""
    suspected: bool = False
    idle_census_at: float = 2.0
    early_census_at: int = EARLY
    void: int = 0
    """Early looks that were cut off before they said anything: no censuses, but they have cost as much."""

    def spend(self, seconds: float) -> None:
        """Account for seconds of the program's time."""
        self.spent += seconds

    def restart(self) -> None:
        """Plan anew, as at the beginning; what is spent stays spent."""
        # Windows before the first optimizer step saw parts of steps. Their seconds were the program's all the
        # same.
        kept = {name: getattr(self, name) for name in ("share", "reserve", "every_step", "thorough", "spent", "given")}
        vars(self).update(vars(Schedule(**kept)))

    def graph_budget(self, elapsed: float, spent: float) -> float:
        """Seconds that following graphs between boundaries may take now, `spent` of them having gone."""
        return max(0.0, GRAPH_ALLOWANCE + _GRAPH_SHARE * elapsed - spent)

    def affordable(self, elapsed: float, expected: float = 0.0) -> bool:
        """Whether another `expected` seconds stay within the share."""
        return self.spent + expected <= self.share * elapsed

    def cheap(self, elapsed: float, expected: float) -> bool:
        """Whether a suspicion that may be wrong can be looked into: each census takes `expected` seconds."""
        return _are_cheap(expected) or self.affordable(elapsed, expected)

    def opens_window(self, tick: int, elapsed: float) -> bool:
        """Whether to start noting storages at this boundary."""
        # Asked for by the user: the budget does not count.
        if self.every_step:
            return True
        if self.owed:
            self.owed = False
            return True
        if self.awaited is not None and tick >= self.awaited:
            self.awaited = None
            return True
        if tick < self.window_at:
            return False
        if not self._is_given(elapsed) and not self.affordable(elapsed, self.reserve * elapsed):
            # Not now: try again a little later rather than at every step.
            # In a long run at the same relative distance, so that asking itself stays rare.
            self.window_at = tick + max(4, tick // 8)
            return False
        return True

    def _is_given(self, elapsed: float) -> bool:
        """Whether the next window opens beside the share."""
        cheap = self.given <= max(WINDOW_ALLOWANCE, WINDOW_SHARE * elapsed)
        return self.windows < FREE_WINDOWS or (self.windows < EARLY_WINDOWS and cheap)

    def length(self, elapsed: float, step: float) -> int:
        """Steps of the next window: fewer than planned, though never less than two, where sampled steps that cost
        `step` seconds each would exceed the share."""
        spare = self.share * elapsed - self.spent
        return max(2, min(self.window_length, int(spare / step))) if step > 0 else self.window_length

    def window_closed(self, tick: int) -> None:
        """A window ended at this tick: plan the next, further away each time, sooner when growth is suspected."""
        self.windows += 1
        self.window_length = 2 if self.windows < 3 else min(8, 2 + self.windows)
        # Two windows in a row to begin with: a run of ten steps is to be judged too.
        early = 0 if self.windows == 1 else 3
        # Doubling distances: ever fewer windows, yet always one in the later half of the run.
        gap = early if self.windows < EARLY_WINDOWS else max(4, tick // (2 if self.suspected else 1))
        self.window_at = tick + gap

    def suspect(self, tick: int) -> None:
        """Survivors were seen in two windows: look at names soon."""
        # A second suspicion must not bring the next census forward.
        # Windows go on to see survivors; only the first time is news.
        if not self.suspected:
            self.suspected = True
            self.census_at = tick
            # Those before were for the case that nothing grows.
            self.censuses = 0
            self.owed = True

    def takes_census(self, tick: int, elapsed: float, expected: float) -> bool:
        """Whether to look at all names at this boundary."""
        self.expected = expected
        if self.thorough and tick >= _SHORT:
            self.suspect(tick)
        # Under a suspicion `census_at` alone decides when.
        if self.suspected:
            due = self.census_at is not None and tick >= self.census_at
            # By what a census is expected to take, as measured on the last one: a small program can pay for many.
            allowed = self.thorough or self.censuses * expected <= CENSUS_ALLOWANCE
            return due and (self.censuses < SUSPECT_CENSUSES or allowed or self.affordable(elapsed, expected))
        if tick < 2 * _SHORT:
            return False
        # The refused and the cut-off looks count as well: they have cost as much as those that said
        # something.
        if tick >= self.early_census_at and (self.censuses + self.void + 1) * expected <= EARLY_ALLOWANCE:
            return True
        # Doubling seconds, for programs of few long steps, which `early_census_at` would reach late.
        return elapsed >= self.idle_census_at and self.affordable(elapsed, expected or 0.03)

    def census_budget(self, elapsed: float, final: bool = False) -> float:
        """Seconds that one census may take: some for a short run, more as the run has gone on for longer. Without a
        suspicion and without time to spare it is cut off early; not the `final` one of a run that took a while, as no
        step waits for it. A thorough run waits for what it takes, within reason: the process may be as large as
        that of a test suite."""
        if self.thorough:
            return _THOROUGH
        spare = self.suspected or self.affordable(elapsed, EARLY_ALLOWANCE) or (final and elapsed >= _A_WHILE)
        return min(2.0, max(0.5, 0.02 * elapsed)) if spare else EARLY_ALLOWANCE

    def cut_off(self, tick: int, elapsed: float) -> None:
        """An early look has said nothing: the next without a suspicion is later; what a suspicion asks for is all to
        come."""
        self.void += 1
        # It said nothing, and would cost the same again soon: nothing has become smaller meanwhile.
        self.idle_census_at = elapsed * 2
        self.early_census_at = tick + max(EARLY, tick)

    def census_taken(self, tick: int, elapsed: float, anew: bool = False) -> None:
        """Plan the next: one step later to see what is carried, then ever further apart; as after the first where this
        one has met names that those before could not see."""
        # A census compares with those before: where names appear that those could not see, the comparison
        # begins here.
        self.censuses = 1 if anew else self.censuses + 1
        first = self.censuses == 1
        self.compared_from = tick if first else self.compared_from
        self.idle_census_at = elapsed * 2
        self.early_census_at = tick + (1 if first else max(EARLY, tick))
        # Those that cost too much to be many are far apart.
        since = tick - self.compared_from if _are_cheap(self.expected) else tick
        self.census_at = tick + (1 if first else max(3, since // 2))


def _are_cheap(expected: float) -> bool:
    """Whether the censuses that a suspicion asks for take no time to speak of, where each takes `expected` seconds."""
    return SUSPECT_CENSUSES * expected <= CENSUS_ALLOWANCE


class Pace:
    """At which boundaries everything is asked for what is due: at all of the first, and of those that are not steady;
    then, while steps pass in less than `_APART`, at every fourth, and in long runs at ever fewer. At the others steps
    are only counted."""

    _ALWAYS = 64
    _EVERY = 4
    _MOST = 64
    _RARER = 32
    """From 64 times as many steps on only half as many boundaries are asked: at every eighth from step 256."""
    _APART = 0.25
    """Seconds from one to the next at which it costs nothing to speak of: asking takes 0.5 ms with a small model, 4 ms
    with a large one."""

    def __init__(self) -> None:
        self.steady: StepKind | None = None
        """The kind of the steps that pass now where nothing but counting is due in them: no window is open, no graph is
        waited for. Whoever begins such a thing calls `disturb`."""
        self.untimed = False
        """Whether what is heard in the step under way is not timed: the last steady step before everything is asked
        stands for those since."""
        self._tick = 0
        self._when = 0.0
        self._every = self._EVERY

    def due(self, kind: StepKind, tick: int, now: float) -> bool:
        """Whether everything is to be asked at this boundary, at which the clock reads `now` seconds."""
        # Slow steps are asked at each boundary: there it costs nothing to speak of, and they are few.
        return tick % self._every == 0 or kind != self.steady or now - self._when >= self._APART

    def since(self, tick: int) -> int:
        """Steps since everything was asked last, this one included."""
        return max(1, tick - self._tick)

    def disturb(self) -> None:
        """Something begins that is to hear of every boundary."""
        self.steady, self.untimed = None, False

    def counted(self, tick: int) -> int:
        """A boundary was passed at which nothing is asked: how many steps the next one stands for where it is timed."""
        # The step before a full boundary is timed, and its seconds count for those since
        # (`Costs.stands_for`).
        self.untimed = self.steady is not None and (tick + 1) % self._every != 0
        return 1 if self.steady is None else self._every

    def asked(self, kind: StepKind, tick: int, now: float, steady: bool) -> None:
        """Everything has been asked, and is `steady`: nothing that was begun is to hear of every boundary."""
        # Evaluations end soon: what begins after them must be heard from its first step on.
        trains = kind in ("training", "backward", "manual")
        self.steady = kind if steady and trains and tick >= self._ALWAYS else None
        self.untimed = self.steady is not None
        self._tick, self._when = tick, now
        # A power of two: whoever goes by every fourth boundary is asked at all that are left of them.
        # A loop: steps that go by unasked may bring the tick past several doublings.
        while self._every < self._MOST and tick >= 2 * self._every * self._RARER:
            self._every *= 2
        if tick < self._ALWAYS:  # ticks began anew
            self._every = self._EVERY


class Checkups:
    """When to look at what a step leaves as it was: every few steps at first, then ever more rarely. What a fault does
    then may begin long after the windows of a short run."""

    _FIRST = 4
    """Steps between the first looks; from 16 on a quarter of the steps so far."""

    def __init__(self) -> None:
        self._next = self._FIRST

    def due(self, tick: int) -> bool:
        """Whether to look at this boundary."""
        if tick < self._next:
            return False
        self._next = tick + max(self._FIRST, tick // 4)
        return True
