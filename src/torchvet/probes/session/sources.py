"""Keeps the text of the user's source files in the recording, so that a report can quote them anywhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from torchvet.probes.base import frames
from torchvet.probes.session.overlay import content_of
from torchvet.recording.records.base import Source

_LARGEST = 400_000
_MOST = 120


class SourceKeeper:
    """Writes each loaded user module's text once."""

    def __init__(self, write: Callable[[Source], None]) -> None:
        self._write = write
        self._kept: set[str] = set()
        self.standing: list[FrameType] = []
        """Frames of the error that ended the program: their modules may be gone, as those that `runpy` has run."""

    def keep(self) -> None:
        """Write the files that are new."""
        files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        for file in (*files, *(frame.f_code.co_filename for frame in self.standing)):
            if not isinstance(file, str) or file in self._kept or not file.endswith(".py"):
                continue
            if frames.owner(file) != frames.USER or len(self._kept) >= _MOST:
                continue
            self._kept.add(file)
            try:
                raw = content_of(file) or Path(file).read_bytes()
            except OSError:
                continue
            if len(raw) <= _LARGEST:
                self._write(Source(path=file, text=_text(raw)))


def _text(raw: bytes) -> str:
    """As Python reads it, by its cookie or byte order mark; lines and columns are the file's."""
    from importlib.util import decode_source

    try:
        return decode_source(raw)
    except (SyntaxError, UnicodeDecodeError):
        return raw.decode("utf-8", "replace")
