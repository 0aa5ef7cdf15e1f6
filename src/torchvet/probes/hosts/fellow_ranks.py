"""Ranks that watch themselves: their records come to rank 0 over the process group's store, when the watches end.

No collective is involved, and nothing is sent while the program trains. What may wait for the network runs on a thread,
whose way there is cut after a bounded time (`relay.py`): rank 0 reports on what it has then.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torchvet.errors import BadInput
from torchvet.probes.base.frames import user_place
from torchvet.probes.hosts.exchange import UNTAKEN, Came, Store, answers_read, collect, deliver
from torchvet.probes.hosts.relay import Relay
from torchvet.recording.parcel import pack, unpack
from torchvet.recording.records.ranks import Member

WAITS, FAILED = 9.0, 1.0
"""Seconds that a rank waits for the others once its own watch has ended, and rank 0 if that ended by an error: the
others may stand in a collective then until this process has ended."""
_SURE, _UNSURE = 0.5, 3.0
"""Seconds in which a rank must be heard of: where this one's watch began in a process group, as theirs did then, and
where the group came later."""
_GIVEN_UP, _CUT = 1.0, 1.0
"""Seconds more after which the store has given no answer, and those that the thread may take to end then."""
_READ = 3.0
"""Seconds for which rank 0 waits, at most, until the others have read its answers: the store may end with its process,
and without an answer they report that nothing is known of rank 0."""
_MOST = 512 << 20
"""Bytes that the records of all other ranks may take."""
_MOST_RANKS = 256
"""Ranks that are brought together: a report takes some 25 ms for each."""
_TICK = 0.02
_UNHEARD = "no watch was heard of there when this one ended"
_SILENT = "their store gave no answer"
_TOO_MANY = f"a watch reports on {_MOST_RANKS} ranks at most; `torchvet run` reports on all"
_begun: Counter[str] = Counter()
"""How many watches have begun on each line of the program."""


@dataclass
class Joined:
    """What came of it: the ranks whose records are here, and why others are not. `went` says that rank 0 has this
    one's, and reports on them."""

    rank: int
    world: int
    reasons: dict[int, str]
    came: list[int] = field(default_factory=list)
    went: bool = False


@dataclass(frozen=True)
class Group:
    """The ranks of this program, and the store that they have in common, with the address of its server, if it has
    one."""

    rank: int
    world: int
    store: Callable[[], Store]
    address: tuple[str, int] | None = None


class FellowRanks:
    """The other ranks of the group that this process is in, or will have joined when its watch ends."""

    def __init__(self) -> None:
        """The watch begins: the others may hear of it."""
        self._began = time.time()
        self._prefix = f"torchvet/{hashlib.sha256(_which().encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"
        self._given_up = False
        self._from_start = self.announce()

    def announce(self) -> bool:
        """Tell the others that this rank has a watch. Whether there is a group in which they can hear it."""
        group = _joined()
        if group is None:
            return False
        with suppress(Exception):  # whatever the store raises
            group.store().set(f"{self._prefix}/{group.rank}/watches", b"1")
        return True

    def group(self, member: Member | None) -> Group | None:
        """The ranks that have a store in common with this one, of which `member` is recorded; None without any."""
        return _joined() or _left(member)

    def join(self, group: Group, own: Path, folder: Path, kept: Path | None, failed: bool) -> Joined:
        """Hand the records in the file `own` over to rank 0; or, as rank 0, take those of the others into `folder`,
        and into `kept` where they are not there already. `failed` says that this rank's part of the program has."""
        others = [rank for rank in range(group.world) if rank != group.rank]
        found = Joined(group.rank, group.world, dict.fromkeys(others, ""))
        if group.rank >= _MOST_RANKS:
            found.reasons = dict.fromkeys(others, _TOO_MANY)
            return found
        collect = partial(self._collect, group, found, folder, kept, failed)
        act = collect if group.rank == 0 else partial(self._deliver, group, found, own, failed)
        failure = self._bounded(group, act)
        if failure:
            found.reasons = dict.fromkeys(others, failure)
        return found

    def _bounded(self, group: Group, act: Callable[[Store], None]) -> str:
        """Do something that talks to the store, for a bounded time. Gives what went wrong."""
        until = time.monotonic() + WAITS + _GIVEN_UP
        trouble: list[str] = []
        try:
            relay = Relay(*group.address) if group.address is not None else None
        except OSError as error:
            return _unusable(error)

        def run() -> None:
            try:
                store = relay.client() if relay is not None else group.store()
                act(store)
                # `set` waits for no answer: what it sends is there once the server has answered something later.
                store.check([self._prefix])
            except Exception as error:  # whatever the store raises
                trouble.append(_unusable(error))

        thread = threading.Thread(target=run, name="torchvet-ranks", daemon=True)
        with relay or nullcontext():
            try:
                thread.start()
            except RuntimeError as error:  # the interpreter is ending: since Python 3.12 none is started then
                return f"no thread could be started: {error}"
            if relay is not None:
                relay.pass_on(lambda: not thread.is_alive(), until)
            thread.join(max(0.0, until - time.monotonic()))
            self._given_up = True
            silent = thread.is_alive()
        if silent:
            thread.join(_CUT)
        return _SILENT if silent else trouble[0] if trouble else ""

    def _deliver(self, group: Group, found: Joined, own: Path, failed: bool, store: Store) -> None:
        store.set(f"{self._prefix}/{group.rank}/watches", b"1")
        number = int(own.stem[len("rank") :])
        try:
            parcel = pack(own.parent, [number], group.rank)
        except (OSError, BadInput) as error:
            found.reasons = dict.fromkeys(found.reasons, f"the records of this rank cannot be sent: {error}")
            return
        # Rank 0 may stand in a collective until this process has ended: it is not waited for then.
        seconds = 0.0 if failed else WAITS if self._hears(store, 0) else self._grace
        answer = deliver(store, self._prefix, group.rank, parcel, seconds, self._began)
        found.went = answer == "taken"
        why = "this rank failed, and did not wait for it" if failed else UNTAKEN.get(answer, "")
        found.reasons = dict.fromkeys(found.reasons, f"rank 0 did not take the records of this rank: {why}")

    def _collect(
        self, group: Group, found: Joined, folder: Path, kept: Path | None, failed: bool, store: Store
    ) -> None:
        until = time.monotonic() + (FAILED if failed else WAITS)
        others = range(1, min(group.world, _MOST_RANKS))
        found.reasons |= dict.fromkeys(range(1, group.world), _TOO_MANY) | dict.fromkeys(others, _UNHEARD)

        def take(parcel: bytes) -> list[int]:
            if self._given_up:
                raise BadInput("it had reported before")
            left = _MOST - sum(file.stat().st_size for file in folder.glob("rank*"))
            ranks = unpack(parcel, folder, others, left)
            if kept is not None:
                _keep(folder, kept, ranks)
            return ranks

        def tell(came: Came) -> None:
            if not self._given_up:
                found.came += came.ranks
                found.reasons[came.group] = came.reason

        heard = self._heard(store, others, min(until, time.monotonic() + self._grace))
        seconds = max(0.1, until - time.monotonic())
        collect(store, self._prefix, heard, self._began, take, seconds, tell)
        left = max(0.0, until - time.monotonic()) + _GIVEN_UP / 2
        answers_read(store, self._prefix, heard, min(_READ, left))

    @property
    def _grace(self) -> float:
        return _SURE if self._from_start else _UNSURE

    def _heard(self, store: Store, ranks: Collection[int], until: float) -> list[int]:
        """Those of the ranks that have a watch."""
        waiting, found = list(ranks), []
        while True:
            found += [rank for rank in waiting if self._hears(store, rank)]
            waiting = [rank for rank in waiting if rank not in found]
            if not waiting or time.monotonic() > until:
                return sorted(found)
            time.sleep(_TICK)

    def _hears(self, store: Store, rank: int) -> bool:
        return store.check([f"{self._prefix}/{rank}/watches"])


