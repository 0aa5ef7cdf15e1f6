"""An edit for a Trainer of transformers that does not divide a loss by the number of passes."""

from __future__ import annotations

from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model.class_edits import set_when_made


def divided_by_the_trainer(file: SourceFile, finding: Finding) -> Edits:
    """`self.model_accepts_loss_kwargs = False`, where the class around the finding's line has a `compute_loss` of its
    own: the Trainer sets it to True in its `__init__`."""
    line = finding.location.line if finding.location is not None else None
    owner = file.unit_at(line).method_class() if line is not None else None
    if owner is None or "compute_loss" not in owner.methods or file.mentions("model_accepts_loss_kwargs"):
        return ()
    return set_when_made(file, owner, "self.model_accepts_loss_kwargs = False")
