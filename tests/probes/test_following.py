"""Processes that a program starts: observed once they train, in a record of their own, and otherwise left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from torchvet.probes import following

SOURCE = str(Path(following.__file__).parents[3])

TRAINING = """
    import multiprocessing, os, subprocess, sys, torch
    from torch.utils.data import DataLoader

    def train(steps, leaks):
        model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        kept = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = model(torch.ones(16, 8)).mean()
            loss.backward()
            optimizer.step()
            if leaks:
                kept.append(model(torch.ones(16, 8)).mean())
"""

PROGRAM = (
    TRAINING
    + """
    class Items(torch.utils.data.Dataset):
        def __len__(self):
            return 4
        def __getitem__(self, index):
            return torch.ones(2) * torch.utils.data.get_worker_info().num_workers

    if __name__ == "__main__":
        print(sum(float(batch.sum()) for batch in DataLoader(Items(), num_workers=1)))
        forked = multiprocessing.get_context("fork").Process(target=train, args=(30, True))
        forked.start(); forked.join(); print(forked.exitcode)
        spawned = multiprocessing.get_context("spawn").Process(target=train, args=(20, False))
        spawned.start(); spawned.join(); print(spawned.exitcode, flush=True)  # the next program writes to the same pipe
        ran = subprocess.run([sys.executable, "alone.py"])
        print(ran.returncode)
        sys.exit(4)
"""
)

ALONE = (
    TRAINING
    + """
    print("PYTHONPATH" in os.environ, [n for n in os.environ if n.startswith("TORCHVET")])
    print([p for p in sys.path if "following" in p])
    import torchvet
    with torchvet.watch() as watched:  # it is followed, and not observed twice
        train(25, False)
    print(watched.report.facts["verdict"]["reason"][:35])
    sys.exit(7)
"""
)
WATCHED = "the process is observed already, by"


def test_processes_that_train_have_records_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "alone.py").write_text(textwrap.dedent(ALONE))
    # The program lists the variables of torchvet's own that it finds: those of whoever runs the tests are none.
    mine = {name: value for name, value in os.environ.items() if not name.startswith("TORCHVET")}
    environment = {**mine, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "torchvet", "run", "--quiet", "-o", "report.json", "main.py"]
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert ended.stdout.split("\n") == ["8.0", "0", "0", "True []", "[]", WATCHED, "7", ""], ended.stderr
    assert ended.returncode == 4, "the program's own"
    report = json.loads((tmp_path / "report.json").read_text())
    assert sorted(p["steps"] for p in report["facts"]["processes"]) == [0, 20, 25, 30]
    assert {p["how"] for p in report["facts"]["processes"]} == {"finished", "exit"}
    (finding,) = [f for f in report["findings"] if f["evidence"] == "observed"]
    assert (finding["code"], finding["holder"]["name"]) == ("MEM101", "kept")
    # Each process is too short for its heap to be judged, and the program says that it failed; nothing else is missing.
    gaps = {gap["check"] for gap in report["not_checked"]}
    assert gaps <= {"growth of the heap", "growth of autograd graphs", "what was to follow"}


@pytest.fixture
def led(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    config = {"import_from": SOURCE, "python": list(sys.version_info[:2]), "options": {}, "directory": "", "rank": 0}
    monkeypatch.setattr(following, "_config", config)
    yield config


def _environment_of(command: list[str], environment: dict[str, str]) -> list[str]:
    code = "import os, sys; print([os.environ.get(n) for n in ('PYTHONPATH', 'TORCHVET_FOLLOW', 'A')])"
    ended = subprocess.run([*command, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return eval(ended.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("path", [None, "/nowhere"])
def test_a_followed_process_sees_the_environment_that_it_was_given(led: dict[str, Any], path: str | None) -> None:
    given = {"A": "1", **({"PYTHONPATH": path} if path else {})}
    started = following.started_with(given)
    assert "TORCHVET_FOLLOW" in started and "TORCHVET_FOLLOW" not in given
    assert _environment_of([sys.executable], started) == [path, None, "1"]


def test_a_sitecustomize_of_the_users_own_still_runs(led: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['A'] = 'theirs'\n")
    started = following.started_with({"PYTHONPATH": str(tmp_path)})
    assert _environment_of([sys.executable], started) == [str(tmp_path), None, "theirs"]


def test_only_this_interpreter_is_followed(tmp_path: Path) -> None:
    ours, shell, foreign = (tmp_path / name for name in ("ours", "shell", "foreign"))
    ours.write_text(f"#!{sys.executable}\n")
    shell.write_text("#!/bin/sh\n")
    foreign.write_text("#!/somewhere/python3\n")
    for file in (ours, shell, foreign):
        file.chmod(0o755)
    known = following._is_this_interpreter
    assert known([sys.executable, "train.py"], None) and known([str(ours)], None) and known("x", sys.executable)
    assert not any(known([str(file)], None) for file in (shell, foreign))
    assert not known(["no-such-program-anywhere"], None) and not known([], None) and not known(None, None)


def test_only_processes_of_multiprocessing_get_a_prelude(led: dict[str, Any]) -> None:
    spawned = [sys.executable, "-B", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()", "--x"]
    changed = following._with_prelude(spawned)
    assert changed[3].endswith(spawned[3]) and changed[3] != spawned[3]
    assert (changed[:3], changed[4:]) == (spawned[:3], spawned[4:])
    tracker = [sys.executable, "-c", "from multiprocessing.resource_tracker import main; main(3)"]
    assert following._with_prelude(tracker) == tracker


RANKS = (
    TRAINING
    + """
    import torch.distributed as dist, torch.multiprocessing

    def rank(number, file):
        dist.init_process_group("gloo", init_method="file://" + file, rank=number, world_size=2)
        train(12, False)
        if number == 1:
            raise ValueError("the batch is empty")

    if __name__ == "__main__":
        torch.multiprocessing.start_processes(rank, (os.path.abspath("met"),), 2, start_method="fork")
