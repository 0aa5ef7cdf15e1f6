"""Trials that were cut off together with their supervisor, and where their folders lie."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from trying import LONG_AGO, begin, run, tree

from torchvet.undo.folders import SLACK, Held, left_behind, new_folder
from torchvet.undo.rollback import roll_back


def let_go(held: Held) -> None:
    """As the system does when the supervisor is killed."""
    held._let_go()


def test_a_folder_that_is_held_is_no_others(place: Path) -> None:
    held = new_folder()
    assert list(left_behind()) == []
    let_go(held)
    found = list(left_behind())
    assert [h.folder for h, _ in found] == [held.folder]
    assert list(left_behind()) == []
    found[0][0].close()
    assert not (place.parent / "state").joinpath("torchvet").exists()


def test_what_was_cut_off_is_undone_later_but_for_what_others_did_since(place: Path) -> None:
    before = tree(place)
    tried = run(place, """
        for name in ('best.pt', 'log.jsonl', 'history.json', 'new', 'new.2'): Path(name).write_text('n')
        os.chmod('closed.txt', 0o600)
        """)  # fmt: skip
    let_go(tried.held)
    ((held, last),) = left_behind()
    for name in ("history.json", "new.2", "closed.txt"):
        (place / name).write_text("the user's own work")
        os.utime(place / name, (last + 9, last + 9))
    undone = roll_back(held.folder, until=last + SLACK)
    assert {os.path.basename(path) for path, _ in undone.trouble} == {"history.json", "new.2", "closed.txt"}
    after = tree(place)
    mine = {name: after.pop(str(place / name))[0] for name in ("history.json", "new.2", "closed.txt")}
    assert set(mine.values()) == {b"the user's own work"}
    assert {k: v for k, v in before.items() if k in after and k != str(place)} == {
        k: v for k, v in after.items() if k != str(place)
    }
    left = held.settle()
    assert left.name.startswith("left-") and list(left_behind()) == []
    assert {p.read_text() for p in left.iterdir()} >= {"[1]"}


def test_a_trial_that_still_runs_is_waited_for(place: Path) -> None:
    held = new_folder()
    program = begin(held) + "os.write(1, b'x'); sys.stdin.read(); Path('best.pt').write_text('n')"
    import subprocess
    import sys

    with subprocess.Popen([sys.executable, "-c", program], cwd=place, stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        assert not held.wait(0.05)
        process.communicate(b"")
    assert held.wait(5)
    roll_back(held.folder)
    held.close()
    assert (place / "best.pt").stat().st_mtime_ns == LONG_AGO + 12345


def test_without_a_home_for_state_the_temporary_folder_serves(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held = new_folder()
    assert held.folder.is_relative_to(tmp_path) and held.folder.stat().st_mode & 0o77 == 0
    held.beat()
    assert time.time() - (held.folder / "alive").stat().st_mtime < 60
    held.close()
