"""The clock of lines: how looks are summed up, whose line a stack is at, and a thread that leaves nothing behind."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from torchvet.probes.base import costs
from torchvet.probes.time.line_clock import LineClock, Now, Tally
from torchvet.probes.time.stacks import glance, known_tags, still, understood
from torchvet.probes.time.worker_clocks import of_workers
from torchvet.recording.records.base import Place
from torchvet.recording.records.timing import LineTime, WorkerTimes

USER = "/home/user/train.py"
TORCH = os.path.dirname(torch.__file__)
OWN = costs.__file__


def stack(*frames: tuple[str, str, int]) -> Any:
    """Made-up frames, innermost first: file, function, line."""
    found = None
    for file, function, line in reversed(frames):
        code = SimpleNamespace(co_filename=file, co_name=function, co_code=b"")
        found = SimpleNamespace(f_code=code, f_lineno=line, f_lasti=2 * line, f_back=found, f_globals={})
        KEPT.append(code)  # equal numbers mean equal code
    return found


KEPT: list[Any] = []
LOOP = stack((USER, "train", 10))


def looked(*looks: tuple[Any, float, int], sampled: int = 0) -> Tally:
    """Looks at stacks: seconds, and steps that had ended."""
    tally = Tally()
    for frame, seconds, steps in looks:
        tally.look(frame, seconds, Now(1, steps, sampled))
    return tally


def seconds(tally: Tally) -> dict[int, float]:
    """By line."""
    found: dict[int, float] = {}
    for cell in (one for one in tally.cells.values() if one.looks):
        line = cell.doing.lines[0].line
        found[line] = round(found.get(line, 0.0) + cell.seconds, 6)
    return found


def _paused(depth: int) -> Iterator[FrameType]:
    """Gives its frame, and goes on in it."""
    if depth > 0:
        yield from _paused(depth - 1)
    yield sys._getframe()
    yield sys._getframe()


@pytest.mark.parametrize("guess", [1, 2, 5, 64])
def test_a_stack_stays_as_it_was_read_while_its_thread_goes_on(guess: int) -> None:
    running = _paused(0)
    frame = next(running)
    taken, depth = still(frame, guess)
    before = understood(taken), glance(taken, known_tags), taken.f_lineno, taken.f_lasti
    assert (taken.f_lineno, taken.f_lasti) == (frame.f_lineno, frame.f_lasti)
    next(running)
    assert frame.f_lineno == taken.f_lineno + 1
    assert (understood(taken), glance(taken, known_tags), taken.f_lineno, taken.f_lasti) == before
    assert depth == 1 and taken.f_back is None


def test_a_stack_is_read_as_deep_as_it_is() -> None:
    def deep(turns: int) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]], int]:
        if turns:
            return deep(turns - 1)
        frame = sys._getframe()
        taken, depth = still(frame, 1)
        alive: list[tuple[object, ...]] = []
        read: list[tuple[object, ...]] = []
        for of, one in ((alive, frame), (read, taken)):
            at: Any = one
            while at is not None:
                of.append((at.f_code, at.f_globals) if at.f_code is frame.f_code else (at.f_code, at.f_lineno))
                at = at.f_back
        return alive, read, depth

    alive, read, depth = deep(100)
    assert alive == read and len(read) > 100 and depth == 64


def test_time_counts_from_the_first_whole_step_to_the_last() -> None:
    other = stack((USER, "train", 11))
    tally = looked(
        (LOOP, 9.0, 3), (LOOP, 0.1, 4), (other, 0.2, 4), (LOOP, 0.1, 5), (other, 0.2, 5), (LOOP, 0.4, 6), (LOOP, 9.0, 6)
    )
    # What was seen in a step counts when it has ended; the look that notices the end belongs to the next.
    assert seconds(tally) == {10: 0.2, 11: 0.4}
    assert (tally.steps, tally.looks, round(tally.seconds, 6)) == (2, 4, 0.6)


def test_steps_that_were_sampled_do_not_count() -> None:
    tally = looked((LOOP, 0.1, 3), (LOOP, 0.1, 4), (LOOP, 0.1, 5))
    tally.look(LOOP, 5.0, Now(1, 7, 2))
    tally.look(LOOP, 0.1, Now(1, 8, 2))
    tally.look(LOOP, 0.1, Now(1, 9, 2))
    assert seconds(tally) == {10: 0.2}
    assert tally.steps == 2


def test_a_pause_is_left_out_with_its_step() -> None:
    tally = looked((LOOP, 0.1, 3), (LOOP, 0.1, 4))
    tally.look(None, 5.0, Now(1, 4, 0, counts=False))
    tally.look(LOOP, 0.1, Now(1, 4, 0))
    tally.look(LOOP, 0.1, Now(1, 5, 0))
    tally.look(LOOP, 0.1, Now(1, 6, 0))
    assert seconds(tally) == {10: 0.1}
    assert tally.steps == 1


def test_own_work_counts_for_no_line() -> None:
    own = stack((OWN, "__enter__", 3), (USER, "train", 10))
    below = stack((f"{TORCH}/autograd/__init__.py", "backward", 3), (OWN, "run", 3), (USER, "train", 12))
    tally = looked((LOOP, 0.1, 3), (own, 0.1, 4), (below, 0.2, 4), (LOOP, 0.1, 5))
    tally.look(None, 0.4, Now(1, 5, 0, own=True))
    tally.look(LOOP, 0.1, Now(1, 6, 0))
    assert seconds(tally) == {10: 0.1, 12: 0.2}
    assert [c.doing.phase for c in tally.cells.values() if c.doing.lines[0].line == 12] == ["backward"]


def test_seconds_of_calls_are_those_of_the_looks_that_count() -> None:
    tally = Tally()
    # Steps that had ended, whether one of them was sampled, seconds of loading and of backward so far.
    for steps, sampled, loading, backward in [
        (3, 0, 9.0, 9.0),
        (4, 0, 9.1, 9.0),
        (4, 0, 9.3, 9.2),
        (5, 0, 9.7, 9.2),
        (6, 1, 20.0, 30.0),
        (7, 1, 60.0, 70.0),
        (8, 1, 60.5, 70.5),
    ]:
        tally.look(LOOP, 0.5, Now(1, steps, sampled, loading=loading, backward=backward))
    # Step 5, and step 8: the look that notices the end of a step belongs to the next.
    assert (tally.steps, tally.loading, tally.backward) == pytest.approx((2, 0.3 + 40.0, 0.2 + 40.0))


def test_a_call_that_ended_before_torchvets_own_work_counts() -> None:
    """On one busy core half of the looks behind a backward pass fall on what torchvet does at the step's end."""
    tally = looked((LOOP, 0.1, 3), (LOOP, 0.1, 4))
    tally.look(None, 0.4, Now(1, 4, 0, own=True, backward=0.3))
    tally.look(LOOP, 0.1, Now(1, 5, 0, backward=0.3))
    tally.look(LOOP, 0.1, Now(1, 6, 0, backward=0.3))
    assert (tally.steps, tally.backward) == (2, 0.3)


