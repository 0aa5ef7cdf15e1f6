"""Which files are meant: local files, folders and globs, and the same of remote file systems by fsspec."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from torchvet.errors import BadInput, MissingExtra
from torchvet.inspecting import ENDINGS
from torchvet.scratch import Scratch

_MANIFEST = "manifest.json"
"""What tells a recording from other folders."""


def files_of(patterns: Sequence[str]) -> list[str]:
    """The files and recordings that patterns mean, each once, in order. A folder means those directly in it that are
    named as snapshots, traces and recordings are.

    Raises `BadInput` for a pattern that means nothing, `MissingExtra` where fsspec is needed and not there.
    """
    found: set[str] = set()
    for pattern in patterns:
        matched = _remote(pattern) if is_remote(pattern) else _local(pattern)
        if not matched:
            raise BadInput(f"{pattern}: means no file; expected files, globs, or folders of {', '.join(ENDINGS)} files")
        found.update(matched)
    return sorted(found)


def is_remote(path: str) -> bool:
    """Whether fsspec is to read it."""
    return "://" in path


def is_relative(path: str) -> bool:
    """Whether the working directory is needed to find it."""
    return not is_remote(path) and not Path(path).is_absolute()


@contextmanager
def local_copy(path: str, folder: str = "") -> Iterator[Path]:
    """Where a file can be read: its own place, below `folder` where the path is relative, or a temporary copy of a
    remote one. The copy is removed after."""
    if not is_remote(path):
        yield Path(folder, path)
        return
    system, name = _system(path)
    with Scratch() as scratch:
        place = scratch / PurePosixPath(name).name
        for source in system.ls(name, detail=False) if system.isdir(name) else [name]:
            target = place / PurePosixPath(source).name if source != name else place
            target.parent.mkdir(exist_ok=True)
            system.get_file(source, str(target))
        yield place


def _local(pattern: str) -> list[str]:
    matched = [pattern] if Path(pattern).exists() else glob.glob(pattern, recursive=True)
    try:
        return [file for match in matched for file in _in_folder(Path(match))]
    except OSError as error:
        raise BadInput(f"{pattern}: cannot be listed: {error.strerror}") from error


def _in_folder(path: Path) -> list[str]:
    """A file or a recording itself; of any other folder what is in it."""
    if not path.is_dir() or (path / _MANIFEST).is_file():
        return [str(path)]
    return [str(p) for p in path.iterdir() if p.name.endswith(ENDINGS) or (p / _MANIFEST).is_file()]


def _remote(pattern: str) -> list[str]:
    system, name = _system(pattern)
    try:
        matched = system.glob(name) if glob.has_magic(name) else [name]
        found = [file for match in matched for file in _in_remote_folder(system, match)]
    except Exception as error:  # each file system has errors of its own
        raise BadInput(f"{pattern}: cannot be listed: {error}") from error
    return [system.unstrip_protocol(file) for file in found]


def _in_remote_folder(system: Any, name: str) -> list[str]:
    if not system.isdir(name):
        return [name] if system.exists(name) else []
    if system.exists(f"{name.rstrip('/')}/{_MANIFEST}"):
        return [name]
    entries = ((str(entry["name"]), entry["type"]) for entry in system.ls(name, detail=True))
    return [
        entry
        for entry, kind in entries
        if entry.endswith(ENDINGS) or (kind == "directory" and system.exists(f"{entry}/{_MANIFEST}"))
    ]


def _system(path: str) -> tuple[Any, str]:
    """The file system of a path, and its name there."""
    fsspec = extra("fsspec", f"to read {path.partition('://')[0]}:// paths")
    try:
        system, name = fsspec.core.url_to_fs(path)
    except ImportError as error:  # the package of one file system: s3fs, gcsfs
        raise MissingExtra(f"{path}: {error}") from error
    except Exception as error:
        raise BadInput(f"{path}: cannot be reached: {error}") from error
    return system, name


def extra(module: str, purpose: str) -> Any:
    """A module that the extra `fleet` brings. Raises `MissingExtra` where it is not there."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(f"{purpose} torchvet needs {module}: python -m pip install 'torchvet[fleet]'") from error
