"""MEM118: memory grows from step to step and no name explains it."""

from __future__ import annotations

from statistics import median

from torchvet.analysis import growth_of
from torchvet.analysis.growth import known_rate, searched, usable_censuses
from torchvet.analysis.memory_series import device_sizes, heap_sizes, per_step, resident_sizes
from torchvet.analysis.steps import training_stretches
from torchvet.formatting import count, size
from torchvet.rules.kit import Finding, Findings, Measured, RankRecording, Recording, Rule, Severity, grading, records
from torchvet.rules.memory import _workers
from torchvet.rules.memory._traced import native_holder, outermost, traced
from torchvet.rules.shared import growth_rule, peaks, witnesses


class GrowthUnattributed(Rule):
    """Memory grows from step to step and no name explains it."""

    severity = "warning"

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """One finding a rank: of storages without a name, where names were searched, else of an allocator that grows
        while storages do not, or by far more. Besides, workers of loaders that grow."""
        yield from self._of_workers(rank)
        counted = witnesses.allocator(rank)
        rate, grows = witnesses.without_a_name(rank), counted.measured or 0.0
        beyond = counted.state == "grows" and grows > _BESIDE * counted.explained
        searched_for = rate > 0 and any(c.complete for c in rank.all(records.base.Census))
        # Storages are counted exactly, but by the part that was sampled: where an allocator shows far more,
        # that is the thing to say.
        if searched_for and not (beyond and grows > _MOST_OF_IT * rate):
            yield self._of_storages(rank, counted, rate)
        elif beyond:
            yield self._of_allocator(rank, counted, recording)

    def _of_workers(self, rank: RankRecording) -> Findings:
        # What a worker keeps is not looked into: more than a note would be a guess.
        for record in rank.latest(records.memory.WorkerMemory, "id"):
            if _workers.grows_otherwise(record):
                yield self.observed(
                    rank,
                    severity="info",
                    place=record.place,
                    message=f"the memory of {count(record.workers, 'worker')} of a loader rose by "
                    f"{size(_workers.grown(record))} from batch {record.batches[0]:,} to batch {record.batches[-1]:,}, "
                    "and goes on rising",
                    cause=f"they have {size(record.private[-1])} that they share with no other process. The Python "
                    "objects that their data set kept at the start do not explain it; what a worker itself keeps is "
                    "not looked into",
                    advice="look at what the data set, its transforms and the collate function keep from item to item: "
                    "a cache, a list, open files",
                    measured=Measured(bytes=_workers.grown(record)),
                )

    def _of_storages(self, rank: RankRecording, counted: witnesses.Witness, rate: float) -> Finding:
        # What the search found without a name is explained growth to the witness, and is added back.
        seen = None if counted.high is None else max(0.0, counted.high + growth_of(rank).unreached)
        # Half: blocks and samples do not agree to the byte.
        disagree = counted.state != "not seen" and seen is not None and seen < rate / 2
        sites = _surviving(rank)
        part = "" if rate >= 0.95 * growth_of(rank).measured else f" of {size(growth_of(rank).measured)}"
        cut = _cut_short(rank)
        early = "; the search for names ended early and has not come to what holds them"
        message = f"storages of {size(rate)}{part} per step live on"
        message += early if cut is not None else " and no name leads to them"
        if disagree and seen is not None:
            message += f", but the {counted.name} grows by at most {size(seen)}: the two measures disagree"
        end = self._end(rank, rate)
        sure = _borne_out(rank, counted, rate) and not disagree
        severity: Severity = self._grade(rank, rate) if sure else "info"
        # A search that ended early may have missed the name, and with it a bound: no error rests on that.
        if cut is not None and severity == "error":
            severity = "warning"
        return self.observed(
            rank, severity=severity, place=growth_rule.first_place(sites),
            message=message,
            cause=f"{_kind(rank)}. Ruled out: {_ruled_out(rank, rate)}",
            advice="look at what the result of this line is handed to: a queue, a thread, a C extension, a hook or an "
            "iterator outlives the step and keeps it",
            measured=self._measured(rank, rate, end),
            related=[*outermost(rank), *map(growth_rule.allocated, sites[:_SITES])],
            holder=native_holder(rank),
        )  # fmt: skip

    def _of_allocator(self, rank: RankRecording, counted: witnesses.Witness, recording: Recording) -> Finding:
        rate = counted.measured or 0.0
        shown = traced(rank, counted, recording)
        likely, sure = _likely(rank, counted)
        # A few kilobytes that are traced may still be of a container that fills: those stay a note.
        sure = sure or (shown.sure and rate > witnesses.sampled_thresholds(rank)[1])
        sites = _surviving(rank)[:_SITES] if witnesses.without_a_name(rank) else []
        sure = sure and not _rises_between_few(rank, counted)
        end = self._end(rank, rate) if sure else None
        between = f"between {size(counted.low or 0.0)} and {size(counted.high or 0.0)}"
        return self.observed(
            rank,
            severity=self._grade(rank, rate) if sure else "info",
            place=shown.place or growth_rule.first_place(sites),
            message=f"the {counted.name} grows by {size(rate)} per step ({between}) beyond the tensors that were noted",
            cause=f"{shown.cause or likely}. Ruled out: {_ruled_out(rank, rate)}",
            advice=shown.advice,
            measured=self._measured(rank, rate, end),
            holder=shown.holder,
            related=[*shown.related, *map(growth_rule.allocated, sites)],
        )

    def _grade(self, rank: RankRecording, rate: float) -> Severity:
        return grading.of_growth(rank.ticks, self._end(rank, rate))

    @staticmethod
    def _end(rank: RankRecording, rate: float) -> int | None:
        room = witnesses.room_in(rank)
        # From the peak of a step on, which must fit to the end.
        return None if room is None or rate <= 0 else int(rank.ticks + max(0, room - peaks.peak_of(rank)) / rate)

    @staticmethod
    def _measured(rank: RankRecording, rate: float, end: int | None) -> Measured:
        return Measured(bytes_per_step=rate, steps=rank.ticks, exhausted_at_step=end)


