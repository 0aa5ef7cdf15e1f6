"""Which of the user's lines ran in sampled steps, for holding suspicions about them against measurements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from types import CodeType, FrameType

from torchvet.probes.base import frames
from torchvet.recording.records.training import Ran


class LinesSeen:
    """Lines at which an operator made a storage, and those of the calls around them. Each is written once."""

    def __init__(self) -> None:
        self._known: set[tuple[int, int]] = set()
        # Apart from `_known`, so that each line is written in one record only, however long the run.
        self._new: dict[str, set[int]] = defaultdict(set)

    def at(self, line: tuple[CodeType, int], frame: FrameType) -> None:
        """An operator ran on a line of the user's, somewhere below `frame`. Cheap where the line is known."""
        if (id(line[0]), line[1]) not in self._known:
            self.around(frame)

    def around(self, frame: FrameType | None) -> None:
        """The user's lines from a frame outward."""
        while frame is not None:
            code = frame.f_code
            if frames.owner(code.co_filename) == frames.USER:
                # By identity: the hash of a code object goes through all that it is made of.
                key = id(code), frame.f_lineno
                if key not in self._known:
                    self._known.add(key)
                    self._new[code.co_filename].add(frame.f_lineno)
            frame = frame.f_back

    def records(self) -> Iterator[Ran]:
        """What is new since the last call."""
        for path, lines in self._new.items():
            yield Ran(path=path, lines=sorted(lines))
        self._new.clear()
