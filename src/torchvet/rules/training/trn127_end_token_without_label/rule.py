"""TRN127: the token that ends texts has no label, so that the model never learns to end one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchvet.rules.kit import Edits, Finding, Findings, Location, RankRecording, Recording, Rule, SourceFile, records
from torchvet.rules.training.fixes.padding_tokens import padded_by_its_own

_MOSTLY = 0.9
"""The share of texts from which on their ends have no label by a rule, and not since they were cut."""
_TEXTS = 8
_PADDING = {"pad_token": "eos_token", "pad_token_id": "eos_token_id"}


class EndTokenWithoutLabel(Rule):
    """The token that ends texts has no label."""

    severity = "warning"
    silence_clears = False
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """A padding token of its own, where the tokenizer's is set to the one that ends texts."""
        return padded_by_its_own(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Loops whose texts all end with one token that is left out of the labels, and is nowhere a label."""
        for seen in rank.latest(records.training.EndTokens):
            ends = len(seen.tokens) == 1 and not seen.labeled and seen.texts >= _TEXTS
            if ends and seen.only >= _MOSTLY * seen.texts and 0 < seen.padded == seen.padded_so:
                yield self._finding(rank, recording, seen)
                return

    def _finding(self, rank: RankRecording, recording: Recording, seen: records.training.EndTokens) -> Finding:
        (token,) = seen.tokens
        made = next(_paddings(recording), None)
        return self.observed(
            rank,
            made or seen.place,
            f"token {token}, which ends the texts, is never a label: it was left out (-100) in {seen.silent:,} of "
            f"{seen.texts:,} texts, and every other token of them is a label",
            cause="labels leave the padding token out, and texts are padded with the token that ends them: the model "
            "does not learn where a text ends, and goes on when it generates",
            advice="give the tokenizer a padding token of its own (`add_special_tokens({'pad_token': '<pad>'})`, and "
            "`resize_token_embeddings` on the model), or make labels by the attention mask",
            related=[self.beside("asked-for", "the loop that was looked at", seen.place)] if made is not None else [],
        )


def _paddings(recording: Recording) -> Iterator[Location]:
    """The lines on which a tokenizer pads with the token that ends texts."""
    for path in recording.sources:
        model = recording.model(path)
        for node in ast.walk(model.tree) if model is not None else ():
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
                for target in node.targets:
                    if isinstance(target, ast.Attribute) and _PADDING.get(target.attr) == node.value.attr:
                        yield Location(path=path, line=node.lineno)
