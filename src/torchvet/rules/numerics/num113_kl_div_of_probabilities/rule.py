"""NUM113: a loss that takes logarithms of probabilities is given something else."""

from __future__ import annotations

import ast

from torchvet.formatting import count
from torchvet.recording.records.labels import NoLogarithms
from torchvet.rules.kit import Edits, Finding, Findings, Measured, RankRecording, Recording, Related, Rule, SourceFile
from torchvet.rules.shared.normalised import LOGARITHMIC, losses, normalised
from torchvet.source.model import argument, edits

_STEPS = 2
"""Sampled steps from which on it is a habit: a whole batch each. Chosen, not measured."""
_LOGS = {"softmax": "log_softmax", "Softmax": "LogSoftmax"}
_WHY = {
    "nll_loss": "it takes the number of the right class, and averages them: it rewards a large number, and punishes no "
    "other class",
    "ctc_loss": "it adds its numbers up along each way through the labels, and takes them for logarithms",
    "kl_div": "it multiplies them by the target, and adds up: it rewards a large number, whatever the others are",
}


class KlDivOfProbabilities(Rule):
    """A loss that takes logarithms of probabilities is given the probabilities, or raw scores."""

    severity = "warning"
    words = ("nll_loss", "NLLLoss", "kl_div", "KLDivLoss")
    fix_changes_results = True
    silence_clears = False  # only losses of sampled steps are seen

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Losses that were given no logarithms in each sampled step."""
        for seen in rank.latest(NoLogarithms):
            if seen.steps >= _STEPS and seen.steps in (seen.probabilities, seen.scores):
                yield self._seen(rank, seen)

    def _seen(self, rank: RankRecording, seen: NoLogarithms) -> Finding:
        shared = seen.probabilities == seen.steps
        what = "probabilities" if shared else f"numbers between {seen.low:.3g} and {seen.high:.3g}"
        how = "it is given probabilities (from 0 to 1, with a sum of 1)" if shared else "no logarithm is above 0"
        places = [self.beside("normalised", "what makes the probabilities", seen.made)] if shared and seen.made else []
        instead = "or use `cross_entropy`, which takes raw scores" if seen.loss == "nll_loss" else "not `softmax`"
        return self.observed(
            rank,
            seen.place,
            f"{seen.loss} takes logarithms of probabilities, and is given {what}",
            cause=f"{how}, in {count(seen.steps, 'sampled step')} of {seen.steps:,}. {_WHY[seen.loss].capitalize()}",
            advice=f"give it `log_softmax(scores, dim)`; {instead}",
            measured=Measured(steps=seen.steps),
            related=places,
        )

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """`log_softmax` for the `softmax` of the line that makes the probabilities, where it has one."""
        line = next((r.line for r in finding.related if r.role == "normalised" and r.path == file.path), None)
        return _logarithm(file, line) if line is not None else ()

    def in_file(self, file: SourceFile) -> Findings:
        """Such losses, given what a softmax or a sigmoid made."""
        if not file.mentions(*(f"{word}(" for word in self.words)):
            return
        for event, call, loss in losses(file, LOGARITHMIC):
            found = normalised(argument(call, "input", 0), event)
            if found is None or found.by or found.done == "log_softmax":
                continue
            line = getattr(found.node, "lineno", event.line)
            yield self.suspect(
                file,
                event,
                f"{loss} takes logarithms of probabilities, and is given the result of {found.done} (line {line})",
                node=call,
                cause="it rewards a large number, and takes no logarithm itself",
                advice="give it `log_softmax(scores, dim)`",
                edits=_logarithm(file, line),
                related=[Related(role="normalised", message=file.segment(found.node), path=file.path, line=line)],
            )


def _logarithm(file: SourceFile, line: int) -> Edits:
    """The softmax of a line as its logarithm, where it is written as the attribute of something: a name alone was
    imported by itself."""
    calls = [e.call for e in file.unit_at(line).events if e.line == line and isinstance(e.node, ast.Call)]
    found = [c.func for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr in _LOGS]
    if len(found) != 1:
        return ()
    text, attribute = file.segment(found[0]), found[0].attr
    return [edits.replace(file, found[0], text[: -len(attribute)] + _LOGS[attribute])]
