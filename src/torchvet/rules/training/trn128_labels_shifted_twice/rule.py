"""TRN128: labels are shifted twice, so that a language model learns the next but one token."""

from __future__ import annotations

import ast

from torchvet.formatting import count, percent
from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.training.fixes.shifts import compared_row_by_row
from torchvet.source.model import walk

_STEPS = 3
"""Sampled steps from which on it is a habit. Chosen, not measured."""
_TWICE, _FURTHEST = 2, 4
"""Places ahead; what is further on is hardly a mistake. Chosen, not measured."""
_NUMBERS = {2: "two", 3: "three", 4: "four"}


class LabelsShiftedTwice(kit.Rule):
    """A language model learns the next but one token: its labels are shifted twice."""

    severity = "warning"
    silence_clears = False
    fix_changes_results = True

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """Logits and labels compared row by row, where the loss's own function shifts them."""
        # Of three places one is left.
        return compared_row_by_row(file, finding) if kit.about(finding).variant == str(_TWICE) else ()

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """Lines whose targets are always as far ahead, in runs that never compare with the next token."""
        seen = rank.latest(records.labels.TargetsAhead, "place", "ahead", "by_gradient")
        # Several heads, each for a token further on, are meant so; and a loss for the next token beside this one.
        if len({record.ahead for record in seen}) != 1:
            return
        named = next((name for path in recording.sources if (name := _distance(recording.model(path)))), "")
        for record in seen:
            if record.steps >= _STEPS and _TWICE <= record.ahead <= _FURTHEST:
                yield self._finding(rank, record, named)

    def _finding(self, rank: kit.RankRecording, seen: records.labels.TargetsAhead, named: str) -> kit.Finding:
        ahead = _NUMBERS[seen.ahead]
        reached = "the last one that their row of logits was computed from"
        how = (
            "the loss's gradient ends at a token in each sequence of the embedding, and the last target is the token "
            f"{ahead} places after that"
            if seen.by_gradient
            else f"there is a row of logits for each token, and its target is the token {ahead} places on"
        )
        return self.observed(
            rank,
            seen.place,
            f"in {count(seen.steps)} sampled steps {percent(seen.agreed / max(1, seen.targets))} of the targets are "
            f"the token {ahead} places after {reached if seen.by_gradient else 'that of their row of logits'}",
            cause=f"{how}. It is so where labels that a data set has shifted already are shifted again, by the model "
            "or by the loss: the model learns to leave out what lies between"
            + (f". The program shifts something by `{named}` places, so that it may be meant" if named else ""),
            advice="shift once: give the model labels that are the tokens themselves, or compare logits and labels row "
            "by row. If a later token is meant, all is well",
            severity="info" if named else None,
            measured=kit.Measured(steps=seen.steps),
            about=kit.About(variant=str(seen.ahead)),
        )


def _distance(file: kit.SourceFile | None) -> str:
    """A distance with a name by which a file shifts sequences: it cuts `x[:-d]` and `y[d:]`. Who shifts once too often
    does so by one place at a time."""
    first: set[str] = set()
    last: set[str] = set()
    for node in walk(file.tree) if file is not None else ():
        if not isinstance(node, ast.Slice) or file is None or (node.lower is None) == (node.upper is None):
            continue
        if isinstance(node.lower, (ast.Name, ast.Attribute)):
            first.add(file.segment(node.lower))
        elif isinstance(node.upper, ast.UnaryOp) and isinstance(node.upper.op, ast.USub):
            last.add(file.segment(node.upper.operand))
    return min(first & last, default="")
