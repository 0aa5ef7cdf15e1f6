"""Where a run's recording goes: a folder that the user named, or one that is removed afterwards."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from torchvet.errors import BadInput
from torchvet.recording import RecordingWriter, read
from torchvet.recording.records.base import Step
from torchvet.recording.records.training import Outcome

if TYPE_CHECKING:
    from torchvet.recording import Recording
    from torchvet.supervisor.local_ranks import LocalRanks


class Keep:
    """The recording's folder, ready to be written. Raises `BadInput` where it cannot be; nothing has run then.

    `ranks` are those of a launcher that share one recording, this process's among them.
    """

    def __init__(self, directory: str | None, ranks: LocalRanks | None = None) -> None:
        self.rank = ranks.rank if ranks is not None else _rank()
        self.ranks = ranks
        self.kept = directory is not None
        if directory is not None:
            self.directory = _prepare(Path(directory), ranks)
        else:
            self.directory = ranks.folder() if ranks is not None else _temporary()
        try:
            RecordingWriter(self.directory, self.rank).close()
        except OSError as error:
            raise BadInput(f"{self.directory}: the recording cannot be written there: {error.strerror}") from error
        if ranks is not None:
            ranks.enter(self.directory)

    @property
    def reports(self) -> bool:
        """Whether this process is the one that reports."""
        return self.ranks is None or self.ranks.reports

    @property
    def file(self) -> Path:
        """The file that the observed process appends to."""
        return self.directory / f"rank{self.rank}.jsonl"

    def __enter__(self) -> Keep:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.ranks is not None:
            self.ranks.leave()
        if not self.kept and self.reports:
            shutil.rmtree(self.directory, ignore_errors=True)

    def read(self, status: int, seconds: float) -> tuple[Recording, Outcome]:
        """The finished recording and how the program ended, written down here where the program could not. Of several
        ranks the one that reports waits here for the others.

        `status` is what the system said of the process: its exit status, or -N where signal N killed it.
        """
        recording = read(self.directory)
        mine = next((r for r in recording.ranks if r.name == self.file.stem), None)
        outcome = mine.last(Outcome) if mine else None
        if outcome is None:
            step = mine.last(Step) if mine else None
            how = "killed" if status < 0 else "os-exit"
            outcome = Outcome(how=how, status=status, ticks=step.n if step else 0, seconds=seconds)  # type: ignore[arg-type]
            self._append(outcome)
            recording = read(self.directory)
        if self.ranks is not None:
            self.ranks.leave()
            if self.ranks.reports:
                self.ranks.wait(self.directory, failed=status != 0)
                recording = read(self.directory)
        # The folder is removed on leaving, so no report may name it.
        if not self.kept:
            recording.path = None
        return recording, outcome

    def _append(self, outcome: Outcome) -> None:
        """Add a line, on its own even where the process died in the middle of one."""
        with self.file.open("rb+") as stream:
            size = stream.seek(0, os.SEEK_END)
            torn = size > 0 and (stream.seek(-1, os.SEEK_END), stream.read(1))[1] != b"\n"
            stream.write((b"\n" if torn else b"") + msgspec.json.encode(outcome) + b"\n")


def _is_stale(name: str, ranks: LocalRanks | None) -> bool:
    """Whether a file is an earlier run's. Beside other ranks each writes its own over, and removes its children's; the
    first removes what a larger world has left."""
    if ranks is None:
        return "RANK" not in os.environ
    rank, _, rest = name[len("rank") :].partition(".")
    if not rank.isdecimal():
        return False
    return (int(rank) == ranks.rank and rest != "jsonl") or (ranks.rank == 0 and int(rank) >= ranks.world_size)


def _rank() -> int:
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdecimal() else 0


def _temporary() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="torchvet-"))
    except OSError as error:
        raise BadInput(f"no temporary folder for the recording: {error}; name one with --record DIR") from error


def _prepare(directory: Path, ranks: LocalRanks | None) -> Path:
    """Take a folder that is empty, new, or an earlier recording, whose lines are removed."""
    try:
        if directory.exists() and not directory.is_dir():
            raise BadInput(f"--record {directory}: is a file; a recording is a folder")
        is_recording = (directory / "manifest.json").is_file()
        if directory.exists() and not is_recording and any(directory.iterdir()):
            raise BadInput(f"--record {directory}: is not empty and no recording; name a new folder")
        directory.mkdir(parents=True, exist_ok=True)
        for old in directory.glob("rank*.jsonl"):
            if _is_stale(old.name, ranks):
                old.unlink()
    except OSError as error:
        raise BadInput(f"--record {directory}: the recording cannot be written there: {error.strerror}") from error
    return directory.absolute()
