"""What only reports, and files that one call reads and writes: told by the whole statement, and silent look-alikes."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from observed_fixes import fixed_lines

from torchvet.analysis.host_work import HostWork
from torchvet.analysis.line_times import timing_of
from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import About, Finding
from torchvet.probes.base.course import Course
from torchvet.probes.environment.loggers import lowest_levels
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place, Program, Source
from torchvet.recording.records.timing import LineTime, LineTimes

PATH = "/home/user/train.py"
HEAD = """import json
import logging
from loguru import logger
log = logging.getLogger("train")
own = logging.getLogger(__name__)
class Net:
    def __init__(self):
        self.log = logging.getLogger("train.net")
        self.other = make_logger()
    def tell(self, x):
        {told}
def describe(x):
    return x.tolist()
def note(path, records):
    with open(path) as file:
        known = json.load(file)
    with open(path, "w") as file:
        json.dump(known + records, file)
    return json.dumps(records)
def train(model, optimizer, loader):
    for x in loader:
        loss = model(x)
        loss.backward()
        optimizer.step()
        model.tell(x)
        note("a", [x])
"""
TOLD, DESCRIBED, LOADS, OPENS, DUMPS, TEXTS, TELLS, NOTES = 11, 13, 16, 17, 18, 19, 25, 26
OFF = {"": 30, "train": 20, "train.net": 20, "__main__": 20}


def at(line: int, function: str = "train") -> Place:
    return Place(PATH, line, function)


def spent(seconds: float, line: int, *callers: Place, **more: Any) -> LineTime:
    return LineTime(place=at(line, "other"), seconds=seconds, looks=80, steps=80, callers=list(callers), **more)


STEP = [
    LineTime(place=at(23), seconds=2.0, looks=80, steps=80, phase="backward"),
    LineTime(place=at(24), seconds=1.0, looks=80, steps=80, phase="optimizer"),
]


def recorded(*lines: LineTime, told: str = "pass", loggers: Any = OFF, device: str = "cpu", **more: Any) -> Recording:
    every = [*STEP, *lines]
    times = LineTimes(
        seconds=sum(x.seconds for x in every), steps=100, looks=400, interval=0.01, own=0.0, lines=every,
        loggers=loggers, **more,
    )  # fmt: skip
    ran = Program(argv=[], path=PATH, cwd="", python="3.11", torch="2.13.0", device=device, started=0.0, pid=1)
    return Recording([RankRecording(0, [ran, Source(path=PATH, text=HEAD.format(told=told)), times])])


def kind(line: LineTime, told: str, **more: Any) -> str:
    timing = timing_of(recorded(line, told=told, **more).ranks[0])
    assert timing is not None
    return HostWork(timing, {}).kind(line)


def covering(told: str, part: str, **more: Any) -> LineTime:
    start = 8 + told.index(part)
    return spent(2.0, TOLD, at(TELLS), span=(TOLD, start, TOLD, start + len(part)), **more)


def found(recording: Recording) -> list[Finding]:
    return [f for f in diagnose(recording, select=["OPS304"]).findings if f.code == "OPS304"]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ('log.debug(f"x {x.tolist()}")', "unwritten"),
        ('self.log.debug(f"x {x.tolist()}")', "unwritten"),
        ('own.debug(f"x {x.tolist()}")', "unwritten"),
        ('logging.info("x %s", x.tolist())', "unwritten"),
        ("log.log(logging.DEBUG, x.tolist())", "unwritten"),
        # At a level that is on, or by what may write anything.
        ('log.info(f"x {x.tolist()}")', "log"),
        ('log.warning(f"x {x.tolist()}")', "log"),
        ('self.other.debug(f"x {x.tolist()}")', "log"),
        ('logger.debug(f"x {x.tolist()}")', "log"),
        ("log.log(level, x.tolist())", "log"),
        ("print(x.tolist())", "log"),
        ("self.bar.set_description(str(x.tolist()))", "log"),
        # What is made is used.
        ("rows = self.log.info(x.tolist())", ""),
        ("return log.debug(x.tolist())", ""),
        ("rows.append(x.tolist())", ""),
        ("self.update(x.tolist())", ""),
        ("self.debug = x.tolist()", ""),
        ("x.tolist()", ""),
    ],
)
def test_what_a_statement_makes_to_report_is_a_part_of_the_report(told: str, expected: str) -> None:
    assert kind(covering(told, "x.tolist()"), told) == expected


def test_a_wait_for_a_device_is_no_report() -> None:
    told = 'log.debug(f"x {x.tolist()}")'
    line = covering(told, "x.tolist()")
    assert kind(line, told, device="cuda:0") == ""
    # Backward passes and forward passes below it are the model's.
    assert kind(covering(told, "x.tolist()", phase="forward"), told) == ""


def test_what_a_function_makes_for_a_message_that_is_not_written_is_for_nothing() -> None:
    below = spent(2.0, DESCRIBED, at(TOLD), at(TELLS))
    assert kind(below, 'log.debug(f"x {describe(x)}")') == "unwritten"
    assert kind(below, 'log.info(f"x {describe(x)}")') == ""


@pytest.mark.parametrize("loggers", [{}, {"": 30}, {**OFF, "train": 10}, {**OFF, "train": 0}])
def test_a_level_that_was_on_once_or_is_not_known_is_not_turned_off(loggers: dict[str, int]) -> None:
    told = 'log.debug(f"x {x.tolist()}")'
    assert kind(covering(told, "x.tolist()"), told, loggers=loggers) == "log"


def test_a_message_for_nothing_is_a_warning_from_a_tenth_of_the_step_on() -> None:
    told = 'log.debug(f"x {x.tolist()}")'
    (finding,) = found(recorded(covering(told, "x.tolist()"), told=told))
    assert finding.location is not None and finding.location.line == TOLD
    assert finding.severity == "warning" and "is not written takes 20.0 ms of a step of 50.0 ms" in finding.message
    rest = LineTime(place=at(22), seconds=7.0, looks=80, steps=80, phase="forward")
    for text, severity in ((told, "warning"), (told.replace("debug", "info"), "info")):
        (finding,) = found(recorded(covering(text, "x.tolist()"), rest, told=text))
        assert finding.severity == severity and "(17 %)" in finding.message


def test_one_call_that_reads_and_writes_is_one_work_and_grows() -> None:
    lines = [
        spent(0.6, LOADS, at(NOTES), kinds=["text"], thirds=(0.1, 0.2, 0.3)),
        spent(0.5, OPENS, at(NOTES), span=(OPENS, 9, OPENS, 24), thirds=(0.1, 0.2, 0.2)),
        spent(0.9, DUMPS, at(NOTES), calls="json.dump", kinds=["text"], thirds=(0.1, 0.2, 0.6)),
        spent(0.2, LOADS, at(NOTES), calls="json.load"),
    ]
    (finding,) = found(recorded(*lines, thirds=(1.3, 1.8, 2.1)))
    assert finding.message.startswith("reading and writing files takes 22.0 ms of a step of 52.0 ms (42 %)")
    assert (
        finding.severity == "warning"
        and "it grows: 23 % of the first third of the steps, 52 % of the last" in finding.message
    )
    assert finding.location is not None and finding.location.line == NOTES
    # What takes as much more as the rest of the step is a machine that became busy.
    (finding,) = found(recorded(*lines, thirds=(0.6, 1.8, 3.1)))
    assert "grows" not in finding.message


def test_lines_of_one_call_that_are_each_seen_in_other_steps_run_in_all() -> None:
    parts = [
        LineTime(place=at(n, "note"), seconds=0.5, looks=20, steps=20, callers=[at(NOTES)], calls=name)
        for n, name in ((LOADS, "json.load"), (OPENS, "open"), (DUMPS, "json.dump"), (TEXTS, "json.dump"))
    ]
    (finding,) = found(recorded(*parts))
    assert finding.severity == "warning" and "one of" not in finding.message
    # Each alone takes so long that the steps which have it are known.
    rare = [LineTime(place=p.place, seconds=2.0, looks=20, steps=2, callers=p.callers, calls=p.calls) for p in parts]
    assert "in about one of 50 steps" in found(recorded(*rare))[0].message


def test_text_alone_and_works_of_several_statements_stay_apart() -> None:
    apart = [spent(1.0, TEXTS, at(NOTES), kinds=["text"]), spent(1.0, DUMPS, at(TELLS), kinds=["save"])]
    assert len(found(recorded(*apart))) == 2
    (finding,) = found(recorded(apart[0]))
    assert finding.message.startswith("making or parsing text")


LEVELS = """import logging