def test_steps_that_are_counted_anew_begin_anew() -> None:
    tally = looked((LOOP, 0.1, 30), (LOOP, 0.1, 31), (LOOP, 0.1, 32), (LOOP, 0.1, 1), (LOOP, 0.1, 2), (LOOP, 0.3, 2))
    tally.look(LOOP, 0.1, Now(1, 3, 0))
    assert seconds(tally) == {10: 0.4}
    assert tally.steps == 1


def test_steps_are_counted_anew_also_while_nothing_counts() -> None:
    """The first optimizer step ends hundreds of forward passes, which were the steps until then, in a sampled step."""
    tally = looked(*((LOOP, 0.1, steps) for steps in range(300, 304)))
    assert tally.steps == 2
    tally.look(None, 5.0, Now(1, 303, 0, counts=False))
    tally.look(None, 5.0, Now(1, 1, 1, counts=False))
    for steps in (2, 3, 4):
        tally.look(LOOP, 0.4, Now(1, steps, 1))
    assert tally.steps == 1 and seconds(tally) == {10: 0.4}


def test_calls_before_steps_were_counted_anew_are_of_no_step() -> None:
    tally = looked((LOOP, 0.1, 300), (LOOP, 0.1, 301))
    tally.look(LOOP, 0.1, Now(1, 302, 0, loading=40.0, backward=30.0))
    tally.look(LOOP, 0.1, Now(1, 1, 0, loading=50.0, backward=40.0))
    tally.look(LOOP, 0.1, Now(1, 2, 0, loading=50.25, backward=40.5))
    tally.look(LOOP, 0.1, Now(1, 3, 0, loading=50.25, backward=40.5))
    assert (tally.steps, tally.loading, tally.backward) == (1, 0.25, 0.5)


