"""A file's bytes in blocks, unpacked where it is compressed, with a limit on how much a little may unpack to."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from torchvet.errors import BadInput

BLOCK = 2 << 20
"""Bytes a block. Larger ones were no faster to decode and took more memory (1, 2, 4, 8 MiB tried)."""
MOST_RATIO, FREE = 100, 64 << 20
"""A trace unpacks to 10 to 30 times its size. Beyond 64 MiB, 100 times is no trace."""
MOST = 4 << 30
"""Bytes that are read of what gzip holds: two minutes."""
GZIP = b"\x1f\x8b"


def blocks(path: Path, cut: Callable[[], None], stop: Callable[[], None]) -> Iterator[bytes]:
    """The file's bytes, unpacked if it is gzip. Calls `cut` when compressed data ends too early, and `stop` when it
    holds more than is read.

    Raises `BadInput` when the file cannot be read or unpacks to absurdly much.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
            file.seek(0)
            yield from _limited(_unpacked(path, file, cut), stop) if packed else iter(lambda: file.read(BLOCK), b"")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from error


def _limited(made: Iterator[bytes], stop: Callable[[], None]) -> Iterator[bytes]:
    """The first of some blocks; calls `stop` where there are more."""
    size = 0
    for block in made:
        if size > MOST:
            stop()
            return
        size += len(block)
        yield block


def unpacked_head(head: bytes) -> bytes:
    """The beginning of what gzip holds, of its own first bytes; nothing where they are damaged."""
    try:
        return zlib.decompressobj(wbits=31).decompress(head, 1 << 16)
    except zlib.error:
        return b""


def _unpacked(path: Path, file: BinaryIO, cut: Callable[[], None]) -> Iterator[bytes]:
    given = made = 0
    unpacker = zlib.decompressobj(wbits=31)
    data = b""
    while True:
        data = data or file.read(BLOCK // 8)
        if not data:
            break
        try:
            # Bounded, however much the data unpacks to: the rest stays in `unconsumed_tail`.
            block = unpacker.decompress(data, BLOCK)
        except zlib.error:
            cut()
            return
        rest = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
        given, made = given + len(data) - len(rest), made + len(block)
        if made > FREE and made > MOST_RATIO * given:
            reason = f"{given:,} compressed bytes unpack to more than {made:,}: this is no trace"
            raise BadInput(f"{path}: {reason}; unpack it with gunzip first if it is one all the same")
        if block:
            yield block
        data = rest
        if unpacker.eof:  # several compressed pieces may follow each other
            unpacker = zlib.decompressobj(wbits=31)
            if data and not data.startswith(GZIP):
                return
            data = data or file.read(BLOCK // 8)
            if not data:
                return
    cut()