def _borne_out(rank: RankRecording, counted: witnesses.Witness, rate: float) -> bool:
    """Whether an allocator speaks for the growth as well, or more than the storages of two sampled stretches, of more
    bytes than an allocator shows: what a library makes once, as for the buckets of DistributedDataParallel, may fall
    into each stretch."""
    small, large = witnesses.sampled_thresholds(rank)
    if rate <= small:
        return False  # whatever else an allocator shows
    allocated = counted.low is not None and counted.low + growth_of(rank).unreached >= rate / 2
    return counted.state == "grows" or allocated or (witnesses.windows_followed(rank) > _STRETCHES and rate > large)


_SITES = 3
_MOST_OF_IT = 5.0
"""Times what storages without a name take in a step from which on most of an allocator's growth is something else."""
_STRETCHES = 2
_BESIDE = 2.0
"""Times what names explain of an allocator's growth that the rest must be: each tensor costs more than it shows."""
_MOST_KNOWN, _NOT_KNOWN = 0.5, 0.1
"""Shares of what grows from which on it is known memory, and up to which that has no part in it."""
_ROUNDS, _WITHIN = 6, 0.5
"""Rounds from which on a trend over them is one; and the share of the rate that memory rises by within training, from
which on it is no matter of rounds. Chosen, not measured."""
_STEADY = 0.5
"""The least share of its rate that the lower end of the interval has where growth is steady."""


def _rises_between_few(rank: RankRecording, counted: witnesses.Witness) -> bool:
    """Whether memory rises from round to round only, each of a training and an evaluation, of which there were few:
    what a round leaves behind may go with the next one, as a Trainer's cycles do."""
    stretches = training_stretches(rank)
    if not 1 < len(stretches) < _ROUNDS:
        return False
    sizes = device_sizes(rank) if counted.name == "device memory" else heap_sizes(rank) or resident_sizes(rank)
    rates = []
    # The first one is warming up.
    for first, last in stretches[1:]:
        within = [one for one in sizes if first <= one[0] <= last]
        if len(within) > 1 and within[-1][0] > within[0][0]:
            rates.append((within[-1][1] - within[0][1]) / (within[-1][0] - within[0][0]))
    trend, _ = per_step(rank, sizes)
    return not rates or trend is None or median(rates) < _WITHIN * trend.rate


