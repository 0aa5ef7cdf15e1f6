"""Where a run's recording goes: a folder that the user named, or one that is removed afterwards."""

from __future__ import annotations

import glob
import hashlib
import os
import socket
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from torchvet.errors import BadInput
from torchvet.recording import RankRecording, Recording, RecordingWriter, read
from torchvet.recording.reader import manifest_of
from torchvet.recording.records.base import Record, Step
from torchvet.recording.records.training import Outcome
from torchvet.recording.writer import CLAIM, MANIFEST, claim
from torchvet.scratch import Scratch
from torchvet.supervisor.local_ranks import ELASTIC, launcher
from torchvet.supervisor.other_hosts import OtherHosts

if TYPE_CHECKING:
    from torchvet.supervisor.local_ranks import LocalRanks


class Keep:
    """The recording's folder, ready to be written. Raises `BadInput` where it cannot be; nothing has run then.

    `ranks` are those of a launcher that share one recording, this process's among them.
    """

    def __init__(self, directory: str | None, ranks: LocalRanks | None = None) -> None:
        self.rank = ranks.rank if ranks is not None else _rank()
        self.ranks = ranks
        self.hosts = OtherHosts.of_environment(ranks)
        self.kept = directory is not None
        self._made: list[Path] = []
        self._claimed = False
        self._scratch = None if directory is not None else _temporary(ranks)
        if self._scratch is not None:
            self.directory = self._scratch.path
        else:
            assert directory is not None
            self.directory = Path(directory).absolute()
            self._prepare(directory)
        try:
            # Tried out before anything runs: a folder that cannot be written must not cost a run.
            RecordingWriter(self.directory, self.rank).close()
        except OSError as error:
            self.discard()
            raise BadInput(f"{self.directory}: the recording cannot be written there: {error.strerror}") from error
        # Only now: the others look for what this rank has entered, and a folder that was refused is none to
        # wait in.
        if ranks is not None:
            ranks.enter(self.directory)

    @property
    def reports(self) -> bool:
        """Whether this process is the one that reports. After `read` it may be another host that does."""
        return self._leads and not self.went

    @property
    def went(self) -> bool:
        """Whether another host has the records of this one and reports on them."""
        return self.hosts is not None and self.hosts.went

    @property
    def _leads(self) -> bool:
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
            # Again after `read`: an error on the way there must not keep the rank that reports waiting.
            self.ranks.leave()
        if self._scratch is not None:
            if self._leads:
                self._scratch.close()
            else:
                self._scratch.leave()

    def discard(self) -> None:
        """Nothing has run: leave nothing of a recording in a folder that the user named."""
        if self.ranks is not None:
            return
        if self._scratch is not None:
            self._scratch.close()
        # Without a claim the folder's manifest is another's.
        for file in (self.file, self.file.with_suffix(".fault"), self.directory / MANIFEST) if self._claimed else ():
            with suppress(OSError):
                file.unlink(missing_ok=True)
        for folder in self._made:
            with suppress(OSError):
                folder.rmdir()

    def read(self, status: int, seconds: float) -> tuple[Recording, Outcome]:
        """The finished recording and how the program ended, written down here where the program could not. Of several
        ranks the one that reports waits here for the others.

        `status` is what the system said of the process: its exit status, or -N where signal N killed it. A recording
        that is gone or damaged is one of which that much is known.
        """
        recording = self._read({})
        mine = self._mine(recording)
        outcome = mine.last(Outcome)
        if outcome is None:
            step = mine.last(Step)
            how = "killed" if status < 0 else "os-exit"
            outcome = Outcome(how=how, status=status, ticks=step.n if step else 0, seconds=seconds)  # type: ignore[arg-type]
            with suppress(OSError):
                self._append(outcome)
            recording = self._read({self.file.stem: outcome})
        if self.ranks is not None:
            self.ranks.leave()
            if self.ranks.reports:
                asked = self.ranks.wait(self.directory, failed=status != 0)
                # A launcher asks for an end because another rank has failed.
                self._join_hosts(failed=asked or status != 0)
                recording = self._read({self.file.stem: outcome})
        self._remove_empty()
        # The folder is removed on leaving, so no report may name it.
        if not self.kept:
            recording.path = None
        return recording, outcome

    def _join_hosts(self, failed: bool) -> None:
        """See that one report covers the ranks of all hosts, and write down which it does not."""
        # Several launchers in one folder: it is on a file system that their hosts share.
        if self.hosts is None or self.ranks is None or len(list(self.directory.glob(f"*{_LAUNCHER}"))) > 1:
            return
        # What an elastic launcher's earlier start has collected here.
        for file in self.directory.glob("rank*"):
            if _number(file.name) not in (None, *self.ranks.local()):
                with suppress(OSError):
                    file.unlink()
        absent = self.hosts.join(self.directory, failed)
        if absent is not None:
            with suppress(OSError):
                self._append(absent)

    def _remove_empty(self) -> None:
        """Files for what the interpreter says of processes that do not end: these have ended."""
        for file in self.directory.glob(f"{self.file.stem}*.fault"):
            with suppress(OSError):
                if file.stat().st_size == 0:
                    file.unlink()

    def _read(self, ended: dict[str, Outcome]) -> Recording:
        try:
            return read(self.directory, ended)
        except BadInput as error:
            lost = RankRecording(self.rank, [*ended.values()], damaged=1, name=self.file.stem)
            lost.damage = str(error)
            return Recording([lost], self.directory)

    def _mine(self, recording: Recording) -> RankRecording:
        """This process's own records, none where the program has removed them."""
        found = next((r for r in recording.ranks if r.name == self.file.stem), None)
        return found if found is not None else RankRecording(self.rank, [], name=self.file.stem)

    def _append(self, record: Record) -> None:
        """Add a line, on its own even where the process died in the middle of one."""
        with self.file.open("rb+") as stream:
            size = stream.seek(0, os.SEEK_END)
            # Else this line would be glued to the torn one, and both be lost.
            torn = size > 0 and (stream.seek(-1, os.SEEK_END), stream.read(1))[1] != b"\n"
            stream.write((b"\n" if torn else b"") + msgspec.json.encode(record) + b"\n")

    def _prepare(self, given: str) -> None:
        """Take a folder that is empty or new, or beside other ranks the one that they share. Nothing that lies in a
        folder is ever replaced, but by a launcher's next start of the same ranks."""
        directory = self.directory
        try:
            if directory.exists() and not directory.is_dir():
                raise BadInput(f"--record {given}: is a file; a recording is a folder")
            # Innermost first, as `discard` removes them.
            self._made = [folder for folder in (directory, *directory.parents) if not folder.exists()]
            directory.mkdir(parents=True, exist_ok=True)
            launch = _launch(self.ranks)
            self._check_free(given, launch)
            # Of several ranks only one makes the manifest; the others find that it is of the same launch.
            self._claimed = claim(directory, launch)
            if not self._claimed and not self._is_ours(launch):
                raise BadInput(_TAKEN.format(given))
            if launch:
                self._check_first_launch(given)
            # Files of a launcher's earlier start would count as further ranks.
            for old in directory.glob("rank*.jsonl"):
                if _is_stale(old.name, self.ranks):
                    old.unlink()
        except OSError as error:
            self.discard()
            raise BadInput(f"--record {given}: the recording cannot be written there: {error.strerror}") from error

    def _check_first_launch(self, given: str) -> None:
        """A launcher may be started again with the same variables: it is told by its process. What starts ranks by no
        elastic launcher starts each once."""
        mine = self._launcher_file()
        others = [
            f for f in self.directory.glob(f"{glob.escape(socket.gethostname())}.*{_LAUNCHER}") if f.name != mine.name
        ]
        if others or (ELASTIC not in os.environ and self.file.exists()):
            raise BadInput(_AGAIN.format(given))
        mine.touch()

    def _check_free(self, given: str, launch: str) -> None:
        if (self.directory / MANIFEST).is_file():
            if not self._is_ours(launch):
                raise BadInput(_TAKEN.format(given))
        # Another rank may be about to claim the folder at this moment.
        elif any(not file.name.startswith(CLAIM) for file in self.directory.iterdir()):
            raise BadInput(f"--record {given}: is not empty and no recording; name a new folder")

    def _is_ours(self, launch: str) -> bool:
        """Whether the recording that lies in the folder is of this launch."""
        # An elastic launcher may start its ranks again on another port.
        again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" and self._launcher_file().exists()
        return bool(launch) and (again or manifest_of(self.directory).launch == launch)

    def _launcher_file(self) -> Path:
        """What says in the folder that this host's launcher has started ranks into it."""
        return self.directory / f"{socket.gethostname()}.{launcher()}{_LAUNCHER}"


