"""Keeps the text of the user's source files in the recording, so that a report can quote them anywhere."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from torchvet.probes.base import frames
from torchvet.probes.base.watcher import Host, Watcher
from torchvet.probes.session.overlay import content_of
from torchvet.probes.session.program import COMMAND
from torchvet.recording.records.base import LARGEST_SOURCE, Source

_MOST = 120


class SourceKeeper(Watcher):
    """The text of the program's files. Each is written once."""

    always = True

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._kept: set[str] = set()
        self._met: dict[str, int] = {}
        """Modules that were looked at, by name: their identities. With large libraries there are thousands, few of them
        new; a name may come again for another file."""
        self._about = ""
        with suppress(OSError):  # the working directory may be gone
            # As `__file__` of the main module is: absolute.
            self._about = os.path.abspath(host.options.path)

    def names_counted(self, tick: int) -> None:
        """Write the files that are new."""
        self._keep()

    def totals(self, tick: int) -> tuple[()]:
        """Likewise."""
        self._keep()
        return ()

    def last_look(self, how: str, error: BaseException | None) -> None:
        """The modules of the error's frames may be gone, as those that `runpy` has run."""
        self._keep(frame.f_code.co_filename for frame in frames.traceback_frames(error))

    def _keep(self, more: Iterable[str] = ()) -> None:
        self._keep_command()
        names: dict[str, str] = {}
        for name, module in list(sys.modules.items()):
            if self._met.get(name) == id(module):
                continue
            self._met[name] = id(module)
            if isinstance(file := getattr(module, "__file__", None), str):
                names.setdefault(file, name)
        # What the run is about comes first: a large suite of tests has more modules than are kept.
        ordered = sorted(names, key=lambda file: file != self._about)
        for file in (*more, *ordered, *_cells()):
            if file in self._kept or not (file.endswith(".py") or _is_cell(file)):
                continue
            # Libraries' text is not copied into a report.
            if frames.owner(file) != frames.USER or len(self._kept) >= _MOST:
                continue
            # Also where it cannot be read: it is not tried at each look.
            self._kept.add(file)
            text = _text_of(file)
            if text is not None and len(text) <= LARGEST_SOURCE:
                self.host.write(Source(path=file, text=text, module=names.get(file, "")))

    def _keep_command(self) -> None:
        """The code that stood on the command line."""
        text = self.host.options.code
        if text is not None and COMMAND not in self._kept:
            self._kept.add(COMMAND)
            self.host.write(Source(path=COMMAND, text=text))


def _cells() -> list[str]:
    """What was compiled from no file, with its text in `linecache`: the cells of a notebook."""
    return [name for name in list(linecache.cache) if _is_cell(name)]


def _is_cell(file: str) -> bool:
    """Whether `linecache` has a text for it, and no time of a file."""
    entry: Any = linecache.cache.get(file, ())
    return len(entry) == 4 and entry[1] is None


def _text_of(file: str) -> str | None:
    try:
        # A text that stands in for the file is what runs, and what a report quotes.
        return _text(content_of(file) or Path(file).read_bytes())
    except OSError:
        return "".join(linecache.getlines(file)) if _is_cell(file) else None


def _text(raw: bytes) -> str:
    """As Python reads it, by its cookie or byte order mark; lines and columns are the file's."""
    from importlib.util import decode_source

    try:
        return decode_source(raw)
    except (SyntaxError, UnicodeDecodeError):
        return raw.decode("utf-8", "replace")
