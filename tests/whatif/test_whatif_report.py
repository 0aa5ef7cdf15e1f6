"""From a recording to the table: by the verb, in text and JSON, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from handmade import GIB, census, holding, outcome, program, rank, steps

from torchvet.commands import main
from torchvet.recording import Recording, RecordingWriter
from torchvet.recording.records.base import Record, Step, Window
from torchvet.whatif.memory_budget import situation_of
from torchvet.whatif.report import whatif

TICKS = (5, 6, 9, 14, 21, 32, 48)
CATEGORIES = {"parameters": 10_000_000, "optimizer state": 20_000_000, "activations": 66_000_000}


def lines(growth: int = 1_000_000, **more: Any) -> list[Record]:
    """A run of 50 steps whose `losses` grow; its window of four steps holds three steps' growth."""
    peak = sum(CATEGORIES.values()) + 3 * growth
    categories = {**CATEGORIES, "activations": CATEGORIES["activations"] + 3 * growth}
    looks = [census(t, holding("losses", graph=growth * t)) for t in TICKS]
    seen = Window(id=1, first=9, last=12, kind="training", born=peak, peak=peak, categories=categories)
    return [program(**more), *steps(50), seen, *looks, outcome(50)]


def kept(folder: Path, records: list[Record]) -> Path:
    writer = RecordingWriter(folder, 0)
    for record in records:
        writer.write(record)
    writer.close()
    return folder


def test_the_situation_is_the_first_steps_and_what_grows() -> None:
    now = situation_of(rank(lines()))
    assert now is not None
    assert (now.base, now.growth, now.of_batch, now.room) == (96e6, 1e6, 66e6, GIB)


def test_a_devices_counter_has_the_allocators_rounding() -> None:
    counted = [Step(n=n, kind="training", t=n * 0.1, allocated=30_000_000 + 1_200_000 * n) for n in range(1, 51)]
    records = [r for r in lines(device="cuda") if not isinstance(r, Step)]
    now = situation_of(rank(records[:1], counted, records[1:]))
    assert now is not None
    assert now.growth == 1_200_000


def test_the_verb_answers_from_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = kept(tmp_path / "run.vet", lines())
    assert main(["whatif", str(folder)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith(
        "A step takes 96.0 MB of 1.1 GB = 1.0 GiB (this machine's memory), 1.0 MB more at every step"
    )
    assert "978 to 2,022" in text
    assert main(["whatif", "--format", "json", "--quiet", "--memory-limit", "196MB", str(folder)]) == 0
    rows = json.loads(capsys.readouterr().out)["facts"]["whatif"]["answers"]
    assert rows[0]["first"] == rows[0]["last"] == 100


def test_a_run_that_showed_nothing_is_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", str(kept(tmp_path / "run.vet", [program(), outcome(0)]))]) == 3
    assert "no steps were sampled" in capsys.readouterr().out


def test_the_rank_that_needs_most_is_told_of() -> None:
    ranks = [rank(lines(growth), number=n) for n, growth in enumerate((0, 2_000_000, 1_000_000))]
    report = whatif(Recording(ranks), [], None, [])
    assert report.facts["whatif"]["bytes_per_step"] == 2_000_000


@pytest.mark.parametrize("words", [["nothing.vet"], ["snapshot.pickle"], []])
def test_what_is_not_there_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", *words]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert ("torchvet inspect" in said) == (words == ["snapshot.pickle"])