"""
)


def test_a_rank_of_multiprocessing_that_fails_is_named_with_its_line(tmp_path: Path) -> None:
    """Who had started it gets a text only, and the interpreter has dropped the error when it exits."""
    (tmp_path / "main.py").write_text(textwrap.dedent(RANKS))
    environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "torchvet", "run", "-o", "report.json", "main.py"]
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 1 and "ProcessRaisedException" in ended.stderr
    printed = " ".join(ended.stdout.split())
    assert "but rank 1 failed at main.py:23 in rank: ValueError: the batch is empty" in printed
    outcome = json.loads((tmp_path / "report.json").read_text())["facts"]["outcome"]
    assert (outcome["rank"], outcome["how"], outcome["status"]) == (1, "exception", 1)


def test_the_end_of_a_process_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Popen:
        pid, returncode, left = 7, None, 2

        def poll(self, flag: int = 0) -> int | None:
            self.left -= 1
            self.returncode = -9 if self.left <= 0 else None  # type: ignore[assignment]
            return self.returncode

    module = ModuleType("multiprocessing.popen_fork")
    vars(module)["Popen"] = Popen
    following._tap_polls(module)
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(following, "_ended", lambda pid, status: told.append((pid, status)))
    process = Popen()
    assert [process.poll(), process.poll(1), process.poll()] == [None, -9, -9]
    assert told == [(7, -9)]


def test_a_trial_observes_none_that_it_starts_and_notes_that_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(following, "_unfollowed", told.append)
    monkeypatch.setattr(following, "_config", None)
    spawned = [sys.executable, "-c", "from multiprocessing.spawn import spawn_main; spawn_main()"]
    assert following._with_prelude(spawned) == spawned and told == ["multiprocessing"]
    tracker = [sys.executable, "-c", "from multiprocessing.resource_tracker import main; main(3)"]
    assert following._with_prelude(tracker) == tracker and len(told) == 1
