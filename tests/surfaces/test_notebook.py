"""`%%vet` in a real kernel, by nbclient; and how cells are named in a report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from torchvet.finding import Edit, Finding, Location, Related, Remedy, Report

nbclient = pytest.importorskip("nbclient", reason="notebooks are run by nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

MODEL = """\
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []

def step(keep):
    loss = model(torch.randn(256, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if keep:
        kept.append(model(torch.randn(256, 64)).square().mean())
"""
CELLS = [
    "%load_ext torchvet",
    MODEL,
    "%%vet\n# leaky\nfor _ in range(24):\n    step(True)",
    "%%vet\nfor _ in range(24):\n    step(False)",
    "%%vet\nkeep = []\nfor _ in range(24):\n    x = model(torch.randn(256, 64))\n    keep.append(x)\nsteps = len(keep)",
    "%%vet\n%%capture out\nprint(steps)",
    "print(out)",
    "%%vet\nraise ValueError('mine')",
    "%%vet --fast\nprint('ran')",
    "import torchvet\nwith torchvet.watch() as watched:\n    for _ in range(24):\n        step(True)\nwatched.report",
]
LEAKY, HEALTHY, IN_CELL, _, PRINTED, FAILING, WRONG, REPORT = range(2, 10)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """What each cell of a notebook puts out, run once for all tests."""
    folder = tmp_path_factory.mktemp("notebook")
    spec = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "language": "python"}
    kernel = folder / "kernels" / "own"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps({**spec, "display_name": "own"}))
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager

    specs = KernelSpecManager(kernel_dirs=[str(folder / "kernels")])
    manager = AsyncKernelManager(kernel_name="own", kernel_spec_manager=specs)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    nbclient.NotebookClient(book, km=manager, timeout=300, allow_errors=True).execute(cwd=str(folder))
    return [cell.outputs for cell in book.cells]


def shown(outputs: list[Any], kind: str) -> str:
    return "".join(o.data.get(kind, "") for o in outputs if o.output_type in ("display_data", "execute_result"))


def test_a_cell_says_what_leaks_and_where(outputs: list[list[Any]]) -> None:
    for kind in ("text/html", "text/plain"):
        text = shown(outputs[LEAKY], kind)
        assert "MEM101" in text and "cell [2], line 13" in text and "kept.append(" in text
        assert "ipykernel" not in text


def test_a_healthy_cell_is_told_to_be_so(outputs: list[list[Any]]) -> None:
    assert "No fault found in 24 steps" in shown(outputs[HEALTHY], "text/html")


def test_lines_of_the_watched_cell_count_as_they_are_seen(outputs: list[list[Any]]) -> None:
    text = shown(outputs[IN_CELL], "text/plain")
    assert "cell [5], line 5" in text and "keep.append(x)" in text


def test_names_of_the_cell_stay(outputs: list[list[Any]]) -> None:
    assert [o.text for o in outputs[PRINTED]] == ["24\n\n"]


def test_an_error_is_the_cells_own_and_the_report_is_shown(outputs: list[list[Any]]) -> None:
    (error,) = [o for o in outputs[FAILING] if o.output_type == "error"]
    assert error.ename == "ValueError"
    assert "cell [8], line 2" in shown(outputs[FAILING], "text/plain")


def test_an_option_that_there_is_not_runs_nothing(outputs: list[list[Any]]) -> None:
    assert [o.get("text", "") for o in outputs[WRONG]] == [
        "%%vet: --fast: the one option is --every-step; nothing was run\n"
    ]


def test_a_report_that_is_a_cells_value_is_shown(outputs: list[list[Any]]) -> None:
    text = shown(outputs[REPORT], "text/html")
    assert "MEM101" in text and "cell [2], line 13" in text and "ipykernel" not in text


def test_files_of_cells_become_cells_wherever_they_stand() -> None:
    from torchvet.surfaces.notebook import by_cells

    file, other = "/tmp/ipykernel_7/12.py", "/tmp/train.py"
    found = Finding(
        code="MEM101", name="n", severity="error", evidence="observed", cause="c",
        message=f"made at {file}:3 and {other}:4", location=Location(path=file, line=3),
        remedy=Remedy(summary="s", edits=[Edit(path=file, start=(1, 1), end=(1, 2), text="x")]),
        related=[Related(role="also", message="m", path=other, line=2)],
    )  # fmt: skip
    given = Report(
        subject={"path": file}, verdict="findings", findings=[found], facts={"sources": {file: {"start": 1}}}
    )
    (mapped,), facts = (it := by_cells(given, {file: "cell [3]"}.get)).findings, it.facts
    assert mapped.message == f"made at cell [3], line 3 and {other}:4"
    assert mapped.location == Location(path="cell [3]", line=3) and mapped.related == found.related
    assert mapped.remedy.edits == [] and facts["sources"] == {"cell [3]": {"start": 1}}
    assert it.subject == {"path": "cell [3]"}


def test_a_path_is_shown_as_a_cell_only_if_it_is_one() -> None:
    from torchvet.renderers.places import at

    assert at("cell [3]", 4) == "cell [3], line 4"
    assert at(str(Path.cwd() / "a.py"), 4) == "a.py:4" and at("b/cell [3]", 4) == "b/cell [3]:4"
