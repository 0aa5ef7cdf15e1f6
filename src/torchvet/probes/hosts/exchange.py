"""Hands the records of one host to node 0 over the launcher's store (`torch.distributed.TCPStore`), or takes them.

The store lives in the launcher and outlives the program. No collective is involved, and no rank. A host puts its
parcel into the store in pieces, then a head that says what they are, and waits a while for node 0's answer. The parcel
stays there: node 0 may end much later. Node 0 looks for the parcels of all others and answers each.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from torchvet.errors import BadInput
from torchvet.recording.parcel import MOST_PACKED, pack, unpack

PIECE = 1 << 18
"""Bytes of a value in the store."""
MOST_ALL = 4 << 30
"""Bytes that the records of all hosts may take."""
_LARGEST_HEAD = 2048
_TICK = 0.1
CONNECT = 5.0
"""Seconds that reaching the store may take."""
_TRIES = 3
"""How many parcels of one host are looked at that are no good."""


class Store(Protocol):
    """What is used of `torch.distributed.Store`. `get` waits for a key, so `check` is asked first."""

    def set(self, key: str, value: Any) -> None: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...
    def delete_key(self, key: str) -> bool: ...


class Head(msgspec.Struct, frozen=True):
    """What lies in the store for node 0: how many bytes with which digest, when by the sender's clock, and whether the
    sender waits for an answer."""

    id: str
    size: int
    digest: str
    sent: float
    waits: bool = True


class Came(msgspec.Struct, omit_defaults=True):
    """What became of one host's records: the ranks that came, or why they did not."""

    group: int
    ranks: list[int] = []
    reason: str = ""


Answer = Literal["taken", "refused", "closed", "none"]
UNTAKEN = {"refused": "it could not read them", "closed": "it had reported before", "none": "it gave no answer"}
"""What the other answers mean to whoever has put records there."""


def deliver(store: Store, prefix: str, group: int, parcel: bytes, seconds: float, since: float | None = None) -> Answer:
    """Put the records of host number `group` into the store, and wait for node 0's answer. That node 0 had reported
    before counts from the moment `since` on (of the wall clock), by default from now on."""
    key, began = f"{prefix}/{group}", time.time()
    before = _head(store, key)
    head = Head(uuid.uuid4().hex, len(parcel), hashlib.sha256(parcel).hexdigest(), began, waits=seconds > 0)
    for number in range(_pieces(head)):
        store.set(f"{key}/{head.id}/{number}", parcel[number * PIECE : (number + 1) * PIECE])
    # Last: who sees the head finds all pieces.
    store.set(key, msgspec.json.encode(head))
    # An earlier start's that nobody has taken.
    _remove(store, key, before)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        # Read first: what node 0 answers stands there before.
        closed = _number(_value(store, f"{prefix}/closed")) > (began if since is None else since)
        answer = (_value(store, f"{key}/answer") or b"").split()
        if answer[:1] == [head.id.encode()]:
            # Node 0 waits for that. What it has answered counts even if its store is gone now.
            with suppress(Exception):
                store.delete_key(f"{key}/answer")
            return "taken" if answer[1:] == [b"taken"] else "refused"
        if closed:
            return "closed"
        time.sleep(_TICK)
    return "none"


def collect(
    store: Store,
    prefix: str,
    groups: Collection[int],
    since: float,
    take: Callable[[bytes], list[int]],
    seconds: float,
    tell: Callable[[Came], None],
) -> None:
    """Take what the hosts `groups` have put there since the moment `since` (of the wall clock).

    `take` writes a parcel down, gives its ranks, and raises `BadInput` for a bad one. `tell` is called once or more
    for each host; the last word counts.
    """
    came: Came | None
    waiting = {group: Came(group, reason=f"no records came within {round(seconds, 1):g} s") for group in groups}
    for came in waiting.values():
        tell(came)
    seen: dict[int, list[str]] = {group: [] for group in groups}
    until = time.monotonic() + seconds
    try:
        while waiting and time.monotonic() < until:
            for group in [*waiting]:
                try:
                    came = _next(store, f"{prefix}/{group}", seen[group], since, take, group)
                # A key that is removed meanwhile is waited for in vain; the other hosts have theirs.
                except Exception as error:  # whatever the store raises
                    came = Came(group, reason=f"{type(error).__name__} at its records")
                if came is not None:
                    tell(came)
                    if came.ranks:
                        del waiting[group]
            if waiting:
                time.sleep(_TICK)
    finally:
        # A host that comes later need not wait.
        store.set(f"{prefix}/closed", repr(time.time()))


def answers_read(store: Store, prefix: str, groups: Collection[int], seconds: float) -> bool:
    """Wait until the hosts `groups` have read what they were answered: a store that lives in node 0's own process ends
    with it. Whether they have."""
    until = time.monotonic() + seconds
    while any(store.check([f"{prefix}/{group}/answer"]) for group in groups):
        if time.monotonic() > until:
            return False
        time.sleep(_TICK)
    return True


