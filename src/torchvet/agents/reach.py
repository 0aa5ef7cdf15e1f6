"""Which files a tool may read: those below the folders that the server was given, by their real paths."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchvet.errors import BadInput


class Reach:
    """The folders. A relative path is one below the first of them."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = [folder.resolve() for folder in folders]

    def covers(self, path: str | Path) -> bool:
        """Whether a path leads to a place below one of the folders."""
        real = Path(path).resolve()
        return any(real.is_relative_to(folder) for folder in self.folders)

    def path(self, given: str) -> Path:
        """A path that may be read. Raises `BadInput` for one that is not there, or outside, also by a link."""
        path = (self.folders[0] / Path(given).expanduser()).resolve()
        if not self.covers(path):
            allowed = ", ".join(map(str, self.folders))
            raise BadInput(f"{given}: lies outside of {allowed}; start `torchvet mcp --root FOLDER` to read elsewhere")
        if not path.exists():
            raise BadInput(f"{given}: no such file or folder below {self.folders[0]}")
        return path
