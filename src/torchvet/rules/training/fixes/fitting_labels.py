"""Edits that turn labels into those that a loss expects."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, SourceFile, about
from torchvet.rules.shared.normalised import Losses, losses
from torchvet.source.model import argument, edits

_CLASSES = {
    "hinge_embedding_loss": "HingeEmbeddingLoss",
    "cosine_embedding_loss": "CosineEmbeddingLoss",
    "margin_ranking_loss": "MarginRankingLoss",
    "soft_margin_loss": "SoftMarginLoss",
    "binary_cross_entropy_with_logits": "BCEWithLogitsLoss",
    "multilabel_soft_margin_loss": "MultiLabelSoftMarginLoss",
    "cross_entropy": "CrossEntropyLoss",
    "kl_div": "KLDivLoss",
}
_THIRD = ("cosine_embedding_loss", "margin_ranking_loss")
"""Losses of two inputs: their labels come third."""


def fitting_labels(file: SourceFile, finding: Finding) -> Edits:
    """`2 * labels - 1` for the labels of the one such loss on the finding's line, as the finding has it."""
    texts, place = about(finding).operands, finding.location
    if not texts or not texts[0] or place is None:
        return ()
    labels = labels_given(file, place.line, about(finding).variant)
    return as_given(file, labels, texts[0]) if labels is not None else ()


def labels_given(file: SourceFile, line: int, loss: str) -> ast.expr | None:
    """What the one such loss on a line is given as labels."""
    if loss not in _CLASSES:
        return None
    kind = Losses((loss,), (_CLASSES[loss],))
    calls = [call for _, call, _ in losses(file, kind) if call.lineno == line]
    return given_to(calls[0], loss) if len(calls) == 1 else None


def given_to(call: ast.Call, loss: str) -> ast.expr | None:
    """What a call of this loss is given as labels."""
    return argument(call, "target", 2 if loss in _THIRD else 1)


def as_given(file: SourceFile, labels: ast.expr, text: str) -> Edits:
    """The labels within a text: `2 * {} - 1`."""
    if isinstance(labels, ast.Starred) or not edits.on_one_line(labels):
        return ()
    return [edits.replace(file, labels, text.format(edits.operand(file, labels)))]
