"""TRN120: inputs and labels are put into different orders, so that rows lose their labels."""

from __future__ import annotations

import ast
import re

from torchvet.formatting import count
from torchvet.recording import records
from torchvet.rules.kit import Finding, Findings, Measured, Place, RankRecording, Recording, Rule, SourceFile
from torchvet.rules.training._shuffled_pairs import Shuffled, shuffled_pairs, split_pairs

_STEPS = 3
"""Sampled steps in which the orders were different. Chosen, not measured."""
_ON_PURPOSE = re.compile(
    r"(?i)nois|corrupt|rand(?:om)?_(?:label|target|y)|null|fake|wrong|negativ|\bneg_|placebo|baseline|memori"
)
"""Words on a line that breaks the pairing because it wants to."""
_CONTROL = re.compile(
    r"(?i)(?:shuffled?|permuted?|scrambled?)_?(?:y\b|labels?|targets?)"
    r"|(?:\by|labels?|targets?)_(?:shuffled?|permuted?|perm|scrambled?)\b"
)
"""Names of labels that are shuffled as a control, of inputs as they came. Where these are mixed they are those of the
second rows."""
_ASKED_FOR = re.compile(r"(?i)shuffl|permut|corrupt|random|nois|control|null|ablat|check|sanity|memori")
"""Words of an option that asks for it."""
_ADVICE = "draw or sort one index, `order = torch.randperm(len(x))`, and apply it to both: `x[order]`, `y[order]`"
_HOW = {
    "drawn": "by an index that was drawn for them alone",
    "sorted": "by sorting",
    "turned round": "by `flip`",
    "moved on": "by `roll`",
    "": "as they came",
}


class InputsShuffledApart(Rule):
    """Inputs and labels are put into different orders, so that rows lose their labels."""

    severity = "warning"
    words = ("permutation", "randperm", "shuffle", "train_test_split")
    silence_clears = False  # orders are followed in sampled steps only
    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Losses that compared rows with the labels of others in all steps that were sampled."""
        for seen in rank.latest(records.labels.ShuffledApart):
            place = seen.targets or seen.inputs or seen.place
            file = recording.model(place.path)
            meant = file is not None and _is_meant(file, place.line, seen.mixed or seen.inputs is not None)
            if seen.steps >= _STEPS and seen.steps > seen.paired and not meant:
                yield self._apart(rank, seen, place)

    def in_file(self, file: SourceFile) -> Findings:
        """Two draws for a pair, or one for a half of it."""
        for found in shuffled_pairs(file):
            yield self._finding(file, found, f"line {found.pair.line} pairs the two row by row", _ADVICE)
        for found in split_pairs(file):
            advice = f"split both in one call, `train_test_split({found.name}, {found.other})`, or give both calls one "
            yield self._finding(file, found, "`train_test_split` shuffles", f"{advice}`random_state`")

    def _finding(self, file: SourceFile, found: Shuffled, cause: str, advice: str) -> Finding:
        one, other, by_itself = found.name, found.other, found.by_itself
        related = [self.also(file, "pair", found.pair)] if found.pair is not by_itself else []
        if by_itself is not None:
            related.append(self.also(file, "other", by_itself))
        return self.suspect(
            file,
            found.event,
            f"`{one}` and `{other}` are each shuffled by a draw of their own: rows lose their labels"
            if by_itself is not None
            else f"`{one}` is shuffled, and `{other}` stays in its order: rows lose their labels",
            cause=f"{cause}, and each draw gives another order" if by_itself is not None else cause,
            advice=advice,
            related=related,
        )

    def _apart(self, rank: RankRecording, seen: records.labels.ShuffledApart, place: Place) -> Finding:
        targets, inputs = [*seen.how, "", ""][:2]
        steps = count(seen.steps, "sampled step")
        if targets == "loaders":
            said = "inputs and labels come of two loaders, of which each has an order of its own"
            cause = f"in {steps} a loss compared a batch of one with a batch of the other: no row has its own label"
        else:
            said = "inputs and labels are in different orders: rows are compared with the labels of others"
            cause = (
                f"in {steps} the labels of {seen.rows} rows were put into their order {_how(targets)}, "
                f"the inputs {_how(inputs)}"
            )
        related = [self.beside("loss", "the loss that compares them", seen.place)]
        if seen.inputs is not None and seen.inputs != place:
            related.append(self.beside("inputs", "what puts the inputs into their order", seen.inputs))
        return self.observed(
            rank,
            place,
            said,
            cause=cause + ("; the model was given rows of several orders, mixed" if seen.mixed else ""),
            advice="one loader over `TensorDataset(inputs, labels)`" if targets == "loaders" else _ADVICE,
            severity="info" if seen.shared and not seen.mixed else "warning",
            measured=Measured(steps=seen.steps),
            related=related if seen.place != place else related[1:],
        )


def _how(by: str) -> str:
    return _HOW.get(by, by)


def _is_meant(file: SourceFile, line: int, moved: bool) -> bool:
    """Whether the words of a line, or of a condition on it, say that labels are to be wrong."""
    events = file.events_on(line)
    said = {file.segment(e.statement) for e in events} | {e.unit.name for e in events}
    asked = {file.segment(arm.test) for e in events for arm, _ in e.context.arms if isinstance(arm, ast.If)}
    if any(_ON_PURPOSE.search(text) for text in said) or any(_ASKED_FOR.search(text) for text in asked):
        return True
    return not moved and any(_CONTROL.search(text) for text in said)
