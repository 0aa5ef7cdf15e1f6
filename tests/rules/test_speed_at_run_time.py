"""What rules of speed say of the clock of lines: the line, the figures, and silence where it does not matter."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from observed_fixes import FILE, HEAD, fixed_lines

from torchvet.analysis.host_work import HostWork
from torchvet.analysis.line_times import operators_of, timing_of
from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import About, Finding, Related
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place, Program, Record, Source
from torchvet.recording.records.timing import (
    LineOperations,
    LineTime,
    LineTimes,
    OperatorsAt,
    PrefixComputedAgain,
    RowsOneByOne,
    SlidingWindow,
    UpdateTimes,
    WorkerStarts,
    WorkerTimes,
)

PATH = "/home/user/train.py"
TEXT = """import copy, gc, time
import numpy as np
import torch
from torch import nn
class Images:
    def __getitem__(self, index):
        return np.sort(self.data[index])
def validate(model):
    return model(X)
def train(model, optimizer, loader):
    for x in loader:
        loss = model(x)
        loss.backward()
        optimizer.step()
        best = copy.deepcopy(model)
        time.sleep(0.01)
        total = [i * i for i in range(9)]
        for i in range(len(x)):
            score += x[i]
        seen = torch.cat([seen, x])
        validate(model)
        gc.collect()
"""
TRAIN = "train"


def at(line: int, function: str = TRAIN) -> Place:
    return Place(PATH, line, function)


def spent(seconds: float, line: int, *callers: Place, function: str = TRAIN, steps: int = 80, **more: Any) -> LineTime:
    place = at(line, function)
    return LineTime(place=place, seconds=seconds, looks=80, steps=steps, callers=list(callers), **more)


def span(line: int, text: str) -> tuple[int, int, int, int]:
    start = TEXT.splitlines()[line - 1].index(text)
    return line, start, line, start + len(text)


STEP = [spent(1.0, 13, phase="backward"), spent(0.5, 14, phase="optimizer"), spent(0.5, 12, phase="forward")]


def recorded(
    *lines: LineTime, steps: int = 100, more: tuple[Record, ...] = (), text: str = "", **program: Any
) -> Recording:
    every = [*STEP, *lines]
    times = LineTimes(
        seconds=sum(x.seconds for x in every), steps=steps, looks=400, interval=0.01, own=0.0, lines=every
    )
    ran = Program(
        argv=[], path=PATH, cwd="", python="3.11", torch="2.13.0", device="cpu", started=0.0, pid=1, **program
    )
    return Recording([RankRecording(0, [ran, Source(path=PATH, text=text or TEXT), times, *more])])


def found(recording: Recording, code: str) -> list[Finding]:
    return [f for f in diagnose(recording, select=[code]).findings if f.code == code]


def test_an_evaluation_is_what_a_program_without_training_is_there_for() -> None:
    line = spent(2.0, 9, at(21), function="validate", phase="forward")
    assert found(recorded(line), "OPS304")
    recording = recorded(line)
    (times,) = recording.ranks[0].all(LineTimes)
    times.lines = [one for one in times.lines if one.phase == "forward"]
    assert not found(recording, "OPS304")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (spent(2.0, 16, span=span(16, "time.sleep(0.01)")), "sleep"),
        (spent(2.0, 15, calls="copy.deepcopy", kinds=["copy"]), "copy"),
        (spent(2.0, 17), "python"),
        (spent(2.0, 7, at(21), function="other", span=span(7, "np.sort(self.data[index])")), "array"),
        (spent(2.0, 9, at(21), function="validate", phase="forward"), "evaluation"),
        (spent(2.0, 12, calls="torch.nn.functional.mse_loss"), ""),
        (spent(2.0, 14, phase="optimizer"), ""),
        (spent(2.0, 7, at(11), function="Images.__getitem__", phase="data", stage="item"), "data"),
    ],
)
def test_the_kind_of_work_is_told_by_what_ran_below_and_by_names(line: LineTime, kind: str) -> None:
    rank = recorded(line).ranks[0]
    timing = timing_of(rank)
    assert timing is not None
    assert HostWork(timing, {}).kind(line) == kind


ROLLOUT = """def train(model, optimizer, data):
    for x in data:
        best = 0
        ids = model.generate(x)
        seen.append(ids.sum())
        rewards = judged(ids)
        loss = (model(ids) * rewards).mean()
        optimizer.zero_grad()
        if best:
            loss = loss + 1


        loss.backward()
        optimizer.step()
        loss, score = model.score(x)
        score.best = max(best, score)
        x, ids = model.generate(x), 0


