"""Two snapshots side by side: equal ones are equal, a leak on an old line is seen, the gate holds."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "snapshots"))

from making_snapshots import Recorder, Training

from torchvet.commands import main
from torchvet.comparing import compare
from torchvet.comparing.snapshots import side_of

DATA = Path(__file__).resolve().parents[1] / "data"


def recorded(path: Path, leak: int) -> Path:
    """Thirty steps in which one line keeps `leak` bytes, beside what it keeps anyway."""
    training = Training(Recorder())
    for _ in range(30):
        training.step(leak=1000 + leak)
    return training.recorder.write(path)


def test_a_snapshot_equals_itself() -> None:
    side = side_of(DATA / "magma.pickle")
    assert side.tables and compare(side, side).same


def test_a_line_that_keeps_more_is_seen_by_its_amount(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = recorded(tmp_path / "a.pickle", 0), recorded(tmp_path / "b.pickle", 500)
    growth = next(d for d in compare(side_of(before), side_of(after)).differences if d.title == "growth by line")
    assert [(r.name, r.by) for r in growth.rows] == [("train.py:61 in log_outputs", 500)]
    assert (growth.before, growth.after) == (1000, 1500)
    assert main(["compare", "--fail-on-growth", "1%", str(before), str(before)]) == 0
    assert main(["compare", "--fail-on-growth", "1%", str(before), str(after)]) == 1
    assert "train.py:61" in capsys.readouterr().out


def test_the_headline_says_each_total_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = recorded(tmp_path / "a.pickle", 0), recorded(tmp_path / "b.pickle", 500_000)
    assert main(["compare", str(before), str(after)]) == 0
    headline = capsys.readouterr().out.split("\n\n")[0]
    assert headline.count("peak:") == headline.count("growth:") == 1


def test_of_several_devices_the_one_compared_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded(tmp_path / "a.pickle", 0)
    snapshot = pickle.loads(path.read_bytes())
    snapshot["device_traces"] = [snapshot["device_traces"][0][:400], snapshot["device_traces"][0]]
    second = [{**s, "device": 1} for s in snapshot["segments"]]
    path.write_bytes(pickle.dumps({**snapshot, "segments": second}))
    assert main(["compare", str(path), str(path)]) == 0
    assert "device 0 of a.pickle: device 1 is compared, which has the highest peak" in capsys.readouterr().out


def test_two_kinds_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text("hello")
    assert main(["compare", str(DATA / "magma.pickle"), str(tmp_path / "text")]) == 2
    assert "is not known" in capsys.readouterr().err
