"""TRN117: labels that the loss silently takes for something else."""

from __future__ import annotations

import re

from torchvet.formatting import count, percent
from torchvet.recording.records.labels import UnfitLabels
from torchvet.rules import kit
from torchvet.rules.kit import Edits, Finding, Findings, RankRecording, Recording, Rule, SourceFile
from torchvet.rules.training._compared_labels import compared_labels
from torchvet.rules.training.fixes.fitting_labels import as_given, fitting_labels, labels_given

_STEPS = 3
"""Sampled steps from which on it is a habit. Chosen, not measured."""
_HABIT = 0.5
"""The share of sampled steps with such labels. Chosen, not measured."""
_TIES = 0.35
"""The share of zeros from which on they are no ties. Chosen, not measured."""
_OUTLIERS = 0.01
"""The share of labels below which they are outliers. Chosen, not measured."""
_LEFT_OUT = re.compile(r"mask|pad|valid|ignore|weight", re.IGNORECASE)
"""What names of labels say that leave pairs out."""
_BOTH = "a label other than -1 and 1 counts as both: the distance is added, and what the margin leaves of it, so that "
_WHY = {
    "hinge_embedding_loss": f"{_BOTH}nothing moves such a pair apart, and far pairs are drawn together",
    "cosine_embedding_loss": "a pair whose label is neither adds nothing to the loss and has no gradient",
    "margin_ranking_loss": "the difference is multiplied by the label: with 0 the pair adds the margin only and has no "
    "gradient, and no pair says that the second is the larger",
    "soft_margin_loss": "it is `log(1 + exp(-label * score))`: with 0 it is log(2) whatever the score is, and nothing "
    "teaches the model the other class",
}
_ROWS = {
    "several": "rows hold several ones",
    "scores": "rows hold scores below and above 0",
    "logarithms": "rows are logarithms of probabilities",
    "sums": "rows do not sum to 1",
}
_TAKES = {
    "several": "The classes compete by a softmax: no two can be likely at once, the loss cannot fall to 0, and a row "
    "counts as often as it has labels",
    "scores": "A negative share rewards the model for making the class unlikely, and the loss has no lower bound",
    "logarithms": "A negative share rewards the model for making the class unlikely, and the loss has no lower bound",
    "sums": "A row counts by its sum. Where its numbers are shares with the weight of the sample, that is meant",
}
_DO = {
    "several": "for several classes at once use `binary_cross_entropy_with_logits`; else divide each row by its sum",
    "scores": "give it probabilities: `labels.softmax(dim)`",
    "logarithms": "give it probabilities: `labels.exp()`; `kl_div` takes logarithms with `log_target=True`",
    "sums": "divide each row by its sum, or multiply the loss of each row by its weight",
}


