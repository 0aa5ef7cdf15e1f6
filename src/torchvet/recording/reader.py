"""Reads a recording back, tolerant of a process that was killed in the middle of a line."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Mapping
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeVar, Union

import msgspec

from torchvet.errors import BadInput
from torchvet.recording import records
from torchvet.recording.faults import position, stuck
from torchvet.recording.last_seen import last_seen
from torchvet.recording.opening import MOST_FILE, lines, opened
from torchvet.recording.records import base, training
from torchvet.recording.records.base import LARGEST_SOURCE, Place, Program, Record, Source
from torchvet.recording.records.ranks import ChildEnd, Member
from torchvet.recording.writer import FORMAT, MANIFEST, Manifest

if TYPE_CHECKING:
    from torchvet.source.model import SourceFile
    from torchvet.source.stores import SourceIndex


def _record_types() -> list[type[Record]]:
    """Every record type of the modules in `records`, in a stable order. Others subclass `Record` in tests."""
    # Found by the folder, so that a new module of records needs no list.
    modules = {f"{records.__name__}.{module.name}" for module in pkgutil.iter_modules(records.__path__)}
    for name in modules:
        importlib.import_module(name)
    return sorted((c for c in Record.__subclasses__() if c.__module__ in modules), key=lambda c: c.__name__)


# One decoder for all types: the tag `k` decides, and a line with an unknown one counts as damaged.
_Line = msgspec.json.Decoder(Union[tuple(_record_types())])  # noqa: UP007
R = TypeVar("R", bound=Record)
_RANK_FILE = re.compile(r"rank([0-9]{1,9})(?:\.child([0-9]{1,9}))?\.jsonl")
_MOST_MANIFEST = 1 << 16
_LONG, _LARGEST = re.compile(rb"[0-9]{19}"), 1 << 64
ENOUGH = 9
"""Step boundaries below which growth cannot be told from warming up."""


def restarts(before: base.Step, after: base.Step) -> bool:
    """Whether the steps were counted anew between two records. (Kinds that share a line have one number and time.)"""
    return after.n < before.n or (after.n == before.n and after.t > before.t)


class RankRecording:
    """The records of one rank, in the order in which they were written."""

    def __init__(self, rank: int, lines: list[Record], damaged: int = 0, child: int = 0, name: str = "") -> None:
        self.lines = lines
        self.name = name
        """Of its file, without the suffix."""
        # The last: a program may say its rank only as it joins a group.
        self.member = self.last(Member) or _as_told(self.last(Program))
        """Which of several processes that train together it is; None where it trains alone."""
        self.rank = self.member.rank if self.member is not None else rank
        self.child = child
        """The number of a process that the program of this rank has started; 0 for the program itself."""
        self.damaged = damaged
        self.damage = ""
        """What is wrong with the first of the damaged lines, as the decoder says."""

    @property
    def unreadable(self) -> str:
        """That lines were lost, and why; empty where all were read."""
        return f"the recording has lines that cannot be read: {self.damage or 'unknown'}" if self.damaged else ""

    def all(self, kind: type[R]) -> list[R]:
        """All records of one type, oldest first."""
        return [r for r in self.lines if type(r) is kind]

    def latest(self, kind: type[R], *fields: str) -> list[R]:
        """The newest record of each place, or of each value of other fields, in the order in which these appeared."""
        value = attrgetter(*(fields or ("place",)))
        # A dict keeps the position of the first and the value of the last.
        return list({value(record): record for record in self.all(kind)}.values())

    def since_restart(self, kind: type[R]) -> list[R]:
        """The same, of those written since the steps were last counted anew (a stronger step signal appeared)."""
        start = 0
        before: base.Step | None = None
        for index, line in enumerate(self.lines):
            if isinstance(line, base.Step):
                start = index if before is not None and restarts(before, line) else start
                before = line
        return [r for r in self.lines[start:] if type(r) is kind]

    def last(self, kind: type[R]) -> R | None:
        """The newest record of one type, or None."""
        return next((r for r in reversed(self.lines) if type(r) is kind), None)

    @property
    def ticks(self) -> int:
        """Step boundaries that were passed, as far as was written."""
        outcome, step = self.last(training.Outcome), self.last(base.Step)
        return outcome.ticks if outcome is not None else step.n if step is not None else 0

    @property
    def sampled(self) -> bool:
        """Whether enough steps were passed to tell habits from warming up, and some were looked at."""
        return self.ticks >= ENOUGH and any(isinstance(line, base.Window) for line in self.lines)

    @cached_property
    def index(self) -> SourceIndex:
        """Answers questions about the source text that this rank kept."""
        from torchvet.source.stores import SourceIndex

        return SourceIndex(self.sources)

    @cached_property
    def sources(self) -> dict[str, str]:
        """The texts of the user's files, by path. One that is larger than any that is kept would be read for hours."""
        return {s.path: s.text for s in self.all(Source) if len(s.text) <= LARGEST_SOURCE}

    @cached_property
    def program(self) -> Program | None:
        """What ran, or None when it never started."""
        return self.last(Program)


