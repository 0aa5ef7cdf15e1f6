"""Which files are read: what is named always, what is below a folder but for what is nobody's source."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchvet.checking.discovery import discover
from torchvet.errors import BadInput


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")


def shown(*paths: str, exclude: tuple[str, ...] = (), root: Path | None = None) -> list[str]:
    return [target.shown for target in discover(paths, exclude, root)]


def test_python_files_and_notebooks_in_order(here: Path) -> None:
    make(here, "b.py", "a/z.py", "a/c.ipynb", "a/d.pyi", "a/e.txt", "a/b/f.py", "c.PY")
    assert shown(".") == ["b.py", "a/c.ipynb", "a/z.py", "a/b/f.py"]
    assert shown("a", "b.py", "a/z.py") == ["a/c.ipynb", "a/z.py", "a/b/f.py", "b.py"]


def test_what_nobody_wrote_is_left_out(here: Path) -> None:
    make(
        here, *(f"{d}/x.py" for d in (".venv", "venv", "node_modules", "__pycache__", "build", "dist", ".git", ".tox"))
    )
    make(here, "lib/site-packages/x.py", "src/build.py", "env/x.py")
    assert shown(".") == ["env/x.py", "src/build.py"]
    assert shown("build") == ["build/x.py"]


def test_what_is_named_is_read_whatever_it_is_called(here: Path) -> None:
    make(here, "script", ".hidden.py", "stub.pyi")
    (here / ".gitignore").write_text("*\n")
    assert shown("script", ".hidden.py", "stub.pyi") == ["script", ".hidden.py", "stub.pyi"]
    assert shown(".") == []


def test_exclude_is_relative_to_the_root_and_cannot_be_taken_back(here: Path) -> None:
    make(here, "src/a.py", "src/gen/b.py", "gen.py", "tests/a.py")
    (here / "src/.gitignore").write_text("!gen\n")
    assert shown(".", exclude=("gen", "/tests"), root=here) == ["gen.py", "src/a.py"]
    assert shown("src", exclude=("src/a.py",), root=here) == ["src/gen/b.py"]


def test_gitignore_files_above_count_within_a_repository(here: Path) -> None:
    make(here, "repo/src/pkg/a.py", "repo/src/pkg/b.py", "repo/src/c.py")
    (here / "repo/.gitignore").write_text("b.py\n")
    (here / "repo/src/.gitignore").write_text("c.py\n")
    assert shown("repo/src/pkg") == ["repo/src/pkg/a.py", "repo/src/pkg/b.py"]
    subprocess.run(["git", "init", "-q", "repo"], check=True)
    assert shown("repo/src/pkg") == ["repo/src/pkg/a.py"]
    assert shown("repo/src") == ["repo/src/pkg/a.py"]
    (here / "repo/.git/info/exclude").write_text("a.py\n")
    assert shown("repo") == []


def test_links_to_folders_are_not_followed(here: Path) -> None:
    make(here, "a/x.py")
    (here / "a/loop").symlink_to(here, target_is_directory=True)
    (here / "a/y.py").symlink_to("x.py")
    (here / "a/gone.py").symlink_to("nowhere.py")
    assert shown(".") == ["a/x.py", "a/y.py"]


def test_a_path_that_is_not_there(here: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere\.py: no such file or folder"):
        discover(["nowhere.py"])


def test_a_folder_that_may_not_be_read_is_passed_over(here: Path) -> None:
    make(here, "a/x.py", "b/y.py")
    (here / "a").chmod(0)
    try:
        expected = ["a/x.py", "b/y.py"] if os.geteuid() == 0 else ["b/y.py"]
        assert shown(".") == expected
    finally:
        (here / "a").chmod(0o755)


def test_paths_outside_the_working_directory_are_shown_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "work/a.py", "other/b.py")
    monkeypatch.chdir(tmp_path / "work")
    assert shown("..") == [str(tmp_path / "other/b.py"), "a.py"]


@given(st.lists(st.text(max_size=10), max_size=4))
def test_any_exclude_patterns(exclude: list[str]) -> None:
    folder = Path(__file__).parent
    names = {target.path for target in discover([str(folder)], exclude, folder)}
    assert names <= {str(p) for p in folder.iterdir()}
