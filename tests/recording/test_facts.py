"""What a report says besides its findings adds up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from handmade import census, holding, outcome, program, rank, steps, window

from torchvet.analysis import growth_of
from torchvet.analysis.facts import facts_of, overhead_of
from torchvet.probes.session.step_log import StepLog
from torchvet.recording import RecordingWriter, read
from torchvet.recording.records.base import Record, Step, StepKind
from torchvet.recording.records.training import CollectorUse, Host, Overhead


def facts(*records: object) -> dict[str, object]:
    one = rank(*records)  # type: ignore[arg-type]
    found = facts_of(one, growth_of(one))
    json.dumps(found)
    return found


def test_an_empty_recording_has_no_facts_that_were_made_up() -> None:
    found = facts()
    assert found.get("steps") == 0
    assert "peak" not in found and "growth" not in found and "phases" not in found


def test_steps_are_those_of_the_training_loop() -> None:
    found = facts(program(), steps(10), steps(30, "evaluation", start=11))
    assert (found["steps"], found["step_kinds"]) == (10, {"training": 10, "evaluation": 30})


@pytest.mark.parametrize("kinds", [["evaluation"], ["forward"], ["manual", "training"], ["backward", "evaluation"]])
def test_the_strongest_kind_is_counted(kinds: list[StepKind]) -> None:
    records = [s for i, kind in enumerate(kinds) for s in steps(5, kind, start=1 + 5 * i)]
    assert facts(program(), records)["steps"] == 5


def test_steps_before_a_restart_are_not_counted() -> None:
    found = facts(program(), steps(7, "backward"), steps(4, "training"))
    assert (found["steps"], found["step_kinds"]) == (4, {"training": 4})


def test_records_that_stand_for_many_steps_count_as_many() -> None:
    assert facts(program(), Step(n=1000, kind="training", t=1.0, count=1000))["steps"] == 1000


def test_phases_are_shares_of_one() -> None:
    shares = {"forward": 1.0, "backward": 2.0, "other": 1.0}
    found = facts(program(), [Step(n=n, kind="training", t=0.0, phases=shares) for n in (1, 2)])
    assert found["phases"] == {"forward": 0.25, "backward": 0.5, "forward and other": 0.25}


@pytest.mark.parametrize(("last", "data"), [(4, 0.25), (9, 0.75)])
def test_phases_leave_out_steps_whose_operators_were_noted_where_there_are_others(last: int, data: float) -> None:
    """A batch that is made by many small operators takes several times as long in them."""
    slow, plain = {"data": 27.0, "other": 6.0}, {"data": 1.0, "other": 3.0}
    noted = [Step(n=n, kind="training", t=0.0, phases=slow if n < 5 else plain) for n in (3, 4)]
    rest = [Step(n=n, kind="training", t=0.0, phases=plain) for n in (5, 6, 9)]
    rest[-1].count = 3
    found = facts(program(), noted, rest, window(1, 3, last))
    assert found["phases"]["data"] == pytest.approx(data, abs=0.06)


def test_the_peak_is_the_highest_windows() -> None:
    found = facts(program(), window(1, 1, 2, 100), window(2, 5, 6, 900), window(3, 9, 10, 300))
    assert found["peak"]["bytes"] == 900 and found["peak"]["sampled_steps"] == [5, 6]  # type: ignore[index]


def test_growth_says_how_much_of_it_has_a_name() -> None:
    records = [program(), steps(30), *(census(t, holding("losses", 100 * t)) for t in (10, 20, 30))]
    found = facts(*records)
    assert found["growth"] == {"bytes_per_step": 100.0, "explained_share": 1.0, "unexplained_bytes_per_step": 0.0}


def test_the_host_is_measured_from_the_second_look_to_the_last() -> None:
    looks = [Host(tick=t, resident=1000 + r, heap=None) for t, r in ((2, 0), (10, 500), (20, 600), (30, 700))]
    assert facts(program(), looks, outcome(30, "interrupt"))["host"] == {"resident_per_step": 10.0}
    assert "host" not in facts(program(), looks[:2])


def test_what_the_host_has_after_the_end_is_not_the_run() -> None:
    looks = [Host(tick=t, resident=1000 + r, heap=None) for t, r in ((2, 0), (10, 500), (20, 600), (30, 0))]
    assert facts(program(), looks, outcome(30))["host"] == {"resident_per_step": 10.0}
    assert facts(program(), looks, outcome(30, "interrupt"))["host"] == {"resident_per_step": -25.0}


def test_a_rate_of_the_host_goes_by_training_steps_and_not_by_ticks() -> None:
    """Three evaluation steps follow each training step, and stand between the looks as ticks."""
    ran = [Step(n=n, kind="evaluation" if n % 4 else "training", t=0.1 * n) for n in range(1, 41)]
    looks = [Host(tick=t, resident=1000 + r, heap=50 + r) for t, r in ((4, 0), (8, 0), (20, 300), (40, 800))]
    found = facts(program(), ran, looks, outcome(40, "interrupt"))
    assert found["host"] == {"resident_per_step": 100.0, "heap_per_step": 100.0}
    assert (found["steps"], found["step_kinds"]) == (10, {"training": 10, "evaluation": 30})


def test_the_host_before_steps_were_counted_anew_is_no_part_of_the_rate() -> None:
    """Forward passes are counted until the first optimizer step: their ticks are of another series."""
    before = [*steps(20, "forward"), *(Host(tick=t, resident=9 * t, heap=None) for t in (2, 10, 20))]
    after = [*steps(30), *(Host(tick=t, resident=1000 + 5 * t, heap=None) for t in (2, 10, 20, 30))]
    found = facts(program(), before, after, outcome(30, "interrupt"))
    assert found["host"] == {"resident_per_step": 5.0}
    assert (found["steps"], found["step_kinds"]) == (30, {"training": 30})


def test_looks_of_one_tick_give_no_rate() -> None:
    looks = [Host(tick=t, resident=1000, heap=None) for t in (2, 10, 10)]
    assert "host" not in facts(program(), steps(30), looks, outcome(30, "interrupt"))


def test_evaluation_steps_before_the_first_training_step_are_counted() -> None:
    """A baseline is evaluated first, or Lightning's sanity check runs: the clock starts anew with the training."""
    found = facts(program(), steps(6, "evaluation"), steps(20), steps(6, "evaluation", start=21))
    assert (found["steps"], found["step_kinds"]) == (20, {"training": 20, "evaluation": 12})


