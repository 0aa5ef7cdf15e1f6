"""Random changes to a folder, many of which fail, in one process and its children: all are undone."""

from __future__ import annotations

from pathlib import Path

import pytest
from trying import run, tree

CHANGES = """
import random
from contextlib import suppress
journal.SMALL = 8
names = ['best.pt', 'log.jsonl', 'history.json', 'runs', 'runs/old', 'runs/old/deep', 'runs/old/deep/a', 'runs/last',
         'runs/last/log', 'others', 'others/x', 'latest', 'current', 'new', 'new.2', 'made', 'made/x', 'runs/new',
         'latest/z', 'runs/old/link']
def forked(a, b):
    if not os.fork():
        with suppress(Exception): chance.choice(changes)(a, b)
        os._exit(0)
    os.wait()
changes = [
    lambda a, b: open(a, 'w').write(str(chance.random())), lambda a, b: open(a, 'a').write('m' * chance.randrange(20)),
    lambda a, b: open(a, 'r+').write('xyz'), lambda a, b: open(a, 'x').write('new'), lambda a, b: os.remove(a),
    lambda a, b: shutil.rmtree(a), lambda a, b: os.rename(a, b), lambda a, b: os.mkdir(a), lambda a, b: os.rmdir(a),
    lambda a, b: os.makedirs(a, exist_ok=True), lambda a, b: os.link(a, b), lambda a, b: os.truncate(a, 5),
    lambda a, b: os.symlink(chance.choice(['new', '../others', 'runs/old', 'best.pt', '.']), a),
    lambda a, b: os.chmod(a, chance.choice([0o600, 0o700, 0o755, 0o644, 0o500])), lambda a, b: os.utime(a),
    lambda a, b: shutil.copy2(a, b), lambda a, b: shutil.move(a, b), lambda a, b: os.chdir(a),
    lambda a, b: shutil.copytree(a, b, symlinks=chance.random() < .5, dirs_exist_ok=True),
    lambda a, b: (Path(a + '.part').write_text('whole'), os.replace(a + '.part', b)), forked,
]
chance = random.Random(SEED)
for _ in range(chance.randrange(1, 30)):
    with suppress(OSError, shutil.Error, ValueError):
        chance.choice(changes)(chance.choice(names), chance.choice(names))
"""


@pytest.mark.parametrize("seed", range(12))
def test_random_changes_are_undone(place: Path, seed: int) -> None:
    before = tree(place)
    tried = run(place, CHANGES.replace("SEED", str(seed)))
    assert tried.status == 0, tried.errors
    undone = tried.undone()
    assert undone.trouble == [] and undone.unheard == []
    assert tree(place) == before


def test_random_changes_change_something(place: Path) -> None:
    before = tree(place)
    run(place, CHANGES.replace("SEED", "0")).held.close()
    assert tree(place) != before
