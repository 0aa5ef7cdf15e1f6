"""TRN108: probabilities are given to a loss that normalises its input itself."""

from __future__ import annotations

import ast

from torchvet.recording import records
from torchvet.rules.kit import Edits, Finding, Findings, Measured, RankRecording, Recording, Related, SourceFile
from torchvet.rules.shared import training_loops as loops
from torchvet.rules.shared.normalised import BINARY, NORMALISING, Normalised, losses, normalised
from torchvet.rules.training.fixes.softmax import not_normalised
from torchvet.source.model import Event, argument, edits, operand

_SQUEEZED = (
    "probabilities between 0 and 1 are squeezed once more, so that the loss cannot come near zero and the gradients "
    "stay small"
)


class SoftmaxBeforeCrossEntropy(loops.LoopRule):
    """Probabilities are given to a loss that normalises its input itself."""

    severity = "warning"
    words = ("softmax", "Softmax", "sigmoid", "Sigmoid")
    fix_changes_results = True

    silence_clears = False  # the loss may have been computed in other steps than those that were sampled

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Losses that were given what a softmax, or a sigmoid, had made."""
        for record in rank.latest(records.training.NormalisedTwice):
            yield self._seen(rank, record)

    def _seen(self, rank: RankRecording, record: records.training.NormalisedTwice) -> Finding:
        how, made = record.how, record.made
        at = f" (line {made.line})" if made is not None and made.path == record.place.path else ""
        message = f"the loss is given the result of {how}{at} and applies {how} again ({record.calls} sampled calls)"
        cause = f"it expects raw scores; {_SQUEEZED}"
        advice = f"give it the scores before {how}; apply {how} only where probabilities are read"
        measured = Measured(steps=record.calls)
        related = [Related(role="normalised", message=how, path=made.path, line=made.line)] if made else []
        return self.observed(
            rank, record.place, message, cause=cause, advice=advice, measured=measured, related=related
        )

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """What is normalised, as it is before: where one call does it."""
        at = next((r.line for r in finding.related if r.role == "normalised" and r.path == file.path), None)
        return not_normalised(file, at) if at is not None else ()

    def in_file(self, file: SourceFile) -> Findings:
        """Losses that normalise their input, given what is normalised already."""
        if not file.mentions("cross_entropy(", "CrossEntropyLoss(", "_with_logits(", "WithLogitsLoss("):
            return
        for event, call, loss in losses(file, NORMALISING):
            found = normalised(argument(call, "input", 0), event)
            if found is not None and (found.done == "sigmoid") == (loss in BINARY):
                yield self._finding(file, event, call, loss, found)

    def _finding(self, file: SourceFile, event: Event, call: ast.Call, loss: str, found: Normalised) -> Finding:
        done, node = found.done, found.node
        inner = "sigmoid" if loss in BINARY else "softmax"
        again = "log_softmax again: it changes nothing" if done == "log_softmax" else f"{inner} again"
        line = getattr(node, "lineno", event.line)
        message = f"{loss} is given the result of {done} (line {line}) and applies {again}"
        if found.by:
            message = f"{loss} is given what {found.by} makes of layers that end in {done} (line {line}), and applies "
            message += f"{again}, if {found.by} gives their result as it is"
        fix = call.args and node is call.args[0] and isinstance(node, ast.Call) and done == inner and not found.by
        raw = operand(file, node) if fix and isinstance(node, ast.Call) else None
        return self.suspect(
            file,
            event,
            message,
            node=call,
            cause=f"{loss} expects raw scores; {_SQUEEZED}",
            advice=f"give it the scores before {done}; apply {done} only where probabilities are read",
            severity="info" if done == "log_softmax" or found.by else None,
            edits=[edits.replace(file, call.args[0], file.segment(raw))] if raw is not None else (),
            related=_places(file, event, found),
        )


def _places(file: SourceFile, event: Event, found: Normalised) -> list[Related]:
    """What normalises, and the call that runs it where that stands on another line."""
    line = getattr(found.node, "lineno", event.line)
    places = [Related(role="normalised", message=file.segment(found.node), path=file.path, line=line)]
    applied = getattr(found.applied, "lineno", line)
    if found.applied is not None and applied not in (line, event.line):
        places.append(Related(role="applied", message=file.segment(found.applied), path=file.path, line=applied))
    return places
