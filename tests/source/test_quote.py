"""Where the lines come from that a report quotes: a stranger's report names files, and gets none of the reader's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchvet.finding import Location
from torchvet.source.quote import quote


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of five lines."""
    path = tmp_path / "file.py"
    path.write_text("\n".join("abcde"))
    return path


def at(path: Path | str, line: int = 3) -> Location:
    return Location(path=str(path), line=line)


def test_a_report_without_texts_is_of_files_that_are_there(file: Path) -> None:
    assert quote(at(file)) == (2, ["b", "c", "d"], 3)
    assert quote(at(file, 9)) is None and quote(at(file.with_name("gone.py"))) is None


def test_a_report_with_texts_is_quoted_from_them_alone(file: Path) -> None:
    kept = {str(file): {"start": 3, "lines": ["C", "D"]}}
    assert quote(at(file), kept) == (3, ["C", "D"], 3)
    assert quote(at(file, 1), kept) is None
    assert quote(at(file), {}) is None


@pytest.mark.parametrize("name", ["secrets.env", "device.py", "pipe.py"])
def test_only_regular_files_of_python_are_quoted(file: Path, name: str) -> None:
    path = file.with_name(name)
    if name == "device.py":
        path.symlink_to("/dev/zero")
    elif name == "pipe.py":
        os.mkfifo(path)
    else:
        path.write_text("\n".join("abcde"))
    assert quote(at(path)) is None
