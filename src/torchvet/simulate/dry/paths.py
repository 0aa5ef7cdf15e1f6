"""Files that hold checkpoints, in a dry run: none of the user's is written to, replaced or removed, and none is made.

What the program does to them is remembered by path (`held`), so that it finds what it left. What it does to all other
files, and in ways that are not heard here, is undone when the run is over (`undo/`).
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchvet.simulate.dry import archives

held: dict[str, bytes | Path | None] = {}
"""What the program believes to lie at a path: bytes, what lies at another path, or nothing."""
kept_back: dict[str, int] = {}
"""Calls that were to change files that hold checkpoints."""

_SUFFIXES = frozenset([".pt", ".pth", ".ckpt", ".safetensors"])
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_HEAD = 256
# Taken before `install` puts others in their place.
_real_open, _real_stat, _real_remove = io.open, os.stat, os.remove


def _key(path: Any) -> str | None:
    if not isinstance(path, (str, bytes, os.PathLike)):
        return None
    return os.path.realpath(os.fsdecode(path))


def _on_disk(key: str) -> bool:
    try:
        return stat.S_ISREG(_real_stat(key).st_mode)
    except (OSError, ValueError):
        return False


def _named_so(key: str) -> bool:
    # Any of several suffixes: `model.pt.tmp` is one, too.
    return not _SUFFIXES.isdisjoint(Path(key).suffixes)


def _holds_checkpoint(key: str) -> bool:
    """Whether a file on the disk is one: by its name, else by how it begins."""
    if not _on_disk(key):
        return False
    if _named_so(key):
        return True
    try:
        with _real_open(key, "rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return (
        # torch's zip files, its older format, tokens, and safetensors' header of JSON behind eight bytes.
        (head.startswith(b"PK\x03\x04") and b"/data.pkl" in head)
        or head.startswith((_LEGACY, archives.TOKEN))
        or head[8:10] == b'{"'
    )


def remove_token(path: str) -> None:
    """Remove a file from the disk if it holds a token. Raises `OSError`."""
    with _real_open(path, "rb") as file:
        token = archives.is_token(file.read(_HEAD))
    if token:
        _real_remove(path)


def _count(what: str) -> None:
    kept_back[what] = kept_back.get(what, 0) + 1


def _missing(path: Any) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def hold(path: Any, data: bytes) -> None:
    """The program is to find this at a path. Raises `RuntimeError`, as torch, where there is no such folder."""
    key = _key(path)
    assert key is not None
    if not os.path.isdir(os.path.dirname(key)):
        raise RuntimeError(f"Parent directory {os.path.dirname(os.fspath(path))} does not exist.")
    held[key] = data


def holds(path: Any) -> bool:
    """Whether what lies at a path is in memory."""
    return isinstance(held.get(_key(path) or ""), bytes)


def _let_go(key: str) -> None:
    """The program is to find nothing at a path any more."""
    held.pop(key, None)
    if _on_disk(key):
        # What lies on the disk stays there; the program finds nothing.
        held[key] = None


class _Held(io.BytesIO):
    """An open file that is in memory alone; what was written is found at the path once it is closed."""

    def __init__(self, path: Any, key: str, mode: str, data: bytes = b"") -> None:
        super().__init__(data)
        self.name, self._key, self._writes = path, key, mode[0] != "r"
        if "a" in mode:
            self.seek(0, io.SEEK_END)

    def close(self) -> None:
        """As of a file."""
        # Closing twice is allowed, as of any file.
        if not self.closed and self._writes:
            held[self._key] = self.getvalue()
        super().close()


class _Open:
    """In place of `open`. An object: a function that stands in a class would become a method."""

    __name__ = "open"

    def __call__(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        key = _key(file)
        # What the program wrote before is read from memory, and a file that it moved from where it lies.
        if key is not None and key in held and mode[0] == "r":
            data = held[key]
            if data is None:
                raise _missing(file)
            if isinstance(data, Path):
                return _real_open(data, mode, *args, **kwargs)
            return _Held(file, key, mode, data) if "b" in mode else io.StringIO(data.decode("latin-1"))
        # Texts (logs, metrics) are written as ever, and undone by `undo/`.
        if key is not None and "b" in mode and mode[0] in "wxa" and (_named_so(key) or _holds_checkpoint(key)):
            return self._to_write(file, key, mode)
        return _real_open(file, mode, *args, **kwargs)

    def _to_write(self, file: Any, key: str, mode: str) -> Any:
        there = held[key] is not None if key in held else _on_disk(key)
        if not os.path.isdir(os.path.dirname(key)):
            raise _missing(file)
        if there and mode[0] == "x":
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), file)
        _count("open(..., 'wb')")
        # Appending goes on from what the program has written; what is on disk is no checkpoint that can be
        # appended to.
        before = held.get(key)
        return _Held(file, key, mode, before if mode[0] == "a" and isinstance(before, bytes) else b"")


def _moving(name: str, move: Callable[..., None]) -> Callable[..., None]:
    def moved(src: Any, dst: Any, *, src_dir_fd: Any = None, dst_dir_fd: Any = None) -> None:
        one, other = _key(src), _key(dst)
        # A path below a folder's descriptor does not say where it lies.
        if one is None or other is None or src_dir_fd is not None or dst_dir_fd is not None:
            move(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        # Folders are really moved: other files in them are undone by `undo/`.
        elif os.path.isdir(one):
            move(src, dst)
            # What the program wrote into the folder is in memory alone, and goes with it.
            inside = one + os.sep
            for key in [k for k in held if k.startswith(inside)]:
                held[other + os.sep + key[len(inside) :]] = held.pop(key)
        elif one in held or _holds_checkpoint(one) or _holds_checkpoint(other):
            data = _movable(src, one)
            if not os.path.isdir(os.path.dirname(other)):
                raise _missing(dst)
            _count(name)
            _let_go(one)
            held[other] = data
        else:
            move(src, dst)
            held.pop(other, None)

    return moved


def _movable(path: Any, key: str) -> bytes | Path:
    """What lies at a path: what the program wrote there, or where its content is on disk."""
    data = held.get(key, Path(key))
    if data is None or (isinstance(data, Path) and not _on_disk(str(data))):
        raise _missing(path)
    return data


def _removing(name: str, remove: Callable[..., None]) -> Callable[..., None]:
    def removed(path: Any, *, dir_fd: Any = None) -> None:
        key = _key(path)
        if key is None or dir_fd is not None or not (key in held or _holds_checkpoint(key)):
            remove(path, dir_fd=dir_fd)
            return
        if key in held and held[key] is None:
            raise _missing(path)
        _count(name)
        _let_go(key)

    return removed


def _stat(path: Any, *, dir_fd: Any = None, follow_symlinks: bool = True) -> os.stat_result:
    key = _key(path) if held and dir_fd is None else None
    if key is None or key not in held:
        return _real_stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
    data = held[key]
    if data is None:
        raise _missing(path)
    if isinstance(data, Path):
        return _real_stat(data)
    # Programs look for the newest checkpoint by its time.
    now = int(time.time())
    return os.stat_result((stat.S_IFREG | 0o644, 0, 0, 1, 0, 0, len(data), now, now, now))


def _rmtree(remove: Callable[..., None]) -> Callable[..., None]:
    def rmtree(path: Any, *args: Any, **kwargs: Any) -> None:
        root = _key(path)
        files = [os.path.join(folder, n) for folder, _, names in os.walk(root) for n in names] if root else []
        # One checkpoint of the user's is enough: then nothing of the folder is removed.
        theirs = [key for key in map(os.path.realpath, files) if _holds_checkpoint(key)]
        for key in [k for k in held if k.startswith(f"{root}{os.sep}")]:
            _let_go(key)
        if not theirs:
            remove(path, *args, **kwargs)
            return
        _count("shutil.rmtree")
        held.update(dict.fromkeys(theirs))

    return rmtree


def _of_disk(function: Callable[..., None]) -> Callable[..., None]:
    """What copies permissions and times: there are none of what is in memory."""

    def copied(src: Any, dst: Any, **kwargs: Any) -> None:
        if _key(src) not in held and _key(dst) not in held:
            function(src, dst, **kwargs)

    return copied


def install() -> None:
    """Take the place of what opens, moves, removes and describes files."""
    # By name and not by audit hook: a hook can refuse a call, and not answer it.
    builtins.open = io.open = _Open()
    answers: dict[str, Callable[..., Any]] = {"stat": _stat}
    answers |= {name: _moving(f"os.{name}", getattr(os, name)) for name in ("rename", "replace")}
    answers |= {name: _removing(f"os.{name}", getattr(os, name)) for name in ("remove", "unlink")}
    for name, made in answers.items():
        # Callers look a function up in these sets before they pass it a descriptor: the stand-in takes what the
        # original does.
        for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if getattr(os, name) in able:
                able.add(made)
        setattr(os, name, made)
    removing: Any = _rmtree(shutil.rmtree)
    # Python documents this attribute of `rmtree`, so programs may ask the stand-in for it.
    removing.avoids_symlink_attacks = shutil.rmtree.avoids_symlink_attacks
    shutil.rmtree = removing
    shutil.copymode, shutil.copystat = _of_disk(shutil.copymode), _of_disk(shutil.copystat)
