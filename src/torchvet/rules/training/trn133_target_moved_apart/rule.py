"""TRN133: a sample's picture and its target are flipped or cropped unlike."""

from __future__ import annotations

from torchvet.recording import records
from torchvet.rules.kit import Finding, Findings, Measured, RankRecording, Recording, Rule

_TWICE = 2
"""Samples that must have been moved unlike: the first one moved itself in one of them."""

_FEW = 0.1
"""Share of samples whose pictures may show different things: pairs of a data set of pairs are alike by chance."""
_MATCHED = 0.6
"""Share of the samples with pictures of two kinds in which they fit best as they lie: by chance they do in an eighth to
a quarter. Chosen, not measured."""


class TargetMovedApart(Rule):
    """A sample's picture and its target are flipped or cropped unlike."""

    severity = "warning"
    fix_changes_results = True
    silence_clears = False  # what makes samples outside of loaders is not looked at

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Functions that drew anew for the second picture of a sample; each once, of all processes."""
        found: dict[object, records.reading.MovedApart] = {}
        for seen in rank.all(records.reading.MovedApart):
            key = seen.first, seen.second
            found[key] = max(found.get(key, seen), seen, key=lambda one: one.apart)
        for seen in found.values():
            # A hole to be filled, or a mask of another picture, has nothing to do with what lies beneath.
            related = seen.strangers <= _FEW * seen.samples and seen.matched >= _MATCHED * seen.kinds
            if seen.apart >= _TWICE and seen.both and related:
                yield self._apart(rank, seen)

    def _apart(self, rank: RankRecording, seen: records.reading.MovedApart) -> Finding:
        first, second = [*seen.example, "", ""][:2]
        drew = f", each time from another state of {seen.drew}'s generator" if seen.drew else ""
        return self.observed(
            rank,
            seen.second,
            f"`{seen.function}` moves the two pictures of a sample of {seen.dataset} unlike: in {seen.apart} of "
            f"{seen.compared} samples that were followed; in one the first was {first}, the second {second}",
            cause=f"it is called for each picture, and draws anew what to do{drew}: a pixel of one has no longer the "
            "place of its target in the other",
            advice="draw once for both: one call on both pictures (stacked with `torch.cat`, or a transform that takes "
            "both, as torchvision's v2), or parameters that are drawn once and given to two calls",
            measured=Measured(steps=seen.compared),
            related=[self.beside("first", "the call for the sample's other picture", seen.first)]
            if seen.first != seen.second
            else [],
        )
