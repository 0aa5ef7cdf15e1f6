"""One report for several hosts: their records come to node 0 over the launcher's store, once the programs have ended.

Torch is asked in a process of its own (`probes/hosts/`). Nothing here keeps a launcher for longer than a bounded time,
and where the records cannot be handed over each host reports on its own ranks.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from torchvet.probes.hosts.exchange import UNTAKEN
from torchvet.recording.records.ranks import Absent
from torchvet.scratch import Scratch
from torchvet.supervisor.local_ranks import LocalRanks, interrupted

WAITS, DELIVERS, HURRIES = 30.0, 60.0, 10.0
"""Seconds that node 0 waits for the others, that another host waits for node 0's answer, and both if a rank has
failed."""
_STARTS, _HURRIED = 15.0, 20.0
"""Seconds that torch's import and reaching the store may take besides, and all of it if a rank has failed: a launcher
kills what has not ended half a minute after that, and the report needs time too."""
_TICK = 0.05
JOINS = "give --record DIR on a shared file system to have the records of all hosts in one place"


class _Line(msgspec.Struct):
    """A line of what the process says."""

    came: dict[str, Any] = {}
    answer: str = ""
    failure: str = ""


@dataclass
class OtherHosts:
    """The hosts of one launch, seen from the one with number `group` of `groups`."""

    ranks: LocalRanks
    group: int
    groups: int
    address: str
    port: int
    run: str
    stored: bool
    """Whether the launcher has a store that outlives the program."""
    began: float
    """When this start of the ranks began, by the clock of the wall."""
    went: bool = False
    """Whether node 0 has the records of this host, and reports on them."""

    @classmethod
    def of_environment(cls, ranks: LocalRanks | None) -> OtherHosts | None:
        """As an elastic launcher says in its variables; None where all ranks are on this host."""
        if ranks is None or ranks.world_size <= ranks.count:
            return None
        group, groups, port = (os.environ.get(n, "") for n in ("GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_PORT"))
        known = all(number.isdecimal() and len(number) < 10 for number in (group, groups, port))
        stored = known and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and int(groups) > 1
        return cls(
            ranks=ranks,
            group=int(group) if known else 0,
            groups=int(groups) if known else 0,
            address=os.environ.get("MASTER_ADDR", ""),
            port=int(port) if known else 0,
            run=os.environ.get("TORCHELASTIC_RUN_ID", ""),
            stored=stored,
            began=time.time(),
        )

    def join(self, directory: Path, failed: bool) -> Absent | None:
        """Take the records of the other hosts into this one's folder, or hand this one's over: `went` says so then.
        Gives the ranks whose records are not here, and why. `failed` says that a rank's program has: there is little
        time then."""
        if not self.stored:
            return self._absent([], f"the launcher has no store that outlives the program; {JOINS}")
        if self.group == 0:
            return self._collect(directory, failed)
        said = self._ask(directory, failed, DELIVERS)
        answer = next((line.answer for line in said if line.answer), "")
        self.went = answer == "taken"
        if self.went:
            return None
        reason = UNTAKEN.get(answer) or _failure(said)
        return self._absent([], f"node 0 did not take the records of this host: {reason}; {JOINS}")

    def _collect(self, directory: Path, failed: bool) -> Absent | None:
        said = self._ask(directory, failed, WAITS)
        # Of each host the last word counts.
        came = {int(line.came["group"]): line.came for line in said if line.came}
        ranks = [rank for one in came.values() for rank in one.get("ranks", ())]
        reasons = [f"node {group}: {one['reason']}" for group, one in sorted(came.items()) if one.get("reason")]
        if not came or any(line.failure for line in said):
            reasons.append(_failure(said))
        return self._absent(ranks, "; ".join(reasons) or "they sent no records")

    def _absent(self, came: Sequence[int], reason: str) -> Absent | None:
        here = {*self.ranks.local(), *came}
        missing = [rank for rank in range(self.ranks.world_size) if rank not in here]
        return Absent(ranks=missing, reason=reason) if missing else None

    def _ask(self, directory: Path, failed: bool, seconds: float) -> list[_Line]:
        """Run the process, and give what it says."""
        seconds = HURRIES if failed else seconds
        limit = _HURRIED if failed else seconds + _STARTS
        task = {
            "address": self.address,
            "port": self.port,
            "prefix": f"torchvet/{hashlib.sha256(self.run.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}",
            "group": self.group,
            "groups": self.groups,
            "directory": str(directory),
            "first": self.ranks.local().start,
            "count": self.ranks.count,
            "world": self.ranks.world_size,
            "since": self.began,
            "seconds": seconds,
            # Where this process is killed, nobody else ends that one.
            "limit": limit + _HURRIED,
        }
        try:
            with Scratch() as folder:
                answer = folder / "answer.jsonl"
                trouble = _run(task | {"answer": str(answer)}, limit)
                return [*_lines(answer), *([_Line(failure=trouble)] if trouble else [])]
        # ValueError: a path that is no UTF-8 cannot be handed over.
        except (OSError, ValueError) as error:
            return [_Line(failure=f"the process that uses torch could not be started: {error}")]


def _run(task: dict[str, Any], limit: float) -> str:
    """Run the process to its end, and say what was wrong with it. Whoever asks for an end (a launcher's SIGTERM, a
    Ctrl-C) gets it soon; who asks twice, now."""
    # The parent's own places, without the working directory, whose files are the user's.
    places = [str(Path(__file__).resolve().parents[2]), *filter(None, sys.path)]
    code = f"import sys; sys.path[:] = {places!r}; from torchvet.probes.hosts.exchange import main; main()"
    words = [sys.executable, "-c", code, msgspec.json.encode(task).decode()]
    null = subprocess.DEVNULL
    with interrupted() as asked:
        try:
            # Launchers signal a whole session: this process is to hear it from here.
            child = subprocess.Popen(words, stdin=null, stdout=null, stderr=null, start_new_session=True)
        except OSError as error:
            return f"no process could be started: {error}"
        end, heard = time.monotonic() + limit, False
        while child.poll() is None and time.monotonic() < end and len(asked) < 2:
            if asked and not heard:
                end, heard = min(end, time.monotonic() + _HURRIED), True
            time.sleep(_TICK)
        if child.poll() is None:
            child.kill()
            child.wait()
            return "interrupted" if asked else f"torch did not answer within {limit:g} s"
    return "" if child.returncode == 0 else f"the process that uses torch ended with status {child.returncode}"


def _lines(answer: Path) -> list[_Line]:
    found: list[_Line] = []
    with suppress(OSError):
        for raw in answer.read_bytes().splitlines():
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                found.append(msgspec.json.decode(raw, type=_Line))
    return found


def _failure(said: Iterable[_Line]) -> str:
    return next((line.failure for line in said if line.failure), "the launcher's store could not be used")
