"""Which changes are tried, what their runs add up to, and the whole way from the command line."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from warm_interpreters import torchvet

from torchvet.analysis.attempts import Change, Trial, attempt_facts, candidates, settled, steps_of
from torchvet.commands.try_fixes import Tries, with_tries
from torchvet.errors import BadInput
from torchvet.finding import Report
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.attempt import Attempt
from torchvet.recording.records.base import Place, Record, Site, SiteBytes, Window
from torchvet.recording.records.timing import AnomalyMode
from torchvet.renderers.text_facts import tried_section, tried_texts
from torchvet.supervisor.preflight import Program
from torchvet.supervisor.trial_sandbox import Shown

WORKERS = Change("workers=2", "DataLoader(num_workers=2, persistent_workers=True)")


CONVOLVES = Window(
    id=1, first=1, last=2, kind="training", born=1, peak=1,
    sites=[SiteBytes(site=Site(op="aten.convolution", shape=(1,), dtype="float32", device="cpu", phase="forward"),
                     bytes=1, storages=1)],
)  # fmt: skip


def names(phases: dict[str, float], text: str = "", cores: int = 4, *seen: Record) -> list[str]:
    return [c.name for c in candidates(RankRecording(0, [*seen]), {"phases": phases}, text, cores)]


def test_what_is_tried_goes_by_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert names({"data": 0.5}) == ["workers=1", "workers=2", "workers=4", "batch=2"]
    assert names({"data": 0.5}, cores=1) == ["workers=1", "workers=2", "batch=2"]
    assert names({"data": 0.01}) == ["batch=2"]
    assert names({"optimizer": 0.2}) == ["fused", "foreach"]
    assert names({}, "", 4, AnomalyMode(on=1), CONVOLVES) == ["no-anomaly", "channels-last"]
    assert names({}, "torch.set_num_threads(1)") == ["threads=4"]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert names({}) == ["threads=4"]


def test_what_changes_arithmetic_is_tried_where_arithmetic_takes_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: name)
    model = {"forward": 0.4, "backward": 0.5}
    assert names(model, "", 4, CONVOLVES) == ["channels-last", "bfloat16", "compile"]
    assert names({"forward": 0.1, "backward": 0.1}, "", 4, CONVOLVES) == ["channels-last"]
    assert names(model, "with torch.autocast('cuda'):", 4) == ["compile"]
    assert names(model, "model = torch.compile(model)", 4) == []
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert names(model) == []


@pytest.mark.parametrize(
    ("error", "says"), [(KeyboardInterrupt(), "it was stopped"), (BadInput("no room for copies"), "no room for copies")]
)
def test_a_trial_that_is_stopped_does_not_lose_the_report_of_the_run(
    error: BaseException, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = iter([trial("none", 0.04, [2.0])])

    def tried(self: Tries, change: str, said: str) -> Trial:
        for one in ended:
            return one
        raise error

    monkeypatch.setattr(Tries, "_trial", tried)
    facts = {"steps": 100, "seconds": 4.0, "phases": {"optimizer": 0.5}, "outcome": {"how": "finished", "status": 0}}
    report = Report(subject={"kind": "run"}, verdict="clean", facts=facts)
    target = Program("train.py", None, ())
    found = with_tries(report, Recording([RankRecording(0, [])]), target, Shown(False, True), 100.0)
    assert found.facts["tried"]["rows"] == [] and found.facts["steps"] == 100
    assert "fused" in found.facts["tried"]["untried"]
    assert says in found.not_checked[0].reason


def test_a_program_that_failed_is_not_run_again() -> None:
    report = Report(subject={}, verdict="clean", facts={"steps": 100, "outcome": {"how": "exception", "status": 1}})
    target = Program("train.py", None, ())
    found = with_tries(report, Recording([RankRecording(0, [])]), target, Shown(False, True), 100.0)
    assert [gap.reason for gap in found.not_checked] == ["the program failed"]


def test_what_failed_once_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def tried(self: Tries, change: str, said: str) -> Trial:
        asked.append(change)
        return Trial(change=change, error="RuntimeError: no") if change != "none" else trial("none", 0.04, [2.0])

    monkeypatch.setattr(Tries, "_trial", tried)
    Tries(Program("train.py", None, ()), Shown(False, True), 100.0, 20, 1.0).run([WORKERS])
    assert asked == ["none", "workers=2", "none"]


def test_a_run_has_as_many_steps_as_take_a_few_seconds() -> None:
    assert steps_of(0.01, 10_000) == 300 and steps_of(0.1, 10_000) == 40 and steps_of(10.0, 100) == 16
    assert steps_of(0.01, 20) == 20 and steps_of(0.0, 50) == 50


def test_a_steady_step_is_the_mean_without_warming_up_and_without_the_slowest() -> None:
    bunches = [0.0, 0.0, 0.3] * 40
    assert settled([5.0] * 10 + bunches) == pytest.approx(0.09, abs=0.02)
    assert settled([1.0] * 10) is None


def trial(change: str, seconds: float, losses: list[float], applied: int = 1, error: str | None = None) -> Trial:
    place = Place("train.py", 12, "train") if change != "none" else None
    run = Attempt(change=change, applied=applied, place=place, seconds=[seconds] * 40, losses=losses)
    return Trial(change=change, run=run, error=error)


def facts(*trials: Trial, changes: tuple[Change, ...] = (WORKERS,)) -> Any:
    return attempt_facts(list(changes), [trial("none", 0.04, [2.0, 1.0]), *trials], [])


def test_a_quicker_change_has_its_gain_its_line_and_whether_losses_change() -> None:
    (row,) = facts(trial("workers=2", 0.02, [2.0, 1.0]))["rows"]
    assert (row["gain"], row["path"], row["line"], row["same_losses"]) == (pytest.approx(2), "train.py", 12, True)
    (row,) = facts(trial("workers=2", 0.02, [2.0, 1.5]))["rows"]
    assert row["same_losses"] is False


def test_larger_batches_are_compared_by_the_sample() -> None:
    (row,) = facts(trial("batch=2", 0.05, [2.0]), changes=(Change("batch=2", "twice", 2),))["rows"]
    assert row["gain"] == pytest.approx(1.6) and row["same_losses"] is None


def test_what_changed_nothing_has_no_row_and_what_failed_says_why() -> None:
    assert facts(trial("workers=2", 0.02, [2.0], applied=0))["rows"] == []
    found = facts(trial("workers=2", 0.02, [2.0], error="RuntimeError: no"))
    assert found["rows"][0]["gain"] is None and "failed: RuntimeError: no" in next(tried_texts(found))
    assert attempt_facts([WORKERS], [], []) is None


@pytest.mark.parametrize(
    ("seconds", "says"),
    [(0.02, "measured 2.00x (20.0 ms a step)"), (0.0401, "no difference"), (0.05, "not worth it")],
)
def test_each_line_says_what_was_measured(seconds: float, says: str) -> None:
    found = facts(trial("workers=2", seconds, [2.0, 1.0]))
    (text,) = tried_texts(found)
    assert says in text and "(line 12)" in text and "losses change" not in text
    assert text.split(": ")[0].replace("_", r"\_") in tried_section(found)


def test_on_a_busy_machine_it_is_said_that_small_differences_mean_nothing() -> None:
    texts = list(tried_texts(facts(trial("none", 0.08, [2.0]), trial("workers=2", 0.03, [2.0]))))
    assert "differ by 100%" in texts[0].replace(" %", "%") and "no difference" in texts[1]


PROGRAM = """\
import time
from pathlib import Path
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self): return 160
    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.full((4,), float(i))

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for batch in DataLoader(Rows(), batch_size=8):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
    Path("log.txt").open("a").write("x")
"""


def tried_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*torchvet(), "run", "--try-fixes", "--format", "json", *words, "train.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=300)


def test_a_program_is_run_again_with_each_change_and_its_files_are_as_one_run_left_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    tried = json.loads(tried_in(tmp_path).stdout)["facts"]["tried"]
    rows = {row["change"]: row for row in tried["rows"]}
    assert {"workers=1", "workers=2", "batch=2"} <= set(rows) and tried["seconds_per_step"] > 0
    assert rows["workers=2"]["line"] == 14 and rows["workers=2"]["gain"] and rows["workers=2"]["same_losses"]
    assert (tmp_path / "log.txt").read_text() == "x" * 20


def test_a_run_that_is_too_short_says_so(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.replace("160", "40"))
    report = json.loads(tried_in(tmp_path).stdout)
    assert "tried" not in report["facts"]
    assert any("it takes 16 to time them" in gap["reason"] for gap in report["not_checked"])


def test_a_simulated_gpu_has_no_times(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    ran = tried_in(tmp_path, "--simulate-gpu", "t4")
    assert ran.returncode == 2 and "use one of the two" in ran.stderr
