"""The record of one run of a program under a precision that torchvet chose: steps timed, losses kept."""

from __future__ import annotations

from typing import Literal

import msgspec

from torchvet.recording.records.base import Place, Record

AmpMode = Literal["float32", "float16", "bfloat16"]


class Unaligned(msgspec.Struct, frozen=True, kw_only=True):
    """A weight with a dimension that is no multiple of 8, which float16's tensor cores like best."""

    name: str
    shape: tuple[int, ...]


class AmpRun(Record):
    """A run under one mode. `seconds` and `losses` are a step each, oldest first; seconds are of the wall
    clock, or CPU time where one thread computes.

    `how` says what was done to the program: `own` autocast regions and scaler were given the mode's dtype, or the calls
    of its modules were `wrapped` and its loss scaled. `not_finite` counts losses that are NaN or
    infinite, which `losses` leaves out. `wanted` is the dtype that the program's own regions asked for.
    `copies` is the bytes of half weights that autocast makes, `peak` those in use at most where the device counts them.
    """

    mode: AmpMode
    device: str
    how: Literal["own", "wrapped"]
    seconds: list[float] = []
    losses: list[float] = []
    not_finite: int = 0
    skipped: int = 0
    scale: float | None = None
    peak: int | None = None
    copies: int = 0
    wanted: str | None = None
    place: Place | None = None
    unaligned: list[Unaligned] = []
    clock: Literal["wall", "cpu"] = "wall"
    native: bool = False
    """Whether the device computes the mode's dtype natively."""
