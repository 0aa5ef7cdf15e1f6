"""Programs of several ranks: one report, what ranks have in common said once, and who stands out."""

from __future__ import annotations

from typing import Any

import msgspec
from handmade import census, evidence, holding, outcome, program, rank, site, steps, window

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding, Report
from torchvet.formatting import rank_names
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.ranks import Absent, Member
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


def test_a_process_that_joins_no_group_is_alone_whatever_its_variables_say() -> None:
    assert report_on(member(1, *healthy(), world=2)).verdict == "clean"


def test_a_report_on_some_of_the_ranks_is_not_clean() -> None:
    """A watch sees its own process, and `torchvet run` the ranks of its host."""
    report = report_on(member(1, *healthy(), world=2, backend="gloo"))
    text = renderer_for("text").render(report, width=200)
    start = "Could not judge: no fault was found on 1 of 2 ranks, and nothing is known of 1 other rank: "
    assert report.verdict == "undetermined" and text.startswith(start)
    assert "What was seen (rank 1)" in text and "1 other rank: " in text.partition("Not checked")[2]
    assert report.facts["absent_ranks"] == 1
    report = report_on(*(member(n, *healthy()) for n in (0, 3)))
    text = renderer_for("text").render(report, width=200)
    assert text.startswith(
        "Could not judge: no fault was found on 2 of 4 ranks, and nothing is known of 2 other ranks: "
    )
    assert [gap.check for gap in report.not_checked] == ["2 other ranks"]


def test_a_fault_of_some_ranks_says_nothing_of_those_that_are_missing() -> None:
    report = report_on(*(member(n, *leaky(1000)) for n in (0, 1)))
    assert (report.verdict, the_leak(report).rank, the_leak(report).ranks) == ("findings", 0, [0, 1])
    assert "; nothing is known of 2 of 4 ranks\n" in renderer_for("text").render(report, width=300)
    report = report_on(member(0, *leaky(1000), ABSENT), member(1, *leaky(1000)))
    assert "; nothing is known of ranks 2, 3\n" in renderer_for("text").render(report, width=300)


def test_without_notice_a_fake_group_has_no_other_ranks() -> None:
    report = report_on(member(0, *healthy(), world=2, backend="fake"))
    assert report.verdict == "clean" and "absent_ranks" not in report.facts


def test_all_ranks_are_none_too_few() -> None:
    report = report_on(*(member(n, *healthy(), world=2) for n in (0, 1)))
    assert report.not_checked == [] and "absent_ranks" not in report.facts
    assert renderer_for("text").render(report, width=100).startswith("No fault found in 40 steps\n")


def test_findings_of_one_rank_stay_apart() -> None:
    two = [census(t, holding("losses", direct=1000 * t, sites=[site()]), holding("x", direct=700 * t)) for t in TICKS]
    both = [program(), steps(40), window(1, 2, 3), *two, outcome(40)]
    report = report_on(*(member(n, *both, world=2) for n in (0, 1)))
    assert {f.holder.name for f in report.findings if f.holder} == {"losses", "x"}


ABSENT = Absent(ranks=[2, 3], reason="node 1: no records came within 30 s")


def test_a_run_whose_other_hosts_are_unknown_is_not_clean() -> None:
    assert report_on(*(member(n, *healthy()) for n in range(4))).verdict == "clean"
    # Neither of the two shows enough of itself: what is not here at all comes first.
    report = report_on(member(0, *healthy(5), ABSENT), member(1, *healthy(5)))
    assert (report.verdict, report.facts["absent"]) == ("undetermined", [{"ranks": [2, 3], "reason": ABSENT.reason}])
    assert ("ranks 2, 3", ABSENT.reason) in [(one.check, one.reason) for one in report.not_checked]
    text = renderer_for("text").render(report, width=200)
    assert text.startswith("Could not judge: nothing is known of ranks 2, 3: node 1: no records came within 30 s")
    assert "missing      ranks 2, 3: node 1" in text


def test_one_rank_of_a_host_misses_the_others_too() -> None:
    report = report_on(member(0, *healthy(), Absent(ranks=[1], reason="node 1: it died"), world=2))
    assert report.verdict == "undetermined" and report.facts["absent"][0]["ranks"] == [1]
    start = "Could not judge: no fault was found on 1 of 2 ranks, and nothing is known of rank 1: node 1: it died"
    assert renderer_for("text").render(report, width=200).startswith(start)


def test_a_failure_may_have_its_cause_on_an_unknown_host() -> None:
    broken = msgspec.structs.replace(outcome(17), how="exception", status=1, error="connection closed")
    report = report_on(member(0, *healthy(17)[:-1], broken, ABSENT), member(1, *healthy(17)[:-1], broken))
    assert "connection closed; nothing is known of ranks 2, 3" in renderer_for("text").render(report, width=300)


def test_a_fault_of_all_ranks_that_are_known_is_not_one_of_all() -> None:
    report = report_on(member(0, *leaky(1000), ABSENT), member(1, *leaky(1000)))
    assert (the_leak(report).rank, the_leak(report).ranks) == (0, [0, 1])
    assert "observed, ranks 0, 1" in renderer_for("text").render(report, width=100)


def test_ranks_that_came_after_all_are_not_missing() -> None:
    """`--record` on a shared file system: the others' records are there once the report is made again."""
    report = report_on(member(0, *healthy(), ABSENT), *(member(n, *healthy()) for n in (1, 2, 3)))
    assert report.verdict == "clean" and "absent" not in report.facts


def test_of_ranks_that_several_miss_each_is_missing_once() -> None:
    """Ranks that each watch themselves, in one folder: each has written down whom it did not reach."""
    alone = [member(n, *healthy(), Absent(ranks=[r for r in (0, 1, 2) if r != n], reason="x"), world=3) for n in (0, 1)]
    assert report_on(*alone).facts["absent"] == [{"ranks": [2], "reason": "x"}]


def test_each_host_counts_its_own_restarts() -> None:
    """A launcher that only waited for another's to come back has not restarted anything by its own count."""
    here = [member(n, *healthy()) for n in (0, 1)]
    there = [
        msgspec.structs.replace(m, host="b", restart=1)
        for m in (Member(rank=n, world_size=4, host="a") for n in (2, 3))
    ]
    report = report_on(*here, *(rank(m, *healthy(), number=m.rank) for m in there))
    assert [row["rank"] for row in report.facts["ranks"]] == [0, 1, 2, 3] and "restarts" not in report.facts


def test_ranks_are_named_in_few_words() -> None:
    assert [rank_names(r) for r in ([3], [0, 2], [3, 2], [8, 9, 10, 1])] == [
        "rank 3", "ranks 0, 2", "ranks 2, 3", "ranks 1, 8-10",
    ]  # fmt: skip


def test_a_program_of_one_process_has_no_ranks() -> None:
    report = diagnose(Recording([rank(*healthy())]))
    assert "ranks" not in report.facts and "ranks" not in report.subject
