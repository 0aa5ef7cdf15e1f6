"""Many files are one run: the rank that others wait for is found by its arrival; phases and clocks show nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from trace_building import Program, ranks, step

from torchvet.errors import BadInput
from torchvet.readers.trace_facts import RankTrace
from torchvet.traces import report_on
from torchvet.traces.digest import digest
from torchvet.traces.ranks import digests

LATE, BY = 2, 200_000.0


@pytest.fixture
def straggling(tmp_path: Path) -> list[Path]:
    """Four ranks without a common clock, of which one computes 200 ms longer before each all-reduce."""
    return written(tmp_path, ranks(4, 5, late=LATE, by=BY))


def written(folder: Path, programs: list[Program]) -> list[Path]:
    return [p.write(folder / f"trace_rank{p.rank}.json.gz") for p in programs]


def test_phases_and_steps_of_all_ranks_are_equal(straggling: list[Path]) -> None:
    found = digests(straggling, jobs=1)
    for name in ("forward", "backward", "optimizer"):
        times = [r.phases[name] for r in found]
        assert max(times) - min(times) < 0.002
    seconds = [r.steps.seconds for r in found if r.steps]
    assert max(seconds) - min(seconds) < 0.002


def test_the_late_rank_is_named_with_the_amount(straggling: list[Path]) -> None:
    report = report_on(straggling, jobs=2)
    finding = next(f for f in report.findings if f.code == "DST103")
    assert finding.rank == LATE
    assert finding.severity == "warning"
    assert finding.measured.seconds_per_step == pytest.approx(BY / 1e6, rel=0.02)
    assert "backward" in finding.message and "AllReduce" in finding.message
    assert "computes 200.0 ms longer" in finding.cause
    assert [line["rank"] for line in report.facts["ranks"]] == [0, 1, 2, 3]


def test_ranks_that_arrive_together_are_left_alone(tmp_path: Path) -> None:
    report = report_on(written(tmp_path, ranks(4, 5)), jobs=1)
    assert [f for f in report.findings if f.severity != "info"] == []


def test_a_rank_that_is_late_once_is_no_straggler(tmp_path: Path) -> None:
    programs = ranks(4, 6)
    for program in programs[1:]:  # rank 0 is not there yet
        next(e for e in program.events if "AllReduce" in e["name"])["dur"] += 30_000
    assert "DST103" not in [f.code for f in report_on(written(tmp_path, programs), jobs=1).findings]


@pytest.mark.parametrize("jobs", [1, 2, None])
def test_processes_change_nothing(straggling: list[Path], jobs: int | None) -> None:
    packed = [msgspec.json.encode(r) for r in digests(straggling, jobs)]
    assert packed == [msgspec.json.encode(digest(p)) for p in straggling]


def test_a_digest_is_kilobytes(straggling: list[Path]) -> None:
    for path in straggling:
        found = digest(path)
        packed = msgspec.msgpack.encode(found)
        assert len(packed) < 10_000
        assert msgspec.msgpack.decode(packed, type=RankTrace) == found


def test_one_unreadable_file_among_several_is_said(straggling: list[Path], tmp_path: Path) -> None:
    broken = tmp_path / "trace_rank9.json"
    broken.write_text("{}")
    report = report_on([*straggling, broken], jobs=1)
    assert any("trace_rank9.json" in n.reason for n in report.not_checked)
    assert len(report.facts["ranks"]) == 4


def test_a_folder_stands_for_the_traces_in_it(straggling: list[Path], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a trace")
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    assert [r.rank for r in digests([tmp_path], jobs=1)] == [0, 1, 2, 3]
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="no profiler trace in this folder"):
        digests([tmp_path / "empty"])


def test_only_unreadable_files_are_an_error(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(BadInput, match=r"a\.json.*no profiler trace"):
        report_on([tmp_path / "a.json", tmp_path / "b.json"], jobs=1)
    with pytest.raises(BadInput, match="no trace was given"):
        report_on([])


def test_files_that_say_no_rank_are_numbered(tmp_path: Path) -> None:
    paths = [Program().train(3, step).write(tmp_path / name) for name in ("one.json", "two.json")]
    report = report_on(paths, jobs=1)
    assert report.subject["ranks"] == [0, 1]
    assert any("called 1" in n.reason for n in report.not_checked)


def test_where_no_process_can_be_started_the_files_are_read_here(
    straggling: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", refuse)
    assert [r.rank for r in digests(straggling, jobs=2)] == [0, 1, 2, 3]


@pytest.mark.parametrize(("most", "told"), [(5 << 30, True), (4_200_000_000, False)])
def test_the_rank_that_needs_more_memory_is_a_note(tmp_path: Path, most: int, told: bool) -> None:
    programs = ranks(3, 4)
    for program in programs:
        held = most if program.rank == 1 else 4_000_000_000
        args = {"Device Type": 1, "Device Id": 0, "Total Allocated": held, "Total Reserved": held}
        program.events.append({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1,
                               "ts": program.events[5]["ts"], "args": args})  # fmt: skip
    found = [f for f in report_on(written(tmp_path, programs), jobs=1).findings if f.code == "DST102"]
    assert [(f.rank, f.severity, f.measured.bytes) for f in found] == (
        [(1, "info", most - 4_000_000_000)] if told else []
    )
