"""Members of files that a step's data is read from again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torchvet.formatting import count, percent, size
from torchvet.recording.records.reading import ReadAgain
from torchvet.rules.kit import Place, RankRecording
from torchvet.rules.shared.line_costs import Cost

if TYPE_CHECKING:
    from torchvet.analysis.host_work import Work
    from torchvet.analysis.line_times import Statement, Timing

_ENOUGH = 2
"""Reads of a member from which on it is read again and again, on the average. Chosen, not measured."""
_STEPS, _SECONDS = 8, 1.0
"""Steps, or seconds of workers, below which reading says little. Chosen, not measured."""
_NAMES = {
    "npz": ("member of a .npz file", "members of .npz files"),
    "zip": ("member of a zip file", "members of zip files"),
    "npy": ("array file", "array files"),
    "torch": ("file by torch.load", "files by torch.load"),
    "json": ("JSON text", "JSON texts"),
}
_KEEP = {
    "npz": "`archive[key]` reads and inflates the whole member each time: keep what it gives (in `__init__`, "
    "`{key: archive[key] for key in ...}`), and index that",
    "zip": "read each member once, and keep its bytes or what is made of them",
    "npy": "load each array once, in `__init__`, and index it in memory",
    "torch": "load each file once, in `__init__`, and keep what it gives",
    "json": "parse each text once, in `__init__`, and keep what it gives",
}
_LARGE = {
    "npz": "; for what memory cannot hold, .npy files and np.load(..., mmap_mode='r')",
    "npy": "; for what memory cannot hold, np.load(..., mmap_mode='r')",
    "torch": "; for what memory cannot hold, torch.load(..., mmap=True)",
}


class Again(NamedTuple):
    """What a statement reads again, within some work of the host."""

    statement: Statement
    reads: list[ReadAgain]
    cost: Cost
    """What reading each member once in a pass saves, of the work's parts that go through the statement."""

    @property
    def what(self) -> str:
        """The kind that takes most."""
        return max(self.reads, key=lambda one: one.seconds).what

    @property
    def members(self) -> str:
        """`24 members of .npz files`."""
        return count(self._members, *_NAMES[self.what])

    @property
    def verb(self) -> str:
        """Theirs."""
        return "is" if self._members == 1 else "are"

    @property
    def _members(self) -> int:
        return sum(one.members for one in self.reads)

    @property
    def evidence(self) -> str:
        """What was counted."""
        again, reads = (sum(getattr(one, name) for one in self.reads) for name in ("again", "reads"))
        first = max(self.reads, key=lambda one: one.seconds)
        where = f"{count(first.workers, 'worker')} of the loader" if first.workers else count(first.steps, "step")
        before = "earlier in the same pass over the loader" if first.in_loader else "just before"
        name = f" (`{first.name}`)" if first.name else ""
        return (
            f"in {where} {reads:,} reads of {self.members}{name} were counted, each of {size(self._each)}; "
            f"{percent(again / reads)} of them were of what had been read {before}"
        )

    @property
    def _each(self) -> float:
        return sum(one.bytes for one in self.reads) / max(1, self._members)

    @property
    def advice(self) -> str:
        """What to do, and what it takes."""
        held = size(sum(one.bytes for one in self.reads))
        return f"{_KEEP[self.what]} ({held} for those seen){_LARGE.get(self.what, '')}"


def read_again(rank: RankRecording, timing: Timing, work: Work) -> Again | None:
    """What most of the work's time for reading again goes to; None where that is nothing, or a trifle."""
    # The work of workers is known as a whole only; what they are waited for is less.
    busy = 2 * sum(part.seconds for part in work.parts if part.stage == "wait") > work.seconds
    found: dict[tuple[str, int], list[ReadAgain]] = {}
    for one in rank.latest(ReadAgain, "id", "workers"):
        if bool(one.workers) is busy and _is_enough(one) and _leads(timing, one, work):
            at = timing.files.statement(one.place, {})
            found.setdefault((at.path, at.line), []).append(one)
    each = [_saved(timing, work, reads, busy) for reads in found.values()]
    return max((one for one in each if one.cost.counts), key=lambda one: one.cost.seconds, default=None)


def _is_enough(one: ReadAgain) -> bool:
    """Whether enough was seen, and members are read twice or more, on the average."""
    seen = one.watched >= _SECONDS if one.workers else one.steps >= _STEPS
    return seen and one.reads >= _ENOUGH * one.members


def _saved(timing: Timing, work: Work, reads: list[ReadAgain], busy: bool) -> Again:
    """What one statement's reads cost; where workers are waited for, what they cost of all that those do."""
    statement = timing.files.statement(reads[0].place, {})
    parts = work.parts if busy else [one for one in work.parts if _through(statement, (one.place, *one.callers))]
    seconds = sum(one.seconds for one in parts)
    # The time that workers need for a step is the step's, where they are waited for.
    again = sum(one.seconds / (one.watched or one.steps) for one in reads)
    whole = timing.share(seconds) if busy else timing.per_step(seconds)
    return Again(statement, reads, Cost(timing, parts, min(1.0, again / whole) if whole else 0.0))


def _leads(timing: Timing, one: ReadAgain, work: Work) -> bool:
    """Whether the reading is below the work's line."""
    return _through(timing.files.statement(work.site, {}), (one.place, *one.callers))


def _through(statement: Statement, places: tuple[Place, ...]) -> bool:
    return any(p.path == statement.path and statement.line <= p.line <= statement.end for p in places)