def _which() -> str:
    """What the watch that begins now has in common with those of other ranks: the launch, and which watch of which line
    of the program it is. One rank may watch what another does not."""
    place = user_place()
    # By the file's name alone: each host may have the program in a folder of its own.
    line = f"{os.path.basename(place.path)}:{place.line} {place.function}" if place is not None else ""
    _begun[line] += 1
    return f"{os.environ.get('TORCHELASTIC_RUN_ID', '')}\n{line}\n{_begun[line]}"


def _joined() -> Group | None:
    """The group that this process is in, if others are in it."""
    # A watch may begin before torch is imported.
    distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    from torchvet.probes.internals import private

    # Of a fake group this process is the only rank, whatever its size.
    if distributed.get_world_size() < 2 or distributed.get_backend() == "fake":
        return None

    def store() -> Any:
        """Without the prefixes that a group puts before its keys, which other clients do not know."""
        found = private.store_of_group()
        while isinstance(found, distributed.PrefixStore):
            found = found.underlying_store
        return found

    address = None
    with suppress(Exception):  # torch may not show it
        if isinstance(found := store(), distributed.TCPStore):
            address = found.host, found.port
    return Group(distributed.get_rank(), distributed.get_world_size(), store, address)


def _left(member: Member | None) -> Group | None:
    """The group that this process has left, if its launcher's store outlives it."""
    port = os.environ.get("MASTER_PORT", "")
    stored = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and port.isdecimal() and len(port) < 10
    # Without a backend it is what variables say, which other programs that a rank starts have as well.
    if member is None or member.backend in ("", "fake") or member.world_size < 2 or not stored:
        return None

    address = os.environ.get("MASTER_ADDR", ""), int(port)
    return Group(member.rank, member.world_size, _no_store, address)


def _no_store() -> Store:
    raise ConnectionError("the process group has ended")


def _unusable(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    return f"their store could not be used: {type(error).__name__}: {first}"[:300]


def _keep(folder: Path, kept: Path, ranks: Collection[int]) -> None:
    """Copy what came into the recording that is kept. On a shared file system it is there already."""
    for file in (file for rank in ranks for file in folder.glob(f"rank{rank}.*")):
        content, there = file.read_bytes(), kept / file.name
        # A rank that is missing there is missed by whoever reads it.
        with suppress(OSError):
            if not there.exists() or there.read_bytes() != content:
                beside = kept / f".{file.name}.{os.getpid()}"
                beside.write_bytes(content)
                os.replace(beside, there)
