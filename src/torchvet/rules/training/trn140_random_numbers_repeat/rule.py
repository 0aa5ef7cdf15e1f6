"""TRN140: the global random state of a training is set back, so that it draws the same numbers again and again."""

from __future__ import annotations

import ast
import re

from torchvet.formatting import count, percent
from torchvet.recording.records.optimizers import RepeatedRandoms
from torchvet.rules.kit import (
    About,
    Edits,
    Finding,
    Findings,
    Measured,
    RankRecording,
    Recording,
    SourceFile,
    about,
    events_at,
)
from torchvet.rules.shared.training_loops import LoopRule
from torchvet.rules.training._seeds_in_loops import seeded_in_turn
from torchvet.rules.training.fixes import seeds

_TIMES = 3
"""Returns to a state from which on it is a habit. Chosen, not measured."""
_SHARE = 0.1
"""The share of all steps that repeat from which on it is more than a note. Chosen, not measured."""
_ORDERS = re.compile(
    r"\b(torch\.(randperm|multinomial)|random\.(permutation|shuffle|choice|sample))\((?![^()\n]*generator)"
)
"""Orders that are drawn from a global generator."""
_ADVICE = (
    "seed once, before training. For numbers that are to be the same each time use a generator of their own "
    "(`generator=torch.Generator().manual_seed(seed)`), or `with torch.random.fork_rng():` around the seed "
    "and what draws"
)
_NAMES = {"torch": "torch's", "numpy": "NumPy's", "random": "Python's"}


class RandomNumbersRepeat(LoopRule):
    """The global random state is set back during training, which draws the same numbers again and again."""

    severity = "warning"
    words = ("manual_seed",)
    silence_clears = False
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """A generator of its own where one is handed over, a seed of each epoch's own in the loop over epochs, a
        state of its own for a function that does not train."""
        calls = [event for event in events_at(file, finding) if isinstance(event.node, ast.Call)]
        ended = about(finding).variant == "ended"
        return (
            seeds.own_generator(file, calls)
            or seeds.of_epoch(file, calls)
            or (seeds.forked(file, calls) if ended else ())
        )

    def in_file(self, file: SourceFile) -> Findings:
        """Calls that seed by the same number in each turn of a loop that trains; training may draw nothing."""
        for event in seeded_in_turn(file):
            yield self.suspect(
                file,
                event,
                f"`{file.segment(event.node)}` sets the global random state back in each turn of a loop that trains",
                cause="training then draws the same random numbers in each turn: the same shuffling, dropout, noise or "
                "augmentation",
                advice=_ADVICE,
                severity="info",
                edits=seeds.own_generator(file, [event]) or seeds.of_epoch(file, [event]),
            )

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Lines after which training goes on from a state of an earlier step, those of one function together."""
        found: dict[tuple[str, str | None], list[RepeatedRandoms]] = {}
        for seen in rank.latest(RepeatedRandoms, "place", "generator", "optimizer"):
            if seen.repeated >= _TIMES and self._harms(recording, seen):
                found.setdefault((seen.place.path, seen.place.function), []).append(seen)
        for those in found.values():
            yield self._seen(rank, those)

    @staticmethod
    def _harms(recording: Recording, seen: RepeatedRandoms) -> bool:
        """Whether the training draws what repeats."""
        if seen.drawn > 1:
            return True
        # An order of samples is drawn once, before the first step: by the function that seeds.
        file = recording.model(seen.place.path) if seen.drawn_before >= _TIMES else None
        unit = file.unit_at(seen.place.line) if file is not None else None
        return file is not None and unit is not None and bool(_ORDERS.search(file.text_of(unit)))

    def _seen(self, rank: RankRecording, found: list[RepeatedRandoms]) -> Finding:
        first = max(found, key=lambda one: (one.drawn, one.repeated))
        names = [_NAMES[name] for name in _NAMES if any(one.generator == name for one in found)]
        share = min(1.0, first.steps / max(1, first.of))
        inner = [self.beside("seeds", f"`{first.function}` is called here", first.inner)] if first.inner else []
        others = {one.place: one for one in found if one.place.line != first.place.line}
        return self.observed(
            rank,
            first.place,
            f"training draws the same random numbers again and again: `{first.function}` sets "
            f"{' and '.join(names)} global random state back",
            cause=f"of {count(first.times, 'step')} after such a call {first.repeated} began from a random state from "
            f"which an earlier step had begun, and training goes on to draw from it. {percent(share)} of all steps "
            "follow such a state as they did before: with the same shuffling, dropout, noise or augmentation",
            advice=_ADVICE,
            # What Python's own generator is drawn for is seldom the training.
            severity="warning" if share >= _SHARE and names != [_NAMES["random"]] else "info",
            measured=Measured(steps=first.repeated),
            about=About(variant="ended" if names == [_NAMES["torch"]] and not first.under_way else ""),
            related=[*inner, *(self.beside("seeds", f"`{o.function}`", o.place) for o in others.values())],
        )
