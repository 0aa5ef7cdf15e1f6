"""`torchvet.watch()` and callbacks on several ranks, of a program that no torchvet has started: one report on all."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from handmade import outcome, program
from warm_interpreters import python

import torchvet
from torchvet.api.all_ranks import AllRanks
from torchvet.commands import main
from torchvet.probes.hosts.fellow_ranks import FellowRanks, Group, Joined
from torchvet.recording import RankRecording, Recording, RecordingWriter
from torchvet.recording.records.ranks import Absent, Member

SOURCE = str(Path(torchvet.__file__).parents[1])
PROGRAM = """
    import os, sys, torch, torch.distributed as dist, torchvet
    from torch.nn.parallel import DistributedDataParallel

    rank = int(sys.argv[1])
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + sys.argv[2], rank=rank, world_size=2)
    torch.manual_seed(0)
    kept = []
    if rank == 0:
        with torchvet.watch() as alone:
            pass
        assert "nothing is known of rank 1" in alone.report.facts["verdict"]["reason"]
    with torchvet.watch(show=True, output="report.json", record="run.vet") as watched:
        model = DistributedDataParallel(torch.nn.Linear(64, 64))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(24):
            x = torch.randn(32, 64)
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 1:
                kept.append(model.module(x))
    print(rank, watched.report.verdict, watched.report.facts["verdict"]["reason"])
    dist.destroy_process_group()
"""


def test_what_only_the_second_rank_does_is_in_the_one_report(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(PROGRAM))
    known = {n: v for n, v in os.environ.items() if n not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "COLUMNS")}
    known |= {"PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [python(), "train.py", str(rank), str(port)],
            cwd=tmp_path,
            env=known,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    (said, shown), (other_said, other_shown) = (rank.communicate(timeout=240) for rank in ranks)
    assert said.startswith("0 findings"), shown
    # What rank 1 has seen itself is all that its own report is on.
    assert other_said.startswith("1 findings") and "the report of rank 0 is on all ranks" in other_said
    assert "1 leak: `kept` keeps" in shown and "1 leak" not in other_shown
    report = json.loads((tmp_path / "report.json").read_bytes())
    assert report["subject"]["ranks"] == [0, 1] and report["facts"].get("absent") is None
    (leak,) = [f for f in report["findings"] if f["severity"] != "info"]
    assert (leak["code"], leak["rank"], leak["holder"]["name"]) == ("MEM101", 1, "kept")
    assert main(["report", str(tmp_path / "run.vet"), "-q"]) == 1
    # Of a rank that is missing nothing is known.
    shutil.copytree(tmp_path / "run.vet", tmp_path / "half.vet", ignore=lambda *_: ["rank1.jsonl"])
    assert main(["report", str(tmp_path / "half.vet"), "-q"]) == 3


def recorded(folder: Path, number: int, says: int) -> tuple[Recording, RecordingWriter]:
    """The recording of a rank, which says that it is rank `says`, and what writes it."""
    writer = RecordingWriter(folder, number)
    records = [program(), Member(rank=says, world_size=3, host="a"), outcome(9)]
    for record in records:
        writer.write(record)
    return Recording([RankRecording(number, list(records), name=f"rank{number}")], folder), writer


def arrive(monkeypatch: pytest.MonkeyPatch, joined: Joined, **says: int) -> None:
    """Have the other ranks be reached, of which files come; each says that it is some rank."""

    def join(self: Any, group: Group, own: Path, folder: Path, kept: Path | None, failed: bool) -> Joined:
        for name, rank in says.items():
            recorded(folder, int(name.removeprefix("rank")), rank)[1].close()
        return joined

    monkeypatch.setattr(FellowRanks, "group", lambda *_: Group(joined.rank, joined.world, lambda: None))  # type: ignore[arg-type, return-value]
    monkeypatch.setattr(FellowRanks, "join", join)


def test_ranks_that_did_not_come_are_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrive(monkeypatch, Joined(0, 3, {1: "", 2: "it was late"}, came=[1]), rank1=1)
    recording, writer = recorded(tmp_path, 0, says=0)
    found = AllRanks().join(recording, writer, failed=False)
    assert [one.rank for one in found.ranks] == [0, 1]
    assert found.ranks[0].last(Absent) == Absent(ranks=[2], reason="it was late")
    assert "it was late" in writer.path.read_text()


def test_what_a_rank_says_of_another_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrive(monkeypatch, Joined(0, 3, {1: "", 2: ""}, came=[1, 2]), rank1=0, rank2=2)
    found = AllRanks().join(*recorded(tmp_path, 0, says=0), failed=False)
    assert [one.rank for one in found.ranks] == [0, 2]
    assert found.ranks[0].last(Absent) == Absent(ranks=[1], reason="its records cannot be read")


def test_reasons_that_differ_are_given_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrive(monkeypatch, Joined(0, 3, {1: "it was late", 2: "it was damaged"}))
    found = AllRanks().join(*recorded(tmp_path, 0, says=0), failed=False)
    assert found.ranks[0].last(Absent) == Absent(ranks=[1, 2], reason="rank 1: it was late; rank 2: it was damaged")


def test_a_rank_whose_records_were_taken_leaves_no_gap_in_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks may have one folder."""
    arrive(monkeypatch, Joined(1, 3, {0: "", 2: ""}, went=True))
    recording, writer = recorded(tmp_path, 1, says=1)
    ranks = AllRanks()
    found = ranks.join(recording, writer, failed=False)
    gap = found.ranks[0].last(Absent)
    assert ranks.joined and gap is not None and gap.ranks == [0, 2]
    assert "absent" not in writer.path.read_text().casefold()


def test_a_folder_that_cannot_be_made_costs_the_other_ranks_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrive(monkeypatch, Joined(0, 3, {}))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    found = AllRanks().join(*recorded(tmp_path / "run.vet", 0, says=0), failed=False)
    gap = found.ranks[0].last(Absent)
    assert gap is not None and gap.ranks == [1, 2] and "No such file" in gap.reason
