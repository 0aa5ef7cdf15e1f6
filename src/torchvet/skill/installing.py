"""The skill's files on disk: what was written by torchvet and not changed since is replaced, all else is left alone.

Each file ends in a mark with the digest of what stands before it, so that it tells by itself whether it was changed.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from torchvet._version import __version__
from torchvet.errors import BadInput
from torchvet.skill.documents import NAME, documents

_MARK = re.compile(
    r"\n<!-- torchvet \S+ ([0-9a-f]{16}): `torchvet skill install` replaces this file unless it was changed -->\n$"
)


def marked(text: str) -> str:
    """A file's text with its mark."""
    mark = f"torchvet {__version__} {_digest(text)}: `torchvet skill install` replaces this file unless it was changed"
    return f"{text}\n<!-- {mark} -->\n"


def is_as_written(data: bytes) -> bool:
    """Whether a file is one that some version of torchvet wrote and nobody has changed; line ends do not count."""
    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return False
    mark = _MARK.search(text)
    return mark is not None and mark[1] == _digest(text[: mark.start()])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass
class Installed:
    """What was done, or is to be, in `folder`, the skill's own: file names below it, with `/`."""

    folder: Path
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    """Files that are in the way and that the user has changed, or somebody else has written."""


def install(skills: Sequence[Path], force: bool = False) -> list[Installed]:
    """Write the skill into a folder below each of these. Raises `BadInput`, with nothing written, where a file was
    changed by the user and `force` is off, or where something cannot be read; with a message where writing fails."""
    plans = [_plan(folder / NAME) for folder in skills]
    changed = [str(plan.folder / name) for plan in plans for name in plan.changed]
    if changed and not force:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise BadInput(
            f"{changed[0]}{more}: was not written by torchvet, or was changed since; nothing was written. "
            "Move it away, or give --force to replace it"
        )
    for plan in plans:
        _carry_out(plan)
    return plans


def _plan(folder: Path) -> Installed:
    plan, wanted = Installed(folder), documents()
    for name, text in wanted.items():
        data = read(folder / name)
        if data is None or data.replace(b"\r\n", b"\n") != marked(text).encode():
            plan.written.append(name)
        if data is not None and name in plan.written and not is_as_written(data):
            plan.changed.append(name)
    with told(folder / "references"):
        there = sorted(path.name for path in (folder / "references").glob("*.md"))
    for name in (f"references/{name}" for name in there):
        if name not in wanted and is_as_written(read(folder / name) or b""):
            plan.removed.append(name)  # of an older version, which had other references
    return plan


def read(path: Path) -> bytes | None:
    with told(path):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None


def _carry_out(plan: Installed) -> None:
    for name in plan.written:
        path = plan.folder / name
        with told(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            put(path, marked(documents()[name]))
    for name in plan.removed:
        with told(plan.folder / name):
            (plan.folder / name).unlink(missing_ok=True)


def put(path: Path, text: str) -> None:
    """Write a file beside its place and put it there whole; a link stays a link. Raises OSError."""
    place = Path(os.path.realpath(path))
    beside = place.with_name(f".torchvet-{os.urandom(6).hex()}")
    try:
        with open(beside, "x", encoding="utf-8", newline="") as stream:
            stream.write(text)
        os.replace(beside, place)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = (
            error.filename if error.filename and not os.path.basename(error.filename).startswith(".torchvet-") else path
        )
        raise BadInput(f"{where}: the skill cannot be written there: {error.strerror or error}") from error
