"""Edits of chosen findings in several files together, and originals kept."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from torchvet.checking.engine import Scope
from torchvet.errors import BadInput
from torchvet.finding import Edit, Finding, Remedy
from torchvet.fixing.chosen import chosen, difference
from torchvet.fixing.documents import Document, open_document
from torchvet.fixing.files import keep_originals

SCOPE = Scope.of([])
A, B = "/project/a.py", "/project/b.py"


def documents(**contents: bytes) -> dict[str, Document]:
    return {f"/project/{n}.py": open_document(f"/project/{n}.py", data, [], SCOPE) for n, data in contents.items()}


def finding(*edits: tuple[str, int, int, int, str]) -> Finding:
    """Edits as (path, line, first column, end column, text)."""
    made = [Edit(path=p, start=(line, a), end=(line, b), text=text) for p, line, a, b, text in edits]
    return Finding(
        code="AAA101", name="a-b", severity="warning", evidence="observed", message="m", location=None, cause="c",
        remedy=Remedy(summary="s", edits=made),
    )  # fmt: skip


def test_edits_in_two_files_are_made_together_and_the_rest_stays() -> None:
    before = documents(a=b"\xef\xbb\xbfx = 1\r\ny = 2\r\n", b=b"# coding: latin-1\nz = '\xe9'\n")
    done = chosen(before, [finding((A, 1, 5, 6, "7"), (B, 2, 1, 2, "w"))])
    assert len(done.made) == 1 and not done.refused
    contents = {path: document.encode() for path, document in done.changed(before).items()}
    assert contents == {A: b"\xef\xbb\xbfx = 7\r\ny = 2\r\n", B: b"# coding: latin-1\nw = '\xe9'\n"}
    shown = difference(before, done.documents, {A: "a.py"})
    assert "--- a.py\n+++ a.py\n" in shown and f"--- {B}\n" in shown and "-x = 1" in shown and "+x = 7" in shown


def test_what_cannot_be_made_is_said_and_leaves_the_others() -> None:
    before = documents(a=b"x = 1\ny = 2\n")
    wanted = [
        finding((A, 1, 5, 6, "7")),
        finding((A, 1, 5, 6, "8")),
        finding((A, 2, 5, 6, "(")),
        finding((B, 1, 1, 2, "q")),
        finding((A, 2, 1, 2, "z")),
    ]
    done = chosen(before, wanted)
    assert done.documents[A].encode() == b"x = 7\nz = 2\n"
    assert [f.remedy.edits[0].text for f in done.made] == ["7", "z"]
    assert "overlaps" in done.refused[1] and "break the file" in done.refused[2]
    assert f"changes {B}, which is not one of the program's own files" in done.refused[3]
    assert chosen(before, []).changed(before) == {}


def test_originals_are_kept_all_or_none(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.py", "b.py")]
    for path in paths:
        path.write_text("x")
        path.chmod(0o600)
    keep_originals({str(path): b"before" for path in paths})
    for path in paths:
        kept = path.with_name(path.name + ".orig")
        assert kept.read_bytes() == b"before" and stat.S_IMODE(os.stat(kept).st_mode) == 0o600
    (tmp_path / "a.py.orig").unlink()
    with pytest.raises(BadInput, match=r"b\.py\.orig: already exists"):
        keep_originals({str(path): b"again" for path in paths})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.py", "b.py", "b.py.orig"]
    assert (tmp_path / "b.py.orig").read_bytes() == b"before"
