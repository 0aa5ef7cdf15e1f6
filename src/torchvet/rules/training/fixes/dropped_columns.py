"""Edits for columns that a Trainer drops."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, SourceFile, events_at
from torchvet.rules.shared.trainers import settings_of
from torchvet.source.model import edits

_NAME = "remove_unused_columns"


def kept_by_the_trainer(file: SourceFile, finding: Finding) -> Edits:
    """`TrainingArguments(…, remove_unused_columns=False)` for the Trainer that is made on the finding's line."""
    made = [e for e in events_at(file, finding) if isinstance(e.node, ast.Call)]
    calls = [call for e in made if (call := settings_of(file, e)) is not None]
    if len(calls) != 1:
        return ()
    told = {k.arg: k.value for k in calls[0].keywords}
    if _NAME in told:
        return [edits.replace(file, told[_NAME], "False")]
    # `**options` may say it already.
    return () if None in told else edits.with_argument(file, calls[0], f"{_NAME}=False")
