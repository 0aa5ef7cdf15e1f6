"""What a trial has written is read before it is undone."""

from __future__ import annotations

from pathlib import Path

import pytest
from trying import run

from torchvet.undo import written
from torchvet.undo.written import written_files


def read(place: Path, text: str) -> dict[str, str | bytes]:
    tried = run(place, text)
    try:
        found = written_files(tried.held.folder)
    finally:
        tried.undone()
    return {str(Path(path).relative_to(place)): content for path, content in found.items()}


def test_files_new_changed_and_moved_into_place(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("1,2\n")
    (tmp_path / "old.txt").write_text("old")
    found = read(tmp_path, """
        open('log.csv', 'a').write('3,4\\n')
        os.makedirs('out'); Path('out/t').write_text('x'); os.replace('out/t', 'out/result.json')
        Path('best.pt').write_bytes(b'PK\\0\\1'); Path('latin').write_bytes(b'\\xe9')
        os.remove('old.txt'); Path('gone').touch(); os.remove('gone'); os.mkdir('empty'); os.symlink('out', 'link')
        """)  # fmt: skip
    assert found.pop("best.pt") != found.pop("latin")
    assert found == {"log.csv": "1,2\n3,4\n", "out/result.json": "x"}
    assert (tmp_path / "log.csv").read_text() == "1,2\n" and not (tmp_path / "out").exists()


def test_what_is_beyond_what_may_be_read_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written, "_READ", 5)
    monkeypatch.setattr(written, "_TEXT", 3)
    found = read(tmp_path, "Path('a').write_text('aaaa'); Path('b').write_text('bbbb')")
    assert isinstance(found["a"], bytes) and found["b"] == b""
