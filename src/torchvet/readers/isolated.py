"""Reads a snapshot in a process of its own, which no file can take further than its limits.

The process writes the snapshot to stdout as MessagePack, or a message to stderr and exits with 2. It runs beside its
parent's own imports, and all memory that the pickle's objects took goes with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from torchvet.errors import BadInput, TorchvetError
from torchvet.readers.snapshot import Snapshot

_SPARE, _FACTOR = 256 << 20, 40
"""Memory that a file may take: so much, and so many times its own size. Real snapshots of half a megabyte and more take
3.6 to 7 times their size as objects."""
_TIMES = "times"
_SECONDS, _BYTES_A_SECOND = 20, 1 << 20
"""Processor time that a file may take: so much, and a second for so many bytes. Real ones load at 30 MB a second."""


class Reading:
    """A snapshot that is being read; starts at once, so that others can be started or modules loaded meanwhile.

    `times` asks for the time of every event.
    """

    def __init__(self, path: Path, times: bool = False) -> None:
        self.path = path
        _refuse(path)
        # The parent's own places, without the working directory, whose files are the user's.
        places = [str(Path(__file__).resolve().parents[2]), *filter(None, sys.path)]
        code = f"import sys; sys.path[:] = {places!r}; from torchvet.readers.isolated import main; main()"
        command = [sys.executable, "-c", code, str(path), str(_SECONDS), *([_TIMES] if times else [])]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def result(self) -> Snapshot:
        """Wait for it. Raises `BadInput` with what is wrong with the file."""
        import msgspec

        from torchvet.readers.wire import from_bytes

        try:
            # Both pipes at once: one that fills up would block the process for good.
            message, said = self._process.communicate()
        except BaseException:
            self.cancel()
            raise
        if self._process.returncode == 0:
            try:
                return replace(from_bytes(message), path=str(self.path))
            except (msgspec.MsgspecError, ValueError, TypeError) as error:
                raise TorchvetError(f"{self.path}: the process that read it answered nonsense: {error}") from error
        reason = said.decode("utf-8", "replace").strip()
        if self._process.returncode != 2 or not reason:
            reason = (
                "reading it takes far more time, memory or depth than a snapshot of its size needs; it was given up"
            )
        raise BadInput(f"{self.path}: {reason}")

    def cancel(self) -> None:
        """End it, wherever it is."""
        self._process.kill()
        self._process.communicate()


class ReadAhead:
    """Snapshots of several files in their order, the next one being read while one is worked on. A context manager."""

    def __init__(self, paths: Sequence[Path], times: bool = False) -> None:
        self._paths, self._times = list(paths), times
        self._following: Reading | None = None
        self._start()

    def __iter__(self) -> Iterator[Snapshot]:
        """Each snapshot in turn. Raises `BadInput` at the first file that is none."""
        while self._following is not None:
            reading, self._following = self._following, None
            self._start()
            yield reading.result()

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._following is not None:
            self._following.cancel()

    def _start(self) -> None:
        self._following = Reading(self._paths.pop(0), self._times) if self._paths else None


def read_snapshot(path: str | os.PathLike[str], times: bool = False) -> Snapshot:
    """Read a CUDA memory snapshot safely, with the `times` of its events if asked. Raises `BadInput` for anything that
    is none."""
    return Reading(Path(path), times).result()


def _refuse(path: Path) -> None:
    """Raise `BadInput` for what is no readable file."""
    try:
        if path.is_dir():
            raise BadInput(f"{path}: is a folder; give a snapshot file")
        if not path.is_file() and path.exists():
            raise BadInput(f"{path}: is a device or a pipe; give a snapshot file")
        with path.open("rb") as file:
            if not file.read(1):
                raise BadInput(f"{path}: is empty; expected a CUDA memory snapshot")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error


def main() -> None:
    """Read the file named on the command line and write the result."""
    path = Path(sys.argv[1])
    try:
        _limit(path.stat().st_size, int(sys.argv[2]))
        with path.open("rb") as file:
            message = _read(file, path.stat().st_size, _TIMES in sys.argv[3:])
    except (BadInput, OSError) as error:
        _end(2, str(error).encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.write(message)
    sys.stdout.buffer.flush()
    _end(0)


def _read(file: BinaryIO, size: int, times: bool) -> bytes:
    """The message. It holds no path: names of files need not be UTF-8, and messages are."""
    from torchvet.gc_pause import collector_off
    from torchvet.readers.conversion import snapshot_of
    from torchvet.readers.pickles import load_plain
    from torchvet.readers.wire import to_bytes

    # Loading is four to five times as fast: two million events take 4.4 s and not 25.2 s.
    with collector_off():
        return to_bytes(snapshot_of(load_plain(file), "", size, times))


def _limit(size: int, seconds: int) -> None:
    """Bound this process's memory and processor time, where the system can."""
    try:
        import resource
    except ImportError:
        return
    for kind, most in (
        (resource.RLIMIT_AS, _SPARE + _FACTOR * size),
        (resource.RLIMIT_CPU, seconds + size // _BYTES_A_SECOND),
        # A file that crashes the unpickler leaves no core file behind either.
        (resource.RLIMIT_CORE, 0),
    ):
        try:
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
        except (ValueError, OSError):
            continue


def _end(status: int, message: bytes = b"") -> None:
    """Leave without tearing down millions of objects one by one."""
    sys.stderr.buffer.write(message)
    sys.stderr.buffer.flush()
    os._exit(status)
