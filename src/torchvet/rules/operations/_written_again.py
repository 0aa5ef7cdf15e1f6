"""Files that are written whole again, each time with more."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from torchvet.formatting import count, percent, size
from torchvet.recording.records.reading import WrittenAgain
from torchvet.rules.kit import Place, RankRecording
from torchvet.rules.shared.line_costs import Cost, joined_parts

if TYPE_CHECKING:
    from torchvet.analysis.line_times import Statement, Timing
    from torchvet.recording.records.timing import LineTime

_VERSIONS = 4
"""Versions of a file from which on it is written again and again, on the average. Chosen, not measured."""
_GREW, _READ = 0.8, 0.2
"""The shares of the versions that had more than the one before, from which on files grow, and that the program read,
from which on they were written for that. Chosen, not measured."""
_CALLERS = 2


class Rewritten(NamedTuple):
    """A call that writes growing files whole, again and again."""

    seen: WrittenAgain
    statement: Statement
    """Where most of the time goes."""
    parts: list[LineTime]
    cost: Cost
    """What writing the last versions alone saves."""

    @property
    def place(self) -> Place:
        """The statement that writes."""
        return self.statement.place

    @property
    def text(self) -> str:
        """Its first line."""
        return self.statement.text

    @property
    def callers(self) -> list[Place]:
        """The lines that lead to it."""
        return self.seen.callers[:_CALLERS]

    @property
    def what(self) -> str:
        """The message's begin."""
        each = self.seen.writes / self.seen.files
        those = "a growing file is" if self.seen.files == 1 else f"{self.seen.files:,} growing files are"
        return f"{those} written whole {each:.0f} times{'' if self.seen.files == 1 else ' each'}, for what is new"

    @property
    def evidence(self) -> str:
        """What was counted."""
        seen = self.seen
        return (
            f"{count(seen.writes, 'version')} of {count(seen.files, 'file')} (`{seen.name}`) were written, "
            f"{size(seen.bytes)} in all; {size(seen.last_bytes)} ({percent(seen.last_bytes / seen.bytes)}) of them "
            f"were left in the end, and the program read {seen.read or 'none'} of the versions before their end"
        )


def written_again(rank: RankRecording, timing: Timing) -> Iterator[Rewritten]:
    """Calls that cost something, each with what writing the last versions alone saves of their lines' time."""
    for seen in rank.latest(WrittenAgain, "id"):
        over = seen.writes - seen.files
        again = seen.writes >= _VERSIONS * seen.files and seen.grew >= _GREW * over and seen.read <= _READ * over
        if not again or not 0 < seen.last_bytes < seen.bytes:
            continue
        opened = timing.files.statement(seen.place, {})
        writing = _writing(timing, opened)
        parts = joined_parts([timing.below(opened.path, first, last) for first, last in writing])
        cost = Cost(timing, parts, 1 - seen.last_bytes / seen.bytes, alone=True)
        if cost.counts:
            yield Rewritten(seen, _largest(timing, opened, writing), parts, cost)


def _writing(timing: Timing, opened: Statement) -> list[tuple[int, int]]:
    """The lines of the statements that write what one opens: its own, the body of a `with`, and those that name the
    file that it is bound to."""
    node = opened.node
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return [(opened.line, node.end_lineno or opened.end)]
    names = {t.id for t in node.targets if isinstance(t, ast.Name)} if isinstance(node, ast.Assign) else set()
    found = {opened.line: opened.end}
    for other in timing.files.function(opened.path, opened.line) if names else []:
        if not hasattr(other, "body") and not names.isdisjoint(
            n.id for n in ast.walk(other) if isinstance(n, ast.Name)
        ):
            found[other.lineno] = other.end_lineno or other.lineno
    return list(found.items())


def _largest(timing: Timing, opened: Statement, writing: list[tuple[int, int]]) -> Statement:
    """Of these lines' statements the one that takes most; the one that opens, where the time is further below."""
    inner = joined_parts([timing.innermost(opened.path, first, last) for first, last in writing])
    return next(iter(timing.statements(inner)), opened)
