"""DST103 in runs: the rank that the others wait for, its line, and the silence on chance and busy machines."""

from __future__ import annotations

import random
from typing import Any

import pytest
from handmade import FILE, evidence, outcome, program, rank, steps

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place
from torchvet.recording.records.ranks import Arrivals, Member, WaitedAt
from torchvet.recording.records.timing import LineTime, LineTimes, WorkerTimes
from torchvet.renderers import renderer_for
from torchvet.renderers.text_finding import measured

COUNT = 30
USUAL = {"data": 0.001, "other": 0.004, "backward": 0.004, "optimizer": 0.001}
BACKWARD, FORWARD, LOAD, HOOK = (Place(FILE, line, "main") for line in (9, 8, 7, 3))


def lists(value: Any) -> list[float]:
    return list(value) if isinstance(value, (list, tuple)) else [value] * COUNT


def arrivals(waited: Any, delayed: Any = 0.0, sizes: Any = 0, **own: Any) -> Arrivals:
    """One rank's steps: figures for all of them, or a list."""
    return Arrivals(
        steps=[*range(4, 4 + COUNT)],
        waited=lists(waited),
        own={phase: lists(own.get(phase, usual)) for phase, usual in USUAL.items()},  # type: ignore[misc]
        delayed=lists(delayed),
        sizes=lists(sizes) if sizes else [],  # type: ignore[arg-type]
        lines=[WaitedAt(place=BACKWARD, seconds=sum(lists(waited)) / COUNT)],
    )


def lines(*spent: tuple[Place, str, float]) -> LineTimes:
    """Seconds of a step by line."""
    found = [LineTime(place=p, seconds=s * 100, looks=40, steps=90, phase=f) for p, f, s in spent]  # type: ignore[arg-type]
    return LineTimes(seconds=6.0, steps=100, looks=200, interval=0.01, own=0.0, lines=found)


USUAL_LINES = ((LOAD, "data", 0.001), (FORWARD, "forward", 0.004))


def member(number: int, *records: Any, world: int = 2) -> RankRecording:
    one = rank(
        program(), Member(rank=number, world_size=world, host="a"), *(steps(40), *evidence(40), *records), outcome(40)
    )
    one.child = number + 1
    return one


def found_in(*ranks: RankRecording) -> Finding | None:
    report = diagnose(Recording(list(ranks)))
    renderer_for("text").render(report, width=100)
    return next((f for f in report.findings if f.code == "DST103"), None)


def late(**more: Any) -> Finding:
    """What is said of two ranks, the second of which takes longer."""
    others = lines(*USUAL_LINES, (BACKWARD, "backward", 0.054))
    spent = more.pop("spent", (HOOK, "backward", 0.05))
    mine = lines(*USUAL_LINES, (BACKWARD, "backward", 0.004), spent)
    found = found_in(member(0, arrivals(0.051, sizes=100), others), member(1, arrivals(0.001, sizes=100, **more), mine))
    assert found is not None
    return found


def test_the_rank_that_waits_for_nobody_is_named_with_its_line() -> None:
    found = late(backward=0.054)
    assert (found.rank, found.severity, found.location and found.location.line) == (1, "warning", 3)
    assert "rank 1 comes 50.0 ms late to the collectives of a step of 61.0 ms (82 %)" in found.message
    assert "backward pass takes 50.0 ms a step longer" in found.cause and "no other rank spends time" in found.cause
    assert "late in 30 of 30 steps" in found.cause and "only this rank does" in found.remedy.summary
    assert (found.related[0].role, found.related[0].line) == ("waits", 9)
    assert found.measured.seconds_per_step == pytest.approx(0.05) and found.measured.share == pytest.approx(
        0.82, abs=0.01
    )


def test_a_slow_loader_gets_advice_for_loaders() -> None:
    found = late(data=0.051, spent=(Place(FILE, 5, "__getitem__"), "data", 0.05))
    assert "loading takes 50.0 ms" in found.cause and "num_workers" in found.remedy.summary
    assert found.location is not None and found.location.line == 5