def _as_told(program: Program | None) -> Member | None:
    """The same from recordings that say it of the program only."""
    if program is None or program.rank is None or (program.world_size or 1) < 2:
        return None
    return Member(rank=program.rank, world_size=program.world_size or 2, host="")


class Recording:
    """One run: its ranks, and the text of the user's files that its facts point into."""

    def __init__(self, ranks: list[RankRecording], path: Path | None = None) -> None:
        self.ranks = ranks
        self.path = path
        self.sources = {path: text for rank in ranks for path, text in rank.sources.items()}
        self._models: dict[str, SourceFile | None] = {}

    @property
    def members(self) -> list[RankRecording]:
        """One process for each rank, by rank: of several the one that an elastic launcher started last. Empty where the
        program trains alone."""
        found: dict[int, RankRecording] = {}
        for one in self.ranks:
            if one.member is not None and (one.rank not in found or _newer(one, found[one.rank])):
                found[one.rank] = one
        return [found[rank] for rank in sorted(found)] if len(found) > 1 else []

    def limited(self, memory_limit: int) -> Recording:
        """The same recording as if the program had run under another memory limit, in bytes."""

        def of(line: Record) -> Record:
            if not isinstance(line, Program):
                return line
            return msgspec.structs.replace(
                line, memory_limit=memory_limit, memory_limit_source="--memory-limit", address_space=0
            )

        ranks = [RankRecording(r.rank, [of(line) for line in r.lines], r.damaged, r.child) for r in self.ranks]
        return Recording(ranks, self.path)

    @cached_property
    def index(self) -> SourceIndex:
        """Answers questions about the user's source text."""
        from torchvet.source.stores import SourceIndex

        return SourceIndex(self.sources)

    def model(self, path: str) -> SourceFile | None:
        """What rules ask about a file's text; None where the text was not kept or cannot be parsed."""
        if path not in self._models:
            from torchvet.source.model import SourceFile

            try:
                self._models[path] = SourceFile(path, self.sources[path])
            except (KeyError, SyntaxError, ValueError, RecursionError, MemoryError):
                self._models[path] = None
        return self._models[path]

    def source_line(self, place: Place | None) -> str | None:
        """The stripped text of a line, or None where its file was not kept."""
        if place is None or place.path not in self.sources:
            return None
        lines = self.sources[place.path].splitlines()
        return lines[place.line - 1].strip() if 0 < place.line <= len(lines) else None


def _newer(one: RankRecording, other: RankRecording) -> bool:
    assert one.member is not None and other.member is not None
    return (one.member.restart, one.ticks) > (other.member.restart, other.ticks)


def read(directory: Path, ended: Mapping[str, training.Outcome] = MappingProxyType({})) -> Recording:
    """Read a recording directory. `ended` says how processes ended that could not write it, by their files' stems.

    Raises `BadInput` when the path is not one: missing, without a manifest, or of a format this version cannot read.
    """
    if not directory.is_dir():
        raise BadInput(f"{directory}: no such recording (a recording is a directory that `torchvet run --record` made)")
    known = manifest_of(directory)
    if known.format != FORMAT:
        raise BadInput(f"{directory}: recording format {known.format!r}; this version reads {FORMAT!r}")
    ranks = [_read_rank(directory, *found) for found in _rank_files(directory)]
    for one in ranks:
        # What the process wrote itself is the better word.
        if one.name in ended and one.last(training.Outcome) is None:
            one.lines.append(ended[one.name])
    _add_ends(directory, ranks)
    # First who has trained: a launcher only starts others.
    return Recording(sorted(ranks, key=lambda r: (r.ticks == 0, r.rank, r.child)), directory)


