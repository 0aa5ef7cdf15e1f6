"""Edits that make a layer of sequences take batches first, where a file writes down how it is made."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, SourceFile
from torchvet.source.model import edits, is_unpacked, keyword

_RECURRENT = ("RNN", "LSTM", "GRU")
_NAMES = ("TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer", "MultiheadAttention", *_RECURRENT)
_LAYERS = {f"torch.nn.{name}" for name in _NAMES}
_GIVEN = 4
"""Arguments that all of these take in front of `batch_first`."""


def made_batch_first(file: SourceFile, finding: Finding) -> Edits:
    """`batch_first=True` in the one call that makes such a layer on the line that the finding names."""
    lines = [one.line for one in finding.related if one.role == "made" and one.path == file.path]
    calls = [e.call for line in lines if line for name in _NAMES for e in file.calls_on(line, name)]
    if len(calls) != 1 or file.dotted(calls[0].func) not in _LAYERS:
        return ()
    (call,) = calls
    written = keyword(call, "batch_first")
    if not _is_written_down(call):
        return ()
    return [edits.replace(file, written, "True")] if written else edits.with_argument(file, call, "batch_first=True")


def _is_written_down(call: ast.Call) -> bool:
    """Whether it is seen what the layer is given: `**options` or `*sizes` may hold it."""
    spread = is_unpacked(call)
    return not spread and len(call.args) <= _GIVEN
