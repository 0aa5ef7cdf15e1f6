"""Ranks that each watch themselves: what rank 0 gets of the others over a store, here one in this process."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from handmade import outcome, program

from torchvet.probes.hosts import fellow_ranks, relay
from torchvet.probes.hosts.fellow_ranks import FellowRanks, Group, Joined
from torchvet.recording import RecordingWriter
from torchvet.recording.records.base import Record
from torchvet.recording.records.ranks import Member

LONG = 60.0
"""Seconds for what does come."""


class Rank:
    """One rank's watch, with its records in a folder of its own."""

    def __init__(
        self, folder: Path, number: int, store: Any, file: int | None = None, world: int = 2, port: int | None = None
    ) -> None:
        self.group = Group(number, world, lambda: store, ("127.0.0.1", port) if port is not None else None)
        self.fellows = FellowRanks()
        self.fellows._prefix = "p"
        self.own, self.came = folder / f"own{number}", folder / f"came{number}"
        self.came.mkdir()
        writer = RecordingWriter(self.own, number if file is None else file)
        records: list[Record] = [program(), Member(rank=number, world_size=world, host="a"), outcome(9)]
        for record in records:
            writer.write(record)
        writer.close()
        self.file = writer.path

    def join(self, failed: bool = False, kept: Path | None = None) -> Joined:
        return self.fellows.join(self.group, self.file, self.came, kept, failed)

    def meanwhile(self, act: Callable[[], Any]) -> Joined:
        """What came of this rank's part while another acts."""
        found: list[Joined] = []
        thread = threading.Thread(target=lambda: found.append(self.join()))
        thread.start()
        act()
        thread.join(LONG)
        return found[0]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may be busy."""
    for name in ("WAITS", "FAILED", "_SURE", "_UNSURE", "_READ"):
        monkeypatch.setattr(fellow_ranks, name, LONG)


@pytest.fixture
def store() -> Any:
    return dist.HashStore()


def test_the_records_of_another_rank_come_and_it_hears_so(tmp_path: Path, store: Any) -> None:
    first, second = Rank(tmp_path, 0, store), Rank(tmp_path, 1, store)
    came: list[Joined] = []
    assert second.meanwhile(lambda: came.append(first.join())).went
    assert came[0].came == [1] and not came[0].went
    assert (first.came / "rank1.jsonl").read_bytes() == second.file.read_bytes()


def test_the_first_rank_stays_until_its_answer_is_read(tmp_path: Path, store: Any) -> None:
    """Its process has the store's server: another rank that does not run for a while found it gone."""
    first, second = Rank(tmp_path, 0, store), Rank(tmp_path, 1, store)
    there: list[bool] = []

    def ends() -> None:
        first.join()
        there.append(store.check(["p/1/answer"]))

    assert second.meanwhile(ends).went and there == [False]


def test_a_watch_that_began_before_the_group_has_the_groups_rank(tmp_path: Path, store: Any) -> None:
    """No launcher had said it, so its file is that of rank 0."""
    first, second = Rank(tmp_path, 0, store), Rank(tmp_path, 1, store, file=0)
    assert second.meanwhile(first.join).went
    assert [file.name for file in first.came.iterdir()] == ["rank1.jsonl"]


def test_a_rank_that_watches_nothing_is_not_waited_for(
    tmp_path: Path, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fellow_ranks, "_UNSURE", 0.1)
    monkeypatch.setattr(fellow_ranks, "WAITS", 1e6)
    first, second = Rank(tmp_path, 0, store), Rank(tmp_path, 1, store)
    found = first.join()
    assert found.came == [] and "no watch was heard of" in found.reasons[1]
    # It ends after that report, and need not wait either.
    assert "it had reported before" in second.join().reasons[0]


def test_a_rank_that_does_not_end_its_watch_is_missing(
    tmp_path: Path, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fellow_ranks, "WAITS", 0.3)
    store.set("p/1/watches", b"1")
    found = Rank(tmp_path, 0, store).join()
    assert found.came == [] and "no records came" in found.reasons[1]


