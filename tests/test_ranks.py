"""Programs of several ranks: one report, what ranks have in common said once, and who stands out."""

from __future__ import annotations

from typing import Any

import msgspec
from handmade import census, evidence, holding, outcome, program, rank, site, steps, window

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding, Report
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.ranks import Member
from torchvet.renderers import renderer_for

TICKS = (5, 6, 9, 14, 21, 32)


def member(number: int, *records: Any, world: int = 4, **more: Any) -> RankRecording:
    """One rank's recording, as a child of a launcher that was observed."""
    one = rank(Member(rank=number, world_size=world, host="a", **more), *records)
    one.child = number + 1
    return one


def healthy(count: int = 40) -> list[Any]:
    held = [census(9, holding("model", 100)), census(20, holding("model", 100))]
    return [program(), steps(count), *evidence(count), *held, outcome(count)]


def leaky(rate: int) -> list[Any]:
    held = [census(t, holding("losses", direct=rate * t, sites=[site()])) for t in TICKS]
    return [program(), steps(40), window(1, 2, 3), *held, outcome(40)]


def report_on(*ranks: RankRecording) -> Report:
    return diagnose(Recording(list(ranks)))


def the_leak(report: Report) -> Finding:
    (finding,) = [f for f in report.findings if f.code.startswith("MEM10")]
    return finding


def test_a_leak_of_every_rank_is_told_once() -> None:
    report = report_on(*(member(n, *leaky(1000 * (n + 1)), world=2) for n in (0, 1)))
    leak = the_leak(report)
    assert (leak.rank, leak.ranks, leak.measured.bytes_per_step) == (None, [0, 1], 2000)
    assert "all 2 ranks" in renderer_for("text").render(report, width=100)


def test_a_leak_of_one_rank_names_it() -> None:
    report = report_on(member(0, *healthy(), world=2), member(1, *leaky(1000), world=2))
    assert (the_leak(report).rank, the_leak(report).ranks) == (1, [])
    assert report.subject["ranks"] == [0, 1]
    assert report.facts["rank"] == 1 and report.facts["growth"]["bytes_per_step"] > 0
    assert "What was seen (rank 1)" in renderer_for("text").render(report, width=100)


def test_a_leak_of_some_ranks_names_them() -> None:
    report = report_on(*(member(n, *(leaky(1000) if n % 2 else healthy())) for n in range(4)))
    assert (the_leak(report).rank, the_leak(report).ranks) == (1, [1, 3])


def test_each_rank_has_a_row_and_the_odd_one_is_named() -> None:
    odd = [msgspec.structs.replace(r, peak=9000) if hasattr(r, "peak") else r for r in healthy()]
    report = report_on(*(member(n, *(odd if n == 2 else healthy())) for n in range(4)))
    assert [(row["rank"], row["steps"], row["how"]) for row in report.facts["ranks"]] == [
        (n, 40, "finished") for n in range(4)
    ]
    assert [(o["rank"], o["column"], o["median"]) for o in report.facts["outliers"]] == [(2, "peak_bytes", 5000)]
    text = renderer_for("text").render(report, width=100)
    assert "rank 2 has a peak of 9.0 kB; the median of all ranks is 5.0 kB" in text


def test_a_rank_that_was_killed_is_why_the_others_ended() -> None:
    killed = [*healthy(17)[:-1], msgspec.structs.replace(outcome(17), how="killed", status=-9, seconds=3.0)]
    broken = msgspec.structs.replace(outcome(17), how="exception", status=1, seconds=4.0, error="connection closed")
    report = report_on(member(0, *healthy(17)[:-1], broken, world=2), member(1, *killed, world=2))
    assert (report.facts["outcome"]["rank"], report.facts["outcome"]["how"]) == (1, "killed")
    assert "rank 1 was killed by signal 9 after 17 steps" in renderer_for("text").render(report, width=200)


def test_of_several_starts_the_last_counts_and_the_others_are_told() -> None:
    broke = msgspec.structs.replace(outcome(12), how="exception", status=1, error="OSError: disk is full")
    first = [member(0, *leaky(1000), world=2), member(1, *healthy(12)[:-1], broke, world=2)]
    again = [member(n, *healthy(), world=2, restart=1) for n in (0, 1)]
    report = report_on(*first, *again)
    assert [(row["rank"], row["restart"], row["steps"]) for row in report.facts["ranks"]] == [(0, 1, 40), (1, 1, 40)]
    assert (report.verdict, report.findings) == ("clean", [])
    (restart,) = report.facts["restarts"]
    assert (restart["rank"], restart["error"]) == (1, "OSError: disk is full")
    text = renderer_for("text").render(report, width=300)
    assert "the launcher started all ranks again" in text
    assert text.startswith("No cause found in 40 steps, but rank 1 had failed, and all ranks were started again")


def test_a_report_on_some_of_the_ranks_says_so() -> None:
    """A callback sees its own process, and `torchvet run` the ranks of its host."""
    report = report_on(member(1, *healthy(), world=2))
    text = renderer_for("text").render(report, width=100)
    assert text.startswith("No fault found in 40 steps on 1 of 2 ranks")
    assert "What was seen (rank 1)" in text and "1 of 2 ranks: " in text.partition("Not checked")[2]
    assert report.facts["absent_ranks"] == 1
    report = report_on(*(member(n, *healthy()) for n in (0, 3)))
    assert renderer_for("text").render(report, width=100).startswith("No fault found in 40 steps on 2 of 4 ranks")
    assert [gap.check for gap in report.not_checked] == ["2 of 4 ranks"]


def test_all_ranks_are_none_too_few() -> None:
    report = report_on(*(member(n, *healthy(), world=2) for n in (0, 1)))
    assert report.not_checked == [] and "absent_ranks" not in report.facts
    assert renderer_for("text").render(report, width=100).startswith("No fault found in 40 steps\n")


def test_findings_of_one_rank_stay_apart() -> None:
    two = [census(t, holding("losses", direct=1000 * t, sites=[site()]), holding("x", direct=700 * t)) for t in TICKS]
    both = [program(), steps(40), window(1, 2, 3), *two, outcome(40)]
    report = report_on(*(member(n, *both, world=2) for n in (0, 1)))
    assert {f.holder.name for f in report.findings if f.holder} == {"losses", "x"}


def test_a_program_of_one_process_has_no_ranks() -> None:
    report = diagnose(Recording([rank(*healthy())]))
    assert "ranks" not in report.facts and "ranks" not in report.subject
