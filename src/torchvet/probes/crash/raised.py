"""The errors that ended a program, each with the frames that it passed through."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from torchvet.probes.base.callers import PROGRAM
from torchvet.probes.base.kit import Place, frames, place_in
from torchvet.probes.crash import positions

_PLUMBING = (os.path.join("torch", "_ops.py"), os.path.join("torch", "overrides.py"))
"""Files of torch's that pass calls on to a mode or to a kernel, and know nothing of them."""


@dataclass
class Level:
    """One frame of a traceback: where it stood, and what its names were."""

    frame: FrameType
    line: int
    instruction: int
    whose: int
    _names: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def function(self) -> str:
        """The function's bare name."""
        return self.frame.f_code.co_name

    @property
    def place(self) -> Place:
        """The line it stood at."""
        return place_in(self.frame.f_code, self.line)

    @property
    def names(self) -> dict[str, Any]:
        """Its variables, over those of its module."""
        if self._names is None:
            # Once per frame: before Python 3.13 each reading of `f_locals` copies all variables.
            self._names = {**self.frame.f_globals, **self.frame.f_locals}
        return self._names

    def local(self, name: str) -> Any:
        """One of its own variables, or None."""
        return self.frame.f_locals.get(name)

    def expression(self) -> positions.Node | None:
        """What it was evaluating."""
        return positions.evaluated(self.frame.f_code, self.line, self.instruction)


def levels_of(error: BaseException) -> list[Level]:
    """The frames of an error's traceback, outermost first, without torchvet's own."""
    found = []
    link = error.__traceback__
    while link is not None:
        file = link.tb_frame.f_code.co_filename
        if frames.owner(file) != frames.OWN and not file.endswith(_PLUMBING):
            found.append(Level(link.tb_frame, link.tb_lineno, link.tb_lasti, frames.owner(file)))
        link = link.tb_next
    return found


def message_of(error: BaseException) -> str:
    """The first line of what an error says, cut at 300 characters."""
    return (str(error).splitlines() or [""])[0][:300]


def deciding(error: BaseException | None) -> Iterator[BaseException]:
    """The error that ended the program and those that it was raised from; of a failing exit, what was being handled.

    What was merely being handled when another error came is skipped: it may have been caught on purpose.
    """
    seen: set[int] = set()
    if isinstance(error, SystemExit):
        # `sys.exit(1)` in an except block: what was being handled is why it exits.
        error = error.__context__ if error.code not in (None, 0) else None
    # A program can make a cycle of causes.
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def users(levels: list[Level]) -> Level | None:
    """The innermost frame of the program's own, else of an installed package."""
    own = of_program(levels)
    return next((one for one in own if one.whose == frames.USER), next(iter(own), None))


def of_program(levels: list[Level]) -> list[Level]:
    """The program's own frames, the innermost first."""
    return [one for one in reversed(levels) if one.whose in PROGRAM]
