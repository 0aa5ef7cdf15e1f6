"""OPS301: the step waits for its data."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from torchvet.formatting import count, ms, percent
from torchvet.recording.records.timing import WorkerStarts, WorkerTimes
from torchvet.rules.kit import (
    NOTHING_MORE,
    About,
    Edits,
    Finding,
    Iterator,
    Place,
    RankRecording,
    Related,
    SourceFile,
    about,
)
from torchvet.rules.operations._loader_rows import collected_for, rows_read_at
from torchvet.rules.operations._read_again import Again, read_again
from torchvet.rules.operations.fixes.kept_members import kept_members
from torchvet.rules.operations.fixes.whole_arrays import stacked_first
from torchvet.rules.operations.fixes.whole_batches import whole_batches
from torchvet.rules.shared.line_costs import Cost, LineCostRule, joined_parts, works_of
from torchvet.rules.shared.trace_costs import TraceRule, Worst

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchvet.analysis.host_work import Work
    from torchvet.analysis.line_times import Files, Statement, Timing
    from torchvet.recording.records.timing import RowsOneByOne

_SHARE, _A_STEP = 0.4, 0.008
"""From which on a wait matters, where a line of the program's own or its workers make it."""
_USUAL_SHARE, _USUAL_STEP = 0.5, 0.03
"""The same for a dataset and transforms of a library's: with small pictures and a small model these take half of a
healthy program's steps."""
_MOST = 0.5
_PASSES = 3
"""From which on workers are started again and again."""
_STAGES = {
    "item": "the dataset's items are made",
    "collate": "items are put together to a batch",
    "wait": "the loader's workers are waited for",
    "start": "the loader's workers are started",
    "end": "the loader's workers are ended",
    "pin": "the batch is copied to pinned memory",
    "": "the loader works",
}
_START_ADVICE = (
    "keep the workers: make the loader once, outside of the loop, with persistent_workers=True (what is "
    "set in the dataset later does not reach them); for passes of a few batches num_workers=0 may be the fastest"
)
_ADVICE = {
    "item": "make an item cheaper, or make what is always the same once before the training; then have the DataLoader "
    "make batches ahead (num_workers, persistent_workers=True)",
    "collate": "give the dataset a `__getitems__` or a `collate_fn` that works on whole arrays; or num_workers",
    "wait": "more workers where there are cores for them, a larger prefetch_factor, or less work for an item",
    "start": _START_ADVICE,
    "end": _START_ADVICE,
}
_AT_ONCE = (
    "index tensors that are in memory by a whole batch (`DataLoader(dataset, sampler=BatchSampler(...), "
    "batch_size=None)`, or `data[order[i:j]]`)"
)
_OF_LIBRARY = (
    f"items of a library's dataset are made and put together one by one: {_AT_ONCE}; for files have "
    "the DataLoader make batches ahead (num_workers, persistent_workers=True)"
)
_WORKERS = frozenset(["wait", "start", "end"])
_ROW_BY_ROW = About(variant="row by row")
_READ_AGAIN = About(variant="read again", operands=("npz",))