def collect(model, optimizer, rollouts, data):
    for x in data:
        rollouts.update(model.generate(x))
        fabric.log("made", model.generate(x))
        loss = (model(x) * rollouts.rewards).mean()
        fabric.backward(loss)
        optimizer.step()
"""


EVALUATED = """def train(model, optimizer, data):
    for x in data:
        with torch.autocast("cpu"):
            loss = model(x).mean()
        loss.backward()
        optimizer.step()
        model.score = model.evaluate(x)
        loss = model.evaluate(x)
"""


@pytest.mark.parametrize("line", [7, 8])
def test_an_evaluation_whose_result_has_the_losses_name_is_one(line: int) -> None:
    """The loss is made anew in the next step, under `with`; another object's attribute is not the object."""
    backward = spent(1.0, 5, phase="backward")
    quiet = spent(2.0, 90, at(line), function="Model.evaluate", phase="forward", quiet=True)
    timing = timing_of(recorded(quiet, backward, text=EVALUATED).ranks[0])
    assert timing is not None
    assert HostWork(timing, {}).kind(quiet) == "evaluation"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (4, ""),
        # The name that the loss has is given another value before.
        (15, "evaluation"),
        # What is made here is given another value in the next step.
        (17, "evaluation"),
        # Put by a method into what the loss is made of; handed to what writes it down.
        (22, ""),
        (23, "evaluation"),
    ],
)
def test_what_the_loss_is_made_of_is_no_evaluation(line: int, kind: str) -> None:
    function = "train" if line < 20 else "collect"
    backward = spent(1.0, 13 if line < 20 else 25, phase="backward", function=function)
    quiet = spent(2.0, 90, at(line, function), function="Model.generate", phase="forward", quiet=True)
    timing = timing_of(recorded(quiet, backward, text=ROLLOUT).ranks[0])
    assert timing is not None
    assert HostWork(timing, {}).kind(quiet) == kind


def test_one_time_is_told_once() -> None:
    # An evaluation that makes texts without a cache, and prints a while: 20 ms and 10 ms of a step.
    again = PrefixComputedAgain(
        id=0, place=at(90, "validate"), module="Model", row=21, calls=210, columns=6000, again=5790, steps=10,
        sampled=10, compared=180, same=180, timed=1800, seconds=1.6, saved=1.2,
    )  # fmt: skip
    lines = [
        spent(2.0, 9, at(90, "validate"), at(21), function="Model.forward", phase="forward"),
        spent(1.0, 91, at(21), function="validate", kinds=["log"]),
    ]
    report = diagnose(recorded(*lines, more=(again,)), select=["OPS304", "OPS317"])
    told = {finding.code: finding.message for finding in report.findings}
    assert "15.0 ms" in told["OPS317"]
    assert told["OPS304"] == "an evaluation takes 10.0 ms of a step of 50.0 ms (20 %)"
    assert "30.0 ms" in found(recorded(*lines), "OPS304")[0].message


def test_a_line_that_runs_operators_is_no_work_beside_the_model() -> None:
    operations = LineOperations(sampled=4, lines=[OperatorsAt(place=at(17), count=40)])
    recording = recorded(spent(2.0, 17), more=(operations,))
    timing = timing_of(recording.ranks[0])
    assert timing is not None
    assert not HostWork(timing, operators_of(recording.ranks[0])[1]).works()


def test_a_pause_in_each_step_is_named_with_its_figures() -> None:
    (finding,) = found(recorded(spent(2.0, 16, span=span(16, "time.sleep(0.01)"))), "OPS304")
    assert finding.location is not None
    assert (finding.severity, finding.location.line) == ("warning", 16)
    assert finding.message == "sleeping takes 20.0 ms of a step of 40.0 ms (50 %)"
    assert "20.0 ms at the least, 2.0 times faster at most" in finding.cause
    assert (finding.measured.seconds_per_step, finding.measured.share) == (pytest.approx(0.02), pytest.approx(0.5))


