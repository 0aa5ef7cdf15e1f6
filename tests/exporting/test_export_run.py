"""Exports of a run: where the time of its steps went, in every form."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from exporting_by_hand import RUN, chrome, events, export, rows, run, speedscope

from torchvet.commands import main
from torchvet.exporting.tree import Tree
from torchvet.recording.records.base import Place
from torchvet.recording.records.timing import LineTime


def test_a_flame_graph_adds_up_to_a_step() -> None:
    found = speedscope(run())
    step, workers = found["profiles"]
    assert step["endValue"] == pytest.approx(0.01) and "mean of 40" in step["name"]
    names = [[found["shared"]["frames"][i]["name"] for i in sample] for sample in step["samples"]]
    assert names[0] == [
        "backward",
        "<module> train.py:6  train()",
        "train train.py:3  model(x).sum().backward()",
    ]
    assert names[2][-1] == "log" and names[3] == ["other lines"]
    assert step["weights"] == pytest.approx([0.006, 0.003, 0.00075, 0.00025])
    assert "2 loader workers" in workers["name"] and workers["endValue"] == 3.0


def test_a_tree_has_the_heaviest_first_and_sums_what_is_small() -> None:
    small = [
        LineTime(place=Place(RUN, n, "train"), seconds=0.001, looks=1, steps=1, phase="forward") for n in (3, 4, 5)
    ]
    text = export(".txt", run(small)).splitlines()
    assert text[0] == "a step by line (mean of 40): 10.1 ms"
    assert text[1].split() == ["60", "%", "6.0", "ms", "backward"]
    assert text[3].endswith("    train train.py:3  model(x).sum().backward()")
    assert any(line.endswith("others, each small") for line in text)
    assert [line for line in text if line.startswith("2 loader workers")]


def test_a_tree_of_a_simulated_run_says_that_nothing_was_measured() -> None:
    assert export(".txt", run(simulated="H100")) == "nothing was measured\n"


def test_a_timeline_has_steps_phases_and_what_was_sampled() -> None:
    found = chrome(run())
    steps = events(found, "X", "training")
    assert len(steps) == 18 and {e["dur"] for e in steps} == {10_000}
    assert events(found, "X", "22 training steps")[0]["dur"] == 220_000
    phases = events(found, "C", "phases")
    assert all(e["args"] == {"backward": 6000, "optimizer": 3000, "other": 1000} for e in phases)
    (sampled,) = events(found, "X", "sampled")
    assert (sampled["ts"], sampled["dur"]) == (40_000, 20_000)


def test_each_rank_has_its_own_process_and_rows() -> None:
    assert len({e["pid"] for e in events(chrome(run(ranks=2)), "X", "training")}) == 2
    assert [r["rank"] for r in rows(".csv", run(ranks=2))] == ["0"] * 3 + ["1"] * 3
    assert speedscope(run(ranks=2))["profiles"][2]["name"].startswith("rank 1: ")


def test_rows_have_the_line_its_text_and_how_it_was_reached() -> None:
    first = next(r for r in rows(".jsonl", run()) if r["table"] == "lines")
    assert (first["line"], first["code"], first["phase"]) == (3, "model(x).sum().backward()", "backward")
    assert first["seconds_per_step"] == pytest.approx(0.006) and first["share"] == pytest.approx(0.6)
    assert first["stack"].startswith("backward;<module> train.py:6")


def test_a_run_writes_what_is_asked_for(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import torch\nfor _ in range(3):\n    torch.ones(2).sum()\n")
    target = tmp_path / "time.txt"
    assert main(["run", "-q", "--exit-zero", "--export", str(target), str(program)]) == 0
    assert target.read_text() == "nothing was measured\n"


def test_a_name_without_a_form_is_refused_before_the_program_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "train.py"
    program.write_text("open('ran', 'w')\n")
    assert main(["run", "-q", "--export", str(tmp_path / "time.svg"), str(program)]) == 2
    assert "expected one of" in capsys.readouterr().err and not (tmp_path / "ran").exists()


def test_an_export_that_cannot_be_written_does_not_lose_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(form: Tree, report: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Tree, "finish", full)
    program, target = tmp_path / "train.py", tmp_path / "time.txt"
    program.write_text("import torch\nfor _ in range(3):\n    torch.ones(2).sum()\n")
    assert main(["run", "--export", str(target), str(program)]) == 2
    said = capsys.readouterr()
    assert "What was seen" in said.out and "No space left" in said.err and not target.exists()
