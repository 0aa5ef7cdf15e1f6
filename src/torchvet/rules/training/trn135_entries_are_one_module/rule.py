"""TRN135: entries of a container of modules are one module."""

from __future__ import annotations

import msgspec

from torchvet.formatting import count
from torchvet.recording.records.base import Place
from torchvet.recording.records.layers import RepeatedEntry
from torchvet.rules.kit import Finding, Findings, Measured, RankRecording, Recording, Rule, Severity, SourceFile
from torchvet.rules.shared.seen_suspicions import as_observed
from torchvet.rules.training._repeated_parts import CONTAINERS, Repeated, on_purpose, repeated

_ADVICE = "call what makes them once for each entry, in a comprehension; to share, keep one and call it again"
_STEPS = 3
"""Sampled steps from which on it is a habit. Chosen, not measured."""


class EntriesAreOneModule(Rule):
    """Entries of a container of modules are one module."""

    severity = "warning"
    words = CONTAINERS
    fix_changes_results = True
    silence_clears = False  # entries that get different inputs share their parameters all the same

    def in_file(self, file: SourceFile) -> Findings:
        """Containers that are built by repeating what one call makes: a note, as layers may share on purpose."""
        yield from (self._of(file, one) for one in repeated(file))

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Such entries, where they are given the same input and so give the same result."""
        lines: dict[Place, list[RepeatedEntry]] = {}
        for seen in rank.latest(RepeatedEntry, "id"):
            lines.setdefault(seen.place, []).append(seen)
        for place, all_of_line in lines.items():
            # A function may build several containers; the one whose entries give the same result proves more.
            seen = max(all_of_line, key=lambda one: (one.steps >= _STEPS and not one.draws, one.steps, one.parameters))
            file = recording.model(place.path)
            ones = [one for one in repeated(file) if one.event.line == place.line] if file is not None else []
            alike = seen.steps >= _STEPS and not (file is not None and _meant(file, seen))
            if alike or (ones and seen.called >= _STEPS):
                yield self._seen(rank, ones, seen, alike)

    def _of(self, file: SourceFile, one: Repeated) -> Finding:
        return self.suspect(
            file,
            one.event,
            f"the entries of {file.segment(one.event.call.func)} are one module: {one.made} is made once, and its "
            "parameters are shared by all of them",
            cause="a name, `*` and `fromkeys` repeat the reference to a module: none of them copies it",
            advice=_ADVICE,
            severity="info",
            edits=one.edits,
        )

    def _seen(self, rank: RankRecording, ones: list[Repeated], seen: RepeatedEntry, alike: bool) -> Finding:
        n, steps = seen.entries, seen.steps if alike else seen.called
        of_all = f"It has {count(seen.parameters, 'parameter')}; {n} of its kind would have {n * seen.parameters:,}"
        message = f"{n} entries of {seen.container} are one {seen.module}, {_given(seen, alike)}. {of_all}"
        cause = f"the entries share all parameters. It was so in {count(steps, 'sampled step')}"
        severity: Severity = "warning" if alike and not seen.draws else "info"
        measured = Measured(steps=steps)
        if ones:
            found = as_observed(self._of(ones[0].event.unit.file, ones[0]), rank, message, measured)
            return msgspec.structs.replace(found, severity=severity, cause=cause)
        return self.observed(
            rank, seen.place, message, cause=cause, advice=_ADVICE, severity=severity, measured=measured
        )


def _given(seen: RepeatedEntry, alike: bool) -> str:
    if not alike:
        return "one behind the other or with an input for each"
    same = f"given the same input {seen.times} times"
    return f"{same}: {'only what it draws differs' if seen.draws else f'the same result {seen.times} times'}"


def _meant(file: SourceFile, seen: RepeatedEntry) -> bool:
    """Whether the text around the container says that its entries are to be one."""
    return any(on_purpose(file, event, alike=True) for event in file.events_on(seen.place.line))
