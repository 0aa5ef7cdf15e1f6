"""What the tests of fleets share: the makers of snapshots and traces, and a folder of ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

for folder in ("snapshots", "traces"):
    sys.path.insert(0, str(Path(__file__).parent.parent / folder))


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ranks' snapshots, of which three leak, four ranks' traces, of which one is late, and two damaged files."""
    from making_snapshots import MB, Recorder, Training
    from trace_building import ranks

    folder = tmp_path_factory.mktemp("fleet")
    for rank in range(4):
        training = Training(Recorder(), layers=2, activations=6)
        for _ in range(12):
            training.step(leak=rank * MB)
        training.recorder.write(folder / f"rank{rank}.pickle")
    for rank, program in enumerate(ranks(4, 5, late=2, by=20_000)):
        program.write(folder / f"rank{rank}.json.gz")
    (folder / "rank8.pickle").write_bytes((folder / "rank1.pickle").read_bytes()[:3000])
    (folder / "rank9.json").write_text("{}")
    (folder / "notes.txt").write_text("not a file of torch's")
    return folder
