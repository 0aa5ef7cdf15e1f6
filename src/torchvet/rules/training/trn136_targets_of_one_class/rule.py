"""TRN136: all targets are of one class, since what makes them whole numbers loses what they differ in."""

from __future__ import annotations

from torchvet.formatting import count
from torchvet.recording import records
from torchvet.rules.kit import Finding, Findings, Measured, RankRecording, Recording, Rule
from torchvet.rules.training._scaled_labels import scaled_conversion

_STEPS, _CONVERTED, _TARGETS = 3, 2, 32
"""Sampled steps with targets of one class, those whose conversion was heard, and targets. Chosen, not measured."""
_BATCHES = 8
"""Batches of one class from which on it is one without a conversion that was heard. Chosen, not measured."""


class TargetsOfOneClass(Rule):
    """All targets are of one class: made whole numbers, they lose what they differ in."""

    severity = "warning"
    silence_clears = False
    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Losses whose targets were one class in all that was seen, and were more before a conversion."""
        for seen in rank.latest(records.labels.OneClass):
            if seen.varied or seen.steps < _STEPS or seen.targets < _TARGETS:
                continue
            if seen.converted >= _CONVERTED:
                yield self._converted(rank, seen)
            # Of an ordered data set, or of one that is hardly begun, the next batch may be of another class.
            elif seen.batches >= max(_BATCHES, seen.length) and seen.dense:
                yield self._unheard(rank, recording, seen)

    def _converted(self, rank: RankRecording, seen: records.labels.OneClass) -> Finding:
        batches = count(seen.batches, "batch", "batches")
        also = f", and so were those of all {batches} of {seen.dataset}" if seen.batches else ""
        return self.observed(
            rank,
            seen.made or seen.place,
            f"all targets become class {seen.value}: numbers between {seen.low:.3g} and {seen.high:.3g} are made whole "
            "numbers here",
            cause=f"the loss has {seen.classes} classes, and its targets were of this one only in "
            f"{count(seen.steps, 'sampled step')}{also}. Conversions to whole numbers cut off what is behind the "
            "point; a mask that `to_tensor` has scaled by 1/255 is all 0 then. The model learns to say one class "
            "everywhere, and its loss and its measures look perfect",
            advice="do not scale classes: `torch.from_numpy(np.array(mask)).long()`, or torchvision's `pil_to_tensor`",
            # What the program makes of its own numbers may differ later in training, and samples may lie in order.
            severity="warning"
            if seen.loaded and seen.batches >= (1 if seen.dense else max(1, seen.length))
            else "info",
            measured=Measured(steps=seen.steps),
            related=[self.beside("loss", "the loss that compares with them", seen.place)],
        )

    def _unheard(self, rank: RankRecording, recording: Recording, seen: records.labels.OneClass) -> Finding:
        line, batches = scaled_conversion(recording), count(seen.batches, "batch", "batches")
        place = line or seen.place
        how = "made whole numbers here, after they were scaled" if line is not None else "of one class"
        return self.observed(
            rank,
            place,
            f"all targets are class {seen.value} in all {batches} of {seen.dataset}: they are {how}",
            cause=f"the loss has {seen.classes} classes. Conversions to whole numbers cut off what is behind the "
            "point; a mask that `to_tensor` has scaled by 1/255 is all 0 then. What made these was not heard",
            advice="look at `unique()` of a sample's target; do not scale classes: "
            "`torch.from_numpy(np.array(mask)).long()`, or torchvision's `pil_to_tensor`",
            severity="warning" if line is not None else "info",
            measured=Measured(steps=seen.steps),
            related=[self.beside("loss", "the loss that compares with them", seen.place)] if line is not None else [],
        )
