"""Walks from a frame outward to the program's own code. `frames` has what is asked for each operator, and faster."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from types import CodeType, FrameType

from torchvet.probes.base import frames
from torchvet.recording.records.base import Place

PROGRAM = (frames.USER, frames.INSTALLED)
"""Whose code runs as part of the program: the user's, and that of installed packages other than torch."""
# A recursive program must not make each backward pass as long as its stack is deep.
_MOST_FRAMES = 40

Whereabouts = list[tuple[int, CodeType, int]]
"""What spots are made of: the program's frames, innermost first."""


def outward(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame, its caller, and so on."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def is_program(code: CodeType) -> bool:
    """Whether a function is the program's."""
    return frames.owner(code.co_filename) in PROGRAM


def of_program(frame: FrameType | None, owners: tuple[int, ...] = PROGRAM) -> Iterator[FrameType]:
    """The frames of the program from this one outward, or those of other `owners`."""
    return (one for one in outward(frame) if frames.owner(one.f_code.co_filename) in owners)


def user_lines(frame: FrameType | None, most: int) -> list[Place]:
    """The user's innermost lines from a frame outward."""
    return [frames.place_of(one) for one in itertools.islice(of_program(frame, (frames.USER,)), most)]


def lines_of_user(frame: FrameType | None, most: int) -> tuple[tuple[CodeType, int], ...]:
    """The user's lines from a frame outward, the outermost first; `most` frames are walked."""
    owners = frames._owner_of_file
    found: list[tuple[CodeType, int]] = []
    # A stack that is cut off here has no common beginning with another.
    for one in itertools.islice(outward(frame), most):
        code = one.f_code
        # The table itself is asked first: this runs at many operators.
        whose = owners.get(code.co_filename)
        if whose is None:
            whose = frames.owner(code.co_filename)
        if whose == frames.USER:
            found.append((code, one.f_lineno))
    return tuple(reversed(found))


def called_by_user(depth: int = 1) -> Place | None:
    """The user's line that called what is tapped; None if code of torch's called it, whoever called that."""
    for frame in outward(sys._getframe(depth)):
        whose = frames.owner(frame.f_code.co_filename)
        # Torch's own optimizers and layers call tapped functions too; what they do is not the user's line.
        # Other packages in between are passed over.
        if whose in (frames.USER, frames.TORCH):
            return frames.place_of(frame) if whose == frames.USER else None
    return None


def place_in(code: CodeType, line: int | None = None) -> Place:
    """A line of a function, its first if none is given. Before Python 3.11 code objects have no qualified name."""
    function = getattr(code, "co_qualname", code.co_name)
    return Place(code.co_filename, code.co_firstlineno if line is None else line, function)


def whereabouts(depth: int) -> Whereabouts:
    """Where the program is now. Asked at every backward pass: hence no more than this."""
    found: Whereabouts = []
    owners = frames._owner_of_file
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and len(found) < _MOST_FRAMES:
        code = frame.f_code
        # The table itself is asked, and `owner` only for a file that it does not have: this runs at every backward.
        whose = owners.get(code.co_filename)
        if whose is None:
            whose = frames.owner(code.co_filename)
        if whose >= frames.INSTALLED:
            # The frame itself would keep the program's variables alive; its id and instruction tell
            # whether it is still at the same place.
            found.append((id(frame), code, frame.f_lasti))
        frame = frame.f_back
    return found