class InputBound(TraceRule, LineCostRule):
    """The step waits for data that the loader has not ready."""

    severity = "warning"
    lost_in = "loader"

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The loader's batches read by one index, where rows are read one by one; arrays put together before they
        become a tensor; members of archives read once."""
        # None for workers that are started anew. Where they are kept, `iter()` of the loader within a loop over it
        # starts that loop again, what is set in the dataset later does not reach them, and there must be some.
        if about(finding) == _ROW_BY_ROW:
            return whole_batches(file, finding)
        return kept_members(file, finding) if about(finding) == _READ_AGAIN else stacked_first(file, finding)

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Loops over loaders that wait for their batches for a part of their time, and loops that read the same files
        again by themselves."""
        works = works_of(rank, timing)
        for work, cost in works:
            again = read_again(rank, timing, work) if cost.counts and work.kind != "evaluation" else None
            starts = _started_anew(rank, work) if work.kind == "data" else None
            if again is not None and starts is None:
                yield self._reads_again(rank, work.site, again)
            elif work.kind == "data" and cost.counts:
                rows = rows_read_at(rank, work.site)
                if starts is not None:
                    yield self._starts(rank, work, Cost(timing, work.parts, _of_starts(work, starts)), starts)
                elif rows is None:
                    yield self._waits(rank, work, cost, timing.files)
                else:
                    collected = collected_for(work, [other for other, _ in works])
                    parts = joined_parts(one.parts for one in (work, *collected))
                    yield self._reads_rows(rank, work, Cost(timing, parts, 1 - rows.at_once / rows.each), rows)

    def _reads_rows(self, rank: RankRecording, work: Work, cost: Cost, rows: RowsOneByOne) -> Finding:
        # Graded by what one index was measured to save.
        return self.takes(
            rank,
            work.site,
            f"a batch of {rows.rows:,} rows is read row by row from tensors in memory: {cost.of_step()}",
            cost,
            cause=f"{ms(rows.each)} for {rows.rows:,} rows of such tensors one by one, {ms(rows.at_once)} for the same "
            "rows by one index, both measured after the run",
            advice=_AT_ONCE,
            related=[self.beside("made", "the loader is made here", rows.made)] if rows.made is not None else [],
            about=_ROW_BY_ROW if rows.alone else NOTHING_MORE,
        )

    def _starts(self, rank: RankRecording, work: Work, cost: Cost, starts: WorkerStarts) -> Finding:
        first = starts.first / starts.starts
        # Graded as usual: unlike an item, nothing of it has to be made.
        return self.takes(
            rank,
            work.site,
            f"a loader starts {count(starts.workers, 'worker')} anew {starts.starts:,} times, once for each pass: "
            f"{cost.of_step()}",
            cost,
            cause=f"the first batch of a pass is waited for {ms(first)}: {percent(starts.first / starts.seconds)} of "
            "what all batches of a pass are waited for",
            advice=_START_ADVICE,
            related=[self.beside("made", "the loader is made here", starts.made)] if starts.made is not None else [],
        )

    def _reads_again(self, rank: RankRecording, loop: Place, again: Again) -> Finding:
        # Graded by what reading each member once saves, in the time that was measured around the reads.
        at, cost = again.statement, again.cost
        related = (
            [self.beside("called-from", "the loop that waits", loop)]
            if (at.path, at.line) != (loop.path, loop.line)
            else []
        )
        return self.takes(
            rank,
            at.place,
            f"the same {again.members} {again.verb} read again and again: {cost.of_step()}, at `{at.text}`",
            cost,
            cause=again.evidence,
            advice=again.advice,
            related=related,
            about=About(variant="read again", operands=(again.what,)),
        )

    def _waits(self, rank: RankRecording, work: Work, cost: Cost, files: Files) -> Finding:
        stage = _stage(work)
        workers = rank.last(WorkerTimes) if stage == "wait" else None
        named = _within(work) if workers is None else _of_workers(workers, files, work.site)
        where = f", most of it in {named.function}, at `{named.text}`" if named is not None and named.text else ""
        at: Place = named.place if named is not None else work.site
        related: list[Related] = []
        if (at.path, at.line) != (work.site.path, work.site.line):
            related.append(self.beside("called-from", "the loop that waits", work.site))
        ahead = any(part.stage in _WORKERS for part in work.parts)
        limits = (_SHARE, _A_STEP) if ahead or named is not None else (_USUAL_SHARE, _USUAL_STEP)
        how = "" if ahead else ", in the training process itself (num_workers=0)"
        return self.takes(
            rank,
            at,
            f"the step waits for its batch for {cost.of_step()}{where}",
            cost,
            cause=f"{_STAGES[stage]}{how}{_busy(workers)}, and no step of the model runs meanwhile",
            advice=_ADVICE.get(stage, _ADVICE["item"]) if ahead or named is not None else _OF_LIBRARY,
            severity=cost.severity(*limits),
            related=related,
        )

    def slow(self, found: Worst) -> Finding:
        """By the time that the device was idle while the loader was waited for; without a device, by the wait."""
        loader = found.costs[0]
        idle = f"; the device is idle for {found.of_step()}" if found.rank.gpu is not None else ""
        message = f"the loader takes {found.of_step(loader.duration)}{idle}"
        if "_SingleProcess" in loader.what:
            cause = "the batch is made in the training process (num_workers=0), while nothing else happens"
            advice = "give the DataLoader num_workers, and make __getitem__ cheaper"
            return self.loses(found, message, cause, advice)
        cause = "the loader's workers do not keep up with the steps"
        advice = "more workers, prefetch_factor, or less work in __getitem__"
        return self.loses(found, message, cause, advice)


def _started_anew(rank: RankRecording, work: Work) -> WorkerStarts | None:
    """How often the loop starts workers, where it waits more for the first batches of its passes than for others."""
    at = work.site.path, work.site.line
    here = [one for one in rank.latest(WorkerStarts, "place", "made") if (one.place.path, one.place.line) == at]
    # Of two loaders on one line the looks do not say which is waited for.
    if len(here) != 1 or _stage(work) not in ("wait", "start"):
        return None
    (seen,) = here
    return seen if seen.starts >= _PASSES and seen.first > _MOST * seen.seconds else None


def _of_starts(work: Work, starts: WorkerStarts) -> float:
    """The part of a loop's wait that the starts of workers have, with their ends."""
    around = sum(part.seconds for part in work.parts if part.stage in ("start", "end"))
    return (around + (work.seconds - around) * starts.first / starts.seconds) / work.seconds


def _stage(work: Work) -> str:
    """What most of the wait goes to; starting workers and ending them is one thing."""
    seconds: dict[str, float] = defaultdict(float)
    for part in work.parts:
        seconds["start" if part.stage == "end" else part.stage] += part.seconds
    return max(seconds, key=lambda stage: seconds[stage])


def _of_workers(workers: WorkerTimes, files: Files, site: Place) -> Statement | None:
    """The statement that most of the workers' own time goes to, or to whose function."""
    found: dict[tuple[str, int], Statement] = {}
    for line in workers.lines:
        files.statement(line.place, found).seconds += line.seconds
    return _largest(found.values(), workers.busy, site)


def _busy(workers: WorkerTimes | None) -> str:
    """How busy the workers were that were waited for."""
    if workers is None or not workers.seconds:
        return ""
    return f", which make batches for {percent(workers.busy / workers.seconds)} of their time"


def _within(work: Work) -> Statement | None:
    """The statement of the dataset (or of what it calls) that most of the wait goes to, or to whose function."""
    return _largest(work.statements, work.seconds, work.site)


def _largest(statements: Iterable[Statement], whole: float, site: Place) -> Statement | None:
    """Of the function that has most of the seconds, the statement that has most of them. The loop itself does not
    count: it is the user's innermost line where all work is a library's."""
    functions: dict[tuple[str, str], list[Statement]] = defaultdict(list)
    for one in statements:
        if (one.path, one.line) != (site.path, site.line):
            functions[one.path, one.function].append(one)
    for those in functions.values():
        if sum(one.seconds for one in those) >= _MOST * whole:
            return max(those, key=lambda one: one.seconds)
    return None
