"""Several processes: the same answers in the same order, a death costs one job, and Ctrl-C leaves nobody behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from word_rules import WordRule

from torchvet.checking.checker import Checker
from torchvet.checking.discovery import discover
from torchvet.checking.project import check_files
from torchvet.checking.workers import _portions, answers, cores
from torchvet.configuration import Configuration


def square(job: int) -> tuple[int, int]:
    return job * job, os.getpid()


def fatal(job: int) -> int:
    if job in (3, 17):
        os.kill(os.getpid(), signal.SIGKILL)
    if job == 5:
        os._exit(7)
    return job


def died(job: int, status: int) -> int:
    return status * 1000 - job


@pytest.mark.parametrize("processes", [1, 2, 3, 50])
def test_the_answers_are_in_the_order_of_the_jobs(processes: int) -> None:
    jobs = list(range(40))
    found = answers(jobs, [1] * 40, square, lambda job, status: (0, 0), processes)
    assert [value for value, _ in found] == [n * n for n in jobs]
    assert (os.getpid() in {pid for _, pid in found}) is (processes == 1)
    assert 1 <= len({pid for _, pid in found}) <= processes


def test_little_work_is_done_here() -> None:
    assert {pid for _, pid in answers([1, 2, 3], [10, 10, 10], square, lambda job, status: (0, 0))} == {os.getpid()}


def test_a_job_that_ends_its_process_costs_no_other() -> None:
    found = answers(list(range(20)), [100] * 20, fatal, died, 2)
    expected = list(range(20))
    expected[3], expected[17], expected[5] = -9 * 1000 - 3, -9 * 1000 - 17, 7 * 1000 - 5
    assert found == expected


def test_nothing_to_do() -> None:
    assert answers([], [], square, lambda job, status: (0, 0), 4) == []


@given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 40))
def test_portions_hold_every_job_once_in_order(sizes: list[int], number: int) -> None:
    portions = _portions(sizes, sum(sizes), number)
    assert [i for portion in portions for i in portion] == list(range(len(sizes)))
    assert all(portions)


def test_many_files_come_out_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for n in range(60):
        (tmp_path / f"f{n:02}.py").write_text(f"import torch\n{'apple = 1' if n % 3 == 0 else 'x = ('}\n" * (n % 7 + 1))
    checker = Checker(Configuration(tmp_path), (WordRule("AAA101", "apple"),))
    targets = discover(["."])
    assert check_files(targets, checker, None, 1) == check_files(targets, checker, None, 3)


def test_cores_are_those_that_may_be_used() -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)


SLOW = """
import os, sys, time
from torchvet.checking.workers import answers
def work(job):
    open(f"pid{os.getpid()}", "w").close()
    time.sleep(float(sys.argv[1]))
answers(list(range(4)), [1] * 4, work, lambda job, status: 0, 2)
"""


@pytest.fixture
def parent(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process with two children at work, each for as many seconds as the test says."""
    command = [sys.executable, "-c", SLOW, str(request.param)]
    running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    for _ in range(1200):
        children = [int(p.name[3:]) for p in tmp_path.glob("pid*")]
        if len(children) == 2:
            break
        time.sleep(0.05)
    yield running, children
    if running.poll() is None:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    if running.stderr is not None:
        running.stderr.close()


@pytest.mark.parametrize("parent", [60], indirect=True)
def test_ctrl_c_ends_all_and_only_the_parent_speaks(parent: tuple[subprocess.Popen[str], list[int]]) -> None:
    running, children = parent
    assert len(children) == 2
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: all get it
    _, error = running.communicate(timeout=50)
    assert error.count("Traceback") == 1 and "KeyboardInterrupt" in error
    assert all(gone(pid) for pid in children)


@pytest.mark.parametrize("parent", [2], indirect=True)
def test_children_of_a_parent_that_was_killed_end(parent: tuple[subprocess.Popen[str], list[int]]) -> None:
    running, children = parent
    assert len(children) == 2
    running.kill()
    running.wait(50)
    assert all(gone(pid) for pid in children)


def gone(pid: int) -> bool:
    """Whether a process ends within some seconds; one that nobody has collected yet has ended too."""
    for _ in range(1000):
        try:
            os.kill(pid, 0)
            if " Z " in Path(f"/proc/{pid}/stat").read_text():
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False