log = logging.getLogger("train")

def step(x, bar):
    y = x + 1
    {told}
    return y
"""


@pytest.mark.parametrize(
    ("told", "head"),
    [
        ('log.debug(f"x {x.tolist()}")', "if log.isEnabledFor(logging.DEBUG):"),
        ("log.exception(str(x.tolist()))", "if log.isEnabledFor(logging.ERROR):"),
        ("log.log(logging.INFO, x.tolist())", "if log.isEnabledFor(logging.INFO):"),
        ("logging.debug(x.tolist())", "if logging.root.isEnabledFor(logging.DEBUG):"),
        # They do more than read.
        ("log.debug(next(x))", ""),
        ("log.debug(torch.rand(3).tolist())", ""),
        ("log.debug(self.metric.compute())", ""),
        ('log.debug(f"{(z := x.tolist())}")', ""),
        ("y += 1; log.debug(x.tolist())", ""),
    ],
)
def test_the_logger_is_asked_first(told: str, head: str) -> None:
    text = LEVELS.format(told=told)
    at = "x.tolist()" if "x.tolist()" in told else "log.debug("
    _, new = fixed_lines("OPS304", text, at, about=About(variant="unwritten"))
    assert ([line.strip() for line in new][:1] or [""]) == [head]


def test_levels_are_read_without_asking() -> None:
    log = logging.getLogger("tests.of.levels")

    class Own(logging.Logger):
        def isEnabledFor(self, level: int) -> bool:
            raise AssertionError("asked")

    own = Own("own", 50)
    logging.root.manager.loggerDict["tests.of.own"] = own
    own.manager = logging.root.manager
    try:
        log.setLevel(20)
        first = lowest_levels({})
        assert first["tests.of.levels"] == 20 and first["tests.of.own"] == 0
        log.disabled = True
        assert lowest_levels({})["tests.of.levels"] > 50
        # What was let through once stays.
        assert lowest_levels(first)["tests.of.levels"] == 20
        assert not vars(log)["_cache"]
    finally:
        del logging.root.manager.loggerDict["tests.of.own"]
        log.disabled = False


@pytest.mark.parametrize("steps", [5, 6, 24, 25, 100, 1000])
def test_thirds_of_a_course_are_of_as_many_steps(steps: int) -> None:
    even, rising = Course(), Course()
    for step in range(1, steps + 1):
        even.add(step, 1.0)
        rising.add(step, float(step))
    thirds, more = even.thirds(steps), rising.thirds(steps)
    if steps < 6:
        assert thirds is None and more is None
        return
    assert thirds is not None and more is not None
    assert thirds[0] == thirds[2] and thirds[0] >= steps / 4
    assert more[2] > 3 * more[0]
