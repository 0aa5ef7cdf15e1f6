"""Snapshots of several ranks: the one that needs more memory, by how much, and of what."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from making_snapshots import KEEPING, MB, MOVING, Recorder, Training

from torchvet.finding import Finding
from torchvet.inspecting.snapshots import report_on
from torchvet.readers.isolated import read_snapshot
from torchvet.rules import rule
from torchvet.snapshots.memory import SnapshotMemory
from torchvet.snapshots.ranks import peak_of

HERE = Path(__file__).resolve().parents[1] / "data"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "snapshots"


def rank(folder: Path, number: int, scale: float = 1.0, extra: int = 0, layers: int = 8) -> Path:
    """A rank's snapshot of six steps; `extra` bytes are kept from the first on."""
    return trained(Recorder(), scale, extra, layers).write(folder / f"rank{number}.pickle")


def trained(recorder: Recorder, scale: float = 1.0, extra: int = 0, layers: int = 8) -> Recorder:
    training = Training(recorder, width=8 * MB, layers=layers)
    for count in range(6):
        training.step(leak=extra if count == 0 else 0, scale=scale)
    return recorder


def said(paths: list[Path]) -> Finding | None:
    report = report_on(paths)
    return next((f for f in report.findings if f.code == "DST102"), None)


def peak(path: Path) -> int:
    found: int = report_on([path]).facts["snapshots"][0]["peak"]["bytes"]
    return found


@pytest.mark.parametrize("worst", [0, 2])
def test_the_rank_with_larger_activations_is_named_to_the_byte(tmp_path: Path, worst: int) -> None:
    paths = [rank(tmp_path, n, scale=60 if n == worst else 10) for n in range(4)]
    found = said(paths)
    other = peak(paths[1])
    assert found is not None and found.rank == worst and found.severity == "warning"
    assert found.measured.bytes == peak(paths[worst]) - other and found.measured.peak_bytes == peak(paths[worst])
    assert "activations" in found.cause and found.location is not None and "model.py" in found.location.path


def test_what_one_rank_alone_keeps_is_named_by_its_line(tmp_path: Path) -> None:
    found = said([rank(tmp_path, n, extra=300 * MB if n == 0 else 0) for n in range(3)])
    assert found is not None and found.rank == 0 and found.measured.bytes == 300 * MB
    assert found.location is not None and (found.location.path, found.location.line) == ("train.py", KEEPING[0]["line"])


def test_ranks_that_need_about_the_same_are_silent(tmp_path: Path) -> None:
    assert said([rank(tmp_path, n, scale=10 + 0.3 * n) for n in range(4)]) is None
    assert said([rank(tmp_path, 0, scale=30)]) is None


def test_stages_of_a_pipeline_differ_by_design(tmp_path: Path) -> None:
    found = said([rank(tmp_path, n, layers=20 if n == 0 else 8) for n in range(3)])
    assert found is not None and found.severity == "info" and "pipeline stages" in found.cause


def test_other_programs_are_not_compared(tmp_path: Path) -> None:
    other = Recorder()
    for n in range(40):
        other.alloc(40 * MB + n, MOVING)
    assert said([rank(tmp_path, 0), other.write(tmp_path / "other.pickle")]) is None
    later = Recorder()
    later.now += 3_600_000_000
    assert said([rank(tmp_path, 0), trained(later, scale=60).write(tmp_path / "later.pickle")]) is None
    files = sorted([*HERE.glob("*.pickle"), *SHARED.glob("*.pickle")], key=lambda p: p.name)
    peaks = {p: peak_of(0, SnapshotMemory(read_snapshot(p))) for p in files}
    for one, two in combinations(files, 2):
        if not one.stem.startswith("magma") or not two.stem.startswith("magma"):  # the same file twice
            given = [p for p in (peaks[one], peaks[two]) if p is not None]
            assert len(given) == 2 and not list(rule("DST102").in_ranks(given)), (one.name, two.name)
