"""What hosts put into the launcher's store and what node 0 takes from it, with a store in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch.distributed as dist

from torchvet.errors import BadInput
from torchvet.probes.hosts import exchange
from torchvet.probes.hosts.exchange import PIECE, Came, Head, answers_read, collect, deliver

PARCEL = bytes(range(251)) * (3 * PIECE // 251)
SOON, LONG = 0.3, 30.0
"""Seconds: for what does not come, and for what does."""


class Node0:
    """Collects, and remembers what came and what was said last of each host."""

    def __init__(self, store: Any, since: float = 0.0, take: Callable[[bytes], list[int]] | None = None) -> None:
        self.store, self.since, self.take = store, since, take or (lambda parcel: [2, 3])
        self.parcels: list[bytes] = []
        self.said: dict[int, Came] = {}

    def collect(self, seconds: float, *groups: int) -> dict[int, Came]:
        def take(parcel: bytes) -> list[int]:
            self.parcels.append(parcel)
            return self.take(parcel)

        def tell(came: Came) -> None:
            self.said[came.group] = came

        collect(self.store, "p", groups, self.since, take, seconds, tell)
        return self.said


@pytest.fixture
def store() -> Any:
    return dist.HashStore()


def put(store: Any, group: int, parcel: bytes = PARCEL) -> None:
    """As a host that does not wait."""
    assert deliver(store, "p", group, parcel, seconds=0.0) == "none"


def test_a_host_that_waits_hears_that_its_records_were_taken(store: Any) -> None:
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(deliver(store, "p", 1, PARCEL, LONG)))
    thread.start()
    node = Node0(store)
    assert node.collect(LONG, 1)[1] == Came(1, [2, 3])
    thread.join(LONG)
    assert answers == ["taken"] and node.parcels == [PARCEL]


def test_records_wait_in_the_store_and_leave_it_once_taken(store: Any) -> None:
    """Node 0 may end long after a host whose rank was killed."""
    put(store, 1, b"an earlier start's")
    put(store, 1)
    put(store, 2, b"x")
    pieces = store.num_keys()
    assert Node0(store).collect(LONG, 1, 2).keys() == {1, 2}
    assert pieces == 3 + 1 + 2, "nothing is left of what was written over"
    assert store.num_keys() == 1, "that node 0 has reported: nobody waits for an answer"


def test_what_a_host_was_answered_is_there_until_it_has_read_it(store: Any) -> None:
    """The store may end with node 0's process."""
    slow, answers = threading.Event(), []

    class Slow:
        """The host does not run for a while once its records are there."""

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def set(self, key: str, value: Any) -> None:
            store.set(key, value)
            if key == "p/1":
                slow.wait(LONG)

    thread = threading.Thread(target=lambda: answers.append(deliver(Slow(), "p", 1, PARCEL, LONG)))
    thread.start()
    Node0(store).collect(LONG, 1)
    assert not answers_read(store, "p", [1, 2], SOON)
    slow.set()
    assert answers_read(store, "p", [1, 2], LONG)
    thread.join(LONG)
    assert answers == ["taken"]


def test_an_answer_counts_where_the_store_ends_behind_it(store: Any) -> None:
    class Ends:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def delete_key(self, key: str) -> bool:
            raise ConnectionError("the server has ended")

    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(deliver(Ends(), "p", 1, b"x", LONG)))
    thread.start()
    Node0(store).collect(LONG, 1)
    thread.join(LONG)
    assert answers == ["taken"]


def test_a_host_that_sent_nothing_is_told(store: Any) -> None:
    put(store, 1)
    said = Node0(store).collect(SOON, 1, 2)
    assert said[1].ranks == [2, 3] and said[2].ranks == [] and "no records came" in said[2].reason


def test_a_host_that_comes_after_the_report_does_not_wait(store: Any) -> None:
    Node0(store).collect(SOON, 1)
    store.set("p/closed", repr(time.time() + 5))
    assert deliver(store, "p", 1, PARCEL, LONG) == "closed"


def test_the_word_of_an_earlier_start_closes_nothing(store: Any) -> None:
    store.set("p/closed", repr(time.time() - 5))
    assert deliver(store, "p", 1, PARCEL, SOON) == "none"


def test_records_of_an_earlier_start_are_none_of_this_one(store: Any) -> None:
    put(store, 1)
    node = Node0(store, since=time.time() + 5)
    assert "earlier start" in node.collect(SOON, 1)[1].reason and node.parcels == []
    assert Node0(store).collect(LONG, 1)[1].ranks == [2, 3], "they stay where they are"


def refuse(parcel: bytes) -> list[int]:
    raise BadInput("these are not mine")


def test_a_host_whose_records_are_refused_hears_it(store: Any) -> None:
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(deliver(store, "p", 1, PARCEL, LONG)))
    thread.start()
    while not store.check(["p/1"]):
        time.sleep(0.01)
    assert "not mine" in Node0(store, take=refuse).collect(SOON, 1)[1].reason
    thread.join(LONG)
    assert answers == ["refused"]


@pytest.mark.parametrize("damage", ["missing", "short", "long", "changed"])
def test_damaged_pieces_are_not_taken(store: Any, damage: str) -> None:
    put(store, 1)
    head = msgspec.json.decode(store.get("p/1"), type=Head)
    key = f"p/1/{head.id}/1"
    if damage == "missing":
        store.delete_key(key)
    else:
        store.set(key, {"short": b"x", "long": bytes(PIECE + 1), "changed": bytes(PIECE)}[damage])
    node = Node0(store)
    said = node.collect(SOON, 1)[1]
    assert said.ranks == [] and "records came" in said.reason and node.parcels == []


GOOD = {"id": "a", "size": 1, "digest": "0", "sent": 1e12}


@pytest.mark.parametrize(
    "head",
    [
        *(b"", b"{", b"\xff", b"[]", b"x" * 5000, b'{"id": "a"}'),
        *(msgspec.json.encode(GOOD | {"size": size}) for size in (0, -1, 1 << 60, 1.5, "1")),
        *(msgspec.json.encode(GOOD | {"id": id}) for id in ("", "../x", "a/b", "a" * 65, 7)),
    ],
)
def test_a_head_that_nobody_wrote_is_none(store: Any, head: bytes) -> None:
    store.set("p/1", head)
    assert exchange._head(store, "p/1") is None


def test_trouble_with_one_hosts_records_leaves_the_others_theirs(store: Any) -> None:
    class Lossy:
        """A key of host 1 is removed between the two questions."""

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def get(self, key: str) -> bytes:
            if key == "p/1":
                raise RuntimeError("wait timeout")
            return bytes(store.get(key))

    put(store, 1)
    put(store, 2)
    said = Node0(Lossy()).collect(SOON, 1, 2)
    assert (said[1].ranks, said[1].reason) == ([], "RuntimeError at its records") and said[2].ranks == [2, 3]
    assert store.check(["p/closed"])