def test_a_slow_loader_with_workers_is_said_of_what_they_do() -> None:
    item = LineTime(place=Place(FILE, 5, "__getitem__"), seconds=9.0, looks=90, steps=90)
    work = WorkerTimes(workers=1, seconds=10.0, busy=9.0, lines=[item])
    found = found_in(
        member(0, arrivals(0.051), lines(*USUAL_LINES)),
        member(1, arrivals(0.001, data=0.051), lines((LOAD, "data", 0.051)), work),
    )
    assert found is not None and found.location is not None and found.location.line == 5


def test_larger_batches_of_one_rank_are_why_it_is_late() -> None:
    spent = (FORWARD, "forward", 0.05)
    found = found_in(
        member(0, arrivals(0.051, sizes=100), lines(*USUAL_LINES, (BACKWARD, "backward", 0.054))),
        member(1, arrivals(0.001, sizes=300, other=0.054), lines(spent)),
    )
    assert found is not None and "its batches have 3.0 times as many elements" in found.cause
    assert "as much to work on" in found.remedy.summary
    assert found.location is not None and found.location.line == 8


def test_of_larger_batches_the_line_that_loads_them_is_told() -> None:
    spent = ((FORWARD, "forward", 0.05), (LOAD, "data", 0.001))
    found = found_in(
        member(0, arrivals(0.051, sizes=100), lines(*USUAL_LINES, (BACKWARD, "backward", 0.054))),
        member(1, arrivals(0.001, sizes=300, other=0.054), lines(*spent)),
    )
    assert found is not None and ("loads", LOAD.line) in {(r.role, r.line) for r in found.related}


def test_what_a_late_rank_costs_is_of_a_step() -> None:
    found = late(data=0.051, spent=(Place(FILE, 5, "__getitem__"), "data", 0.05))
    assert "of the step's time" in measured(found.measured)


