"""Other texts in the place of the user's files, in this process alone: how a fix is tried and no file touched.

Nothing is copied: `__file__`, the working directory and relative paths stay what they are, so the program finds its
data. Bytecode caches are neither read nor written for these files: a cache holds the old text, and the user's next run
must not find the new one there. Line caches are filled, so that tracebacks, `inspect` and TorchScript read what runs.
"""

from __future__ import annotations

import json
import os
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

INDEX = "index.json"
"""In an overlay's folder: the real paths of files and the names of the files beside it that hold their new content."""

_contents: dict[str, bytes] = {}


def install(folder: Path) -> None:
    """From now on the files that a folder's index names have other contents. Raises OSError and ValueError."""
    index = json.loads((folder / INDEX).read_text("utf-8"))
    _contents.update({path: (folder / name).read_bytes() for path, name in index.items()})
    # The one place where importing turns a file into code.
    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        content = content_of(path)
        # `source_to_code` goes past the bytecode cache, which `get_code` would read and write.
        return original(self, fullname) if content is None else self.source_to_code(content, path)

    SourceFileLoader.get_code = get_code  # type: ignore[assignment,method-assign]


def content_of(path: str) -> bytes | None:
    """The content that stands in for a file's; None where the file speaks for itself."""
    content = _contents.get(os.path.realpath(path)) if _contents else None
    if content is not None:
        from importlib.util import decode_source

        fill_line_cache(path, decode_source(content))
    return content


def fill_line_cache(path: str, text: str) -> None:
    """Have tracebacks quote this text. An entry without a time of change is never held against the file on disk."""
    import linecache
    from io import StringIO

    # The entry must stand before anybody has asked for the file's lines.
    if path not in linecache.cache:
        linecache.cache[path] = (len(text), None, StringIO(text).readlines(), path)
