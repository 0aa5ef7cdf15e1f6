"""What trained unobserved leaves the verdict open; processes of one run are named, and their common fault once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from handmade import census, evidence, holding, outcome, program, rank, site, steps, window

from torchvet.diagnosis.diagnose import diagnose
from torchvet.recording import RankRecording, Recording, read
from torchvet.recording.records.base import Record
from torchvet.recording.records.training import Unwatched
from torchvet.recording.writer import MOST_CHILDREN, RecordingWriter

TICKS = (5, 6, 9, 14, 21, 32)


def healthy(*more: Record) -> list[Any]:
    held = [census(9, holding("model", 100)), census(20, holding("model", 100))]
    return [program(), steps(40), *evidence(40), *held, *more, outcome(40)]


def leaky(rate: int) -> list[Any]:
    held = [census(t, holding("losses", direct=rate * t, sites=[site()])) for t in TICKS]
    return [program(), steps(40), window(1, 2, 3), *held, outcome(40)]


def launcher(*more: Record) -> list[Any]:
    return [program(), *more, msgspec.structs.replace(outcome(0), status=5)]


def child(number: int, *records: Any) -> RankRecording:
    one = rank(*records)
    one.child = number
    return one


def verdict_of(*records: Any) -> str:
    return diagnose(Recording([rank(*records)])).verdict


@pytest.mark.parametrize(("count", "verdict"), [(0, "clean"), (3, "clean"), (400, "undetermined")])
def test_backward_calls_that_no_step_counts_leave_the_verdict_open(count: int, verdict: str) -> None:
    more = [Unwatched(kind="backward", count=count, of=40)] if count else []
    assert verdict_of(*healthy(*more)) == verdict


def test_a_few_backward_calls_after_a_long_training_leave_nothing_open() -> None:
    assert verdict_of(*healthy(Unwatched(kind="backward", count=30, of=5000))) == "clean"


def test_backward_calls_that_no_step_counts_are_said_with_their_number() -> None:
    report = diagnose(Recording([rank(*healthy(Unwatched(kind="backward", count=1800, of=150)))]))
    (gap,) = report.not_checked
    assert "1,800 backward calls" in gap.check and "150 steps" in gap.reason


def test_a_launcher_is_no_gap_where_its_processes_trained() -> None:
    ranks = [child(1, *healthy()), child(2, *healthy()), rank(*launcher())]
    report = diagnose(Recording(ranks))
    assert (report.verdict, report.not_checked) == ("clean", [])
    assert [p["steps"] for p in report.facts["processes"]] == [40, 40, 0]
    assert report.facts["outcome"]["status"] == 5, "the program's own, whoever trained"


def test_a_fault_of_all_processes_is_one_finding() -> None:
    report = diagnose(Recording([child(n, *leaky(1000 * n)) for n in (1, 2)]))
    (finding,) = report.findings
    assert finding.measured.bytes_per_step == 2000


def test_a_process_without_an_end_is_said() -> None:
    report = diagnose(Recording([child(1, *healthy()[:-1]), rank(*launcher())]))
    assert [n.check for n in report.not_checked] == ["the end of 1 process that the program started"]


def test_what_a_shell_started_matters_where_nobody_trained() -> None:
    started = Unwatched(kind="started", count=1, command="bash train.sh")
    report = diagnose(Recording([rank(*launcher(started))]))
    assert report.verdict == "undetermined"
    assert any("bash train.sh" in n.check and "torchvet run" in n.reason for n in report.not_checked)
    assert verdict_of(*healthy(started)) == "clean"


def test_processes_beyond_those_observed_leave_the_verdict_open() -> None:
    more = child(65, Unwatched(kind="process", count=1), Unwatched(kind="process", count=1))
    report = diagnose(Recording([child(1, *healthy()), more]))
    assert report.verdict == "undetermined"
    assert any("2 processes that trained" in n.check for n in report.not_checked)


def test_each_process_has_a_file_of_its_own_until_there_are_too_many(tmp_path: Path) -> None:
    RecordingWriter(tmp_path).close()
    writers = [RecordingWriter(tmp_path, child=True) for _ in range(MOST_CHILDREN + 2)]
    assert [w.crowded for w in writers] == [False] * MOST_CHILDREN + [True, True]
    assert len({w.path for w in writers}) == MOST_CHILDREN + 1
    for writer in writers:
        writer.write(Unwatched(kind="process", count=1))
        writer.close()
    ranks = read(tmp_path).ranks
    assert [r.child for r in ranks] == list(range(MOST_CHILDREN + 2))
    assert [len(r.lines) for r in ranks] == [0, *[1] * MOST_CHILDREN, 2]
    assert {r.rank for r in ranks} == {0}
