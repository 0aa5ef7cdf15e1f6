"""A baseline knows findings by what they are about, not by where they stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from word_rules import WordRule

from torchvet.checking.baseline import read_baseline, without_known, write_baseline
from torchvet.checking.engine import FileResult, check_text
from torchvet.errors import BadInput

RULES = (WordRule("AAA101", "apple"), WordRule("BBB101", "beech"))


def checked(text: str, path: str = "a.py") -> list[FileResult]:
    return [check_text(path, "import torch\n" + text, RULES)]


def left(file: Path, text: str, path: str = "a.py") -> tuple[list[tuple[str, int]], int]:
    results, matched = without_known(checked(text, path), read_baseline(file), file.parent)
    return [(f.code, f.location.line - 1) for r in results for f in r.findings if f.location], matched


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert write_baseline(tmp_path / "known.json", checked("apple = 1\nif x:\n    apple = 2\n")) == 2
    return tmp_path / "known.json"


@pytest.mark.parametrize(
    ("text", "expected", "matched"),
    [
        ("apple = 1\nif x:\n    apple = 2\n", [], 2),
        ("# moved\n\nif x:\n  if y:\n        apple = 2\napple = 1\n", [], 2),
        ("apple = 1\napple = 1\n", [("AAA101", 2)], 1),
        ("apple = 3\n", [("AAA101", 1)], 0),
        ("apple = 1; beech\n", [("AAA101", 1), ("BBB101", 1)], 0),
        ("x = 1\n", [], 0),
    ],
)
def test_what_is_known_is_left_out(file: Path, text: str, expected: list[tuple[str, int]], matched: int) -> None:
    assert left(file, text) == (expected, matched)


def test_another_file_is_not_known(file: Path) -> None:
    assert left(file, "apple = 1\n", "b.py") == ([("AAA101", 1)], 0)


def test_paths_are_relative_to_the_baselines_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path)
    write_baseline(tmp_path / "known.json", checked("apple = 1\n", "src/a.py"))
    monkeypatch.chdir(tmp_path / "src")
    assert left(tmp_path / "known.json", "apple = 1\n") == ([], 1)


def test_the_file_is_plain_and_sorted(file: Path) -> None:
    tree = json.loads(file.read_text())
    assert tree == {
        "schema": "torchvet.baseline/1",
        "findings": [
            {"path": "a.py", "code": "AAA101", "function": "", "text": "apple = 1", "count": 1},
            {"path": "a.py", "code": "AAA101", "function": "", "text": "apple = 2", "count": 1},
        ],
    }


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"schema": "torchvet.baseline/9", "findings": []}', "\xff"])
def test_what_is_no_baseline_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "known.json").write_text(content, encoding="latin-1")
    with pytest.raises(BadInput, match=r"known\.json: .*--write-baseline"):
        read_baseline(tmp_path / "known.json")


def test_a_baseline_that_is_not_there_or_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_baseline(tmp_path / "known.json")
    with pytest.raises(BadInput, match="could not be written"):
        write_baseline(tmp_path / "nowhere" / "known.json", [])