def test_what_takes_little_of_a_small_program_is_no_warning() -> None:
    # As large a part of the step, and a thousandth of a second.
    small = recorded(spent(2.0, 16, span=span(16, "time.sleep(0.01)")), steps=4000)
    assert [f.severity for f in found(small, "OPS304")] == ["info"]
    assert not found(recorded(spent(0.05, 16, span=span(16, "time.sleep(0.01)"))), "OPS304")


def test_what_one_step_in_many_does_is_no_warning() -> None:
    rare = spent(2.0, 15, calls="torch.serialization.save", kinds=["save"], steps=1)
    (finding,) = found(recorded(rare), "OPS304")
    assert (finding.severity, "one of 100 steps" in finding.message) == ("info", True)


@pytest.mark.parametrize(("looks", "steps", "told"), [(20, 18, False), (20, 14, False), (20, 6, True), (30, 3, True)])
def test_steps_are_few_only_where_looks_come_together_in_them(looks: int, steps: int, told: bool) -> None:
    """On a busy machine a line that each step has is seen in few of them, and each look stands for a long time."""
    line = spent(2.0, 15, calls="torch.serialization.save", kinds=["save"])
    line.looks, line.steps = looks, steps
    (finding,) = found(recorded(line), "OPS304")
    assert ("in about one of" in finding.message) is told


def test_a_simulated_cards_time_is_no_finding() -> None:
    assert not found(recorded(spent(2.0, 16, span=span(16, "time.sleep(0.01)")), simulated="l4"), "OPS304")


def test_a_wait_for_batches_names_the_line_of_the_dataset_and_the_loop() -> None:
    item = spent(4.0, 7, at(11), function="Images.__getitem__", phase="data", stage="item")
    (finding,) = found(recorded(item, spent(0.5, 11, phase="data", stage="collate")), "OPS301")
    assert finding.location is not None
    assert (finding.severity, finding.location.line) == ("warning", 7)
    assert "waits for its batch for 45.0 ms of a step of 65.0 ms (69 %)" in finding.message
    assert "np.sort(self.data[index])" in finding.message
    assert [r.line for r in finding.related] == [11]
    assert "num_workers=0" in finding.cause


def test_a_librarys_dataset_is_a_warning_only_where_it_takes_long() -> None:
    usual = spent(2.5, 11, phase="data", stage="item")
    assert [f.severity for f in found(recorded(usual), "OPS301")] == ["info"]
    assert [f.severity for f in found(recorded(spent(4.5, 11, phase="data", stage="item")), "OPS301")] == ["warning"]


def test_workers_that_are_started_again_and_again_are_told() -> None:
    parts = [spent(2.0, 11, phase="data", stage="start"), spent(1.0, 11, phase="data", stage="end")]
    (finding,) = found(recorded(*parts, spent(1.0, 11, phase="data", stage="wait")), "OPS301")
    assert "workers are started" in finding.cause
    assert "persistent_workers=True" in finding.remedy.summary


@pytest.mark.parametrize(("starts", "first", "told"), [(20, 3.0, True), (2, 3.0, False), (20, 1.0, False)])
def test_workers_whose_first_batches_are_waited_for_are_started_anew(starts: int, first: float, told: bool) -> None:
    parts = spent(4.0, 11, phase="data", stage="wait"), spent(1.0, 11, phase="data", stage="end")
    seen = WorkerStarts(place=at(11), workers=2, made=at(4), starts=starts, seconds=4.0, first=first)
    (finding,) = found(recorded(*parts, more=(seen,)), "OPS301")
    assert ("persistent_workers=True" in finding.remedy.summary) is told
    if told:
        assert "a loader starts 2 workers anew 20 times" in finding.message and finding.severity == "warning"
        # Three fourths of the wait, and all of the ends.
        assert "40.0 ms of a step of 70.0 ms (57 %)" in finding.message
        assert "150.0 ms: 75 % of what all batches" in finding.cause
        assert [(one.role, one.line) for one in finding.related] == [("made", 4)]


