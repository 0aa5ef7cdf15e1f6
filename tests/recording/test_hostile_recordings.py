"""Recordings of strangers: every verb that reads them says what it saw or why not, and nothing of the reader's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from handmade import FILE, census, evidence, heap, holding, outcome, program, site, steps, survivors
from hostile_recordings import HOSTILE, SECRET, mutated

from torchvet.comparing import compare
from torchvet.comparing.recordings import side_of_recording
from torchvet.comparing.report import report_on
from torchvet.diagnosis.diagnose import diagnose
from torchvet.errors import BadInput
from torchvet.finding import Report
from torchvet.inspecting import inspect_paths
from torchvet.recording import Recording, RecordingWriter, read
from torchvet.recording.records.base import Place, Source, Survivors
from torchvet.recording.records.training import Ran
from torchvet.renderers import renderer_for
from torchvet.whatif.report import whatif

TEXT = """import torch
kept = []
for step in range(40):
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
    kept.append(loss)
"""

SHOWN = ("text", "sarif", "github", "markdown")


def good(folder: Path) -> Path:
    """The recording of a run that leaks."""
    writer = RecordingWriter(folder)
    place = Place(FILE, 7, "<module>")
    growing = [census(n, holding("kept", 4000 * n, 9000 * n, place=place, items=n, length=n)) for n in (10, 20, 30, 40)]
    left = [Survivors(window=w, tick=40, steps=2, bytes=8000, storages=4, sites=[site()]) for w in (1, 2)]
    ran = Ran(path=FILE, lines=[4, 5, 6, 7])
    for record in (
        program(), Source(path=FILE, text=TEXT), *steps(40), *evidence(40), *growing, *left, survivors(1, 20, 8000),
        heap(40, grows=13_000.0), ran, outcome(40),
    ):  # fmt: skip
        writer.write(record)
    writer.close()
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good recording of its own for each test."""
    return good(tmp_path / "theirs.vet")


def reports(folder: Path) -> Iterator[Report]:
    """What each verb that reads recordings says of one."""
    yield diagnose(read(folder))
    yield diagnose(read(folder), memory_limit=10**9)
    recording = read(folder)
    yield whatif(recording, diagnose(recording).findings, None, [])
    yield inspect_paths([folder])
    side = side_of_recording(recording, diagnose(recording).findings)
    yield report_on(compare(side, side), None)


def printed(folder: Path) -> str:
    """All of it in every format. A recording that no verb reads is said to be none."""
    texts = []
    with suppress(BadInput):
        for report in reports(folder):
            texts += [renderer_for(name).render(report, width=0) for name in SHOWN]
            renderer_for("json").render(report)
    return "\n".join(texts)


def test_a_good_one_is_a_leak(folder: Path) -> None:
    assert "MEM101" in {f.code for f in diagnose(read(folder)).findings}
    assert "kept.append(loss)" in printed(folder)


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_stranger_hands_over(folder: Path, name: str) -> None:
    HOSTILE[name](folder)
    before = {p.name: p.lstat().st_mtime_ns for p in folder.iterdir()}
    text = printed(folder)
    assert SECRET not in text and not any(c in text for c in "\x1b\x07\u202e\u2066")
    assert {p.name: p.lstat().st_mtime_ns for p in folder.iterdir()} == before


@pytest.mark.parametrize("seed", range(25))
def test_values_that_no_run_has(folder: Path, seed: int) -> None:
    mutated(folder, random.Random(seed))
    text = printed(folder)
    assert not any(c in text for c in "\x1b\x07\u202e\u2066")


@pytest.mark.parametrize(
    "name", ["a_device_behind_a_link", "a_link_to_a_file_outside", "a_pipe", "a_folder_for_a_file"]
)
def test_only_regular_files_of_the_recording_are_read(folder: Path, name: str) -> None:
    HOSTILE[name](folder)
    with pytest.raises(BadInput, match=r"rank[01]\.jsonl"):
        read(folder)


def test_a_link_within_the_recording_is_followed(folder: Path) -> None:
    (folder / "rank0.jsonl").rename(folder / "moved")
    (folder / "rank0.jsonl").symlink_to("moved")
    assert read(folder).ranks[0].ticks == 40


def test_numbers_beyond_all_measure_are_damage(folder: Path) -> None:
    HOSTILE["huge_numbers"](folder)
    rank = read(folder).ranks[0]
    assert rank.damaged and "larger than any that is measured" in rank.unreadable
    assert diagnose(read(folder)).verdict != "clean"


def test_lines_of_a_file_outside_are_not_quoted(folder: Path) -> None:
    """The path and the line of a finding are the recording's to choose."""
    HOSTILE["places_in_files_outside"](folder)
    reported = diagnose(read(folder))
    assert reported.findings and str(folder.parent / "secret.py") in str(reported.findings)
    assert SECRET not in printed(folder)


def test_a_recording_without_a_name_for_its_rank_is_left_out(folder: Path) -> None:
    HOSTILE["ranks_of_strange_numbers"](folder)
    recording: Recording = read(folder)
    assert sorted(rank.rank for rank in recording.ranks) == [0, 999_999_999]
