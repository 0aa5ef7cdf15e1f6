"""Edits for losses that are not divided by the number of passes whose gradients are summed."""

from __future__ import annotations

from torchvet.rules.kit import Edits, Finding, SourceFile, about, calls_at
from torchvet.source.model import edits
from torchvet.source.model.class_edits import set_when_made


def divided_by_the_trainer(file: SourceFile, finding: Finding) -> Edits:
    """`self.model_accepts_loss_kwargs = False`, where the class around the finding's line has a `compute_loss` of its
    own: the Trainer sets it to True in its `__init__`."""
    line = finding.location.line if finding.location is not None else None
    owner = file.unit_at(line).method_class() if line is not None else None
    if owner is None or "compute_loss" not in owner.methods or file.mentions("model_accepts_loss_kwargs"):
        return ()
    if not any(base.startswith("transformers.") for base in owner.ancestors):
        return ()
    return set_when_made(file, owner, "self.model_accepts_loss_kwargs = False")


def divided_by_their_number(file: SourceFile, finding: Finding) -> Edits:
    """`(loss / 4).backward()` for `loss.backward()` on the finding's line, with the number of passes that a run has
    counted."""
    passes = about(finding).operands
    found = [(e.call, on) for e, on in calls_at(file, finding, "backward")]
    if len(passes) != 1 or len(found) != 1 or found[0][0].args or not edits.on_one_line(found[0][1]):
        return ()
    loss = found[0][1]
    text = f"{edits.operand(file, loss)} / {passes[0]}"
    # A sum that a method is called on stands in brackets already.
    return [edits.replace(file, loss, f"({text})" if text.startswith(file.segment(loss)) else text)]
