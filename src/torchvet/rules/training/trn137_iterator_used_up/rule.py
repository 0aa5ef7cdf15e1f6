"""TRN137: an iterator is gone through again after it has been used up."""

from __future__ import annotations

import msgspec

from torchvet.formatting import count
from torchvet.recording.records.passes import UsedUpIterator
from torchvet.recording.records.training import Outcome
from torchvet.rules.kit import Finding, Findings, Measured, RankRecording, Recording, SourceFile
from torchvet.rules.shared.seen_suspicions import as_observed, suspected_in
from torchvet.rules.shared.training_loops import LoopRule
from torchvet.rules.training import _iterators as iterators
from torchvet.rules.training._iterator_runs import UsedUp, used_up
from torchvet.rules.training.fixes.used_up_iterators import edits_for

_STEPS = 3
"""Sampled calls from which on it is a habit. Chosen, not measured."""

_EMPTY = "empty parameter list"


class IteratorUsedUp(LoopRule):
    """An iterator is gone through again after it has been used up."""

    severity = "warning"
    words = iterators.WORDS
    fix_changes_results = True
    silence_clears = False  # only clipping and loaders are heard

    def in_file(self, file: SourceFile) -> Findings:
        """Iterators that a second use, or the second turn of a loop, finds used up."""
        for made in iterators.made_in(file):
            found = used_up(file, made)
            if found is not None:
                yield self._of(file, found)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Those that clipping was given in all sampled steps, and loaders' iterators that were asked once more."""
        for seen in rank.latest(UsedUpIterator):
            known = [f for f in suspected_in(self, recording, seen.place.path) if _is_about(f, seen)]
            if seen.used_up < seen.calls or (seen.calls < _STEPS and not known):
                continue
            if known:
                yield as_observed(known[0], rank, f"{known[0].message}. {_seen_as(seen)}", Measured(steps=seen.calls))
            elif seen.clips:
                yield self._clipped(rank, seen)
        yield from self._ended_in(rank, recording)

    def _ended_in(self, rank: RankRecording, recording: Recording) -> Findings:
        """The error of an optimizer that was given one."""
        ended = rank.last(Outcome)
        if ended is None or _EMPTY not in (ended.error or ""):
            return
        for place in (ended.place, *ended.stack):
            for found in suspected_in(self, recording, place.path) if place is not None else ():
                if found.location is not None and place is not None and found.location.line == place.line:
                    seen = as_observed(found, rank, found.message, Measured(steps=ended.ticks + 1))
                    yield msgspec.structs.replace(seen, severity="error")
                    return

    def _of(self, file: SourceFile, found: UsedUp) -> Finding:
        made, text = found.made, file.segment(found.made.value)
        name = f"self.{made.name}" if made.attribute else made.name
        at = found.again.event
        finding = self.suspect(
            file,
            at,
            found.message,
            cause=f"`{text}` makes an iterator, which can be gone through once. Whoever goes through it again gets "
            "nothing, and no error",
            advice=f"make a list of it: `{name} = list({text})`" if made.parts else f"make it again: `{text}`",
            severity="warning" if found.certain else "info",
            node=found.again.at if hasattr(found.again.at, "lineno") else found.again.node,
            edits=edits_for(file, found),
            related=[
                self.also(file, "made", made.event),
                *([self.also(file, "used", found.first.event, found.first_text)] if found.first is not None else []),
                *(self.also(file, "again", one.event) for one in found.others),
            ],
        )
        return finding

    def _clipped(self, rank: RankRecording, seen: UsedUpIterator) -> Finding:
        return self.observed(
            rank,
            seen.place,
            f"{seen.what} is given an iterator that is used up, and clips nothing",
            cause=f"it was so in {count(seen.calls, 'sampled call')}, while {count(seen.trained, 'parameter')} of the "
            "optimizers had gradients. An iterator can be gone through once; who gets it then gets nothing",
            advice="make a list of them once, `params = list(model.parameters())`, or call `parameters()` again",
            measured=Measured(steps=seen.calls),
        )


def _is_about(finding: Finding, seen: UsedUpIterator) -> bool:
    lines = {r.line for r in finding.related if r.role == "again"}
    lines |= {finding.location.line} if finding.location is not None else set()
    return seen.place.line in lines


def _seen_as(seen: UsedUpIterator) -> str:
    if not seen.clips:
        return f"A loader's iterator was asked {count(seen.calls, 'time')} here after its end"
    having = count(seen.trained, "parameter")
    return f"{seen.what} got nothing in {count(seen.calls, 'sampled call')}, while {having} had gradients"