def test_passes_of_training_steps_counted_before_the_first_optimizer_step_are_not() -> None:
    found = facts(program(), steps(3, "forward"), steps(2, "backward"), steps(20))
    assert (found["steps"], found["step_kinds"]) == (20, {"training": 20})


def test_the_outcome_and_the_limit_are_said() -> None:
    found = facts(program(), outcome(5, "exception", error="ValueError: no"))
    assert found["outcome"] == {"how": "exception", "status": 0, "error": "ValueError: no"}
    assert found["memory_limit"] == {"bytes": 1 << 30, "source": "this machine's memory"}


def test_the_collector_is_summed() -> None:
    found = facts(program(), CollectorUse(collections=3, seconds=0.1), CollectorUse(collections=9, seconds=0.4))
    assert found["collector"] == {"collections": 9, "seconds": 0.4}


def test_overhead_is_a_ratio_of_with_to_without() -> None:
    one = rank(Overhead(elapsed=10.0, seconds={"boundaries": 0.25, "windows": 0.5, "censuses": 0.25}, sampled_steps=6))
    found = overhead_of(one)
    assert found["seconds"] == 1.0
    assert found["ratio"] == pytest.approx(10 / 9) and found["sampled_steps"] == 6


@pytest.mark.parametrize("record", [None, Overhead(elapsed=0.0, seconds={})])
def test_no_overhead_is_no_figure(record: Record | None) -> None:
    assert overhead_of(rank(*([record] if record else []))) == {}


def test_overhead_of_a_run_that_was_all_looking_is_finite() -> None:
    found = overhead_of(rank(Overhead(elapsed=1.0, seconds={"boundaries": 2.0})))
    assert found["ratio"] > 1


# Long runs share lines -----------------------------------------------------------------------------------------------


def logged(tmp_path: Path, kinds: list[StepKind]) -> list[Step]:
    writer = RecordingWriter(tmp_path / "run.vet")
    log = StepLog(writer, 0.0)
    for n, kind in enumerate(kinds, start=1):
        log.boundary(n, kind, 1, None)
    log.flush()
    writer.close()
    return read(tmp_path / "run.vet").ranks[0].all(Step)


def test_a_long_runs_lines_stay_few_and_count_every_step(tmp_path: Path) -> None:
    found = logged(tmp_path, ["training"] * 30_000)
    assert len(found) < 3500
    assert sum(s.count for s in found) == 30_000


def test_steps_that_share_a_line_keep_their_kind(tmp_path: Path) -> None:
    """Nine training steps and an evaluation batch in turn: after a thousand steps all would be evaluation."""
    found = logged(tmp_path, (["training"] * 9 + ["evaluation"]) * 300)
    training = sum(s.count for s in found if s.kind == "training")
    assert abs(training - 2700) <= 30
