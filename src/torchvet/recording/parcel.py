"""The records of one host as bytes, for a report on another host, and back into files.

What came over a network is nobody's word: a parcel has a limit for each of its sizes, and only files of ranks that are
expected are written, under names that a recording has. Nothing in it is run.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from torchvet.errors import BadInput
from torchvet.recording.opening import opened

MOST_PACKED, MOST_UNPACKED, MOST_FILES = 32 << 20, 512 << 20, 4096
"""Bytes of a parcel, of the files in it, and how many these are. The records of a host take some kilobytes a minute."""
_NAME = re.compile(r"rank(0|[1-9][0-9]{0,8})(?:\.child[1-9][0-9]{0,8})?\.(?:jsonl|fault|last)")
_LONGEST_HEAD, _PIECE = 256, 1 << 20


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    """The line before each file."""

    name: str
    size: int


def pack(directory: Path, ranks: Collection[int], as_rank: int | None = None) -> bytes:
    """The files of these ranks, compressed; those of a single one under the name that they have `as_rank`. Raises
    `BadInput` where they are too large, OSError where they cannot be read."""
    packed, whole = io.BytesIO(), 0
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as stream:
        for file in sorted(directory.iterdir()):
            if _rank(file.name) not in ranks:
                continue
            with opened(directory, file) as source:
                content = source.read(MOST_UNPACKED + 1)
            # A file in which nothing was ever said: a rank that has only this is one of which nothing is known.
            if not content:
                continue
            whole += len(content)
            if whole > MOST_UNPACKED or packed.tell() > MOST_PACKED:
                break
            name = file.name if as_rank is None else f"rank{as_rank}.{file.name.partition('.')[2]}"
            stream.write(msgspec.json.encode(_Head(name, len(content))) + b"\n" + content)
    if whole > MOST_UNPACKED or packed.tell() > MOST_PACKED:
        raise BadInput(f"they are too large to be sent ({MOST_PACKED >> 20} MiB compressed at most)")
    return packed.getvalue()


def unpack(parcel: bytes, directory: Path, ranks: Collection[int], most: int | None = None) -> list[int]:
    """Write the files of a parcel, which may be those of `ranks` alone, and give the ranks that it has. `most` bytes
    are written, or fewer.

    Raises `BadInput` for what `pack` does not make, and for files that are there already; none is left then.
    """
    made: list[Path] = []
    try:
        if len(parcel) > MOST_PACKED:
            raise BadInput(f"more than {MOST_PACKED >> 20} MiB")
        with gzip.GzipFile(fileobj=io.BytesIO(parcel)) as stream:
            left = MOST_UNPACKED if most is None else min(most, MOST_UNPACKED)
            found = sorted(set(_files(stream, directory, ranks, made, left)))
    except BaseException as error:
        for file in made:
            with suppress(OSError):
                file.unlink()
        if isinstance(error, (OSError, EOFError, zlib.error, msgspec.DecodeError, UnicodeDecodeError)):
            raise BadInput(f"the records that came are damaged: {error}") from error
        raise
    return found


def _files(
    stream: gzip.GzipFile, directory: Path, ranks: Collection[int], made: list[Path], left: int
) -> Iterator[int]:
    """Write one file after the other, `left` bytes at most, and give the rank of each."""
    while line := stream.readline(_LONGEST_HEAD):
        head = msgspec.json.decode(line, type=_Head)
        rank = _rank(head.name)
        left -= head.size
        if rank is None or rank not in ranks or head.size < 0:
            raise BadInput("the records that came have files that are not expected")
        if left < 0 or len(made) >= MOST_FILES:
            raise BadInput("the records that came are too large")
        path = directory / head.name
        # Never an existing file, and never through a link.
        with path.open("xb") as file:
            made.append(path)
            _copy(stream, file, head.size)
        yield rank


def _copy(stream: gzip.GzipFile, file: BinaryIO, size: int) -> None:
    while size:
        piece = stream.read(min(size, _PIECE))
        if not piece:
            raise EOFError("they end in the middle of a file")
        file.write(piece)
        size -= len(piece)


def _rank(name: str) -> int | None:
    """The rank whose file has this name; None where it is no file of records."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found is not None else None
