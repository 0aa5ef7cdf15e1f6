"""OPS304: the step waits for work of the host that is not the model's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.analysis.host_work import UNWRITTEN
from torchvet.formatting import percent
from torchvet.rules.kit import About, Edits, Finding, Iterator, RankRecording, Severity, SourceFile, about
from torchvet.rules.operations._model_calls import prefixes_of, row_loops_of
from torchvet.rules.operations._read_again import read_again
from torchvet.rules.operations._written_again import Rewritten, written_again
from torchvet.rules.operations.fixes.asking import asked_first
from torchvet.rules.operations.fixes.sinking import where_it_is_read
from torchvet.rules.shared.line_costs import A_STEP, SHARE, Cost, LineCostRule, joined_parts, works_of

if TYPE_CHECKING:
    from torchvet.analysis.host_work import Work
    from torchvet.analysis.line_times import Timing

_WORDS = {
    "sleep": ("sleeping", "take the pause out of the step"),
    "save": (
        "saving",
        "save at an interval or at the end of an epoch; a checkpoint of every step is rarely read",
    ),
    "copy": ("copying Python objects", "copy where a new best is reached, or at an interval, not in every step"),
    "log": ("logging", "log at an interval, and add up detached values until then"),
    "read": ("reading a file", "read it once before the loop, or in a DataLoader's workers"),
    "files": (
        "reading and writing files",
        "keep in memory what the file holds and write it at an interval, or append what is new (`open(path, 'a')`, a "
        "line for each record)",
    ),
    "unwritten": (
        "making a message that is not written",
        "put `if logger.isEnabledFor(logging.DEBUG):` (with the level of the call) around it; `%s` in place of an "
        "f-string saves the text alone, and not what `.tolist()` or a call makes",
    ),
    "text": ("making or parsing text", "do it at an interval, or once before the loop"),
    "process": ("waiting for another process", "start it without waiting, at an interval, or replace it by a call"),
    "network": ("waiting for the network", "send in another thread, or at an interval"),
    "array": (
        "work on arrays outside of torch",
        "do it once before the loop, in a DataLoader's workers, or with torch's operators beside the model",
    ),
    "image": ("working on images", "do it in a DataLoader's workers, or once before the training"),
    "plot": ("drawing plots", "draw at an interval or after the training"),
    "wait": ("waiting for another thread or process", "let it work ahead: a queue with room for a few results"),
    "evaluation": ("an evaluation", "evaluate at an interval, on fewer batches"),
    "python": (
        "Python's own work",
        "do it once before the loop, at an interval, or with one call of torch or NumPy in place of a Python loop",
    ),
    "other": ("work beside the model", "do it once before the loop, at an interval, or in another process"),
}
"""What is done, and what to do about it."""
_UNUSED = (
    "its level was turned off in the whole run, and Python makes the arguments of a call before the logger is asked"
)
_OFTEN_ENOUGH = 0.02
_MOST_OF_IT = 0.5
"""What does not run in each step is a warning only where it takes this share of all the time, and comes about in one of
fifty steps at the least: an evaluation after an epoch is rarer. One in each step is wanted where that is an epoch."""
_UNWRITTEN = 0.1
"""The share of a step from which on a message that nobody sees is a warning: nothing is lost without it.
Chosen, not measured."""
_WRITTEN_AGAIN, _REPLACED = "written again", 0.15
"""The share of a step from which on versions of files that are replaced unread are a warning: little is lost without
them. Chosen, not measured."""
_EVALUATION = 0.01
"""Seconds of a step below which an evaluation is no warning."""


class StepWaitsForHostWork(LineCostRule):
    """The step waits for other work of the host: saving, logging, an evaluation, plain Python."""

    severity = "warning"
    silence_clears = False

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """Work whose result one branch alone reads, done there."""
        if about(finding).variant == UNWRITTEN:
            return asked_first(file, finding)
        # Where a file's writing belongs depends on who reads it.
        if about(finding).variant == _WRITTEN_AGAIN:
            return ()
        return where_it_is_read(file, finding)

    def in_time(self, rank: RankRecording, timing: Timing) -> Iterator[Finding]:
        """Statements of the training loop, and below it, that take a part of the step and are none of the model's."""
        trains = any(part.phase in ("backward", "optimizer") for part in timing.times.lines)
        told = joined_parts([one.parts for of in (prefixes_of, row_loops_of) for one in of(rank, timing)])
        for written in written_again(rank, timing):
            told += written.parts
            yield self._writes(rank, written)
        for work, cost in works_of(rank, timing, told):
            # A program that trains nothing is there for what looks like an evaluation.
            wanted = work.kind == "evaluation" and not trains
            # Where the same is read again and again, OPS301 says so.
            known = work.kind != "evaluation" and cost.counts and read_again(rank, timing, work) is not None
            if work.kind in _WORDS and cost.counts and not wanted and not known:
                yield self._waits(rank, work, cost)

    def _writes(self, rank: RankRecording, written: Rewritten) -> Finding:
        cost = written.cost
        return self.takes(
            rank,
            written.place,
            f"{written.what}: {cost.of_step()}, at `{written.text}`",
            cost,
            cause=written.evidence,
            advice="write once, after the loop that gathers what is written, or at an interval; or append what is new "
            "(`open(path, 'a')`, a line or a file for each part)",
            severity=cost.severity(_REPLACED),
            related=[self.beside("caller", f"`{one.function}` calls it", one) for one in written.callers],
            about=About(variant=_WRITTEN_AGAIN),
        )

    def _waits(self, rank: RankRecording, work: Work, cost: Cost) -> Finding:
        what, advice = _WORDS[work.kind]
        named = work.named
        whole = named is None or work.kind in ("evaluation", UNWRITTEN)
        at = work.site if whole or named is None else named.place
        often = f", in about {_one_in(cost.often)}" if cost.often else ""
        message = f"{what} takes {cost.of_step()}{often}"
        if cost.grown is not None:
            first, last = map(percent, cost.grown)
            message += f"; it grows: {first} of the first third of the steps, {last} of the last"
        related = []
        if (at.path, at.line) != (work.site.path, work.site.line):
            related.append(self.beside("called-from", f"the training calls it in {work.site.function}", work.site))
        elif named is not None and (named.path, named.line) != (at.path, at.line):
            related.append(self.beside("most-of-it", named.text, named.place))
        return self.takes(
            rank,
            at,
            message,
            cost,
            cause=_UNUSED if work.kind == UNWRITTEN else "no step of the model runs meanwhile",
            advice=advice,
            severity=_severity(work, cost),
            related=related,
            about=About(variant=work.kind),
        )


def _severity(work: Work, cost: Cost) -> Severity:
    if cost.often is not None and cost.often < _OFTEN_ENOUGH:
        return "info"
    if work.kind == UNWRITTEN:
        return cost.severity(_UNWRITTEN)
    wanted = work.kind == "evaluation"
    return cost.severity(_MOST_OF_IT if wanted or cost.often else SHARE, _EVALUATION if wanted else A_STEP)


def _one_in(often: float) -> str:
    return f"one of {round(1 / often):,} steps" if often < 0.4 else f"{percent(often)} of the steps"