def test_a_rank_that_failed_waits_for_nobody_and_its_records_come(tmp_path: Path, store: Any) -> None:
    """Rank 0 may stand in a collective until its process has ended."""
    first, second = Rank(tmp_path, 0, store), Rank(tmp_path, 1, store)
    found = second.join(failed=True)
    assert not found.went and "did not wait" in found.reasons[0]
    assert first.join(failed=True).came == [1]


def test_a_store_that_is_gone_costs_nothing_but_the_other_ranks(tmp_path: Path) -> None:
    class Gone:
        def __getattr__(self, name: str) -> Any:
            raise ConnectionError("Connection was likely closed\nframe #0: ...")

    for number in (0, 1):
        found = Rank(tmp_path, number, Gone()).join()
        why = "their store could not be used: ConnectionError: Connection was likely closed"
        assert found.reasons == {1 - number: why} and not found.went


def test_a_store_that_never_answers_is_given_up_and_what_comes_later_is_not_taken(
    tmp_path: Path, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fellow_ranks, "WAITS", 0.1)
    monkeypatch.setattr(fellow_ranks, "_GIVEN_UP", 0.1)
    answers, ended = threading.Event(), threading.Event()

    class Silent:
        def check(self, keys: list[str]) -> bool:
            answers.wait(LONG)
            return bool(store.check(keys))

        def set(self, key: str, value: Any) -> None:
            store.set(key, value)
            if key == "p/closed":
                ended.set()

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

    first = Rank(tmp_path, 0, Silent())
    assert first.join().reasons == {1: "their store gave no answer"}
    Rank(tmp_path, 1, store).join(failed=True)
    answers.set()
    assert ended.wait(LONG) and not list(first.came.iterdir())


def test_records_come_over_a_server(tmp_path: Path) -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    first, second = (Rank(tmp_path, number, None, port=server.port) for number in range(2))
    came: list[Joined] = []
    assert second.meanwhile(lambda: came.append(first.join())).went
    assert came[0].came == [1] and (first.came / "rank1.jsonl").read_bytes() == second.file.read_bytes()


def test_what_a_rank_sends_last_arrives(tmp_path: Path) -> None:
    """A client of the store waits for no answer to it."""
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    rank = Rank(tmp_path, 1, None, port=server.port)
    for number in range(5):
        assert rank.fellows._bounded(rank.group, lambda store, n=number: store.set(f"head{n}", b"x" * 200_000)) == ""
        assert server.check([f"head{number}"])


def ranks_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "torchvet-ranks"]


def test_no_thread_is_left_in_a_call_to_a_server_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would abort the process if the answer came while the interpreter ended. A stopped process does not answer."""
    for name in ("WAITS", "_GIVEN_UP"):
        monkeypatch.setattr(fellow_ranks, name, 0.2)
    monkeypatch.setattr(relay, "CONNECT", 0.1)
    monkeypatch.setattr(fellow_ranks, "_CUT", LONG)
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = Rank(tmp_path, 1, None, port=server.getsockname()[1]).join()
    assert found.reasons == {0: "their store gave no answer"} and not ranks_threads()


@pytest.mark.parametrize("answers", [0, 3])
def test_a_server_that_stops_in_the_middle_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    """After so many of its answers: rank 0 has a watch, and does not take the records."""
    for name in ("WAITS", "_GIVEN_UP"):
        monkeypatch.setattr(fellow_ranks, name, 0.2)
    monkeypatch.setattr(fellow_ranks, "_CUT", LONG)
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    received, left = relay._End.receive, answers

    def receive(end: Any, other: Any) -> bool:
        nonlocal left
        if end.socket.getpeername()[1] != server.port:
            return received(end, other)
        left -= 1
        return received(end, other) if left >= 0 else bool(end.socket.recv(1 << 16))

    monkeypatch.setattr(relay._End, "receive", receive)
    monkeypatch.setattr(relay, "CONNECT", 0.1)
    found = Rank(tmp_path, 1, None, port=server.port).join()
    assert found.reasons == {0: "their store gave no answer"} and not ranks_threads()


def test_a_server_that_is_gone_costs_no_time(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (reason,) = Rank(tmp_path, 1, None, port=port).join().reasons.values()
    assert reason.startswith("their store could not be used: ConnectionRefusedError")


def test_without_a_thread_nobody_is_asked(tmp_path: Path, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an exit handler, since Python 3.12."""
    monkeypatch.setattr(threading.Thread, "start", raises)
    assert Rank(tmp_path, 0, store).join().reasons == {1: "no thread could be started: at shutdown"}


