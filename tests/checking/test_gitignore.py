"""What .gitignore leaves out, held against git itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchvet.checking.discovery import discover
from torchvet.checking.gitignore import matches, parse

GIT = shutil.which("git")
NAMES = ("a", "b", "ab", "b.py", "a.py", "a b.py", "[a].py", "a*.py", "!a.py", "#a.py", "-.py", "é.py", "ab.ipynb")
PIECES = st.sampled_from([
    "a", "b", "ab", ".py", "*", "**", "?", "/", "/", "[ab]", "[!a]", "[^b]", "[a-b]", "[]a]", "[b-a]", "[[:alpha:]]",
    "[", "]", "\\", "\\*", "!", "#", " ", "\\ ", "é", "-",
])  # fmt: skip
# Before git 2.41 stars in the middle of a name compared pointers into two texts: what came of it was chance.
LINES = (
    st.lists(PIECES, max_size=5).map("".join).filter(lambda line: not re.search(r"[^/*]\*\*", line.removeprefix("!")))
)
TEXTS = st.lists(LINES, max_size=5).map("\n".join)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A repository with folders three deep and files of odd names in each."""
    if GIT is None:
        pytest.skip("git is not installed")
    root = tmp_path_factory.mktemp("tree")
    subprocess.run([GIT, "init", "-q", str(root)], check=True)
    for folder in (root, root / "a", root / "ab", root / "a" / "b", root / "a" / "b" / "a"):
        folder.mkdir(exist_ok=True)
        for name in NAMES:
            if not (folder / name).exists() and "." in name:
                (folder / name).write_text("")
    before = Path.cwd()
    os.chdir(root)
    yield root
    os.chdir(before)


def by_git(tree: Path) -> list[str]:
    """The files that git sees below a folder."""
    assert GIT is not None
    command = [GIT, "-c", "core.excludesFile=", "ls-files", "-z", "--others", "--exclude-standard"]
    out = subprocess.run(command, cwd=tree, capture_output=True, check=True).stdout.decode()
    return sorted(name for name in out.split("\0") if name.endswith((".py", ".ipynb")))


def by_torchvet(tree: Path) -> list[str]:
    return sorted(target.shown for target in discover([str(tree)]))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(root=TEXTS, nested=st.none() | TEXTS, deep=st.none() | TEXTS)
def test_the_same_files_as_git(tree: Path, root: str, nested: str | None, deep: str | None) -> None:
    for folder, text in ((tree, root), (tree / "a", nested), (tree / "a" / "b", deep)):
        file = folder / ".gitignore"
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_bytes(text.encode())
    assert by_torchvet(tree) == by_git(tree)


@pytest.mark.parametrize(
    ("text", "path", "folder", "expected"),
    [
        ("*.py", "a/b.py", False, True),
        ("/a.py", "a.py", False, True),
        ("/a.py", "b/a.py", False, None),
        ("a/b", "x/a/b", False, None),
        ("logs/", "logs", False, None),
        ("logs/", "x/logs", True, True),
        ("a/**", "a", True, None),
        ("a/**", "a/b", False, True),
        ("**/a", "x/y/a", False, True),
        ("a/**/b", "a/b", False, True),
        ("a**/b", "a/x/b", False, None),
        ("a**/b", "ax/b", False, True),
        ("a/**/b", "a/x/y/b", False, True),
        ("*.py\n!keep.py", "keep.py", False, False),
        ("!keep.py\n*.py", "keep.py", False, True),
        ("# a.py", "# a.py", False, None),
        ("\\#a", "#a", False, True),
        ("a.py  ", "a.py", False, True),
        ("a.py\\ ", "a.py ", False, True),
        ("a.py\r\n", "a.py", False, True),
        ("a[/]b", "a/b", False, None),
        ("", "a", False, None),
    ],
)
def test_patterns(text: str, path: str, folder: bool, expected: bool | None) -> None:
    assert matches(parse(text), path, folder) is expected


@given(st.text(max_size=40), st.text(max_size=20))
def test_any_text_is_a_gitignore(text: str, path: str) -> None:
    assert matches(parse(text), path, False) in (True, False, None)
