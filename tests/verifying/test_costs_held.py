"""Faults of speed, by what their lines cost in two runs."""

from __future__ import annotations

import msgspec
import pytest
from handmade import outcome, recording, steps
from trials_by_hand import FILE, TEXT, finding, trial

from torchvet.analysis.costs import costs, worded
from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Location, Measured, Related
from torchvet.recording.records.base import Place
from torchvet.recording.records.crossing import Crossing
from torchvet.recording.records.verify import MadeAt, Reduced
from torchvet.verifying.lines import became
from torchvet.verifying.trial import trial_of
from torchvet.verifying.verdicts import judge, new_findings

WAITING = finding("OPS101", location=Location(path=FILE, line=4, function="f"))
AFTER = TEXT.replace("    total += loss\n", "    total += loss.detach()\n    total = float(total)\n")


@pytest.mark.parametrize(
    ("left", "milder", "why"),
    [
        ({}, False, ""),
        ({5: 2.0}, False, ""),
        ({5: 2.0, 1: 90.0}, True, ""),
        ({4: 2.0, 5: 3.0}, False, "its line still costs 5 waits for the device per step (before: 8 waits"),
    ],
)
def test_less_than_half_of_what_a_line_cost_is_left(left: dict[int, float], milder: bool, why: str) -> None:
    """Milder findings of its kind may remain: one wait in the place of many."""
    before = trial(WAITING, costs={"waits": {(FILE, 4): 8.0, (FILE, 1): 1.0}, "memory": {(FILE, 4): 1e9}})
    rest = [msgspec.structs.replace(WAITING, severity="info")] if milder else []
    after = trial(*rest, costs={"waits": {(FILE, n): v for n, v in left.items()}}, sources={FILE: AFTER})
    found = judge(WAITING, before, after, "waits")
    assert found.gone is not bool(why) and why in found.why
    assert found.before == "8 waits for the device per step"


def test_a_finding_as_grave_as_before_is_not_gone_however_little_it_costs() -> None:
    before = trial(WAITING, costs={"waits": {(FILE, 4): 8.0}})
    found = judge(WAITING, before, trial(WAITING), "waits")
    assert not found.gone and "still there: 0 waits" in found.why


SLOW = finding("OPS302", measured=Measured(seconds_per_step=0.010, share=0.5, steps=90))


@pytest.mark.parametrize(
    ("now", "left", "gone", "why"),
    [
        (0.011, False, True, ""),
        (0.016, False, False, "a step takes 16.0 ms (before: 20.0 ms), and 10.0 ms were to be saved"),
        (0.011, True, False, "still there: 10 ms per step"),
        (None, False, False, "too few steps were timed"),
    ],
)
def test_a_share_of_a_step_is_gone_where_the_whole_step_takes_less(
    now: float | None, left: bool, gone: bool, why: str
) -> None:
    after = trial(*([SLOW] if left else []), seconds_per_step=now)
    found = judge(SLOW, trial(SLOW, seconds_per_step=0.020), after)
    assert found.gone is gone and why in found.why


def test_a_line_that_takes_a_larger_share_of_a_quicker_step_is_no_new_fault() -> None:
    assert not [*new_findings(trial(), trial(SLOW))]
    assert [*new_findings(trial(), trial(WAITING))]
    # A wait for the device is a fault however its time is told.
    assert [*new_findings(trial(), trial(msgspec.structs.replace(WAITING, measured=SLOW.measured)))]


def test_a_fault_that_has_other_measures_is_not_judged_by_the_step() -> None:
    wide = finding("MEM204", measured=Measured(seconds_per_step=0.010, share=0.5))
    assert judge(wide, trial(wide, seconds_per_step=0.020), trial(seconds_per_step=0.020)).gone


def test_where_nothing_was_counted_findings_are_what_counts() -> None:
    assert judge(WAITING, trial(WAITING), trial(), "waits").after == "gone"
    assert not judge(WAITING, trial(WAITING), trial(WAITING), "waits").gone


def test_lines_that_run_with_a_finding_are_where_its_cost_is_counted() -> None:
    runs = Related(role="runs", message="model(x)", path=FILE, line=3)
    fault = msgspec.structs.replace(WAITING, code="DST105", related=[runs])
    before = trial(fault, costs={"reductions": {(FILE, 3): 4.0, (FILE, 4): 1.0}})
    found = judge(fault, before, trial(costs={"reductions": {(FILE, 3): 1.0}}), "reductions")
    assert found.gone and found.after == "1 average of gradients over all ranks per optimizer step"


def test_costs_are_those_of_the_totals_written_last() -> None:
    here, there = Place(FILE, 4, "f"), Place(FILE, 5, "f")
    made = recording(
        *steps(20),
        MadeAt(place=here, sampled=2, bytes=100), MadeAt(place=here, sampled=4, bytes=800, copied=200),
        Crossing(place=here, kind="wait", what="item()", sampled=4, calls=8, steps=4, waits=8, stalls=6),
        Crossing(place=there, kind="to device", what="to()", sampled=4, calls=4, steps=4, bytes=4000, waits=4),
        Reduced(place=there, passes=8, reduced=6, steps=2), Reduced(place=here, passes=3, reduced=3),
        outcome(20),
    )  # fmt: skip
    expected = {
        "memory": {(FILE, 4): 200.0}, "copies": {(FILE, 4): 50.0}, "waits": {(FILE, 4): 1.5},
        "transfers": {(FILE, 5): 1000.0}, "blocking copies": {(FILE, 5): 1.0}, "reductions": {(FILE, 5): 3.0},
    }  # fmt: skip
    assert costs(made.ranks[0]) == expected
    assert trial_of(made, diagnose(made), outcome(20)).costs == expected


@pytest.mark.parametrize(
    ("kind", "amount", "words"),
    [
        ("transfers", 2e6, "2.0 MB copied to the device per step"),
        ("memory", 0.0, "0 bytes of new tensors per step"),
        ("waits", 1.0, "1 wait for the device per step"),
        ("blocking copies", 2.5, "2.5 copies to the device per step that the host waits for"),
    ],
)
def test_amounts_in_words(kind: str, amount: float, words: str) -> None:
    assert worded(kind, amount) == words


OLD = "for x in data:\n    mask = torch.ones(4)\n    y = f(x).contiguous()\n    z = y * mask\n    total += z.item()\n"
NEW = (
    "mask = torch.ones(4)\nfor x in data:\n    with held:\n        y = f(x)\n        z = y * mask\n"
    "    total += z\n    total = float(total)\n"
)


@pytest.mark.parametrize(("line", "lines"), [(1, {2}), (2, {3}), (3, {3, 4}), (4, {5}), (5, {6, 7})])
def test_lines_in_the_place_of_changed_ones(line: int, lines: set[int]) -> None:
    """A line that is gone became what is new in its place and nothing that another became."""
    assert became(OLD, NEW, line) == lines
    assert became(OLD, OLD, line) == {line} and became(OLD, "", line) == set()