def test_workers_that_are_waited_for_show_the_line_that_takes_their_time() -> None:
    item = spent(9.0, 7, at(11), function="Images.__getitem__", phase="data", stage="item")
    other = spent(1.0, 6, at(11), function="Images.__getitem__", phase="data", stage="item")
    workers = WorkerTimes(workers=2, seconds=20.0, busy=10.0, lines=[item, other])
    (finding,) = found(recorded(spent(4.0, 11, phase="data", stage="wait"), more=(workers,)), "OPS301")
    assert finding.location is not None
    assert finding.location.line == 7
    assert "make batches for 50 % of their time" in finding.cause
    # Where a library makes the items, the innermost line of the user's is the loop, in a forked worker as well.
    library = WorkerTimes(workers=2, seconds=20.0, busy=10.0, lines=[spent(9.0, 11, phase="data", stage="item")])
    (finding,) = found(recorded(spent(4.0, 11, phase="data", stage="wait"), more=(library,)), "OPS301")
    assert "most of it" not in finding.message


def test_a_dataset_whose_statements_share_the_wait_is_named_by_the_largest() -> None:
    def item(seconds: float, line: int) -> LineTime:
        return spent(seconds, line, at(11), function="Images.__getitem__", phase="data", stage="item")

    (finding,) = found(recorded(item(1.5, 6), item(1.7, 7), spent(0.5, 11, phase="data", stage="collate")), "OPS301")
    assert finding.location is not None and finding.location.line == 7
    assert "most of it in Images.__getitem__" in finding.message


def test_items_of_a_librarys_dataset_are_to_be_indexed_by_batch() -> None:
    (finding,) = found(recorded(spent(4.0, 11, phase="data", stage="item")), "OPS301")
    assert finding.location is not None
    assert finding.location.line == 11 and "batch_size=None" in finding.remedy.summary


def test_rows_that_are_read_one_by_one_are_graded_by_what_one_index_saves() -> None:
    wait = spent(2.0, 11, phase="data", stage="item"), spent(1.0, 11, phase="data", kinds=["collect"])
    rows = RowsOneByOne(place=at(11), rows=256, tensors=2, each=0.010, at_once=0.001)
    recording = recorded(*wait, spent(3.0, 15, phase="backward"), more=(rows,))
    (finding,) = found(recording, "OPS301")
    # Nine tenths of the wait, and of the collections that run for the objects of single rows.
    assert finding.severity == "warning" and "27.0 ms of a step of" in finding.message
    assert "10.0 ms for 256 rows" in finding.cause and "1.0 ms for the same rows" in finding.cause
    assert not found(recording, "OPS302")
    # Rows that are long take as long both ways.
    slow = RowsOneByOne(place=at(11), rows=256, tensors=2, each=0.010, at_once=0.008)
    assert [f.severity for f in found(recorded(*wait, more=(slow,)), "OPS301")] == ["info"]
    (finding,) = found(
        recorded(*wait, more=(RowsOneByOne(place=at(11), rows=2, tensors=1, each=1.0, at_once=1.0),)), "OPS301"
    )
    assert "waits for its batch" in finding.message


def test_a_collection_that_is_called_for_is_named() -> None:
    recording = recorded(spent(2.0, 22, kinds=["collect"], span=span(22, "gc.collect()")))
    (finding,) = found(recording, "OPS302")
    assert finding.location is not None
    assert (finding.location.line, finding.severity) == (22, "warning")
    assert not found(recording, "OPS304")


def test_automatic_collections_are_summed_over_the_lines_on_which_they_came() -> None:
    (finding,) = found(recorded(*(spent(1.0, line, kinds=["collect"]) for line in (13, 15, 19))), "OPS302")
    assert finding.location is None
    assert finding.message == "automatic collections of garbage take 30.0 ms of a step of 50.0 ms (60 %)"


