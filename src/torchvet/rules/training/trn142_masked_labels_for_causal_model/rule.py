"""TRN142: a causal language model learns from batches that were made for a masked one."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import (
    Edits,
    Finding,
    Findings,
    Measured,
    RankRecording,
    Recording,
    Rule,
    SourceFile,
    count,
    records,
)
from torchvet.source.model import Event, argument, edits, terminal

_STEPS = 2
"""Sampled steps from which on it is a habit. Chosen, not measured."""
_OFF = "mlm=False"
_COLLATORS = ("DataCollatorForLanguageModeling", "DataCollatorForWholeWordMask")
_CAUSAL = re.compile(r"ForCausalLM\b|(?<!With)LMHeadModel\b")
_MASKED = re.compile(
    r"ForMaskedLM\b|ForPreTraining\b|WithLMHeadModel\b|[(,]\s*mlm\s*=\s*[a-z]"
    # A class of the program's own may look both ways.
    r"|^class \w+\([\w.]*(ForCausalLM|LMHeadModel)",
    re.MULTILINE,
)
_CAUSE = (
    "it replaces 15 % of the tokens and gives labels for these alone (-100 else); the model shifts the labels, and is "
    "asked for a token that it cannot see from one before that may be a mask"
)
_ADVICE = "`DataCollatorForLanguageModeling(tokenizer, mlm=False)`: labels are then the tokens themselves"


class MaskedLabelsForCausalModel(Rule):
    """A causal language model is trained on batches with masked tokens."""

    severity = "warning"
    words = _COLLATORS
    silence_clears = False  # only sampled steps are seen
    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Causal models that took such batches in sampled steps."""
        for seen in rank.latest(records.labels.MaskedForCausal, "model"):
            if seen.steps < _STEPS:
                continue
            files = [file for path in recording.sources if (file := recording.model(path)) is not None]
            made = [(file, event) for file in files for event in _masking(file)]
            file, at = made[0] if len(made) == 1 else (None, None)
            yield self.observed(
                rank,
                file.place(at.node, at) if file is not None and at is not None else seen.place,
                f"{seen.model}, which predicts the next token, is given batches of {seen.collator} with masked tokens "
                f"({count(seen.steps, 'sampled step')})",
                cause=_CAUSE,
                advice=_ADVICE,
                measured=Measured(steps=seen.steps),
            )

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """`mlm=False` for the collator of the finding's line."""
        at = finding.location
        made = [e for e in _masking(file) if at is not None and at.path == file.path and e.line == at.line]
        return _unmasked(file, made[0]) if len(made) == 1 else ()

    def in_file(self, file: SourceFile) -> Findings:
        """Such a collator in a file that makes a causal model, and no masked one."""
        model = _CAUSAL.search(file.text) if file.mentions(*_COLLATORS) else None
        if model is None or _MASKED.search(file.text):
            return
        for event in _masking(file):
            yield self.suspect(
                file,
                event,
                f"{terminal(event.node)} masks tokens, as it does without `mlm=False`, and the model is a causal one",
                cause=_CAUSE,
                advice=_ADVICE,
                edits=_unmasked(file, event),
            )


def _masking(file: SourceFile) -> list[Event]:
    """Where a collator is made that masks tokens."""
    return [event for event in file.calls(*_COLLATORS) if _masks(event.call)]


def _masks(call: ast.Call) -> bool:
    given = argument(call, "mlm", 1)
    # `**options` may say anything.
    spread = any(one.arg is None for one in call.keywords) or any(isinstance(one, ast.Starred) for one in call.args)
    return not spread and (given is None or (isinstance(given, ast.Constant) and given.value is True))


def _unmasked(file: SourceFile, event: Event) -> Edits:
    given = argument(event.call, "mlm", 1)
    if terminal(event.node) != _COLLATORS[0]:
        return ()
    return (
        edits.with_argument(file, event.call, "mlm=False") if given is None else [edits.replace(file, given, "False")]
    )