def raises(thread: threading.Thread) -> None:
    raise RuntimeError("at shutdown")


def test_who_begins_in_a_group_is_heard_at_once(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fellow_ranks, "_SURE", 1.0)
    assert FellowRanks()._grace == LONG
    monkeypatch.setattr(fellow_ranks, "_joined", lambda: Group(1, 2, lambda: store))
    fellows = FellowRanks()
    assert store.check([f"{fellows._prefix}/1/watches"]) and fellows._grace == 1.0


def test_a_store_that_takes_nothing_does_not_keep_a_watch_from_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a group over MPI is None."""
    monkeypatch.setattr(fellow_ranks, "_joined", lambda: Group(1, 2, lambda: None))  # type: ignore[arg-type, return-value]
    FellowRanks()


def test_what_came_lies_in_the_recording_that_is_kept(tmp_path: Path, store: Any) -> None:
    first, second = Rank(tmp_path, 0, store), Rank(tmp_path, 1, store)
    there = first.own / "rank1.jsonl"
    there.write_text("an earlier run's")
    second.meanwhile(lambda: first.join(kept=first.own))
    assert there.read_bytes() == second.file.read_bytes()
    assert sorted(file.name for file in first.own.iterdir()) == ["manifest.json", "rank0.jsonl", "rank1.jsonl"]


def test_a_recording_on_a_shared_file_system_is_left_as_it_is(tmp_path: Path, store: Any) -> None:
    first, second = Rank(tmp_path, 0, store), Rank(tmp_path, 1, store)
    before = second.file.stat().st_ino
    second.meanwhile(lambda: first.join(kept=second.own))
    assert second.file.stat().st_ino == before


def test_more_ranks_than_a_report_is_quick_for_are_missing(
    tmp_path: Path, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fellow_ranks, "_MOST_RANKS", 2)
    first, second, third = (Rank(tmp_path, number, store, world=3) for number in range(3))
    assert "at most" in third.join().reasons[0]
    came: list[Joined] = []
    assert second.meanwhile(lambda: came.append(first.join())).went
    assert came[0].came == [1] and "at most" in came[0].reasons[2]


def test_each_watch_has_records_of_its_own() -> None:
    assert FellowRanks()._prefix != FellowRanks()._prefix


def test_a_watch_that_one_rank_alone_has_shifts_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def prefixes(rank: int) -> list[str]:
        """As in a process of its own."""
        monkeypatch.setattr(fellow_ranks, "_begun", Counter())
        alone = [FellowRanks()._prefix] if rank == 0 else []
        return [*alone, *(FellowRanks()._prefix for _ in range(2))]

    alone, *shared = prefixes(0)
    assert shared == prefixes(1) and alone not in shared


def test_a_group_that_was_left_is_reached_over_the_launchers_store(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member(rank=1, world_size=2, host="a", backend="gloo")
    fellows = FellowRanks()
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    assert fellows.group(member) is None, "the store was that of the group"
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    group = fellows.group(member)
    assert group is not None and (group.rank, group.world) == (1, 2)
    assert group.address == ("127.0.0.1", store.port)
    # A program that a rank starts has its variables, and is in no group.
    for other in (None, Member(rank=1, world_size=2, host="a"), Member(rank=1, world_size=2, host="a", backend="fake")):
        assert fellows.group(other) is None
