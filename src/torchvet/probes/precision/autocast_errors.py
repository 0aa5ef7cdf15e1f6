"""Exceptions that autocast's state explains: where they were raised, and within which region."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from types import FrameType
from typing import Any, Literal

from torch.autograd.function import BackwardCFunction

from torchvet.probes.base.kit import Place, Record, frames, place_in
from torchvet.probes.precision.autocast_regions import Region, Regions
from torchvet.recording.records.autocast import AutocastError

Kind = Literal["function", "disabled", "bce", "device"]
_MISMATCH = ("same dtype", "expected scalar type", "should be the same", "to have the same dtype")
_REFUSED = "unsafe to autocast"
_DEVICE = "Expected `device_type` of type `str`"


class ErrorProbe:
    """One for the session."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._found: dict[tuple[str, Place], AutocastError] = {}
        self._last = 0

    def raised(self, error: BaseException, region: Region) -> None:
        """An exception left a region; the innermost one counts."""
        # By identity only, so that the exception and its frames are not kept.
        if id(error) == self._last or not isinstance(error, RuntimeError):
            return
        # It leaves the regions one after another, and is met at each.
        self._last = id(error)
        text = str(error)
        if _REFUSED in text:
            self._add("bce", error, region)
        # A region that was switched off: half operands from outside meet float32 there.
        elif not region.wanted and any(words in text for words in _MISMATCH):
            self._add("disabled", error, region)

    def ended(self, error: BaseException) -> None:
        """The program ended with this exception."""
        text = str(error)
        if isinstance(error, ValueError) and _DEVICE in text:
            self._add("device", error, None)
        elif isinstance(error, RuntimeError) and self._regions.dtypes and any(words in text for words in _MISMATCH):
            # The innermost backward of a custom Function is the one that failed.
            for frame in reversed(frames.traceback_frames(error)):
                function = _function_of(frame)
                if function is not None:
                    self._add("function", error, None, function, frames.place_of(frame))
                    return

    def records(self) -> Iterable[Record]:
        """What was raised."""
        return list(self._found.values())

    def _add(
        self, kind: Kind, error: BaseException, region: Region | None, name: str = "", place: Place | None = None
    ) -> None:
        place = place or _innermost(error)
        if place is None:
            return
        where = region.site.place if region is not None else None
        message = (str(error).splitlines() or [""])[0]
        self._found[kind, place] = AutocastError(kind=kind, place=place, message=message, name=name, region=where)


def _innermost(error: BaseException) -> Place | None:
    """The user's line that raised, or called what did."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frames.owner(frame.f_code.co_filename) == frames.USER:
            found = place_in(frame.f_code, line)
    return found


def _function_of(frame: FrameType) -> str | None:
    """The name of the custom Function without `custom_fwd` whose backward a frame is of."""
    code = frame.f_code
    if code.co_name != "backward" or not code.co_argcount or frames.owner(code.co_filename) != frames.USER:
        return None
    # Its first argument, whatever the program calls it.
    context: Any = frame.f_locals.get(code.co_varnames[0])
    if not isinstance(context, BackwardCFunction) or hasattr(context, "_fwd_used_autocast"):
        return None
    return str(getattr(type(context), "_forward_cls", type(context)).__name__)
