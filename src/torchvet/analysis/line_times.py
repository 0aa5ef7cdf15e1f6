"""Which statements take the time of a step, and what for: arithmetic on what the clock of lines saw, no judgment."""

from __future__ import annotations

import ast
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import structs

from torchvet.recording.records.base import Place, Source
from torchvet.recording.records.timing import LineOperations, LineTime, LineTimes, OperatorsAt

if TYPE_CHECKING:
    from torchvet.recording.reader import RankRecording

LOOKS = 16
"""Looks below which shares say nothing."""
_RARE = 0.3
_FEWER = 3.0
"""Seconds of a line in the steps in which it was seen, in looks, from which on these steps are all that have it."""
_BY_CHANCE = 0.7
"""The part of the steps that as many looks would fall on by chance, from which on each step may have the line: looks
that come together in few steps are of lines that few steps have. Chosen, not measured."""


@dataclass
class Statement:
    """A statement of the program: the seconds in which it was the innermost of the program's."""

    path: str
    line: int
    end: int
    function: str
    text: str
    node: ast.stmt | None = None
    seconds: float = 0.0
    parts: list[LineTime] = field(default_factory=list)
    """What was seen of it, by how it was reached."""

    @property
    def place(self) -> Place:
        """Its first line, or the line that was seen most, where its text is not known."""
        return Place(self.path, self.line, self.function)

    def by(self, what: str) -> str:
        """The phase (or another field) that most of its seconds have."""
        sums: dict[str, float] = defaultdict(float)
        for part in self.parts:
            sums[getattr(part, what)] += part.seconds
        return max(sums, key=lambda one: sums[one], default="")

    def kinds(self) -> set[str]:
        """What ran below it for a fourth of its seconds or more."""
        sums: dict[str, float] = defaultdict(float)
        for part in self.parts:
            for kind in part.kinds:
                sums[kind] += part.seconds
        return {kind for kind, seconds in sums.items() if 4 * seconds >= self.seconds}


@dataclass
class Timing:
    """The steps that were watched. A step's `seconds` are the program's own: looks of torchvet's are left out."""

    times: LineTimes
    files: Files
    on_cpu: bool = True
    """Whether the program computes where Python runs: elsewhere a read of a tensor waits."""

    @property
    def step(self) -> float:
        """Seconds of a step, on the average."""
        return self.times.seconds / max(1, self.times.steps)

    def per_step(self, seconds: float) -> float:
        """Seconds of a line, by step."""
        return seconds / max(1, self.times.steps)

    def share(self, seconds: float) -> float:
        """Their part of all that was watched."""
        return seconds / self.times.seconds if self.times.seconds else 0.0

    def phases(self) -> dict[str, float]:
        """Seconds by phase."""
        found: dict[str, float] = defaultdict(float)
        for one in self.times.lines:
            found[one.phase] += one.seconds
        return dict(found)

    def statements(self, lines: list[LineTime] | None = None) -> list[Statement]:
        """The statements that were the innermost of the program's, those that took most first."""
        found: dict[tuple[str, int], Statement] = {}
        for one in self.times.lines if lines is None else lines:
            # Several lines of one statement come together here.
            self.files.statement(one.place, found).parts.append(one)
        for statement in found.values():
            statement.seconds = sum(part.seconds for part in statement.parts)
        return sorted(found.values(), key=lambda one: -one.seconds)

    def rare(self, parts: list[LineTime]) -> float | None:
        """In what share of the steps these lines run, where that is far from all; None where it is not, or unknown: a
        line of each step whose look falls on it in few of them."""
        # The most, not the sum: the same steps were seen at several lines.
        steps = max(part.steps for part in parts)
        apart = sum(part.seconds for part in parts) / max(1, steps)
        often = min(1.0, steps / max(1, self.times.steps))
        # A line that takes less than a look's interval is seen in few steps although each has it.
        longer = apart > _FEWER * self.times.interval
        return often if often < _RARE and longer and self._come_together(parts) else None

    def _come_together(self, parts: list[LineTime]) -> bool:
        """Whether looks at the line that was seen most fell on fewer steps than they would by chance."""
        most, steps = max(parts, key=lambda part: part.looks), max(1, self.times.steps)
        # The rule of looks that fall anywhere: each step is left out with the same odds.
        return most.steps <= _BY_CHANCE * steps * -math.expm1(-most.looks / steps)

    def innermost(self, path: str, first: int, last: int) -> list[LineTime]:
        """What was seen with one of these lines as the innermost of the program's."""
        return [one for one in self.times.lines if one.place.path == path and first <= one.place.line <= last]

    def below(self, path: str, first: int, last: int) -> list[LineTime]:
        """What was seen at these lines, with all that was called from them."""
        return [
            one
            for one in self.times.lines
            if any(p.path == path and first <= p.line <= last for p in (one.place, *one.callers))
        ]


