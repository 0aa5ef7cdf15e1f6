"""Launchers of several hosts that share no file system: one report for all, or a word on what is missing."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest

from torchvet.probes import following
from torchvet.recording.records.ranks import Absent
from torchvet.supervisor import other_hosts
from torchvet.supervisor.local_ranks import LocalRanks
from torchvet.supervisor.other_hosts import OtherHosts
from torchvet.supervisor.recording_dir import Keep

SOURCE = str(Path(following.__file__).parents[3])
PROGRAM = """
    import os, sys, torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    rank, mode = dist.get_rank(), sys.argv[1]
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []
    for step in range(24):
        x = torch.randn(32, 64)
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if mode == "leak" and rank == 3:
            kept.append(model.module(x))
        if mode == "dies" and rank == 1 and step == 12:
            supervisor = os.getppid()
            with open(f"/proc/{supervisor}/stat") as file:
                launcher = int(file.read().rpartition(")")[2].split()[1])
            for process in (launcher, supervisor, os.getpid()):
                os.kill(process, 9)
    print(f"rank {rank} ended", flush=True)
    dist.destroy_process_group()
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Host:
    """One host's launcher, its folders and what came of it."""

    def __init__(self, folder: Path, number: int, per_host: int, how: list[str], mode: str) -> None:
        self.folder = folder / f"host{number}"
        self.folder.mkdir()
        (self.folder / "main.py").write_text(textwrap.dedent(PROGRAM))
        mine = {n: v for n, v in os.environ.items() if not n.startswith(("TORCHVET", "RANK", "WORLD", "LOCAL"))}
        known = {**mine, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", "TMPDIR": str(self.folder)}
        words = ["torch.distributed.run", "--nnodes", "2", "--nproc-per-node", str(per_host), *how]
        words += ["-m", "torchvet", "run", "-o", "report.json", "main.py", mode]
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=self.folder,
            env=known,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> None:
        self.printed, self.talk = self.process.communicate(timeout=240)
        self.status = self.process.returncode
        self.reports = self.printed.count("What was seen")
        file = self.folder / "report.json"
        self.report: dict[str, Any] = msgspec.json.decode(file.read_bytes()) if file.exists() else {}


def hosts(folder: Path, mode: str, per_host: int = 2, elastic: bool = False) -> tuple[Host, Host]:
    """Two hosts of one launch, ended; the first is the one of rank 0."""
    port = free_port()
    where = ["--rdzv-backend", "c10d", "--rdzv-id", "job", "--rdzv-endpoint", f"127.0.0.1:{port}"]
    static = ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    hows = [where if elastic else [*static, "--node-rank", str(number)] for number in (0, 1)]
    both = [Host(folder, number, per_host, how, mode) for number, how in enumerate(hows)]
    for one in both:
        one.end()
    first, second = sorted(both, key=lambda one: "rank 0 ended" not in one.printed)
    return first, second


def test_a_leak_on_the_second_host_is_in_the_one_report(tmp_path: Path) -> None:
    first, second = hosts(tmp_path, "leak", elastic=True)
    assert (first.status, second.status) == (0, 0), first.talk + second.talk
    assert (first.reports, second.reports, second.report) == (1, 0, {}), second.printed
    assert [(row["rank"], row["steps"]) for row in first.report["facts"]["ranks"]] == [(n, 24) for n in range(4)]
    (leak,) = [f for f in first.report["findings"] if f["code"] == "MEM101"]
    assert (leak["rank"], leak["holder"]["name"]) == (3, "kept")
    assert "absent" not in first.report["facts"]
    assert "the records of this host are in the report of node 0" in second.talk
    assert not [f.name for one in (first, second) for f in one.folder.glob("torchvet-*")], "nothing is left behind"


def test_hosts_of_one_rank_each_are_joined_too(tmp_path: Path) -> None:
    first, second = hosts(tmp_path, "plain", per_host=1)
    assert (first.status, second.status, first.reports, second.reports) == (0, 0, 1, 0), first.talk + second.talk
    assert [f for f in first.report["findings"] if f["severity"] != "info"] == []
    assert first.report["subject"]["ranks"] == [0, 1]


@pytest.mark.skipif(sys.platform != "linux", reason="the program finds its launcher in /proc")
def test_of_a_host_that_died_the_report_says_that_nothing_is_known(tmp_path: Path) -> None:
    first, second = hosts(tmp_path, "dies", per_host=1)
    # Rank 0 did not come to its end either.
    node0 = first if first.reports else second
    assert node0.status == 1 and node0.reports == 1, node0.talk
    (absent,) = node0.report["facts"]["absent"]
    assert absent["ranks"] == [1] and "node 1: no records came" in absent["reason"]
    first_line = " ".join(node0.printed.partition("\n\n")[0].split())
    assert re.search(r"the program failed .*; nothing is known of rank 1", first_line), first_line


LAUNCHED = {
    "GROUP_RANK": "0",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "job",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}


def seen(monkeypatch: pytest.MonkeyPatch, ranks: LocalRanks | None, **variables: str) -> OtherHosts | None:
    for name, value in {**LAUNCHED, **variables}.items():
        monkeypatch.setenv(name, value)
    return OtherHosts.of_environment(ranks)


def test_hosts_are_those_of_a_launcher_with_ranks_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(monkeypatch, None) is None
    assert seen(monkeypatch, LocalRanks(0, 2, 0, 2)) is None
    one = seen(monkeypatch, LocalRanks(2, 4, 0, 2), GROUP_RANK="1")
    assert one is not None and (one.group, one.groups, one.port, one.stored) == (1, 2, 29500, True)


@pytest.mark.parametrize(
    "variables",
    [{"TORCHELASTIC_USE_AGENT_STORE": "False"}, {"MASTER_PORT": "x"}, {"GROUP_RANK": ""}, {"GROUP_WORLD_SIZE": "1"}],
)
def test_without_the_launchers_store_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    monkeypatch.setattr(other_hosts, "_run", lambda *_: pytest.fail("no process is needed"))
    one = seen(monkeypatch, LocalRanks(0, 4, 0, 2), **variables)
    assert one is not None and not one.stored
    absent = one.join(tmp_path, failed=False)
    assert absent is not None and absent.ranks == [2, 3] and other_hosts.JOINS in absent.reason


def answering(monkeypatch: pytest.MonkeyPatch, *lines: Any, trouble: str = "") -> None:
    """The process says this."""

    def run(task: dict[str, Any], limit: float) -> str:
        Path(task["answer"]).write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines) + b"torn {")
        return trouble

    monkeypatch.setattr(other_hosts, "_run", run)


