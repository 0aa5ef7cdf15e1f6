"""Trials of a program leave its files as they were: what is said, and what is done where a trial ends badly."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from click.exceptions import Exit
from observing import Bench

from torchvet.errors import BadInput
from torchvet.recording.records.training import Outcome
from torchvet.supervisor.trial_sandbox import Untouched

HEARD = """
import os, sys, time
from pathlib import Path
from torchvet.probes.session.undoing import install
install(Path(sys.argv[1]), (), (os.getcwd(),))
"""
NO_ROOM = "from torchvet.undo import journal; journal.SPARE, journal.SMALL = 2 ** 62, 0\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with one file, and a folder for state that is the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "best.pt").write_text("mine")
    return folder


def try_out(text: str, limit: float | None = None, ended: Outcome | None = None) -> int:
    """Run a program as a trial; its status."""
    with Untouched() as files:
        command = [sys.executable, "-c", HEARD + text, str(files.folder)]
        status, seconds = files.run(command, limit)
        files.ended(ended or Outcome(how="finished", status=status, ticks=1, seconds=seconds))
    return status


def test_a_trial_that_is_killed_for_its_time_is_undone(place: Path) -> None:
    assert try_out("Path('best.pt').write_text('n'); Path('new').touch(); time.sleep(600)", limit=0.5) < 0
    assert (place / "best.pt").read_text() == "mine" and len(list(place.iterdir())) == 1
    assert not (place.parent / "state" / "torchvet").exists()


def test_downloads_stay_only_where_the_program_came_to_train(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "def download(): Path('data').touch()\ndownload()"
    try_out(text, ended=Outcome(how="exception", status=1, ticks=0, seconds=1.0))
    assert not (place / "data").exists()
    try_out(text)
    assert (place / "data").exists() and capsys.readouterr().err == "torchvet: downloaded files are kept: data\n"


def test_what_cannot_be_kept_is_refused(place: Path) -> None:
    with pytest.raises(BadInput, match=r"best.pt: no copy could be kept before the program changed it \(a copy tak"):
        try_out(NO_ROOM + "Path('new').touch(); open('best.pt', 'w')")
    assert (place / "best.pt").read_text() == "mine" and len(list(place.iterdir())) == 1


def test_without_a_place_to_note_nothing_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    (place.parent / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(place.parent / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(place.parent / "file"))
    with pytest.raises(BadInput, match="the log for them cannot be written"):
        try_out("Path('best.pt').write_text('n')")
    assert (place / "best.pt").read_text() == "mine"


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_signal_to_torchvet_ends_it_and_the_trial_is_undone(place: Path) -> None:
    text = f"Path('best.pt').write_text('n'); os.kill({os.getpid()}, {int(signal.SIGTERM)}); time.sleep(600)"
    with pytest.raises(Exit) as ended:
        try_out(text)
    assert ended.value.exit_code == -signal.SIGTERM
    assert (place / "best.pt").read_text() == "mine"


def test_an_interrupt_stops_torchvet_too(place: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        try_out("Path('best.pt').write_text('n')", ended=Outcome(how="interrupt", status=-2, ticks=3, seconds=1.0))
    assert (place / "best.pt").read_text() == "mine"


DRY = """
import os, torch
model = torch.nn.Linear(8, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
os.rename("runs", "runs.1")
for _ in range(3):
    loss = model(torch.ones(8, 8, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    torch.save(model.state_dict(), "runs.1/best.pt")
    with open("log.txt", "a") as log, open("runs.1/last.pt", "r+b") as last:
        log.write(str(loss.item()))
        last.write(b"made up")
open("reached", "w")
"""


def test_a_dry_run_leaves_all_files_as_they_were(bench: Bench) -> None:
    bench.write("train.py", DRY)
    (bench.folder / "runs").mkdir()
    for name in ("log.txt", "runs/best.pt", "runs/last.pt"):
        (bench.folder / name).write_text("from real numbers")
    before = {p: p.is_file() and p.read_bytes() for p in bench.folder.rglob("*")}
    bench.environment["PYTHONPATH"] = str(Path(__file__).parents[2] / "src")
    ran = bench.run(bench.command("run", "--simulate-gpu", "l4", "--dry", "train.py"))
    assert ran.status == 0 and "3 training steps" in ran.out, ran.out + ran.err
    assert {p: p.is_file() and p.read_bytes() for p in bench.folder.rglob("*")} == before


def test_the_next_trial_undoes_what_was_cut_off(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("no fork")
    child = os.fork()
    if not child:
        with Untouched() as files:
            files.run([sys.executable, "-c", HEARD + "Path('best.pt').write_text('n')", str(files.folder)])
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert (place / "best.pt").read_text() == "n"
    try_out("assert Path('best.pt').read_text() == 'mine'; Path('seen').touch()")
    assert (place / "best.pt").read_text() == "mine" and len(list(place.iterdir())) == 1
    assert "a trial was killed at" in capsys.readouterr().err