@pytest.mark.parametrize(
    ("below", "phase", "stage"),
    [
        ([("nn/modules/module.py", "_call_impl")], "forward", ""),
        ([("nn/modules/module.py", "load"), ("nn/modules/module.py", "load_state_dict")], "other", ""),
        ([("nn/functional.py", "linear"), ("nn/modules/module.py", "_call_impl")], "forward", ""),
        ([("autograd/graph.py", "_engine_run_backward"), ("_tensor.py", "backward")], "backward", ""),
        ([("optim/adam.py", "step"), ("optim/optimizer.py", "wrapper")], "optimizer", ""),
        ([("optim/lr_scheduler.py", "step")], "other", ""),
        ([("utils/data/dataloader.py", "_try_get_data"), ("utils/data/dataloader.py", "__next__")], "data", "wait"),
        ([("utils/data/dataloader.py", "__init__"), ("utils/data/dataloader.py", "__iter__")], "data", "start"),
        ([("utils/data/dataloader.py", "_shutdown_workers")], "data", "end"),
        ([("serialization.py", "save")], "other", ""),
    ],
)
def test_what_runs_below_a_line_says_its_phase(below: list[tuple[str, str]], phase: str, stage: str) -> None:
    frames = [(f"{TORCH}/{file}", function, 3) for file, function in below]
    doing = understood(stack(*frames, (USER, "train", 10), (USER, "<module>", 40)))
    assert (doing.phase, doing.stage) == (phase, stage)
    assert [place.line for place in doing.lines] == [10, 40]
    assert doing.kinds == (("save",) if below[0][0] == "serialization.py" else ())


def test_a_line_of_a_dataset_is_data() -> None:
    fetch = f"{TORCH}/utils/data/_utils/fetch.py"
    with open(fetch, encoding="utf-8") as stream:
        texts = stream.read().splitlines()
    item = next(n for n, text in enumerate(texts, 1) if "self.dataset[idx]" in text)
    collate = next(n for n, text in enumerate(texts, 1) if "return self.collate_fn" in text)
    loader = (f"{TORCH}/utils/data/dataloader.py", "_next_data", 3)
    made = understood(stack((USER, "D.__getitem__", 5), (fetch, "fetch", item), loader, (USER, "train", 10)))
    assert (made.phase, made.stage, [p.line for p in made.lines]) == ("data", "item", [5, 10])
    joined = understood(stack((USER, "pad", 7), (fetch, "fetch", collate), loader, (USER, "train", 10)))
    assert (joined.phase, joined.stage, joined.lines[0].line) == ("data", "collate", 7)


PROGRAM = """
import sys, time, torch
def slow(until):
    while time.perf_counter() < until: pass
def rest(seconds):
    time.sleep(seconds)
def work(passed, big, other):
    for _ in range(120):
        passed()
        rest(0.004)
        slow(time.perf_counter() + 0.006)
def compared(passed, big, other):
    for _ in range(60):
        passed()
        same = big == other
        begun = time.perf_counter()
def short(passed, big, other):
    big, tensor = [*range(400)], torch.rand(20_000)
    for _ in range(200):
        passed()
        for _ in range(60):
            ordered = sorted(big, key=str)
            total = tensor.sum()
def freed(passed, big, other):
    for _ in range(60):
        passed()
        parcels = [[n] for n in range(60_000)]
        del parcels
        firsts = [n for n in (1, 2)]
"""


def run(function: str) -> tuple[LineClock, dict[int, float]]:
    """A program of the user's, watched: seconds by line."""
    program: dict[str, Any] = {}
    exec(compile(PROGRAM, USER, "exec"), program)
    steps = [0]

    def passed() -> None:
        steps[0] += 1

    clock = LineClock(lambda: Now(MAIN, steps[0], 0))
    numbers = list(range(300_000))
    clock.start()
    try:
        program[function](passed, numbers, list(range(300_000)))
    finally:
        clock.stop()
    assert not clock.failure
    return clock, seconds(clock.tally)