def test_the_last_word_on_each_host_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = seen(monkeypatch, LocalRanks(0, 6, 0, 2), GROUP_WORLD_SIZE="3")
    assert one is not None
    nothing = [{"came": {"group": n, "reason": "no records came within 30 s"}} for n in (1, 2)]
    answering(monkeypatch, *nothing, {"came": {"group": 1, "ranks": [2, 3]}})
    assert one.join(tmp_path, failed=False) == Absent(ranks=[4, 5], reason="node 2: no records came within 30 s")
    answering(monkeypatch, *nothing, *({"came": {"group": n, "ranks": [2 * n, 2 * n + 1]}} for n in (1, 2)))
    assert one.join(tmp_path, failed=False) is None
    answering(monkeypatch, {"failure": "DistNetworkError: refused"}, trouble="the process ended")
    told = one.join(tmp_path, failed=False)
    assert told is not None and (told.ranks, told.reason) == ([2, 3, 4, 5], "DistNetworkError: refused")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({"answer": "none"}, "gave no answer"),
        ({"answer": "refused"}, "could not read"),
        ({"answer": "closed"}, "had reported"),
        ({"failure": "DistNetworkError: refused"}, "DistNetworkError: refused"),
        ({}, "could not be used"),
    ],
)
def test_a_host_whose_records_node_0_has_not_taken_reports_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: dict[str, Any], why: str
) -> None:
    one = seen(monkeypatch, LocalRanks(2, 4, 0, 2), GROUP_RANK="1")
    assert one is not None
    answering(monkeypatch, line)
    absent = one.join(tmp_path, failed=True)
    assert absent is not None and not one.went
    assert absent.ranks == [0, 1] and why in absent.reason and other_hosts.JOINS in absent.reason
    answering(monkeypatch, {"answer": "taken"})
    assert one.join(tmp_path, failed=True) is None and one.went


def test_a_store_that_cannot_be_reached_costs_nothing_but_the_others_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = seen(monkeypatch, LocalRanks(0, 2, 0, 1), MASTER_PORT=str(free_port()))
    assert one is not None
    absent = one.join(tmp_path, failed=False)
    assert absent is not None and absent.ranks == [1] and "DistNetworkError" in absent.reason


def test_ranks_in_one_folder_of_a_shared_file_system_need_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OtherHosts, "join", lambda *_: pytest.fail("they are here already"))
    seen(monkeypatch, None)
    with Keep(str(tmp_path / "run.vet"), LocalRanks(0, 2, 0, 1)) as keep:
        (keep.directory / "rank1.jsonl").write_bytes(b"")
        (keep.directory / "other.1-1.launcher").touch()
        keep.read(0, 1.0)
        assert (keep.directory / "rank1.jsonl").exists()


def test_what_an_earlier_start_has_collected_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[str] = []

    def join(self: OtherHosts, directory: Path, failed: bool) -> Absent:
        left.extend(sorted(file.name for file in directory.glob("rank*")))
        return Absent(ranks=[1], reason="it died")

    monkeypatch.setattr(OtherHosts, "join", join)
    seen(monkeypatch, None)
    with Keep(str(tmp_path / "run.vet"), LocalRanks(0, 2, 0, 1)) as keep:
        for name in ("rank1.jsonl", "rank1.child1.jsonl", "rank1.last"):
            (keep.directory / name).write_bytes(b"")
        recording, _ = keep.read(0, 1.0)
    assert left == ["rank0.jsonl"] and recording.ranks[0].last(Absent) is not None
