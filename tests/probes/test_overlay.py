"""Other texts in the place of files: compiled, quoted and recorded, and nothing on disk is touched."""

from __future__ import annotations

import importlib
import inspect
import random
import subprocess
import sys
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest
from hosts import ByHand

from torchvet.probes.session import overlay, sources
from torchvet.probes.session.program import Target
from torchvet.probes.session.seeding import seed_before_program
from torchvet.probes.session.sources import SourceKeeper
from torchvet.recording.records.base import Source
from torchvet.workflows.repeat import write_overlay

WAS = "WHERE = __file__\n\ndef value():\n    return 'as it was'\n"
IS = "import math\n" + WAS.replace("as it was", "mended")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that modules are imported from; what is put in their place is forgotten afterwards."""
    monkeypatch.setattr(overlay, "_contents", {})
    monkeypatch.setattr(SourceFileLoader, "get_code", SourceFileLoader.get_code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return tmp_path


def put(folder: Path, path: Path, content: bytes) -> None:
    place = folder / "overlay"
    place.mkdir()
    overlay.install(write_overlay(place, {str(path): content}))


def test_a_module_has_the_other_text_and_its_own_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_MOST", len(sys.modules) + 9)  # this process may have loaded many tests
    path = folder / "overlaid_module.py"
    path.write_text(WAS)
    assert importlib.import_module("overlaid_module").value() == "as it was"
    cached = [p.read_bytes() for p in folder.rglob("*.pyc")]
    assert cached, "a cache of the old text is there to be passed by"
    del sys.modules["overlaid_module"]
    put(folder, path, IS.encode())
    module = importlib.import_module("overlaid_module")
    assert module.value() == "mended" and str(path) == module.WHERE
    assert path.read_text() == WAS and [p.read_bytes() for p in folder.rglob("*.pyc")] == cached
    assert "mended" in inspect.getsource(module.value)
    host: Any = ByHand()
    SourceKeeper(host).names_counted(1)
    kept: list[Source] = host.written
    assert [s.text for s in kept if s.path == str(path)] == [IS]
    del sys.modules["overlaid_module"]


def test_other_modules_are_left_alone(folder: Path) -> None:
    (folder / "plain_module.py").write_text(WAS)
    put(folder, folder / "overlaid_other.py", IS.encode())
    assert importlib.import_module("plain_module").value() == "as it was"
    del sys.modules["plain_module"]


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfx = 1\r\ndef f():\r\n\traise ValueError('h\xc3\xa9')\r\n",
        b"# coding: latin-1\nx = 1\ndef f(): raise ValueError('h\xe9')\n",
    ],
)
def test_a_script_is_compiled_from_bytes_as_python_reads_them(
    folder: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = folder / "overlaid_script.py"
    script.write_text("raise SystemExit(9)")
    put(folder, script, content)
    for name in ("argv", "path", "orig_argv", "modules"):
        monkeypatch.setattr(sys, name, getattr(sys, name).copy())
    target = Target(str(script), None, [])
    target.install()
    assert target.code is not None
    names: dict[str, object] = {}
    exec(target.code, names)
    with pytest.raises(ValueError, match="hé") as raised:
        names["f"]()  # type: ignore[operator]
    quoted = "".join(traceback.format_tb(raised.value.__traceback__))
    assert "raise ValueError('hé')" in quoted


def test_numpys_generators_without_a_seed_are_each_their_own_and_the_same_in_every_run() -> None:
    program = """
from torchvet.probes.session.seeding import seed_before_program
seed_before_program(3)
import numpy as np
from numpy.random import default_rng
print(np.random.random(), *(default_rng(*a).random() for a in ((), (), (7,))), np.random.default_rng(seed=7).random())
"""
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in "ab"]
    assert runs[0].stdout == runs[1].stdout
    figures = runs[0].stdout.split()
    assert len(set(figures)) == 4 and figures[3] == figures[4]  # a seed that is given is kept


def test_generators_start_from_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))  # NumPy, if it is not there yet, is waited for
    state = random.getstate()
    try:
        seed_before_program(3)
        first = random.random()
        seed_before_program(3)
        assert random.random() == first == random.Random(3).random()
    finally:
        random.setstate(state)


def test_the_file_that_a_run_is_about_is_kept_before_all_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite of tests has more modules than are kept."""
    monkeypatch.setattr(sources, "_MOST", 1)
    (folder / "about_first.py").write_text(WAS)
    monkeypatch.chdir(folder)
    importlib.import_module("about_first")
    host: Any = ByHand()
    host.options.path = "about_first.py"
    SourceKeeper(host).names_counted(1)
    del sys.modules["about_first"]
    assert [s.path for s in host.written] == [str(folder / "about_first.py")]


def test_a_name_that_is_imported_again_from_another_file_is_another_module(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`conftest` in each folder of a suite of tests."""
    monkeypatch.setattr(sources, "_MOST", len(sys.modules) + 9)
    host: Any = ByHand()
    keeper, kept = SourceKeeper(host), []
    for name in ("one", "other"):
        (folder / name).mkdir()
        (folder / name / "same_name.py").write_text(WAS)
        monkeypatch.syspath_prepend(str(folder / name))
        kept.append(importlib.import_module("same_name"))
        keeper.names_counted(1)
        del sys.modules["same_name"]
    assert {s.path for s in host.written} >= {str(folder / name / "same_name.py") for name in ("one", "other")}
