"""TRN141: what is set on the data set of one part of a split is set for all parts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from torchvet.recording.records.reading import SET_APART, SharedParts
from torchvet.rules.kit import (
    Edits,
    Finding,
    Findings,
    Measured,
    RankRecording,
    Recording,
    Rule,
    Severity,
    SourceFile,
    count,
)
from torchvet.rules.shared.seen_suspicions import confirmed
from torchvet.source.model import Event, blocks, edits, targets_of

_SHARED = (
    "a split gives subsets of one data set: each has its indices, and `.dataset` is the same object in all of them. "
    "What was set for training is gone, or holds for evaluation as well"
)


class _Split(NamedTuple):
    """The parts that one `random_split` gives, as the text has them."""

    at: Event
    parts: tuple[str, ...]


class PartsShareDataset(Rule):
    """What is set on the data set of one part of a split is set for the other parts too."""

    severity = "warning"
    words = ("random_split",)
    silence_clears = False  # a part may be read later than the run went
    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Parts that were read with what was set for one: where the text shows the line, as it says; else at the
        split."""
        for seen in rank.latest(SharedParts, "place", "attribute"):
            what = f", and {count(seen.parts, 'part')} of the split were read with it"
            found = list(confirmed(self, recording, rank, seen.place, seen=what, measured=Measured(), role="split"))
            # What was nothing before, and is set once, is meant for all.
            grade: Severity = "warning" if seen.had else "info"
            yield from [msgspec.structs.replace(one, severity=grade) for one in found] or [self._at_split(rank, seen)]

    def _at_split(self, rank: RankRecording, seen: SharedParts) -> Finding:
        return self.observed(
            rank,
            seen.place,
            f"`{seen.attribute}` of a data set was set after it had been split, and {count(seen.parts, 'part')} of the "
            "split were read with it",
            cause=_SHARED,
            advice="give the part a data set of its own: `part.dataset = copy.copy(part.dataset)` before, or two data "
            "sets and `Subset` with the indices of the split",
            # It may be meant for all: the text does not show for which it was set.
            severity="info",
        )

    def in_file(self, file: SourceFile) -> Findings:
        """`val_set.dataset.transform = ...` of a part of a `random_split`, which has no data set of its own."""
        if not file.mentions("random_split") or not file.mentions("dataset"):
            return
        splits = list(_splits(file))
        told: set[Event] = set()
        for event, part, attribute in _set(file):
            split = next((s for s in splits if part in s.parts and _reaches(s.at, event)), None)
            # In a loop it may be set for each part before that is read.
            if split is None or split.at in told or event.loop is not None or _own(file, split):
                continue
            told.add(split.at)
            others = " and ".join(f"`{one}`" for one in split.parts if one != part)
            yield self.suspect(
                file,
                event,
                # It may be meant for all, and others may never be read: a run sees that.
                severity="info",
                message=f"`{attribute}` is set on the data set that `{part}` shares with {others}",
                cause=_SHARED,
                advice=f"give `{part}` a data set of its own: `{part}.dataset = copy.copy({part}.dataset)` before, or "
                "two data sets and `Subset` with the indices of the split",
                edits=_copied(file, event, part),
                related=[self.also(file, "split", split.at, file.segment(split.at.node))],
            )


def _splits(file: SourceFile) -> Iterator[_Split]:
    for event in file.calls("random_split"):
        targets = targets_of(event.statement)
        named = [file.segment(one) for one in targets if isinstance(one, (ast.Name, ast.Attribute))]
        if len(named) > 1:
            yield _Split(event, tuple(named))


def _set(file: SourceFile) -> Iterator[tuple[Event, str, str]]:
    """Where an attribute is set on `part.dataset`: with the part and the attribute."""
    lines = set(file.lines_with("dataset"))
    for unit in file.units_at(sorted(lines)):
        for event in unit.events:
            if event.line not in lines or not isinstance(event.node, ast.Assign):
                continue
            for target in targets_of(event.node):
                of = target.value if isinstance(target, ast.Attribute) and SET_APART.search(target.attr) else None
                if isinstance(of, ast.Attribute) and of.attr == "dataset":
                    yield event, file.segment(of.value), target.attr  # type: ignore[attr-defined]


def _reaches(split: Event, event: Event) -> bool:
    """Whether a name of the split means the same where the attribute is set: in one function, behind it, or as an
    attribute of one object."""
    if split.unit is event.unit:
        return split.index < event.index and not split.excludes(event)
    owner = split.unit.method_class()
    return owner is not None and owner is event.unit.method_class()


def _own(file: SourceFile, split: _Split) -> bool:
    """Whether some part is given a data set of its own anywhere, or is copied with it."""
    own = re.compile(rf"({'|'.join(map(re.escape, split.parts))})(\.dataset\s*=[^=]|\s*=.*\bcopy)")
    return own.search(file.text) is not None


def _copied(file: SourceFile, event: Event, part: str) -> Edits:
    """A copy of the data set for the part, before it is changed."""
    line = edits.before(file, event.statement, f"{part}.dataset = copy.copy({part}.dataset)")
    known = any(
        isinstance(s, ast.Import) and any(a.name == "copy" and a.asname is None for a in s.names)
        for s in file.tree.body
    )
    imported = [] if known else blocks.importing(file, "copy")
    return [*imported, *line] if line and (known or imported) else ()
