"""Which files a check reads: those named, and the Python files and notebooks below the folders named."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchvet.errors import BadInput
from torchvet.source.text import name_set

if TYPE_CHECKING:
    from torchvet.checking.gitignore import Pattern

EXTENSIONS = (".py", ".ipynb")
SKIPPED = name_set("venv node_modules __pycache__ __pypackages__ build dist site-packages _build buck-out")
"""Folders that hold no source of the project itself; those whose name begins with a dot are skipped as well."""


class Target(NamedTuple):
    """A file to be read: the path to open, and the one to be shown, relative to the working directory below it.

    A folder that cannot be read is one too, with `refused`, the system's words for it; its names end in a slash.
    """

    path: str
    shown: str
    refused: str = ""


_Found = tuple[str, str]
"""A path, and why it cannot be read, empty where it may be."""


class _Ignore(NamedTuple):
    """A folder's patterns, and how far from it the path is that they are asked about."""

    base: str
    patterns: list[Pattern]


def discover(paths: Sequence[str], exclude: Sequence[str] = (), root: Path | None = None) -> list[Target]:
    """The files, each once, sorted within a folder. A file that is named is read whatever its name or .gitignore.

    `exclude` holds patterns as in a .gitignore at `root`. Raises `BadInput` for a path that is not there, and for a
    pipe or a device, which may never end.
    """
    seen: dict[str, Target] = {}
    here = os.path.join(os.getcwd(), "")
    for given in paths:
        for path, refused in _at(given, exclude, os.path.abspath(root or ".")):
            if path not in seen:
                # What is shown can be written down, whatever bytes the path is made of.
                shown = path.removeprefix(here).encode("utf-8", "backslashreplace").decode()
                seen[path] = Target(path, shown, refused)
    return list(seen.values())


def _at(given: str, exclude: Sequence[str], root: str) -> Iterator[_Found]:
    if not os.path.exists(given):
        raise BadInput(f"{given}: no such file or folder")
    if os.path.isdir(given):
        return _below(os.path.abspath(given), exclude, root)
    if not os.path.isfile(given):
        raise BadInput(f"{given}: neither a file nor a folder; give `-` to check what comes through a pipe")
    return iter([(os.path.abspath(given), "")])


def _below(folder: str, exclude: Sequence[str], root: str) -> Iterator[_Found]:
    from torchvet.checking.gitignore import parse

    own = _Ignore(os.path.join(root, ""), parse("\n".join(exclude)))
    return _walk(folder, [own, *_above(folder)])


def _walk(folder: str, ignores: list[_Ignore]) -> Iterator[_Found]:
    """Files below a folder, depth first. Links to folders are not followed: they may lead round in a ring."""
    waiting = [(folder, ignores)]
    while waiting:
        folder, ignores = waiting.pop()
        try:
            ordered = _entries(folder)
        except OSError as error:
            yield os.path.join(folder, ""), error.strerror or str(error)
            continue
        if any(entry.name == ".gitignore" for entry in ordered):
            ignores = [*ignores, *_read(folder, ".gitignore")]
        below = []
        for entry in ordered:
            if entry.is_dir(follow_symlinks=False):
                if not _is_skipped(entry.name) and not _ignored(entry.path, ignores, True):
                    below.append((entry.path, ignores))
            elif entry.name.endswith(EXTENSIONS) and _is_file(entry) and not _ignored(entry.path, ignores, False):
                yield entry.path, ""
        waiting += reversed(below)


def _is_skipped(folder: str) -> bool:
    return folder.startswith(".") or folder in SKIPPED


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """What is in a folder, by name. Raises OSError where it cannot be read."""
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda e: e.name)


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether it is a regular file, or a link to one. A link that leads to itself counts: reading says what it is."""
    try:
        return entry.is_file()
    except OSError:
        return True


def _ignored(path: str, ignores: list[_Ignore], folder: bool) -> bool:
    """The nearest .gitignore with a pattern for the path decides; but what a user excludes stays out."""
    from torchvet.checking.gitignore import matches

    own = ignores[0]
    if own.patterns and path.startswith(own.base) and matches(own.patterns, path[len(own.base) :], folder):
        return True
    for ignore in reversed(ignores[1:]):
        verdict = matches(ignore.patterns, path[len(ignore.base) :], folder)
        if verdict is not None:
            return verdict
    return False


def _above(folder: str) -> list[_Ignore]:
    """The .gitignore files of the repository that a folder lies in, from its root down; the folder's own not yet."""
    chain = []
    current = folder
    # Outside a repository git reads no .gitignore above the folder, so none counts.
    while not os.path.exists(os.path.join(current, ".git")):
        parent = os.path.dirname(current)
        if parent == current:
            return []
        chain.append(current)
        current = parent
    found = _read(current, os.path.join(".git", "info", "exclude"))
    for between in [*([current] if current != folder else []), *reversed(chain[1:])]:
        found += _read(between, ".gitignore")
    return found


def _read(folder: str, name: str) -> list[_Ignore]:
    from torchvet.checking.gitignore import parse

    try:
        text = Path(folder, name).read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return []
    patterns = parse(text)
    return [_Ignore(os.path.join(folder, ""), patterns)] if patterns else []
