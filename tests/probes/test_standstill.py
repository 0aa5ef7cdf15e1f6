"""A rank that does not move is noticed, with the program's line and what it waits in; the interpreter writes down where
a fatal signal met a process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from handmade import program

from torchvet.probes import following
from torchvet.probes.ranks import standstill as module
from torchvet.probes.ranks.standstill import standstill
from torchvet.recording import read
from torchvet.recording.faults import communicates, position
from torchvet.recording.records.ranks import Standstill
from torchvet.recording.records.training import Outcome

SOURCE = str(Path(following.__file__).parents[3])


def test_the_users_line_and_the_call_below_it_are_known() -> None:
    ready, end = threading.Event(), threading.Event()

    def stand() -> None:
        ready.set()
        end.wait()

    thread = threading.Thread(target=stand)
    thread.start()
    ready.wait()
    try:
        frame = sys._current_frames()[thread.ident or 0]
        found = standstill(frame, 3, 7.0)
    finally:
        end.set()
        thread.join()
    assert found.place is not None and found.place.line == stand.__code__.co_firstlineno + 2
    assert (found.tick, found.seconds, found.waits) == (3, 7.0, False)


@pytest.mark.parametrize(
    ("path", "function", "waits"),
    [
        ("/lib/torch/distributed/distributed_c10d.py", "all_reduce", True),
        ("/lib/torch/distributed/c10d_logger.py", "wrapper", False),
        ("/lib/torch/nn/parallel/distributed.py", "_sync_buffers", True),
        ("/lib/torch/nn/parallel/distributed.py", "forward", False),
        ("/lib/torch/nn/modules/linear.py", "forward", False),
    ],
)
def test_which_of_torchs_functions_wait_for_other_ranks(path: str, function: str, waits: bool) -> None:
    assert communicates(path, function) is waits


def test_a_wait_for_buffers_is_one_in_forward(tmp_path: Path) -> None:
    file = tmp_path / "rank1.fault"
    lib = "/env/lib/python3.11/site-packages/torch"
    file.write_text(
        "Current thread 0x1 (most recent call first):\n"
        f'  File "{lib}/nn/parallel/distributed.py", line 2370 in _distributed_broadcast_coalesced\n'
        f'  File "{lib}/nn/parallel/distributed.py", line 1950 in _check_and_sync_module_buffers\n'
        f'  File "{lib}/nn/parallel/distributed.py", line 1800 in forward\n'
        '  File "/home/me/train.py", line 37 in train\n'
    )
    found = position(file, program(), 25)
    assert found is not None and (found.call, found.waits) == ("forward", True)


def run(folder: Path, text: str, **environment: str) -> tuple[Path, int]:
    (folder / "main.py").write_text(textwrap.dedent(text))
    words = [sys.executable, "-m", "torchvet", "run", "--quiet", "--record", "run.vet", "main.py"]
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHVET", "RANK"))}
    known = {**mine, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(words, cwd=folder, env=known, capture_output=True, timeout=120)
    return folder / "run.vet", done.returncode


@pytest.mark.parametrize(
    ("variables", "number", "line"),
    [({}, 6, 5), ({"WORLD_SIZE": "2", "RANK": "0"}, 15, 5), ({}, 15, None)],
    ids=["aborted", "a rank that a launcher ends", "no rank"],
)
def test_where_a_signal_met_a_process_is_known(
    tmp_path: Path, variables: dict[str, str], number: int, line: int | None
) -> None:
    text = f"""
        import os, torch

        def main():
            os.kill(os.getpid(), {number})

        main()
    """
    folder, _ = run(tmp_path, text, **variables)
    (rank,) = read(folder).ranks
    ended = rank.last(Outcome)
    assert ended is not None and (ended.how, ended.status) == ("killed", -number)
    at = rank.last(Standstill)
    assert (at.place.line if at is not None and at.place is not None else None) == line
    assert (ended.place.line if ended.place is not None else None) == line


def test_a_process_that_ends_leaves_no_empty_file(tmp_path: Path) -> None:
    folder, status = run(tmp_path, "import torch\nprint(torch.ones(2).sum())\n")
    assert status == 3 and sorted(p.name for p in folder.iterdir()) == ["manifest.json", "rank0.jsonl"]


def test_a_forked_child_that_crashes_says_nothing_of_its_parent(tmp_path: Path) -> None:
    text = """
        import os, torch
        pid = os.fork()
        if pid == 0:
            os.abort()
        os.waitpid(pid, 0)
    """
    folder, _ = run(tmp_path, text)
    assert not list(folder.glob("*.fault"))


def test_what_is_no_report_of_the_interpreters_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "rank0.fault"
    assert position(file, program(), 3) is None
    for content in (b"", b"\xff\xfe", b'  File "x"', b'Thread 1:\n  File "/a/lib/python3.11/x.py", line 3 in f\n'):
        file.write_bytes(content)
        assert position(file, program(), 3) is None


def test_of_several_threads_the_main_one_counts(tmp_path: Path) -> None:
    file = tmp_path / "rank0.fault"
    file.write_text(
        "Fatal Python error: Aborted\n\n"
        'Thread 0x1 (most recent call first):\n  File "other.py", line 1 in run\n\n'
        "Current thread 0x2 (most recent call first):\n"
        '  File "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 9 in all_reduce\n'
        '  File "/v/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 8 in wrapper\n'
        '  File "train.py", line 21 in main\n\nExtension modules: numpy\n'
    )
    at = position(file, program(cwd="/home/me"), 3)
    assert at is not None and at.place is not None
    assert (at.place.path, at.place.line, at.call, at.waits) == ("/home/me/train.py", 21, "all_reduce", True)


class Busy:
    """A host that looks itself at first, which is no standstill of the program's."""

    def __init__(self, record: Path, looks: int) -> None:
        self.record, self.looks = record, looks
        self.tick, self.watching = 3, True
        self.written: list[Standstill] = []

    @property
    def active(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def alive(self) -> None:
        pass

    def write(self, found: Standstill) -> None:
        self.written.append(found)
        self.watching = False


def test_a_look_of_torchvets_own_does_not_end_the_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK", 0.005)
    monkeypatch.setattr(module, "_FIRST", 0.02)
    host = Busy(tmp_path / "rank0.jsonl", looks=3)
    probe = module.StandstillProbe(host)  # type: ignore[arg-type]
    stays, end = threading.Event(), threading.Event()

    def stand() -> None:
        stays.set()
        end.wait(20)

    thread = threading.Thread(target=stand)
    thread.start()
    stays.wait()
    probe._main = thread.ident
    probe._running = True
    probe._wake.acquire()
    # In a thread of its own, as it is in a program: it blocks all signals there.
    watch = threading.Thread(target=probe._run, args=(probe._wake,))
    watch.start()
    try:
        watch.join()
    finally:
        end.set()
        thread.join()
    assert not probe._failure and host.looks < 0
    assert [one.tick for one in host.written] == [3]