def called(line: int, callers: tuple[int, ...], seconds: float, phase: str = "other") -> LineTime:
    around = [Place(FILE, one, "main") for one in callers]
    return LineTime(
        place=Place(FILE, line, "f"), seconds=seconds * 100, looks=40, steps=90, phase=phase, callers=around,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize(("first", "line"), [(0.045, 31), (0.02, 20)], ids=["one line", "several below a call"])
def test_the_innermost_line_that_has_nearly_all_of_it_is_told(first: float, line: int) -> None:
    """Not the line from which the whole step is run."""
    below = [called(31, (20, 2), first), called(32, (20, 2), 0.05 - first), called(9, (2,), 0.004, "backward")]
    times = LineTimes(seconds=6.0, steps=100, looks=200, interval=0.01, own=0.0, lines=below)
    theirs = LineTimes(seconds=6.0, steps=100, looks=200, interval=0.01, own=0.0, lines=[below[-1]])
    found = found_in(member(0, arrivals(0.051), theirs), member(1, arrivals(0.001, other=0.054), times))
    assert found is not None and found.location is not None and found.location.line == line


def test_a_late_rank_none_of_whose_lines_takes_longer_is_told_without_one() -> None:
    """Lines are those of looks at some steps, lateness is measured in all: the two may disagree."""
    found = found_in(
        member(0, arrivals(0.051), lines((FORWARD, "forward", 0.02), (BACKWARD, "backward", 0.051))),
        member(1, arrivals(0.001, other=0.054), lines((FORWARD, "forward", 0.01))),
    )
    assert found is not None and found.rank == 1 and found.location is None


def test_without_lines_the_backward_pass_is_shown_where_the_others_wait() -> None:
    found = found_in(member(0, arrivals(0.051)), member(1, arrivals(0.001, backward=0.054)))
    assert found is not None and found.location is not None and found.location.line == 9
    assert "this line" not in found.cause


def test_of_four_ranks_the_late_one_is_named() -> None:
    ranks = [
        member(n, arrivals(0.021 if n != 2 else 0.001, other=0.004 if n != 2 else 0.024), world=4) for n in range(4)
    ]
    found = found_in(*ranks)
    assert found is not None and found.rank == 2 and "20.0 ms late" in found.message


def test_a_little_lateness_is_a_note_and_less_is_none() -> None:
    some = found_in(member(0, arrivals(0.0018)), member(1, arrivals(0.001, other=0.0048)))
    none = found_in(member(0, arrivals(0.0014)), member(1, arrivals(0.001, other=0.0044)))
    assert some is not None and some.severity == "info" and none is None


def test_two_milliseconds_are_a_note_however_short_the_step_is() -> None:
    """Two ranks of one busy machine differ by as much: 1.3 ms of 6.5 ms were seen of equal ones."""
    short, long = (
        found_in(member(0, arrivals(0.001 + late)), member(1, arrivals(0.001, other=0.004 + late)))
        for late in (0.002, 0.004)
    )
    assert short is not None and long is not None and (short.severity, long.severity) == ("info", "warning")


def test_a_rank_that_the_machine_held_up_is_not_late() -> None:
    assert found_in(member(0, arrivals(0.051)), member(1, arrivals(0.001, delayed=0.05))) is None


def test_waiting_that_no_rank_is_the_reason_of_is_nobodys() -> None:
    """Another process of the machine, or of the network: one waits longer, and nobody took longer."""
    assert found_in(member(0, arrivals(0.051)), member(1, arrivals(0.001))) is None


def test_chance_is_silent() -> None:
    """Both ranks take longer now and then, whoever it is."""
    draw = random.Random(1)
    for _ in range(50):
        own = [[0.004 + draw.expovariate(1 / 0.003) for _ in range(COUNT)] for _ in range(2)]
        waits = [[max(0.0, own[1 - r][n] - own[r][n]) for n in range(COUNT)] for r in range(2)]
        sizes = [[draw.choice((90, 100, 110)) for _ in range(COUNT)] for _ in range(2)]
        ranks = [member(r, arrivals(waits[r], other=own[r], sizes=sizes[r]), lines(*USUAL_LINES)) for r in range(2)]
        found = found_in(*ranks)
        assert found is None, found


def test_what_one_rank_does_now_and_then_is_found_by_its_line() -> None:
    often = [0.2 if n % 6 == 5 else 0.0 for n in range(COUNT)]
    waits, own = [0.001 + o for o in often], [0.004 + o for o in often]
    mine = lines(*USUAL_LINES, (HOOK, "other", 0.033))
    found = found_in(
        member(0, arrivals(waits), lines(*USUAL_LINES, (BACKWARD, "backward", 0.037))),
        member(1, arrivals(0.001, other=own), mine),
    )
    assert found is not None and "on the average" in found.message and "late in 5 of 30" in found.cause
    assert found.location is not None and found.location.line == 3
    nothing = found_in(
        member(0, arrivals(waits), lines(*USUAL_LINES, (BACKWARD, "backward", 0.037))),
        member(1, arrivals(0.001, other=own), lines(*USUAL_LINES)),
    )
    assert nothing is None, "no line of its own makes it late: an accident"


def in_turn(more: float, usual: float) -> Finding:
    """What is said of two ranks, each of which takes so much longer in every other step, for its larger batch."""
    long = [[n % 2 == r for n in range(COUNT)] for r in range(2)]
    ranks = [
        member(
            r,
            arrivals(
                [0.001 if one else 0.001 + more for one in long[r]],
                other=[usual + more if one else usual for one in long[r]],
                sizes=[500 if one else 100 for one in long[r]],
            ),
            lines(*USUAL_LINES),
        )
        for r in range(2)
    ]
    found = found_in(*ranks)
    assert found is not None and found.rank is None and "batches are of unequal size" in found.message
    return found


def test_batches_of_unequal_size_make_each_rank_late_in_turn() -> None:
    found = in_turn(0.02, usual=0.004)
    assert "20.0 ms of a step of 31.0 ms" in found.message and found.location is not None and found.location.line == 7
    assert found.severity == "warning"


def test_a_small_wait_for_batches_of_unequal_size_is_how_the_data_are() -> None:
    found = in_turn(0.004, usual=0.02)
    assert found.severity == "info" and found.measured.share == pytest.approx(0.13, abs=0.01)


def test_few_steps_or_a_rank_that_has_measured_nothing_say_nothing() -> None:
    few = arrivals(0.001, backward=0.054)
    few.steps = [*range(100, 100 + COUNT)]
    assert found_in(member(0, arrivals(0.051)), member(1, few)) is None, "none of the steps is the same"
    assert found_in(member(0, arrivals(0.051)), member(1)) is None
    assert found_in(member(0, arrivals(0.051))) is None