class Files:
    """The statements of the files whose text was kept."""

    def __init__(self, rank: RankRecording) -> None:
        self._texts = {source.path: source.text for source in rank.all(Source)}
        self._starts: dict[str, dict[int, ast.stmt]] = {}
        self._trees: dict[str, ast.Module] = {}

    def statement(self, place: Place, known: dict[tuple[str, int], Statement]) -> Statement:
        """The innermost statement at a line."""
        node = self._of(place.path).get(place.line)
        first = node.lineno if node is not None else place.line
        key = place.path, first
        if key not in known:
            # Of a loop or an `if` the head alone.
            last = (node.end_lineno or first) if node is not None and not hasattr(node, "body") else first
            text = self.text(place.path, first)
            known[key] = Statement(place.path, first, last, place.function, text, node)
        return known[key]

    def loop(self, path: str, line: int) -> tuple[int, int] | None:
        """The head of the innermost loop around a line, and the loop's last line; None outside of loops."""
        found = None
        # So the last that fits is the innermost.
        for node in ast.walk(self.tree(path)):  # outer ones first
            # From the body on: the head of a loop runs outside of it.
            if isinstance(node, (ast.For, ast.While)) and node.body[0].lineno <= line <= (node.end_lineno or 0):
                found = node.lineno, node.end_lineno or node.lineno
        return found

    def loop_at(self, path: str, line: int) -> tuple[int, int] | None:
        """The lines of a loop whose head is here."""
        node = self._of(path).get(line)
        return (node.lineno, node.end_lineno or line) if isinstance(node, (ast.For, ast.While)) else None

    def function(self, path: str, line: int) -> list[ast.stmt]:
        """The statements of the innermost function around a line, or of the module: those of inner functions and
        classes are left out, and of compound ones the head and the body are told apart."""
        found: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef = self.tree(path)
        for node in ast.walk(found):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found = node if node.lineno <= line <= (node.end_lineno or 0) else found
        return _statements(found.body)

    def text(self, path: str, line: int) -> str:
        """A line's text; empty where it is not known."""
        lines = self._texts.get(path, "").splitlines()
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def imported(self, path: str) -> dict[str, str]:
        """What the names of a file's imports stand for: `np` for `numpy`, `sleep` for `time.sleep`."""
        names: dict[str, str] = {}
        for node in ast.walk(self.tree(path)):
            if isinstance(node, ast.Import):
                names.update(
                    {
                        (a.asname or a.name.partition(".")[0]): (a.name if a.asname else a.name.partition(".")[0])
                        for a in node.names
                    }
                )
            elif isinstance(node, ast.ImportFrom):
                names.update({(a.asname or a.name): f"{node.module or ''}.{a.name}" for a in node.names})
        return names

    def tree(self, path: str) -> ast.Module:
        """A file; empty where its text is not known, or none of Python's."""
        if path not in self._trees:
            try:
                self._trees[path] = ast.parse(self._texts.get(path, ""))
            except (SyntaxError, ValueError, RecursionError):
                # A file that was changed or cut is one without statements; its lines are still told.
                self._trees[path] = ast.Module([], [])
        return self._trees[path]

    def _of(self, path: str) -> dict[int, ast.stmt]:
        """The innermost statement of each line; of a compound one its head."""
        if path not in self._starts:
            found: dict[int, ast.stmt] = {}
            for node in ast.walk(self.tree(path)):  # outer ones first
                if isinstance(node, ast.stmt):
                    body = getattr(node, "body", None)
                    last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
                    for line in range(node.lineno, max(node.lineno, last) + 1):
                        # Inner ones come later and replace outer ones.
                        found[line] = node
            self._starts[path] = found
        return self._starts[path]


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """In the order of their lines."""
    found: list[ast.stmt] = []
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        found.append(node)
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            for inner in getattr(node, part, []):
                found += (
                    _statements(getattr(inner, "body", [])) if not isinstance(inner, ast.stmt) else _statements([inner])
                )
    return found


def timing_of(rank: RankRecording) -> Timing | None:
    """What the clock of lines saw; None where that is too little, or is the time of a simulated GPU."""
    # The stand-in for a GPU computes on the CPU: its seconds are nobody's.
    if rank.program is None or rank.program.simulated is not None:
        return None
    times = rank.last(LineTimes)
    if times is None or times.looks < LOOKS or not times.seconds:
        return None
    return Timing(by_calls(times), Files(rank), rank.program.device.startswith("cpu"))


def by_calls(times: LineTimes) -> LineTimes:
    """The lines of loading and of backward passes with the seconds that these calls took, and the others with the rest.

    A look waits for the interpreter's lock, and for a core: where the program computes on all of them, it comes late,
    and more often where the lock is free (in a backward pass) than where it is held (as arrays become a tensor).
    """
    seen: dict[str, float] = defaultdict(float)
    for line in times.lines:
        seen[_call(line)] += line.seconds
    # A call that was not heard, or not seen, is of the rest.
    told = {call: taken for call, taken in times.calls.items() if taken and seen[call]}
    rest_seen = times.seconds - sum(seen[call] for call in told)
    rest = times.seconds - sum(told.values())
    if not told or rest <= 0 or rest_seen <= 0:
        return times
    factors = {call: taken / seen[call] for call, taken in told.items()}
    other = rest / rest_seen
    lines = [structs.replace(line, seconds=line.seconds * factors.get(_call(line), other)) for line in times.lines]
    return structs.replace(times, rest=times.rest * other, lines=sorted(lines, key=lambda line: -line.seconds))


def _call(line: LineTime) -> str:
    """The phase whose calls are timed; empty where that is none of them, as where a loader begins or ends."""
    return line.phase if line.stage not in ("start", "end") else ""


def operators_of(rank: RankRecording) -> tuple[int, dict[tuple[str, int], OperatorsAt]]:
    """How many steps were sampled, and the operators of each line in them."""
    found = rank.last(LineOperations)
    if found is None:
        return 0, {}
    return found.sampled, {(one.place.path, one.place.line): one for one in found.lines}