def test_a_loop_over_elements_is_one_by_what_it_reads_and_takes() -> None:
    reads = LineOperations(sampled=4, lines=[OperatorsAt(place=at(19), count=4000, reads=2000)])
    (finding,) = found(recorded(spent(2.0, 19), more=(reads,)), "OPS205")
    assert finding.location is not None
    assert (finding.location.line, finding.severity) == (19, "warning")
    assert [(one.role, one.line) for one in finding.related if one.role == "loop"] == [("loop", 18)]
    # In the training's own loop only its line is meant.
    training = LineOperations(sampled=4, lines=[OperatorsAt(place=at(17), count=4000, reads=2000)])
    (finding,) = found(recorded(spent(2.0, 17), more=(training,)), "OPS205")
    assert finding.measured.share == pytest.approx(0.5)
    few = LineOperations(sampled=4, lines=[OperatorsAt(place=at(19), count=4000, reads=40)])
    assert not found(recorded(spent(2.0, 19), more=(few,)), "OPS205")


def over_elements(monkeypatch: pytest.MonkeyPatch, head: str, body: str, **more: Any) -> list[Finding]:
    """What is found where a loop's head goes through a tensor and its body takes the time."""
    text = TEXT.replace("for i in range(len(x)):", head).replace("score += x[i]", body)
    monkeypatch.setattr(sys.modules[__name__], "TEXT", text)
    lines = [OperatorsAt(place=at(18), count=8000, reads=8000), OperatorsAt(place=at(19), count=9000, **more)]
    return found(recorded(spent(2.0, 19), more=(LineOperations(sampled=4, lines=lines),)), "OPS205")


def test_a_loop_that_goes_through_a_tensor_takes_the_time_of_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = over_elements(monkeypatch, "for w in x.flatten():", "score = score + w.abs()")
    assert finding.location is not None and (finding.location.line, finding.severity) == (19, "warning")
    assert [one.line for one in finding.related if one.role == "loop"] == [18]


def test_a_state_of_two_parts_that_is_carried_over_is_a_recurrence(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = over_elements(monkeypatch, "for frame in x:", "h, c = advance(frame, (h, c))")
    assert finding.severity == "info"


def test_a_loop_over_rows_that_calls_a_module_is_none_over_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not over_elements(monkeypatch, "for row in x:", "score.append(model(row))", modules=True)


def test_of_loops_in_loops_over_elements_the_inner_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXT.replace(
        "        seen = torch", "            for one in row:\n                score += one\n        seen = torch"
    )
    monkeypatch.setattr(sys.modules[__name__], "TEXT", text)
    lines = [OperatorsAt(place=at(n), count=8000, reads=8000) for n in (18, 20)]
    lines.append(OperatorsAt(place=at(21), count=8000))
    seen = recorded(spent(1.0, 18), spent(2.0, 21), more=(LineOperations(sampled=4, lines=lines),))
    (finding,) = found(seen, "OPS205")
    assert finding.location is not None and finding.location.line == 21


def test_what_python_does_without_operators_is_no_work_on_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXT.replace("for i in range(len(x)):", "for row in x:").replace("score += x[i]", "decode(row.tolist())")
    monkeypatch.setattr(sys.modules[__name__], "TEXT", text)
    reads = LineOperations(sampled=4, lines=[OperatorsAt(place=at(18), count=8000, reads=8000)])
    assert not found(recorded(spent(2.0, 19), more=(reads,)), "OPS205")


def test_a_recurrence_has_no_form_over_whole_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "TEXT", TEXT.replace("score += x[i]", "x[i] = x[i - 1] * 2"))
    reads = LineOperations(sampled=4, lines=[OperatorsAt(place=at(19), count=4000, reads=2000)])
    (finding,) = found(recorded(spent(2.0, 19), more=(reads,)), "OPS205")
    assert finding.severity == "info" and "a turn of the loop needs what another has written" in finding.cause


@pytest.mark.parametrize(("sizes", "grows"), [([1, 2, 3, 4], True), ([4, 4, 4, 4], False), ([1, 2, 3, 2], False)])
def test_a_joined_tensor_that_grows_is_seen(sizes: list[int], grows: bool) -> None:
    joined = [size << 20 for size in sizes]
    operations = LineOperations(
        sampled=4, lines=[OperatorsAt(place=at(20), count=4, joined=joined, ticks=[1, 2, 8, 9])]
    )
    assert bool(found(recorded(spent(2.0, 20), more=(operations,)), "OPS204")) is grows


