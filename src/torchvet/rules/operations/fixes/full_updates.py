"""An edit for a metric of torchmetrics that computes each batch twice."""

from __future__ import annotations

from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model import ClassModel, names_bound
from torchvet.source.model.class_edits import with_attribute

_OPTION = "full_state_update"


def updated_once(file: SourceFile, finding: Finding) -> Edits:
    """`full_state_update = False` in the metric whose method the finding's line is in: without it, each call updates
    the metric twice."""
    line = finding.location.line if finding.location is not None else None
    owner = file.unit_at(line).method_class() if line is not None else None
    if owner is None or "update" not in owner.methods or any(_says(one) for one in owner.lineage):
        return ()
    if not any(base.startswith("torchmetrics.") for base in owner.ancestors):
        return ()
    return with_attribute(file, owner, f"{_OPTION} = False")


def _says(owner: ClassModel) -> bool:
    return _OPTION in owner.attributes or _OPTION in names_bound(owner.node.body)
