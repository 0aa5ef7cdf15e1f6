"""`when_imported`: called once, at the end of the import, leaving nothing behind."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from torchvet.probes.session.import_hook import when_imported


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.meta_path)
    yield tmp_path
    sys.meta_path[:] = before
    for name in [n for n in sys.modules if n.startswith("watched")]:
        del sys.modules[name]


def test_called_once_at_the_end_of_the_import(folder: Path) -> None:
    (folder / "watched.py").write_text("early = 1\nspec, loader = __spec__, __loader__\nlate = 2\n")
    before = list(sys.meta_path)
    called: list[ModuleType] = []
    when_imported("watched", lambda module: called.append((module, module.late)))  # type: ignore[arg-type]
    importlib.reload(json)  # another module's import is none of ours
    watched = importlib.import_module("watched")
    assert called == [(watched, 2)]
    assert sys.meta_path == before
    importlib.reload(watched)
    assert len(called) == 1


def test_the_module_is_as_it_would_be(folder: Path) -> None:
    (folder / "watched.py").write_text("during = dict(vars(__loader__)), __loader__ is __spec__.loader\n")
    (folder / "watched_not.py").write_text((folder / "watched.py").read_text())
    when_imported("watched", lambda module: None)
    mine, other = importlib.import_module("watched"), importlib.import_module("watched_not")
    assert type(mine.__loader__) is type(other.__loader__)
    assert vars(mine.__loader__).keys() == vars(other.__loader__).keys()
    assert mine.during[0].keys() == other.during[0].keys() and mine.during[1]
    assert mine.__spec__ is not None and mine.__spec__.loader is mine.__loader__


def test_a_question_is_no_import(folder: Path) -> None:
    (folder / "watched.py").write_text("x = 1\n")
    called: list[ModuleType] = []
    when_imported("watched", called.append)
    assert importlib.util.find_spec("watched") is not None
    assert called == []
    module = importlib.import_module("watched")
    assert called == [module]


def test_a_failed_import_may_be_tried_again(folder: Path) -> None:
    (folder / "watched.py").write_text("import watched_later\n")
    called: list[ModuleType] = []
    when_imported("watched", called.append)
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("watched")
    assert called == []
    (folder / "watched_later.py").write_text("")
    importlib.invalidate_caches()
    module = importlib.import_module("watched")
    assert called == [module]


def test_a_module_that_is_missing_stays_missing(folder: Path) -> None:
    when_imported("watched_never", lambda module: pytest.fail("imported"))
    assert importlib.util.find_spec("watched_never") is None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("watched_never")


def test_called_at_once_for_a_loaded_module() -> None:
    called: list[ModuleType] = []
    when_imported("sys", called.append)
    assert called == [sys]


def test_submodules_may_be_imported_by_the_callback_and_packages_work(folder: Path) -> None:
    (folder / "watched_package").mkdir()
    (folder / "watched_package/__init__.py").write_text("from watched_package import inner\n")
    (folder / "watched_package/inner.py").write_text("import watched_package\n")
    (folder / "watched_package/other.py").write_text("from watched_package import inner\nvalue = 3\n")
    got: list[int] = []

    def callback(module: ModuleType) -> None:
        got.append(importlib.import_module("watched_package.other").value)

    when_imported("watched_package", callback)
    importlib.import_module("watched_package.inner")
    assert got == [3]