def _next(
    store: Store, key: str, seen: list[str], since: float, take: Callable[[bytes], list[int]], group: int
) -> Came | None:
    """What became of a host's records that were not looked at yet; None without any."""
    head = _head(store, key)
    if head is None or head.id in seen or len(seen) >= _TRIES:
        return None
    seen.append(head.id)
    return _taken(store, key, head, since, take, group)


def _taken(store: Store, key: str, head: Head, since: float, take: Callable[[bytes], list[int]], group: int) -> Came:
    if head.sent < since:
        # It stays: a clock that is wrong must not cost the records.
        return Came(group, reason="its records are those of an earlier start, or its clock is behind")
    try:
        ranks = take(_parcel(store, key, head))
        if not ranks:
            raise BadInput("its records are empty")
        answer, came = "taken", Came(group, ranks)
    except BadInput as error:
        answer, came = "refused", Came(group, reason=str(error))
    if head.waits:
        store.set(f"{key}/answer", f"{head.id} {answer}")
    store.delete_key(key)
    _remove(store, key, head)
    return came


def _head(store: Store, key: str) -> Head | None:
    """What lies at a key; None where nothing does, or nothing of ours."""
    value = _value(store, key)
    if value is None or len(value) > _LARGEST_HEAD:
        return None
    try:
        head = msgspec.json.decode(value, type=Head)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    fits = 0 < head.size <= MOST_PACKED and head.id.isalnum() and len(head.id) <= 64 and math.isfinite(head.sent)
    return head if fits else None


def _parcel(store: Store, key: str, head: Head) -> bytes:
    """All pieces. Raises `BadInput` where they are not those that the head tells of."""
    found = bytearray()
    for number in range(_pieces(head)):
        piece = _value(store, f"{key}/{head.id}/{number}")
        if piece is None or len(piece) > PIECE:
            raise BadInput("its records came in part only")
        found += piece
    if len(found) != head.size or hashlib.sha256(found).hexdigest() != head.digest:
        raise BadInput("its records came damaged")
    return bytes(found)


def _remove(store: Store, key: str, head: Head | None) -> None:
    for number in range(_pieces(head)) if head is not None else ():
        store.delete_key(f"{key}/{head.id}/{number}")  # type: ignore[union-attr]


def _pieces(head: Head) -> int:
    return -(-head.size // PIECE)


def _value(store: Store, key: str) -> bytes | None:
    return store.get(key) if store.check([key]) else None


def _number(value: bytes | None) -> float:
    try:
        return float(value or b"0")
    except ValueError:
        return 0.0


class Task(msgspec.Struct, kw_only=True):
    """What the process is to do: `collect` as host 0, `deliver` as any other. `answer` is the file for what came of it,
    a JSON object a line; `seconds` are those to wait, `limit` those after which the process ends in any case."""

    address: str
    port: int
    prefix: str
    group: int
    groups: int
    directory: str
    first: int
    count: int
    """This host's ranks: so many from the first on, of `world`."""
    world: int
    since: float
    seconds: float
    limit: float
    answer: str


def main() -> None:
    """Do the task in `sys.argv[1]`."""
    task = msgspec.json.decode(sys.argv[1], type=Task)
    # Torch's calls into the network may wait longer than they are told to.
    end = threading.Timer(task.limit, os._exit, (1,))
    end.daemon = True
    end.start()
    with open(task.answer, "a", encoding="utf-8") as file:

        def tell(**said: Any) -> None:
            file.write(json.dumps(said) + "\n")
            file.flush()

        try:
            _do(task, tell)
        # TCPStore raises several types, with the network's words.
        except Exception as error:
            tell(failure=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300])
    # Torch's threads are no reason to wait.
    os._exit(0)


def _do(task: Task, tell: Callable[..., None]) -> None:
    directory, own = Path(task.directory), range(task.first, task.first + task.count)
    parcel = pack(directory, own) if task.group else b""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore(
        task.address,
        task.port,
        is_master=False,
        timeout=timedelta(seconds=CONNECT),
        # The launcher counts its own clients.
        wait_for_workers=False,
    )
    if task.group:
        tell(answer=deliver(store, task.prefix, task.group, parcel, task.seconds))
        return
    others = {*range(task.world)} - {*own}

    def take(parcel: bytes) -> list[int]:
        here = sum(file.stat().st_size for file in directory.glob("rank*"))
        return unpack(parcel, directory, others, MOST_ALL - here)

    collect(
        store,
        task.prefix,
        range(1, task.groups),
        task.since,
        take,
        task.seconds,
        lambda came: tell(came=msgspec.to_builtins(came)),
    )
