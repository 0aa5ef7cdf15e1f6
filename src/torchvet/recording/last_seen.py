"""A small file beside a rank's record that says what the rank did last: nothing else is left of one that is killed by
SIGKILL. It is written over in place, and removed when the rank ends by itself."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from torchvet.errors import BadInput
from torchvet.recording.opening import opened
from torchvet.recording.records.ranks import PHASES, LastSeen, Standstill
from torchvet.recording.writer import out_of_the_way

_HEAD, _SIZE = 32, 2048
"""Bytes of the moment, and of the whole file: the line at which the rank was seen takes the rest."""
_SUFFIX = ".last"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0)
_decoder = msgspec.json.Decoder(Standstill)


class LastSeenFile:
    """Writes the file beside `record`. A write takes a microsecond or two, and none raises."""

    def __init__(self, record: Path) -> None:
        self._path = record.with_suffix(_SUFFIX)
        self._file: int | None = None
        with suppress(OSError):
            self._file = out_of_the_way(os.open(self._path, _NEW, 0o644))
        self.moment(0, 0)

    def moment(self, tick: int, phase: int) -> None:
        """So many steps have ended, and this of `PHASES` has begun."""
        if self._file is not None:
            with suppress(OSError):
                os.pwrite(self._file, b"%20d %10d\n" % (tick, phase), 0)

    def line(self, seen: Standstill) -> None:
        """The rank was seen here."""
        text = msgspec.json.encode(seen)
        if self._file is not None and len(text) < _SIZE - _HEAD:
            with suppress(OSError):
                os.pwrite(self._file, text.ljust(_SIZE - _HEAD - 1) + b"\n", _HEAD)

    def end(self) -> None:
        """The rank ends by itself."""
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            with suppress(OSError):
                self._path.unlink()
            self._file = None


def last_seen(record: Path) -> LastSeen | None:
    """What the file beside a record says; None where there is none, or it is none of ours."""
    file = record.with_suffix(_SUFFIX)
    try:
        with opened(file.parent, file) as stream:
            text = stream.read(_SIZE)
        tick, phase = map(int, text[:_HEAD].split())
    except (OSError, BadInput, ValueError):
        return None
    if not (0 <= tick < 1 << 62 and 0 <= phase < len(PHASES)):
        return None
    found = LastSeen(tick=tick, phase=PHASES[phase])
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        seen = _decoder.decode(text[_HEAD:])
        if seen.tick == tick:  # a line of an earlier step is not where it stood
            found.place, found.call = seen.place, seen.call
    return found
