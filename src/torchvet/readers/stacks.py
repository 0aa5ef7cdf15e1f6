"""Stacks kept once: hundreds of thousands of events share a few thousand different ones."""

from __future__ import annotations

from typing import Any

from torchvet.errors import BadInput
from torchvet.readers.snapshot import Frame

_LONGEST = 2000
"""Characters of a name or a path that are kept: C++ templates make names of any length."""
_ALIKE = 16
"""Stacks compared one by one: a file in which more than these look alike pays for it itself, and no more than that."""


class Stacks:
    """Numbers stacks by their content; number 0 is the empty stack.

    A snapshot has a list of its own for every block, and shares the frames in them. So a stack is looked up by a few of
    its frames' identities and then compared as a whole, which is quick where the frames are the same objects. They must
    stay alive while stacks are added.
    """

    def __init__(self) -> None:
        self.frames: dict[Frame, int] = {}
        self.stacks: dict[tuple[int, ...], int] = {(): 0}
        self._alike: dict[tuple[int, ...], list[tuple[Any, int]]] = {}
        self._known: dict[int, int] = {}

    def number(self, frames: Any) -> int:
        """The number of a list of frames; None and an empty list are no stack."""
        if not frames:
            return 0
        if not isinstance(frames, (list, tuple)):
            raise BadInput("frames are no list")
        length = len(frames)
        # Three frames tell most stacks apart, and identities cost nothing: the unpickler shares equal frames.
        key = (length, id(frames[length // 3]), id(frames[length // 2]), id(frames[-1]))
        alike = self._alike.get(key)
        if alike is None:
            alike = self._alike[key] = []
        for known, number in alike:
            if known == frames:
                return number
        number = self.stacks.setdefault(tuple([self._frame(f) for f in frames]), len(self.stacks))
        # A hostile file could make every lookup compare with all stacks before it.
        if len(alike) < _ALIKE:
            alike.append((frames, number))
        return number

    def _frame(self, raw: Any) -> int:
        known = self._known.get(id(raw))
        if known is None:
            known = self.frames.setdefault(frame_of(raw), len(self.frames))
            self._known[id(raw)] = known
        return known


def frame_of(raw: Any) -> Frame:
    """A frame from its dict. Raises `BadInput` where it is none."""
    if not isinstance(raw, dict):
        raise BadInput("a frame is no dict")
    line = raw.get("line")
    fx = raw.get("fx_original_trace")
    return Frame(
        path=text_of(raw.get("filename")),
        line=line if type(line) is int and 0 <= line < 2**31 else 0,
        name=text_of(raw.get("name")),
        fx=text_of(fx) if isinstance(fx, str) else "",
    )


def text_of(value: Any) -> str:
    """A string that can be written anywhere; what is none is empty."""
    if not isinstance(value, str):
        return ""
    return value[:_LONGEST].encode("utf-8", "backslashreplace").decode()