MAIN = threading.main_thread().ident or 0
_TRIES = 8


def seen(function: str, holds: Callable[[dict[int, float]], bool]) -> bool:
    """Whether one of several runs gives the lines what is expected. A run in which the system has kept the clock's
    thread waiting in the midst of its looks, so that the program has gone on meanwhile, says nothing of the clock."""
    judged = 0
    for _ in range(_TRIES):
        clock, found = run(function)
        if holds(found):
            return True
        judged += clock.tally.rest < 0.1 * clock.tally.seconds
    if not judged:
        pytest.skip("other programs keep the cores busy")
    return False


def of_all(found: dict[int, float], *lines: int) -> float:
    """The share of the time that lines have."""
    return sum(found.get(line, 0.0) for line in lines) / max(1e-9, sum(found.values()))


def test_time_goes_to_the_lines_that_take_it() -> None:
    # On a busy machine either may take several times as long as the program asked for.
    assert seen("work", lambda found: min(of_all(found, 4), of_all(found, 6)) > 0.08 and of_all(found, 4, 6) > 0.9)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="instructions have no positions")
def test_a_comparison_is_told_from_the_call_after_it() -> None:
    assert seen("compared", lambda found: of_all(found, 15) > 0.8)


def test_the_thread_is_nobodys_and_leaves_nothing() -> None:
    interval, threads = sys.getswitchinterval(), threading.enumerate()
    heard: list[Any] = []
    threading.setprofile(lambda *_: heard.append(1))
    clock = LineClock(lambda: Now(MAIN, 1, 0))
    try:
        clock.start()
        time.sleep(0.05)
        assert threading.enumerate() == threads
    finally:
        threading.setprofile(None)
        clock.stop()
    assert not heard
    assert (clock.running, sys.getswitchinterval()) == (False, interval)


def test_an_interval_that_the_program_has_chosen_stays() -> None:
    before = sys.getswitchinterval()
    clock = LineClock(lambda: Now(MAIN, 1, 0))
    try:
        clock.start()
        sys.setswitchinterval(0.002)
        clock.stop()
        assert sys.getswitchinterval() == pytest.approx(0.002)
    finally:
        sys.setswitchinterval(before)


def test_what_fails_ends_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    def ask() -> Now:
        raise ValueError("no")

    clock = LineClock(ask)
    clock.start()
    time.sleep(0.2)
    clock.stop()
    assert clock.failure == "ValueError: no"
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.filterwarnings("error")
def test_a_fork_finds_no_thread_and_the_parent_goes_on() -> None:
    clock = LineClock(lambda: Now(MAIN, 1, 0))
    clock.start()
    try:
        child = os.fork()
        if child == 0:
            alone = len(os.listdir("/proc/self/task")) == 1 if os.path.isdir("/proc/self/task") else True
            os._exit(0 if alone and not clock.running else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert clock.running
    finally:
        clock.stop()
    assert not clock.running


def test_what_workers_leave_is_summed_and_taken_away(tmp_path: Path) -> None:
    line = LineTime(place=Place(USER, 5, "D.__getitem__"), seconds=1.0, looks=9, steps=4, phase="data", stage="item")
    for number, seconds in ((11, 1.0), (12, 3.0)):
        left = WorkerTimes(workers=1, seconds=4.0, busy=seconds, lines=[line])
        (tmp_path / f"loader-{os.getpid()}-{number}.json").write_bytes(msgspec.json.encode(left))
    (tmp_path / f"loader-{os.getpid()}-13.json").write_bytes(b'{"k":"workert')  # killed while writing
    found = of_workers(str(tmp_path))
    assert found is not None
    assert (found.workers, found.seconds, found.busy, len(found.lines)) == (2, 8.0, 4.0, 2)
    assert list(tmp_path.iterdir()) == []
    assert of_workers(str(tmp_path)) is None


def test_a_short_call_before_an_operator_has_its_own_time() -> None:
    """It ends before a switch interval of 0.25 ms does; the operator behind it gives the lock up by itself."""
    assert seen("short", lambda found: of_all(found, 22) > 0.3)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code has no positions")
def test_what_del_frees_is_the_time_of_its_line() -> None:
    assert seen("freed", lambda found: of_all(found, 27) > 0.05)
