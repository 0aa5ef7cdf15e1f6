"""The log of a trial: what lay at a path before the trial first touched it, a line each, in the order of the touches.

Several processes append to one log, each line in one write. The first entry of a path counts: whoever writes a later
one may have looked at what the trial had changed already.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

LOG = "log.jsonl"
"""The log's name in a trial's folder."""

Kind = Literal["absent", "file", "folder", "link", "refused"]
Stays = Literal["", "fetched", "cached"]


@dataclass(frozen=True)
class Entry:
    """What lay at a path, whose folders hold no symbolic link: nothing, a file, a folder or a link.

    `copy` names the file beside the log with the content, and `linked` says that it is the very file, which a later
    entry copies if it has not gone and changes. Without a copy a file that `grows` is added to, behind the `size` bytes
    that it had, and any other only changes its attributes. `stays` is why something new is not removed; `why` is why
    something could not be kept, and the trial was stopped before it was touched.
    """

    path: str
    kind: Kind
    mode: int = 0
    mtime: int = 0
    ctime: int = 0
    size: int = 0
    file: tuple[int, int] = (0, 0)
    owner: tuple[int, int] = (0, 0)
    copy: str = ""
    linked: bool = False
    grows: bool = False
    target: str = ""
    stays: Stays = ""
    why: str = ""

    def line(self) -> bytes:
        """The entry as it stands in the log. It begins with a line end: one before it may be torn."""
        # `dumps` writes paths that are no UTF-8 as escapes of their surrogates.
        return b"\n" + json.dumps({k: v for k, v in vars(self).items() if v}).encode("ascii") + b"\n"


def described(path: str, seen: os.stat_result, copy: str = "", linked: bool = False, grows: bool = False) -> Entry:
    """The entry for a file, folder or link of which the system has said this."""
    kind: Kind = "folder" if stat.S_ISDIR(seen.st_mode) else "link" if stat.S_ISLNK(seen.st_mode) else "file"
    return Entry(
        path,
        kind,
        # The permissions alone: the kind is told above.
        stat.S_IMODE(seen.st_mode),
        seen.st_mtime_ns,
        seen.st_ctime_ns,
        seen.st_size,
        (seen.st_dev, seen.st_ino),
        (seen.st_uid, seen.st_gid),
        copy,
        linked,
        grows,
        os.readlink(path) if kind == "link" else "",
    )


def parse(data: bytes) -> Iterator[Entry]:
    """The entries of a piece of a log. A line that was torn is no entry: what it was for did not happen."""
    for line in data.splitlines():
        try:
            told = json.loads(line) if line else None
            if isinstance(told, dict):
                # JSON has lists only, and these are compared with tuples.
                pairs = {name: (*told[name],) for name in ("file", "owner") if name in told}
                yield Entry(**{**told, **pairs})
        except (ValueError, TypeError):
            continue


def entries(folder: Path) -> list[Entry]:
    """The entries of a trial's folder, in order. Raises OSError where the log cannot be read."""
    return list(parse((folder / LOG).read_bytes()))


def look(path: str) -> os.stat_result | None:
    """What lies at a path, links not followed; None for nothing."""
    try:
        # A link is put back as a link, whatever it points to.
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def file_id(seen: os.stat_result) -> tuple[int, int]:
    """What distinguishes a file from others, whatever its names."""
    return seen.st_dev, seen.st_ino
