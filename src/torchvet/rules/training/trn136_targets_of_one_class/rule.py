"""TRN136: all targets are of one class, since what makes them whole numbers loses what they differ in."""

from __future__ import annotations

from torchvet.formatting import count
from torchvet.recording import records
from torchvet.rules.kit import Finding, Findings, Measured, RankRecording, Recording, Rule
from torchvet.rules.training._scaled_labels import scaled_conversion, scaling

_STEPS, _CONVERTED, _TARGETS = 3, 2, 32
"""Sampled steps with targets of one class, those whose conversion was heard, and targets. Chosen, not measured."""
_BATCHES = 8
"""Batches of one class from which on it is one without a conversion that was heard. Chosen, not measured."""

_HOW = {
    "cut": "are made whole numbers here",
    "compared": "are compared here with",
    "index": "become the index of the largest of 1 here",
}
_WHY = {
    "cut": "Conversions to whole numbers cut off what is behind the point; a mask that `to_tensor` has scaled by 1/255 "
    "is all 0 then",
    "compared": "The threshold is meant for numbers that are not scaled; these lie between 0 and 1, and all are on one "
    "side of it",
    "index": "The dimension has one entry, and the index of its largest is always 0",
}
_ADVICE = {
    "cut": "do not scale classes: `torch.from_numpy(np.array(mask)).long()`, or torchvision's `pil_to_tensor`",
    "compared": "compare before scaling, or scale the threshold as well: `mask > 0.5`",
    "index": "labels that are classes already need no `argmax`: take `labels.squeeze(1)`",
}


class TargetsOfOneClass(Rule):
    """All targets are of one class: made whole numbers, they lose what they differ in."""

    severity = "warning"
    silence_clears = False
    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Losses whose targets were one class in all that was seen, and were more before a conversion."""
        for seen in rank.latest(records.labels.OneClass):
            # The index of the largest of one is 0 by how it is made: few targets prove it.
            if seen.varied or seen.steps < _STEPS or (seen.targets < _TARGETS and seen.how != "index"):
                continue
            if seen.converted >= _CONVERTED:
                yield self._converted(rank, seen)
            # Of an ordered data set, or of one that is hardly begun, the next batch may be of another class.
            elif seen.batches >= max(_BATCHES, seen.length) and seen.dense and seen.dataset:
                yield self._unheard(rank, recording, seen)

    def _converted(self, rank: RankRecording, seen: records.labels.OneClass) -> Finding:
        batches = f"so were those of all {count(seen.batches, 'batch', 'batches')} of {seen.dataset}"
        more = batches if seen.dataset else "so would be all of the tensor that they are taken from"
        also = f", and {more}" if seen.batches else ""
        against = f" {seen.threshold:g}" if seen.how == "compared" else ""
        return self.observed(
            rank,
            seen.made or seen.place,
            f"all targets become class {seen.value}: numbers between {seen.low:.3g} and {seen.high:.3g} "
            f"{_HOW[seen.how]}{against}",
            cause=f"the loss has {seen.classes} classes, and its targets were of this one only in "
            f"{count(seen.steps, 'sampled step')}{also}. {_WHY[seen.how]}. The model learns to say one class "
            "everywhere, and its loss and its measures look perfect",
            advice=_ADVICE[seen.how],
            severity="warning" if _lasts(seen) else "info",
            measured=Measured(steps=seen.steps),
            related=[self.beside("loss", "the loss that compares with them", seen.place)],
        )

    def _unheard(self, rank: RankRecording, recording: Recording, seen: records.labels.OneClass) -> Finding:
        batches = count(seen.batches, "batch", "batches")
        line, how = scaled_conversion(recording), "made whole numbers here, after they were scaled"
        if line is None:
            line, how = scaling(recording), "scaled here, and made whole numbers after it"
        place, how = (line, how) if line is not None else (seen.place, "of one class")
        return self.observed(
            rank,
            place,
            f"all targets are class {seen.value} in all {batches} of {seen.dataset}: they are {how}",
            cause=f"the loss has {seen.classes} classes. {_WHY['cut']}. What made these was not heard",
            advice=f"look at `unique()` of a sample's target; {_ADVICE['cut']}",
            severity="warning" if line is not None else "info",
            measured=Measured(steps=seen.steps),
            related=[self.beside("loss", "the loss that compares with them", seen.place)] if line is not None else [],
        )


def _lasts(seen: records.labels.OneClass) -> bool:
    """Whether the next batch will be no different: samples may lie in order."""
    # The index of the largest of one is 0 whatever comes.
    enough = 1 if seen.dense and seen.dataset else max(1, seen.length)
    return seen.how == "index" or (seen.loaded and seen.batches >= enough)