def test_a_line_that_computes_what_it_appends_is_not_all_copying() -> None:
    seen = OperatorsAt(place=at(20), count=90, joined=[16, 20, 40, 44], ticks=[4, 5, 10, 11])
    assert not found(recorded(spent(2.0, 20), more=(LineOperations(sampled=4, lines=[seen]),)), "OPS204")


def window(**other: Any) -> SlidingWindow:
    """A window of which 90 % of the line's time is the copying, a hundred times in a step."""
    usual = {"copies": 400, "made": 404, "seconds": 0.9, "all": 1.0, "bytes": 1 << 20, "steps": 4, "operator": "cat"}
    return SlidingWindow(id=0, place=at(20), **{**usual, **other})


@pytest.mark.parametrize(
    ("seen", "counts"), [({}, True), ({"grown": 12}, False), ({"grown_read": 396}, False), ({"seconds": 0.01}, False)]
)
def test_a_tensor_that_grows_within_a_step_is_joined_once(seen: dict[str, Any], counts: bool) -> None:
    usual = {"copies": 0, "grown": 400, "grown_read": 4, "graph": 400}
    every = found(recorded(spent(2.0, 20), more=(window(**{**usual, **seen}),)), "OPS204")
    assert bool(every) is counts
    for finding in every:
        # Of a hundred copies a list joined once takes two.
        assert finding.message == (
            "a tensor that grows to 1.0 MB is copied whole 100 times in a step: 17.6 ms of a step of 40.0 ms (44 %)"
        )
        assert "join it once" in finding.remedy.summary


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        ({}, "stack them once when they are read; or write row i at i % n"),
        ({"graph": 400}, "stack them once when they are read"),
        ({"read": 400}, "twice its rows"),
        ({"operator": "roll"}, "stack them once"),
        ({"graph": 400, "read": 400}, ""),
        ({"kept": 400}, ""),
        ({"copies": 40}, ""),
        ({"copies": 2, "made": 2}, ""),
        ({"seconds": 0.004, "all": 0.005}, ""),
    ],
    ids=["rarely read", "with a graph", "read each time", "rolled", "read with a graph", "kept", "seldom moved", "seen"
         " too seldom", "small"],
)  # fmt: skip
def test_a_window_that_is_copied_for_each_row_has_the_remedy_of_its_use(seen: dict[str, Any], says: str) -> None:
    every = found(recorded(spent(2.0, 20), more=(window(**seen),)), "OPS204")
    assert bool(every) is bool(says)
    for finding in every:
        assert finding.location is not None and (finding.location.line, finding.severity) == (20, "warning")
        assert says in finding.remedy.summary and "grows" not in finding.message
        assert ("i % n" in finding.remedy.summary) is not bool(seen.get("graph"))
        assert finding.message == (
            "a window of 1.0 MB is copied whole for each new row, 100 times in a step: "
            "18.0 ms of a step of 40.0 ms (45 %)"
        )
        assert finding.measured.share == pytest.approx(0.9 * 0.5)
        # More is saved than the line takes: no bound is promised.
        assert "would take 22.0 ms or less: " in finding.cause and "at most" not in finding.cause


def test_a_window_that_is_read_now_and_then_is_stacked_as_often() -> None:
    (finding,) = found(recorded(spent(2.0, 20), more=(window(graph=400, read=100),)), "OPS204")
    assert finding.measured.share == pytest.approx(0.9 * 0.5 * 0.75)
    (finding,) = found(recorded(spent(2.0, 20), more=(window(copies=4, made=4, seconds=0.09, all=0.1),)), "OPS204")
    assert "for each new row, once in a step: " in finding.message


def test_the_report_has_the_lines_as_facts() -> None:
    report = diagnose(recorded(spent(2.0, 16, span=span(16, "time.sleep(0.01)"))))
    first = report.facts["time"]["lines"][0]
    assert (first["line"], first["code"], first["work"]) == (16, "time.sleep(0.01)", "sleep")
    assert first["seconds_per_step"] == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("seconds", "beside", "severity"), [(1.1, 0.0, "warning"), (0.9, 0.0, "info"), (1.1, 2.0, "info")]
)
def test_a_warning_needs_a_fourth_of_the_step_and_a_second_of_the_run(
    seconds: float, beside: float, severity: str
) -> None:
    """A demonstration of a few seconds is not slow, whatever its steps wait for."""
    slept = spent(seconds, 16, span=span(16, "time.sleep(0.01)"))
    (finding,) = found(recorded(slept, spent(beside, 13, phase="backward")), "OPS304")
    assert finding.severity == severity