class LabelsDoNotFitLoss(Rule):
    """Labels do not fit the loss, which takes them for something else"""

    severity = "warning"
    words = ("oft_margin", "oftMargin", "mbedding_loss", "mbeddingLoss")
    silence_clears = False  # only losses of sampled steps are seen
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The labels as the loss expects them, where two numbers say what they mean."""
        return fitting_labels(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Losses whose labels did not fit by habit."""
        for seen in rank.latest(UnfitLabels, "place", "form"):
            # A batch may hold no label but 1.
            habit = 0 if seen.form == "signs" else _HABIT * seen.steps
            if seen.unfit < max(_STEPS, habit) or seen.strays < _OUTLIERS * seen.labels:
                continue
            if seen.form == "signs" and not seen.fit and seen.low < seen.high:
                yield self._signs(rank, recording, seen)
            # Where labels were 0 and 1 in some step, what lies outside marks what is left out.
            elif seen.form == "outside" and not (seen.fit and seen.marked == seen.unfit):
                yield self._outside(rank, seen)
            elif seen.form == "indices" and not seen.fit:
                yield self._indices(rank, seen)
            elif seen.form in _ROWS:
                yield self._rows(rank, seen)

    def in_file(self, file: SourceFile) -> Findings:
        """Losses that know -1 and 1, given what a comparison gives."""
        for event, call, loss, labels, compared in compared_labels(file):
            text = file.segment(compared)
            if _LEFT_OUT.search(file.segment(labels)):
                continue
            yield self.suspect(
                file,
                event,
                f"{loss} knows the labels -1 and 1, and is given the result of `{text}`: 0 and 1",
                node=call,
                cause=_WHY[loss],
                advice="give it `2 * labels - 1`",
                edits=as_given(file, labels, "2 * {} - 1"),
                related=[kit.Related(role="labels", message=text, path=file.path, line=compared.lineno)],
            )

    def _signs(self, rank: RankRecording, recording: Recording, seen: UnfitLabels) -> Finding:
        given = f"{seen.low:g} to {seen.high:g}" if seen.high - seen.low > 1 else f"{seen.low:g} and {seen.high:g}"
        may_be_meant = _few_zeros(seen) or (seen.loss == "cosine_embedding_loss" and _leaves_out(recording, seen))
        return self._reported(
            rank,
            seen,
            f"{seen.loss} knows the labels -1 and 1, and is given {given}",
            f"{percent(seen.strays / seen.labels)} of the labels are not 1, and none was -1 in "
            f"{count(seen.steps, 'sampled step')}: {_WHY[seen.loss]}",
            "give it `2 * labels - 1`" if seen.high == 1 else "give it -1 and 1",
            "info" if may_be_meant else "warning",
        )

    def _outside(self, rank: RankRecording, seen: UnfitLabels) -> Finding:
        meant = _meant(seen)
        noise = seen.unfit - seen.doubtful < _STEPS
        also = ". Labels with a little noise may be meant so" if noise else ""
        return self._reported(
            rank,
            seen,
            f"{seen.loss} expects labels from 0 to 1, and is given such from {seen.low:.4g} to {seen.high:.4g}",
            f"{percent(seen.strays / seen.labels)} of the labels lie outside, in {count(seen.unfit, 'sampled step')} "
            f"of {seen.steps:,}. For these the loss falls without end as the score grows: it has no lower bound{also}",
            f"give it `{meant.format('labels')}`"
            if meant
            else "scale them to 0 and 1; for classes use `cross_entropy`",
            "info" if noise else "warning",
        )

    def _rows(self, rank: RankRecording, seen: UnfitLabels) -> Finding:
        takes = "`kl_div` of negative labels is NaN" if seen.loss == "kl_div" and seen.low < 0 else _TAKES[seen.form]
        several = " Where several labels of a pairing are meant so, it is right" if seen.matched else ""
        note = seen.form == "sums" or (seen.form == "several" and seen.matched)
        return self._reported(
            rank,
            seen,
            f"{seen.loss} expects labels that are shares of 1, and {_ROWS[seen.form]}",
            f"{percent(min(1, seen.strays / max(1, seen.labels)))} of the rows are so, in "
            f"{count(seen.unfit, 'sampled step')} of {seen.steps:,}; the numbers lie between {seen.low:.4g} and "
            f"{seen.high:.4g}. {takes}{'.' + several if note and several else ''}",
            _DO[seen.form],
            "info" if note else "warning",
        )

    def _indices(self, rank: RankRecording, seen: UnfitLabels) -> Finding:
        return self._reported(
            rank,
            seen,
            f"{seen.loss} expects lists of classes, and is given a 0 or 1 for each class",
            f"a row holds the numbers of its classes up to the first -1. Rows had 0 and 1 only and no -1 in "
            f"{count(seen.unfit, 'sampled step')}: it takes each for the classes 0 and 1",
            "give it the numbers of the classes, then -1; or use `multilabel_soft_margin_loss`",
            "warning",
        )

    def _reported(
        self, rank: RankRecording, seen: UnfitLabels, message: str, cause: str, advice: str, severity: str
    ) -> Finding:
        made = [self.beside("labels", "what makes the labels", seen.made)] if seen.made is not None else []
        return self.observed(
            rank,
            seen.place,
            message,
            cause=cause,
            advice=advice,
            severity="info" if severity == "info" else "warning",
            measured=kit.Measured(steps=seen.unfit),
            related=made,
            about=kit.About(variant=seen.loss, operands=(_meant(seen),)),
        )


def _meant(seen: UnfitLabels) -> str:
    """What to do with the labels, where their numbers say it: the text for a place where they are given."""
    pairs = {(0, 1): "2 * {} - 1"} if seen.form == "signs" else {(-1, 1): "({} + 1) / 2", (0, 255): "{} / 255"}
    if seen.form in ("signs", "outside"):
        return pairs.get((int(seen.low), int(seen.high)), "") if seen.pair else ""
    return "{}.exp()" if seen.form == "logarithms" else ""


def _few_zeros(seen: UnfitLabels) -> bool:
    """Zeros of a ranking may be ties of pairs that are given in order."""
    return seen.loss == "margin_ranking_loss" and seen.strays < _TIES * seen.labels


def _leaves_out(recording: Recording, seen: UnfitLabels) -> bool:
    """Whether the labels are named as what leaves pairs out."""
    file = recording.model(seen.place.path)
    labels = labels_given(file, seen.place.line, seen.loss) if file is not None else None
    return file is not None and labels is not None and _LEFT_OUT.search(file.segment(labels)) is not None
