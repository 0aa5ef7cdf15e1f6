"""What cannot be read is said, what never ends is refused, and what nests deeply or is long is checked all the same."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from word_rules import WordRule

import torchvet
from torchvet.checking import discovery
from torchvet.checking.checker import Checker
from torchvet.configuration import Configuration, Layer
from torchvet.errors import BadInput
from torchvet.finding import Report
from torchvet.renderers.listing import listing
from torchvet.workflows.report_output import Delivery

SOURCE = "import torch\napple = 1\n"


def checked(folder: Path, **options: list[str]) -> Report:
    return torchvet.check(folder, jobs=1, **options)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (SOURCE.encode("utf-16"), "UTF-16 text"),
        (b"\xfe\xff" + SOURCE.encode("utf-16-be"), "UTF-16 text"),
        (SOURCE.encode("utf-32"), "UTF-32 text"),
        (SOURCE.encode("utf-16-le"), "null bytes"),
        (bytes(range(256)) * 4, "null bytes"),
        ("x = 'é'\n".encode("latin-1"), "codec can't decode"),
    ],
)
def test_a_file_that_is_no_utf8_is_not_called_healthy(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "u.py").write_bytes(data)
    report = checked(tmp_path)
    (item,) = report.not_checked
    assert report.verdict == "undetermined" and reason in item.reason and item.check.endswith("u.py")


@pytest.mark.parametrize("data", [b'{"cells": [1,', b'{"cells": "x"}', b"[]", b"", "{}".encode("utf-16")])
def test_a_broken_notebook_without_torch_is_said(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "n.ipynb").write_bytes(data)
    report = checked(tmp_path)
    assert report.verdict == "undetermined" and "no valid notebook" in report.not_checked[0].reason


def test_a_sound_notebook_without_torch_is_healthy(tmp_path: Path) -> None:
    (tmp_path / "n.ipynb").write_bytes(b'{"cells": [{"cell_type": "code", "source": "x = ("}]}')
    assert checked(tmp_path).verdict == "clean"


def test_a_deep_cell_of_a_notebook_is_checked(words: tuple[WordRule, ...]) -> None:
    cell = '{"cell_type": "code", "source": "import torch\\napple = 1\\nx = ' + " + ".join(["1"] * 4000) + '"}'
    result = Checker(Configuration(Path()), words).check_bytes("n.ipynb", f'{{"cells": [{cell}]}}'.encode())
    assert [f.code for f in result.findings] == ["AAA101"] or result.not_checked


def test_a_folder_that_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "locked").mkdir()
    (tmp_path / "a.py").write_text("x = 1\n")
    entries = discovery._entries

    def refused(folder: str) -> list[os.DirEntry[str]]:
        if folder.endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return entries(folder)

    monkeypatch.setattr(discovery, "_entries", refused)
    report = checked(tmp_path)
    assert "the folder cannot be read: Permission denied" in report.not_checked[0].reason
    assert "No fault found in 1 file; 1 folder not checked" in listing(report)
    assert checked(tmp_path / "locked").verdict == "undetermined"


def test_a_link_that_leads_to_itself_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "loop.py").symlink_to(tmp_path / "loop.py")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "ring").symlink_to(tmp_path)
    (item,) = checked(tmp_path).not_checked
    assert item.check.endswith("loop.py") and "it cannot be read" in item.reason


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.py")
    with pytest.raises(BadInput, match="neither a file nor a folder; give `-`"):
        checked(tmp_path / "fifo.py")
    assert checked(tmp_path).facts["files"] == 0


def test_a_check_with_no_rule_left_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    with pytest.raises(BadInput, match="no rule is left to check"):
        checked(tmp_path, select=["MEM"], ignore=["MEM"])
    assert checked(tmp_path, select=["MEM302"], ignore=["MEM3"]).verdict == "clean"
    assert checked(tmp_path, select=["SYN001"]).verdict == "clean"


def test_what_a_configuration_leaves_is_judged_by_all_layers(words: tuple[WordRule, ...]) -> None:
    layers = (Layer("a file", select=("AAA",)), Layer("flags", ignore=("AAA",)))
    with pytest.raises(BadInput, match="no rule is left"):
        _ = Checker(Configuration(Path(), layers), words).scope


def test_a_run_is_asked_of_rules_that_no_source_shows() -> None:
    Delivery(outputs=(), format=None, quiet=True, select=("OPS312",)).check()
    with pytest.raises(BadInput, match="no rule is left"):
        Delivery(outputs=(), format=None, quiet=True, select=("OPS31",), ignore=("OPS31",)).check()


LAST = "    return torch.log(torch.softmax(y, 1))\n"
DEEP = {
    "sum": "    y = " + " + ".join(f"x.a{n}" for n in range(600)) + "\n",
    "elif": "    if x:\n        y = x\n" + "".join(f"    elif x == {n}:\n        y = x\n" for n in range(900)),
    "calls": "    y = x" + ".relu()" * 700 + "\n",
    "strings": "    y = x\n    s = " + " + ".join(["'a'"] * 2_000) + "\n",
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_text_loses_no_rule(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.py").write_text(f"import torch\ndef f(x):\n{DEEP[name]}{LAST}")
    report = checked(tmp_path)
    assert not report.not_checked and [f.code for f in report.findings] == ["NUM110"]


def test_a_long_line_costs_what_it_takes_to_parse(tmp_path: Path) -> None:
    rows = "X = [" + "1," * 200_000 + "]\n"
    (tmp_path / "a.py").write_text(f"import torch\ndef f(y):\n{LAST}{rows}")
    start = time.perf_counter()
    assert [f.code for f in checked(tmp_path).findings] == ["NUM110"]
    assert time.perf_counter() - start < 5


TRAIN = """
def train{}(model, loader, opt):
    losses = []
    for x in loader:
        opt.zero_grad()
        loss = model(x).sum()
        loss.backward()
        opt.step()
        losses.append(loss)
    return losses
"""


def test_many_loops_cost_in_proportion(tmp_path: Path) -> None:
    def cost(number: int) -> float:
        (tmp_path / "a.py").write_text("import torch\n" + "".join(map(TRAIN.format, range(number))))
        start = time.process_time()
        assert len(checked(tmp_path).findings) == number
        return time.process_time() - start

    cost(10)
    assert cost(800) < 8 * cost(200)
