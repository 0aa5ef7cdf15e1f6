"""TRN139: padding is taken for data: rows are read at their padding, or a mask hides the data instead."""

from __future__ import annotations

import ast

from torchvet.formatting import count, percent
from torchvet.recording.records.layers import PaddedRead
from torchvet.rules.kit import (
    About,
    Edits,
    Finding,
    Findings,
    Measured,
    RankRecording,
    Recording,
    Rule,
    Severity,
    SourceFile,
    about,
    events_at,
)
from torchvet.source.model import edits

_STEPS = 3
"""Sampled steps from which on it is a habit. Chosen, not measured."""
_HIDES = "hides"
_ROWS, _LONG = 0.5, 0.1
"""The share of rows that end earlier, and that of all steps which is padding, from which on it harms. Chosen."""


class PaddingReadAsData(Rule):
    """Padding is taken for data: rows are read at their padding, or a mask hides the data instead."""

    severity = "warning"
    silence_clears = False
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The mask the other way round, where the finding's line hands in one."""
        return _turned(file, finding) if about(finding).variant == _HIDES else ()

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Lines that do so in several sampled steps."""
        for seen in rank.latest(PaddedRead, "place", "kind"):
            if seen.steps >= _STEPS:
                yield self._hides(rank, seen) if seen.kind == "hides" else self._read(rank, seen)

    def _read(self, rank: RankRecording, seen: PaddedRead) -> Finding:
        what = "the last step" if seen.kind == "last" else "the last state"
        harms = seen.padded >= _ROWS * seen.rows and seen.padding >= _LONG * seen.rows * seen.length
        severity: Severity = "warning" if harms else "info"
        return self.observed(
            rank,
            seen.place,
            f"{what} of {seen.layer} is read, and {percent(seen.padded / seen.rows)} of the rows end before it, "
            f"{seen.padding / max(1, seen.padded):.1f} steps on the average: what is read there came from padding",
            cause=f"the rows of a batch are padded at their end to one length, of {seen.length} steps in the last; a "
            f"recurrent layer goes on through the padding. It was so in {count(seen.steps, 'sampled step')}",
            advice="read each row at its own last step (`out[rows, lengths - 1]`), or give the layer "
            "`pack_padded_sequence(x, lengths, batch_first=..., enforce_sorted=False)`",
            severity=severity,
            measured=Measured(steps=seen.steps),
        )

    def _hides(self, rank: RankRecording, seen: PaddedRead) -> Finding:
        return self.observed(
            rank,
            seen.place,
            f"`key_padding_mask` of {seen.layer} is True where the data are and False at the padding: attention sees "
            "the padding alone",
            cause="True means that a position is left out. "
            f"{percent(seen.padding / (seen.rows * seen.length))} of all positions are padding, and the mask is the "
            f"other way round in {count(seen.steps, 'sampled step')}",
            advice="turn the mask round: `~mask`, or compare with the padding (`tokens == pad`)",
            measured=Measured(steps=seen.steps),
            about=About(variant=_HIDES),
        )


def _turned(file: SourceFile, finding: Finding) -> Edits:
    calls = [event.call for event in events_at(file, finding) if isinstance(event.node, ast.Call)]
    masks = [one.value for call in calls for one in call.keywords if (one.arg or "").endswith("key_padding_mask")]
    if len(masks) != 1 or not edits.on_one_line(masks[0]):
        return ()
    inverted = isinstance(masks[0], ast.UnaryOp) and isinstance(masks[0].op, ast.Invert)
    text = file.segment(masks[0].operand) if inverted else f"~{edits.operand(file, masks[0])}"  # type: ignore[attr-defined]
    return [edits.replace(file, masks[0], text)]
