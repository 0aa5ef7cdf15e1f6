"""Ranks that a launcher starts on one host, each under a torchvet of its own (`torchrun -m torchvet run train.py`).

They share a folder for their records, and the first of them reports for all. Nobody waits while programs run: the one
that reports waits after its own program has ended, for as long as the others still run. If its own program failed it
waits a moment only, because a launcher ends the others as soon as one has exited.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # not on this system: each rank reports for itself
    fcntl = None  # type: ignore[assignment]

_MOMENT = 2.0
"""Seconds that a rank whose program failed waits for the others, and in which a rank must have appeared."""
_TICK = 0.05


@dataclass
class LocalRanks:
    """One rank and its place among `count` on this host."""

    rank: int
    world_size: int
    local_rank: int
    count: int
    _lock: IO[bytes] | None = field(default=None, repr=False)

    @classmethod
    def of_environment(cls) -> LocalRanks | None:
        """As a launcher such as torchrun says in its variables; None where it does not."""
        numbers = [_number(n) for n in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
        rank, world, local, count = numbers
        if fcntl is None or rank is None or world is None or local is None or count is None:
            return None
        # One alone on its host has others elsewhere where a launcher says which host this is.
        alone = count < 2 and (world <= count or _number("GROUP_RANK") is None)
        return None if alone else cls(rank, world, local, count)

    @property
    def reports(self) -> bool:
        """Whether this rank reports for those on its host."""
        return self.local_rank == 0

    def local(self) -> range:
        """The ranks on this host: launchers number them in one row."""
        first = self.rank - self.local_rank
        return range(first, first + self.count)

    def folder(self) -> str:
        """The name of the temporary folder that all ranks of this launcher and this start of it have in common."""
        variables = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
        words = [os.environ.get(name, "") for name in variables] + [launcher()]
        digest = hashlib.sha256("\n".join(words).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return f"ranks-{os.getuid()}-{digest}"

    def enter(self, directory: Path) -> None:
        """This rank runs, until `leave()` or its death."""
        with suppress(OSError):
            self._lock = self._file(directory, self.local_rank).open("ab")
            # The system takes the lock away with the process, however it ends.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def leave(self) -> None:
        """Its program has ended, and all is written."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def wait(self, directory: Path, failed: bool) -> bool:
        """Until the others have left; `failed` says that this rank's own program has. Ctrl-C and SIGTERM end it: gives
        whether one did."""
        with interrupted() as asked:
            began = time.monotonic()
            while not asked and self._runs(directory, began):
                if failed and time.monotonic() - began > _MOMENT:
                    break
                time.sleep(_TICK)
            return bool(asked)

    def _runs(self, directory: Path, began: float) -> bool:
        """Whether another rank runs, or may be about to."""
        states = [self._state(directory, n) for n in range(self.count) if n != self.local_rank]
        # One that has not appeared within a moment is not waited for.
        return "runs" in states or ("absent" in states and time.monotonic() - began < _MOMENT)

    def _state(self, directory: Path, local_rank: int) -> str:
        try:
            with self._file(directory, local_rank).open("rb") as file:
                # Can be had once the owner has given its exclusive lock up.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return "left"
        except BlockingIOError:
            return "runs"
        except OSError:
            return "absent"

    def _file(self, directory: Path, local_rank: int) -> Path:
        return directory / f"{socket.gethostname()}.local{local_rank}.lock"


def until_reported(ranks: LocalRanks | None) -> contextlib.AbstractContextManager[object]:
    """A launcher sends SIGTERM to all ranks as soon as one has exited with an error. The program gets it while it runs;
    it does not end the one that reports."""
    return contextlib.nullcontext() if ranks is None else interrupted(signal.SIGTERM)


@contextlib.contextmanager
def interrupted(*signals: signal.Signals) -> Iterator[list[int]]:
    """A list that is not empty any more once somebody asks for an end, by these signals or by any."""
    asked: list[int] = []
    heard = signals or (signal.SIGINT, signal.SIGTERM)
    before = {s: signal.signal(s, lambda number, frame: asked.append(number)) for s in heard}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


ELASTIC = "TORCHELASTIC_RUN_ID"
"""The variable that torchrun gives to each rank it starts."""
_OF_RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""Variables that launchers without torchrun, and scripts between them and a rank, give to a rank."""


def launcher() -> str:
    """The process that starts the ranks of this host, as ``PID-START``: the nearest parent that is of no rank itself.
    A rank may be started by a script of its own (``torchrun --no-python script.sh``, ``srun script.sh``).
    """
    names = [name for name in ((ELASTIC,) if ELASTIC in os.environ else _OF_RANKS) if name in os.environ]
    process = os.getppid()
    while process > 1 and _has_any(process, names):
        above = _stat(process, _PARENT)
        if not above.isdecimal():
            break
        process = int(above)
    return f"{process}-{_stat(process, _STARTED)}"


_PARENT, _STARTED = 1, 19
"""Where `/proc/PID/stat` has a process's parent, and when it started, behind its name: a number is given again."""


def _stat(process: int, place: int) -> str:
    """Empty where the system does not say."""
    try:
        return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[place]
    except (OSError, IndexError):
        return ""


def _has_any(process: int, names: list[str]) -> bool:
    """Whether a process was started with one of these variables; False where the system does not say."""
    try:
        held = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(line.startswith(name.encode() + b"=") for line in held for name in names)


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None