_TAKEN = (
    "--record {0}: has the recording of another run, which would be lost; name a new folder, or remove that one first"
)
_AGAIN = (
    "--record {0}: has an earlier recording of the same ranks, which would be lost; name a new folder for each "
    "launch, or remove that one first"
)
_LAUNCHER = ".launcher"


def _launch(ranks: LocalRanks | None) -> str:
    """What all ranks that one launcher starts have in common, on several hosts too; empty for a program on its own."""
    # A world of one that no launcher started: programs set these variables for themselves.
    elastic = ELASTIC in os.environ
    alone = os.environ.get("WORLD_SIZE") == "1" and not elastic
    if ranks is None and (alone or "RANK" not in os.environ):
        return ""
    # Hosts may join an elastic launch, and leave it.
    names = ("MASTER_ADDR", "MASTER_PORT", ELASTIC, "SLURM_JOB_ID", "SLURM_STEP_ID", "" if elastic else "WORLD_SIZE")
    words = "\n".join(os.environ.get(name, "") for name in names)
    return hashlib.sha256(words.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _is_stale(name: str, ranks: LocalRanks | None) -> bool:
    """Whether a file is one of an earlier start of these ranks. Each writes its own over, and removes its children's;
    the first removes what a larger world has left."""
    rest = name.partition(".")[2]
    number = _number(name)
    if ranks is None or number is None:
        return False
    return (number == ranks.rank and rest != "jsonl") or (ranks.rank == 0 and number >= ranks.world_size)


def _number(name: str) -> int | None:
    """The rank that a file's name begins with; None for a name that does not."""
    rank = name[len("rank") :].partition(".")[0]
    return int(rank) if rank.isdecimal() else None


def _rank() -> int:
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdecimal() else 0


def _temporary(ranks: LocalRanks | None) -> Scratch:
    try:
        return Scratch(ranks.folder() if ranks is not None else None)
    except OSError as error:
        raise BadInput(f"no temporary folder for the recording: {error}; name one with --record DIR") from error
