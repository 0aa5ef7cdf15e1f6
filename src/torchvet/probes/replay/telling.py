"""Writes down what a look has found: an operator, or a tensor that was not finite when it came."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from torchvet.probes.replay.sources import Source
from torchvet.recording.records.nonfinite import NonFinite, Reason

Symptom = Literal["loss", "gradient", "output"]
"""What gave a failure away."""


def record_of(
    root: Source, reason: Reason, later: Iterable[Source], *, symptom: Symptom, tick: int, scale: float | None,
    exact: bool = True,
) -> NonFinite:  # fmt: skip
    """The record of the source that comes first; of `later` ones some were made of its infinities."""
    note = None
    heirs = [s for s in later if root in s.parents]
    if heirs:
        line = f" at line {heirs[0].place.line}" if heirs[0].place is not None else ""
        note = f"{heirs[0].operator} made NaN of its infinities{line}"
    if root.compiled:
        note = f"{note}; " if note else ""
        note += "it ran in a torch.compile region: the line is where that begins"
    return NonFinite(
        tick=tick, symptom=symptom, found="input" if root.external is not None else "operator", phase=root.phase,
        reason=reason, operator=root.operator, node=root.node, place=root.place, inner=root.inner, module=root.module,
        operands=root.operands, result=root.result, rows=root.rows, survives=root.survives, autocast=root.autocast,
        scale=scale, exact=exact, note=note,
    )  # fmt: skip
