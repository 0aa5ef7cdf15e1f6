"""What is remembered of files: by content, for the same rules only, and never to the cost of a result."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from word_rules import FaultyRule, WordRule

from torchvet.checking import cache as caching
from torchvet.checking.cache import Cache
from torchvet.checking.checker import Checker
from torchvet.checking.discovery import discover
from torchvet.checking.project import cache_for, check_files
from torchvet.configuration import Configuration, Layer

OLD = time.time() - 100


class Counting(Checker):
    """Counts the files that are really checked."""

    def __init__(self, configuration: Configuration, *rules: Any) -> None:
        super().__init__(configuration, rules or (WordRule("AAA101", "apple"), WordRule("BBB101", "beech")))
        self.checked: list[str] = []

    def check_bytes(self, shown: str, data: bytes) -> Any:
        self.checked.append(shown)
        return super().check_bytes(shown, data)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(caching, "_tool", lambda: "this version")  # whoever edits a rule meanwhile
    for name in ("a.py", "b.py"):
        write(tmp_path / name, "import torch\napple = 1\n" if name == "a.py" else "import torch\n")
    return tmp_path


def write(path: Path, text: str, when: float = OLD) -> None:
    path.write_text(text)
    os.utime(path, (when, when))


def check(here: Path, *rules: Any, layers: tuple[Layer, ...] = ()) -> tuple[list[str], list[str]]:
    """The codes found, and the files that were checked for it."""
    checker = Counting(Configuration(here, layers), *rules)
    targets = discover(["."])
    results = check_files(targets, checker, cache_for(checker.configuration, None), 1)
    assert results == [Checker(checker.configuration, checker.rules).check(t.path, t.shown) for t in targets]
    return [f.code for r in results for f in r.findings], checker.checked


def test_the_second_time_nothing_is_read(here: Path) -> None:
    assert check(here) == (["AAA101"], ["a.py", "b.py"])
    assert check(here) == (["AAA101"], [])


def test_a_changed_file_is_checked_again(here: Path) -> None:
    check(here)
    write(here / "b.py", "import torch\nbeech = 1\n", OLD + 1)
    assert check(here) == (["AAA101", "BBB101"], ["b.py"])


def test_a_touched_file_is_recognised_by_its_content(here: Path) -> None:
    check(here)
    write(here / "a.py", "import torch\napple = 1\n", OLD + 1)
    assert check(here) == (["AAA101"], [])


def test_a_change_within_the_clocks_step_is_seen(here: Path) -> None:
    """Same size, same time: the file was just written when it was read, so its time proves nothing."""
    now = time.time()
    write(here / "b.py", "import torch\napple = 1\n", now)
    assert check(here)[0] == ["AAA101", "AAA101"]
    write(here / "b.py", "import torch\nbeech = 1\n", now)
    assert check(here) == (["AAA101", "BBB101"], ["b.py"])


def test_other_rules_are_another_matter(here: Path) -> None:
    check(here)
    assert check(here, layers=(Layer("test", select=("BBB",)),)) == ([], ["a.py", "b.py"])
    assert check(here) == (["AAA101"], [])


def test_another_version_is_another_matter(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(here)
    monkeypatch.setattr(caching, "_tool", lambda: "newer")
    assert check(here)[1] == ["a.py", "b.py"]


def test_a_fault_of_ours_is_not_remembered(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHVET_DEBUG", raising=False)
    check(here, FaultyRule("AAA101", "apple"))
    assert check(here, FaultyRule("AAA101", "apple"))[1] == ["a.py", "b.py"]


def test_the_folder_is_marked_and_keeps_out_of_git(here: Path) -> None:
    check(here)
    folder = here / ".torchvet_cache"
    assert "*" in (folder / ".gitignore").read_text().splitlines()
    assert (folder / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    assert not list(folder.rglob("*.tmp"))


def test_torn_and_foreign_files_are_as_if_they_were_not_there(here: Path) -> None:
    check(here)
    (file,) = (here / ".torchvet_cache").rglob("*.msgpack")
    whole = file.read_bytes()
    chance = random.Random(0)
    cuts = [whole[: chance.randrange(len(whole))] for _ in range(20)]
    flips = [bytes([*whole[:i], whole[i] ^ 255, *whole[i + 1 :]]) for i in range(0, len(whole), 7)]
    for content in [b"", b"\xff", b"{}", *cuts, *flips]:
        file.write_bytes(content)
        assert check(here) == (["AAA101"], ["a.py", "b.py"])


def test_a_folder_that_cannot_be_made_costs_nothing(here: Path) -> None:
    (here / ".torchvet_cache").write_text("a file")
    assert check(here)[0] == ["AAA101"]
    assert (here / ".torchvet_cache").read_text() == "a file"


def test_what_is_long_unused_is_removed(here: Path) -> None:
    check(here)
    (file,) = (here / ".torchvet_cache").rglob("*.msgpack")
    long_ago = time.time() - 40 * 86400
    os.utime(file, (long_ago, long_ago))
    check(here, layers=(Layer("test", select=("BBB",)),))
    assert file not in list((here / ".torchvet_cache").rglob("*.msgpack"))


def test_entries_of_other_files_stay(here: Path) -> None:
    check(here)
    (here / "c.py").write_text("import torch\n")
    checker = Counting(Configuration(here))
    check_files(discover(["c.py"]), checker, cache_for(checker.configuration, None), 1)
    assert check(here)[1] == []


def test_paths_of_undecodable_bytes(here: Path) -> None:
    name = os.fsdecode(b"\xff.py")
    try:
        write(here / name, "import torch\napple = 1\n")
    except OSError:
        pytest.skip("this file system takes no such name")
    checker = Counting(Configuration(here))
    folder = here / "elsewhere"
    results = check_files(discover(["."]), checker, Cache(folder, "x"), 1)
    assert [r.path for r in results if r.findings] == ["a.py", "\\udcff.py"]
