"""What a trial changes is afterwards as it was: content, permissions and times."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from trying import run, tree

PROGRAMS = {
    "written over": "open('best.pt', 'w').write('100 steps')",
    "written over again and again": "for n in range(3): Path('best.pt').write_text(str(n))",
    "by way of a link": "Path('current').write_text('100 steps')",
    "added to": "open('log.jsonl', 'a').write('more')",
    "added to, then written over": "open('log.jsonl', 'a').write('more'); open('log.jsonl', 'w').write('short')",
    "read and written": """
        with open('history.json', 'r+') as file:
            told = json.load(file); file.seek(0); json.dump([*told, 2], file); file.truncate()
        """,
    "shortened by path": "os.truncate('best.pt', 3)",
    "shortened while open to be added to": "open('log.jsonl', 'a+').truncate(0)",
    "opened by the system's call": "f = os.open('best.pt', os.O_WRONLY); os.write(f, b'xx'); os.close(f)",
    "new": "Path('new.txt').write_text('x'); os.makedirs('a/b/c'); Path('a/b/c/d').touch()",
    "new by its descriptor": "f = os.open('n', os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600); os.write(f, b'x')",
    "put in place whole": "Path('t').write_text('n'); os.replace('t', 'best.pt')",
    "put in place whole, often": """
        for n in range(4):
            Path('best.pt.tmp').write_text(str(n)); os.rename('best.pt.tmp', 'best.pt')
        """,
    "handed down": "os.rename('best.pt', '1.pt'); Path('best.pt').write_text('n'); Path('1.pt').write_text('')",
    "removed": "os.remove('best.pt'); os.unlink('history.json')",
    "removed and made again": "os.remove('best.pt'); Path('best.pt').write_text('n'); os.remove('best.pt')",
    "removed and made a folder": "os.remove('best.pt'); os.makedirs('best.pt/part'); Path('best.pt/part/0').touch()",
    "not removed, and written over": """
        try: os.rename('runs', 'best.pt')
        except OSError: Path('best.pt').write_text('n')
        """,
    "a folder removed": "shutil.rmtree('runs')",
    "a folder removed and made again": "shutil.rmtree('runs'); os.makedirs('runs/old'); Path('runs/old/b').touch()",
    "a folder removed and made a file": "shutil.rmtree('runs'); Path('runs').touch()",
    "a folder renamed": "os.rename('runs', 'runs.1'); os.mkdir('runs'); Path('runs.1/old/deep/a').write_text('b')",
    "a folder moved over an empty one": "os.mkdir('e'); os.replace('runs/last', 'e'); Path('e/log').write_text('')",
    "a new folder renamed": "os.mkdir('tmp'); Path('tmp/x').touch(); os.rename('tmp', 'end'); Path('end/y').touch()",
    "a link made anew": "os.remove('latest'); os.symlink('runs/last', 'latest'); Path('latest/new').touch()",
    "a link that leads nowhere": "os.symlink('made', 'l'); Path('l').write_text('x')",
    "a link made a folder": "os.remove('latest'); os.mkdir('latest'); Path('latest/deep').touch()",
    "a folder made a link": """
        shutil.rmtree('runs/old'); os.symlink('../others', 'runs/old'); Path('runs/old/x').write_text('')
        """,
    "new, then another's by a link": """
        os.mkdir('runs/old/n'); Path('runs/old/x').touch()
        shutil.rmtree('runs/old'); os.symlink('../others', 'runs/old')
        """,
    "a second name": "os.link('best.pt', 'same.pt'); open('same.pt', 'r+').write('xx')",
    "copied over": "shutil.copy2('history.json', 'best.pt'); shutil.copytree('runs', 'copy')",
    "copied over with its times, and as long": "shutil.copy2('runs/last/log', 'runs/old/deep/a')",
    "permissions": "os.chmod('best.pt', 0o600); os.chmod('runs', 0o700); Path('log.jsonl').touch()",
    "a folder that nobody may write": """
        Path('runs/last/n').touch(); os.remove('runs/last/log'); os.chmod('runs/last', 0o500)
        """,
    "a file that nobody may write": "os.remove('closed.txt'); Path('closed.txt').write_text('n')",
    "from another folder": "os.chdir('runs/last'); Path('../../best.pt').write_text(''); os.remove('log')",
    "a database": """
        base = sqlite3.connect('d.db'); base.execute('create table t(a)'); base.commit(); base.close()
        base = sqlite3.connect('file:e.db?mode=rwc', uri=True); base.execute('create table t(a)'); base.commit()
        """,
    "bytes for names": r"open(b'best.pt', 'w'); open(b'\xff', 'w'); os.remove(b'history.json')",
    "in a forked process": """
        if not os.fork():
            Path('best.pt').write_text('child'); os.remove('log.jsonl'); os._exit(0)
        os.wait()
        Path('best.pt').write_text('parent'); Path('log.jsonl').write_text('parent')
        """,
    "in threads": """
        import threading
        def work(n):
            Path(f'n{n}').touch(); Path('best.pt').write_text(str(n))
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        """,
    "after every descriptor was closed": """
        os.closerange(3, 200)
        own = os.open('own', os.O_CREAT | os.O_WRONLY); os.write(own, b'x')
        Path('best.pt').write_text('n')
        assert Path('own').read_text() == 'x'
        """,
    "before a signal": "Path('best.pt').write_text('n'); os.kill(os.getpid(), 9)",
    "before an error": "Path('best.pt').write_text('n'); raise ValueError",
    "at the end": "import atexit; atexit.register(lambda: Path('best.pt').write_text('n'))",
}


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_files_are_as_they_were(place: Path, text: str) -> None:
    before = tree(place)
    tried = run(place, text)
    assert tree(place) != before, tried.errors
    undone = tried.undone()
    assert undone.trouble == [] and undone.unheard == []
    assert tree(place) == before


def test_the_file_itself_comes_back_with_its_other_names(place: Path) -> None:
    os.link(place / "best.pt", place / "runs" / "best.pt")
    inode = os.stat(place / "best.pt").st_ino
    tried = run(place, "Path('best.pt').write_text('n'); shutil.rmtree('runs/last'); os.remove('history.json')")
    history = [p.stat().st_ino for p in tried.copies]
    tried.undone()
    assert os.stat(place / "best.pt").st_ino == inode == os.stat(place / "runs/best.pt").st_ino
    assert os.stat(place / "history.json").st_ino in history


def test_what_only_grows_is_not_copied(place: Path) -> None:
    with open(place / "big.log", "wb") as file:
        file.truncate(17 * 2**20)
    before = tree(place)
    tried = run(place, "open('big.log', 'a').write('more')")
    assert tried.copies == [] and tree(place) != before
    tried.undone()
    assert tree(place) == before


def test_what_grew_and_was_then_written_over_by_another_process(place: Path) -> None:
    with open(place / "big.log", "wb") as file:
        file.truncate(17 * 2**20)
    before = tree(place)
    tried = run(place, """
        if not os.fork():
            open('big.log', 'a').write('more'); os._exit(0)
        os.wait(); os.remove('big.log')
        """)  # fmt: skip
    tried.undone()
    assert tree(place) == before


def test_programs_that_read_note_nothing(place: Path) -> None:
    tried = run(place, """
        Path('best.pt').read_text(); list(Path('.').rglob('*')); open(os.devnull, 'w').write('x')
        for wrong in (lambda: open('best.pt', 'x'), lambda: os.remove('none'), lambda: open('none/there', 'w'),
                      lambda: os.rename('none', 'other'), lambda: os.rmdir('none'),
                      lambda: sqlite3.connect('file:none.db?mode=ro', uri=True)):
            try: wrong()
            except (OSError, sqlite3.Error): pass
        sqlite3.connect(':memory:')
        """)  # fmt: skip
    assert tried.status == 0, tried.errors
    assert (tried.held.folder / "log.jsonl").read_bytes() == b"" and tried.copies == []
    tried.held.close()


def test_a_rollback_that_was_cut_off_is_done_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(place)
    tried = run(place, "shutil.rmtree('runs'); Path('best.pt').write_text('n'); os.remove('history.json')")
    calls, real = [0], os.utime

    def stop(*args: object, **kwargs: object) -> None:
        calls[0] += 1
        if calls[0] == 2:
            raise KeyboardInterrupt
        real(*args, **kwargs)  # type: ignore[arg-type]

    with monkeypatch.context() as within:
        within.setattr(os, "utime", stop)
        with pytest.raises(KeyboardInterrupt):
            tried.undone()
    assert tree(place) != before
    assert tried.undone().trouble == []
    assert tree(place) == before


def test_what_could_not_be_put_back_does_not_hinder_the_rest(place: Path) -> None:
    tried = run(place, "Path('best.pt').write_text('n'); Path('history.json').write_text('n')")
    next(p for p in tried.copies if p.read_text() == "[1]").unlink()
    undone = tried.undone()
    assert [path for path, _ in undone.trouble] == [str(place / "history.json")]
    assert (place / "best.pt").read_text() == "weights of last night"


def test_what_was_not_heard_stays_and_is_said(place: Path) -> None:
    tried = run(place, "os.mkdir('made'); Path('made/x').touch(); os.system('mv best.pt made/')")
    undone = tried.undone()
    assert undone.unheard == [str(place / "made")]
    assert [p.name for p in (place / "made").iterdir()] == ["best.pt"]


def test_a_line_that_was_torn_is_no_entry(place: Path) -> None:
    before = tree(place)
    tried = run(place, "Path('best.pt').write_text('n')")
    with (tried.held.folder / "log.jsonl").open("ab") as log:
        log.write(b'\n{"path": "/etc/x", "ki')
    assert tried.undone().trouble == []
    assert tree(place) == before


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_signal_handler_that_saves_is_heard_within_a_save(place: Path) -> None:
    before = tree(place)
    tried = run(place, """
        import signal
        signal.signal(signal.SIGUSR1, lambda *_: Path('best.pt').write_text('saved by the handler'))
        copy = shutil.copyfileobj
        def interrupted(*args):
            journal.shutil.copyfileobj = copy
            copy(*args); os.kill(os.getpid(), signal.SIGUSR1)
        journal._cloned = lambda *_: False
        journal.shutil.copyfileobj = interrupted
        Path('history.json').write_text('n')
        """)  # fmt: skip
    assert tree(place) != before and tried.status == 0, tried.errors
    tried.undone()
    assert tree(place) == before