def updated(plain: float, fused: float | None, foreach: float | None = None) -> UpdateTimes:
    times = {"plain": plain, "fused": fused, "foreach": foreach}
    return UpdateTimes(name="AdamW", place=at(14), tensors=80, elements=9000, made=at(10), **times)


def test_an_update_that_another_implementation_makes_quicker_is_told_with_what_a_step_would_take() -> None:
    step = spent(2.5, 14, phase="optimizer")
    (finding,) = found(recorded(step, more=(updated(0.02, 0.004, 0.008),)), "OPS206")
    assert finding.location is not None
    assert (finding.severity, finding.location.line) == ("warning", 14)
    assert (
        finding.message
        == "the update of AdamW takes 30.0 ms of a step of 45.0 ms (67 %), and 20 % of that with fused=True"
    )
    assert "an update takes 20.0 ms as it is and 4.0 ms with fused=True" in finding.cause
    assert "21.0 ms at the least, 2.1 times faster at most" in finding.cause
    assert finding.measured.seconds_per_step == pytest.approx(0.024)
    assert [(one.role, one.line) for one in finding.related] == [("made", 10)]


@pytest.mark.parametrize(("fused", "foreach"), [(0.019, None), (None, 0.018), (None, None), (0.03, 0.03)])
def test_an_update_that_nothing_makes_quicker_is_no_finding(fused: float | None, foreach: float | None) -> None:
    assert not found(recorded(spent(2.5, 14, phase="optimizer"), more=(updated(0.02, fused, foreach),)), "OPS206")


def test_what_an_update_takes_for_another_reason_is_not_promised() -> None:
    """Tensors made alike take a sixth of the line's time."""
    (finding,) = found(recorded(spent(2.5, 14, phase="optimizer"), more=(updated(0.005, 0.001),)), "OPS206")
    assert finding.severity == "info" and finding.measured.seconds_per_step == pytest.approx(0.008)


def test_of_two_optimizers_that_step_on_one_line_nothing_is_said() -> None:
    both = updated(0.02, 0.004), updated(0.01, 0.003)
    assert not found(recorded(spent(2.5, 14, phase="optimizer"), more=both), "OPS206")


def test_a_quicker_update_of_a_short_step_is_a_note() -> None:
    (finding,) = found(recorded(spent(2.5, 14, phase="optimizer"), more=(updated(0.02, 0.004),), steps=900), "OPS206")
    assert finding.severity == "info"


def test_the_quicker_implementation_is_put_where_the_optimizer_is_made() -> None:
    def made(code: str) -> list[str]:
        text = f"optimizer = {code}\noptimizer.step()\n"
        line = 1 + next(n for n, one in enumerate((HEAD + text).splitlines()) if one.startswith("optimizer = "))
        related = [Related(role="made", message="", path=FILE, line=line)]
        return fixed_lines("OPS206", text, "optimizer.step", about=About(variant="fused"), related=related)[1]

    assert made("optim.AdamW(w, lr=1e-3)") == ["optimizer = optim.AdamW(w, lr=1e-3, fused=True)"]
    assert made("torch.optim.SGD(w)") == ["optimizer = torch.optim.SGD(w, fused=True)"]
    assert not made("optim.AdamW(w, **options)") and not made("AdamW(w)") and not made("optim.SGD(w, foreach=False)")


def test_a_collection_and_anomaly_detection_are_taken_out_where_they_are_statements() -> None:
    body = "for x in data:\n    step(x)\n    gc.collect()\n"
    assert fixed_lines("OPS302", body, "gc.collect")[0] == ["    gc.collect()"]
    assert fixed_lines("OPS302", "freed = gc.collect()\n", "gc.collect") == ([], [])
    assert fixed_lines("OPS306", "torch.autograd.set_detect_anomaly(True)\n", "set_detect")[0]
    assert fixed_lines("OPS306", "with torch.autograd.detect_anomaly():\n    step()\n", "detect") == ([], [])