def manifest_of(directory: Path) -> Manifest:
    """What a folder says of itself. Raises `BadInput` where it is no recording."""
    file = directory / MANIFEST
    try:
        with opened(directory, file) as stream:
            return msgspec.json.decode(stream.read(_MOST_MANIFEST), type=Manifest)
    except (OSError, BadInput, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{directory}: not a torchvet recording: {file.name}: {error}") from error


def _rank_files(directory: Path) -> list[tuple[Path, int, int]]:
    """The files of ranks and of their children, each with both numbers. Other names are no writer's."""
    try:
        matches = ((file, _RANK_FILE.fullmatch(file.name)) for file in sorted(directory.iterdir()))
        return [(file, int(found[1]), int(found[2] or 0)) for file, found in matches if found is not None]
    except OSError as error:
        raise BadInput(f"{directory}: the recording cannot be read: {error.strerror}") from error


def _add_ends(directory: Path, ranks: list[RankRecording]) -> None:
    """How processes ended that could not write it themselves, as those that had started them saw it; and where those
    were that a signal ended, or that did not end with their program."""
    # Another host's processes may have the same numbers, and never the same rank: children write beside their rank.
    ended = {(_stem(one), end.pid): end.status for one in ranks for end in one.all(ChildEnd)}
    for one in ranks:
        program = one.program
        if program is None:
            continue
        if one.last(training.Outcome) is None and (_stem(one), program.pid) in ended:
            _add_end(one, ended[_stem(one), program.pid])
        outcome = one.last(training.Outcome)
        # Only where a signal ended it is its last position news.
        if outcome is None or outcome.how == "killed":
            _add_last_place(directory, one, program, outcome)
        elif (late := stuck(directory / f"{one.name}.fault", program)) is not None:
            one.lines.append(late)


def _stem(one: RankRecording) -> str:
    """What the files of a rank and of its children have in common."""
    return one.name.partition(".")[0]


def _add_end(one: RankRecording, status: int) -> None:
    last = one.last(base.Step)
    how: Literal["killed", "os-exit"] = "killed" if status < 0 else "os-exit"
    seconds = last.t if last is not None else 0.0
    one.lines.append(training.Outcome(how=how, status=status, ticks=one.ticks, seconds=seconds))


def _add_last_place(directory: Path, one: RankRecording, program: Program, outcome: training.Outcome | None) -> None:
    """Where a process was that could not say it: by what the interpreter wrote at a signal, or as last seen."""
    at = position(directory / f"{one.name}.fault", program, one.ticks)
    seen = last_seen(directory / f"{one.name}.jsonl") if one.member is not None else None
    one.lines += [line for line in (at, seen) if line is not None]
    if outcome is not None and at is not None:
        outcome.place = at.place
    if outcome is not None and seen is not None:
        outcome.ticks = max(outcome.ticks, seen.tick)


def _read_rank(directory: Path, file: Path, rank: int, child: int) -> RankRecording:
    found: list[Record] = []
    damaged, damage = 0, ""
    try:
        stream = opened(directory, file)
    except OSError as error:
        if child:  # the program may have taken all permissions from its new files (`umask`)
            return _damaged(RankRecording(rank, [], 1, child, file.stem), str(error))
        raise BadInput(f"{file}: the recording cannot be read: {error.strerror}") from error
    with stream:
        for raw in lines(stream):
            try:
                found.append(_decoded(raw))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                damaged, damage = damaged + 1, damage or str(error)
        if stream.tell() > MOST_FILE:
            damaged, damage = damaged + 1, damage or f"more than {MOST_FILE:,} bytes are not read"
    return _damaged(RankRecording(rank, found, damaged, child, file.stem), damage)


def _damaged(rank: RankRecording, damage: str) -> RankRecording:
    rank.damage = damage
    return rank


def _decoded(raw: bytes) -> Record:
    """A line's record. Raises `msgspec.DecodeError` for what no writer writes."""
    record: Record = _Line.decode(raw)
    # JSON's numbers have no end, and arithmetic has: a float of 400 digits is none. Few lines have that many.
    if _LONG.search(raw) and not _is_measured(msgspec.to_builtins(record)):
        raise msgspec.ValidationError("a number in it is larger than any that is measured")
    return record


def _is_measured(value: object) -> bool:
    """Whether all numbers in a value are of a size that a run can have."""
    if isinstance(value, dict):
        return all(map(_is_measured, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_measured, value))
    return not isinstance(value, int) or -_LARGEST <= value <= _LARGEST