def _likely(rank: RankRecording, counted: witnesses.Witness) -> tuple[str, bool]:
    """What grows in an allocator while no tensor does, and whether it is sure to go on growing. A few kilobytes of a
    heap may be anybody's: a container of fixed size that fills, a library's pool, torchvet's own records."""
    _, large = witnesses.sampled_thresholds(rank)
    rate = counted.measured or 0.0
    steady = (counted.low or 0.0) >= _STEADY * rate and (counted.name == "device memory" or rate > large)
    # What is known before what is only likely.
    known = known_rate(rank)
    if known is not None and known >= _MOST_KNOWN * rate > 0:
        return (
            f"parameters, gradients and optimizer state grow by {size(known)} per step: models or optimizers are made "
            "again and again while those of before stay alive"
        ), steady
    if witnesses.nodes(rank, counted).state == "grows":
        return "autograd graphs get longer from step to step and no name leads to their end", steady
    if witnesses.shapes_change(rank):
        return "shapes change from step to step, and libraries keep a compiled kernel for each new one", False
    what = "arrays, bytes, objects of Python or of a library"
    return f"something that is no tensor is kept from step to step: {what}", steady


def _surviving(rank: RankRecording) -> list[records.base.SiteBytes]:
    """Where the storages were made that live on, the largest first: those without a name where they are known."""
    census = searched(rank)
    if census is not None and census.unreached_sites:
        return census.unreached_sites
    latest: dict[int, records.base.Survivors] = {}
    for record in rank.since_restart(records.base.Survivors):
        # A look after the end only where there was none before it.
        if not record.final or record.window not in latest:
            latest[record.window] = record
    return growth_rule.summed(site for record in latest.values() for site in record.sites)


def _cut_short(rank: RankRecording) -> records.base.Census | None:
    """The last search that ran out of time, of those that growth is measured by."""
    return next((c for c in reversed(usable_censuses(rank)) if not c.complete), None)


def _kind(rank: RankRecording) -> str:
    """What kind of holder is likely, by what the search for names came upon."""
    # What a search that was cut short has not reached looks as if only C++ had it.
    cut = _cut_short(rank)
    if cut is not None:
        return f"the search for names was ended after {cut.seconds:.1f} s and may have missed their holder"
    kinds = {s.kind for c in rank.all(records.base.Census) for s in c.strangers}
    if outermost(rank):
        return (
            "Python objects lead to them, and what holds those is out of Python's sight: a hook of an autograd graph, "
            "a thread, a registry of C"
        )
    if "native" in kinds:
        return "no Python object holds them: they are owned by C++ (an autograd graph, a library's object)"
    if kinds & {"cycle", "ctx"}:
        return "they hang in reference cycles that Python's collector has not freed"
    return "something that Python's names do not lead to holds them: an iterator, a thread, a C extension or C++"


def _ruled_out(rank: RankRecording, rate: float) -> str:
    """What was looked at and does not hold it."""
    looks = [c for c in rank.all(records.base.Census) if c.complete]
    known = known_rate(rank)
    # Counted at one look, or at none, nobody knows whether they grow.
    found = ["parameters, gradients, optimizer state"] if known is not None and known <= _NOT_KNOWN * rate else []
    if looks:
        names = max(len(c.holdings) for c in looks)
        found.append(
            f"{count(names, 'name')} with tensors and their autograd graphs ({count(len(looks), 'search', 'searches')})"
        )
    else:
        found.append(
            f"storages of {count(witnesses.windows_followed(rank), 'sampled stretch', 'sampled stretches')} that died"
        )
    use = rank.last(records.training.CollectorUse)
    if use is not None and use.full and _outlives(rank, use.full_at):
        found.append(f"garbage that the cyclic collector frees ({count(use.full, 'full collection')})")
    return "; ".join(found)


def _outlives(rank: RankRecording, tick: int) -> bool:
    """Whether what grows has outlived a collection of all objects: storages that were sampled before it are alive after
    it; else half of the growth came before it."""
    ends = {w.id: w.last for w in rank.since_restart(records.base.Window)}
    alive = [s for s in rank.since_restart(records.base.Survivors) if s.bytes]
    if not alive:
        # No survivors to tell by: a collection in the later half would have freed most of what grew.
        return 2 * tick >= rank.ticks
    return any(ends.get(s.window, s.tick) < tick <= s.tick for s in alive)
