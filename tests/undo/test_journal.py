"""What is noted of a trial's changes, what is left out, and what is refused before it happens."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from trying import begin, run, tree

from torchvet.undo.folders import new_folder
from torchvet.undo.rollback import roll_back

CACHES = """
cache = Path(os.environ['TORCH_HOME']); (cache / 'hub').mkdir(); (cache / 'hub' / 'weights').write_text('fetched')
os.replace(cache / 'hub' / 'weights', cache / 'weights'); (cache / 'index').write_text('new')
"""
DOWNLOAD = """
def download_and_unpack(root):
    os.makedirs(root); Path(root, 'images.gz').write_text('x'); Path(root, 'images').write_text('y')
    os.remove(Path(root, 'images.gz'))
download_and_unpack('data/digits'); Path('data/digits/best.pt').write_text('z')
"""


def test_caches_keep_what_is_new_and_lose_nothing(place: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "index").write_text("old")
    before = tree(place)
    undone = run(place, CACHES, TORCH_HOME=str(cache)).undone()
    assert undone.trouble == [] and undone.stay == [] and undone.unheard == []
    assert {p.name: p.read_text() for p in cache.rglob("*") if p.is_file()} == {"weights": "fetched", "index": "old"}
    assert tree(place) == before


def test_a_cache_that_the_program_works_in_is_none(place: Path) -> None:
    before = tree(place)
    run(place, "Path('new.pt').write_text('x')", TORCH_HOME=str(place.parent), HF_HOME=".").undone()
    assert tree(place) == before


def test_downloads_stay_where_they_were_of_use(place: Path) -> None:
    before = tree(place)
    undone = run(place, DOWNLOAD).undone(keep_fetched=True)
    assert [p.name for p in place.rglob("*") if str(p) not in before] == ["data", "digits", "images"]
    assert undone.stay[0] == str(place / "data/digits/images") and undone.unheard == []


def test_a_download_that_was_cut_off_goes(place: Path) -> None:
    before = tree(place)
    run(place, DOWNLOAD).undone(keep_fetched=False)
    assert tree(place) == before


def test_bytecode_is_not_noted(place: Path) -> None:
    (place / "module.py").write_text("x = 1")
    tried = run(place, "sys.path.insert(0, '.'); import module", PYTHONDONTWRITEBYTECODE="")
    tried.undone()
    assert list(place.rglob("*.pyc"))


@pytest.mark.parametrize("change", ["Path('best.pt').write_text('n')", "os.rename('best.pt', 'other')"])
def test_without_room_nothing_is_changed(place: Path, change: str) -> None:
    before = tree(place)
    tried = run(place, f"""
        Path('new').touch()
        journal.SPARE, journal.SMALL = 2 ** 62, 0
        try:
            {change}
        except Exception:
            pass
        Path('new.2').touch()
        """)  # fmt: skip
    assert tried.status == 1 and "best.pt cannot be kept" in tried.errors
    undone = tried.undone()
    assert undone.refused is not None and undone.refused.path == str(place / "best.pt")
    assert "bytes" in undone.refused.why and undone.restored == 1
    assert tree(place) == before


def test_a_process_that_outlives_the_trial_changes_nothing(place: Path) -> None:
    before, held = tree(place), new_folder()
    program = begin(held) + textwrap.dedent("""
        if not os.fork():
            import time
            os.write(1, b'x')
            while os.path.exists(hearing.notes.folder): time.sleep(0.01)
            try: Path('best.pt').write_text('late')
            except journal.Refused: os.write(1, b'refused')
        """)  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", program], cwd=place, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        assert process.wait(100) == 0 and not held.wait(0.05)
        roll_back(held.folder)
        held.close()
        assert process.stdout.read() == b"refused"
    assert tree(place) == before
