"""`torchvet.check()` says what the verb says."""

from __future__ import annotations

from pathlib import Path

import pytest

import torchvet
from torchvet.rules import rule


def test_it_gives_a_report(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(rule("AMP101").BAD)
    report = torchvet.check(tmp_path, jobs=1)
    assert report.verdict == "findings" and "AMP101" in {f.code for f in report.findings}
    assert not torchvet.check(tmp_path, ignore=["AMP101"], select=["AMP1"], jobs=1).findings


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(torchvet.BadInput):
        torchvet.check(tmp_path / "no.py")
    with pytest.raises(torchvet.BadInput):
        torchvet.check(tmp_path, select=["XYZ"])
