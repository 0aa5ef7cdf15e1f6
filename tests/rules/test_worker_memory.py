"""Memory that loaders' workers copy as they read Python objects of their data set, and workers that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from example_runs import forked
from handmade import program, recording

from torchvet.finding import Finding
from torchvet.probes.memory.worker_memory import _objects
from torchvet.recording.records.base import Place, Source
from torchvet.recording.records.memory import HeldObjects, WorkerMemory
from torchvet.rules import rule

MIB = 1 << 20
PATH = "/home/me/data.py"
TEXT = "class Notes:\n    def __init__(self, rows):\n        self.rows = list(rows)\n"
MADE = Place("/home/me/train.py", 9, "main")


def seen(
    private: list[int], held: int = 200, owner: str = "Notes", code: str = "MEM115", copied: float | None = None
) -> list[Finding]:
    """A rule's findings for looks at two workers, in MiB."""
    objects = HeldObjects(name="dataset.rows", owner=owner, kind="list", items=90_000, bytes=held * MIB, copied=copied)
    record = WorkerMemory(
        id=0,
        place=MADE,
        workers=2,
        batches=list(range(1, len(private) + 1)),
        private=[one * MIB for one in private],
        held=[objects] if held else [],
    )
    return list(rule(code).in_recording(recording(program(), Source(path=PATH, text=TEXT), record)))


@pytest.mark.parametrize(
    ("private", "severity"),
    [([20, 60, 100, 130, 150], "warning"), ([20, 30, 35, 45], "info"), ([20, 200, 400, 400, 400], "warning")],
    ids=["rises", "rises a little", "until all is copied"],
)
def test_workers_that_copy_are_named_with_what_they_read(private: list[int], severity: str) -> None:
    (found,) = seen(private)
    assert found.severity == severity and found.evidence == "observed"
    assert found.location is not None and (found.location.path, found.location.line) == (PATH, 3)
    assert found.holder is not None and found.holder.name == "Notes.rows"
    assert found.measured.bytes == (private[-1] - private[0]) * MIB
    assert [(one.role, one.line) for one in found.related] == [("workers", 9)]


@pytest.mark.parametrize(
    ("private", "held"),
    [([20, 60, 100], 200), ([20, 22, 25, 30], 200), ([20, 60, 100, 130], 0), ([20, 200, 300, 400], 40),
     ([20, 120, 120, 120, 120, 120], 200), ([150, 100, 60, 20], 200)],
    ids=["few looks", "little", "arrays alone", "more than the objects", "once", "falls"],
)  # fmt: skip
def test_workers_that_do_not_copy_objects(private: list[int], held: int) -> None:
    assert not seen(private, held)


@pytest.mark.parametrize(
    ("private", "held", "told"),
    [([20, 60, 100, 130, 160], 0, 1), ([20, 200, 300, 500], 40, 1), ([20, 60, 100, 130], 200, 0),
     ([20, 150, 160, 161, 162], 0, 0), ([20, 30, 40, 50], 0, 0), ([20, 120, 90, 60, 110], 0, 0)],
    ids=["goes on", "more than the objects", "copies", "filled once", "little", "up and down"],
)  # fmt: skip
def test_workers_that_grow_by_something_else_are_a_note(private: list[int], held: int, told: int) -> None:
    found = seen(private, held, code="MEM118")
    assert [(f.severity, f.location and f.location.line) for f in found] == [("info", MADE.line)] * told


@pytest.mark.parametrize(
    ("copied", "code", "told"), [(0.9, "MEM115", 1), (0.5, "MEM115", 0), (0.0, "MEM115", 0), (0.0, "MEM118", 1)]
)
def test_pages_that_workers_still_share_were_not_copied(copied: float, code: str, told: int) -> None:
    found = seen([20, 200, 300, 400], code=code, copied=copied)
    assert len(found) == told
    if code == "MEM115" and told:
        assert "90 % of their pages" in found[0].cause


def test_without_the_class_the_loader_is_the_line() -> None:
    (found,) = seen([20, 60, 100, 130], owner="Other")
    assert found.location is not None and found.location.line == MADE.line and not found.related


class Kept:
    """A data set that says what it is asked for."""

    def __init__(self) -> None:
        self.rows = [{"number": f"M{n}", "words": [n, n + 1]} for n in range(2_000)]
        self.by_name = {f"{n}": float(n) for n in range(2_000)}
        self.arrays = [np.zeros(4) for _ in range(2_000)]
        self.tensors = [torch.zeros(1)] * 2_000
        self.few = ["a"] * 20
        self.odd = Odd(["a"] * 2_000)

    @property
    def expensive(self) -> list[str]:
        raise AssertionError("no code of the program's is to run")


class Odd(list):  # type: ignore[type-arg]
    """A list that does more than a list does."""

    def __len__(self) -> int:
        raise AssertionError("no code of the program's is to run")


class Part:
    """A part of another data set, as `torch.utils.data.Subset` is one."""

    def __init__(self, dataset: Any) -> None:
        self.dataset, self.indices = dataset, range(9)


def test_objects_of_a_data_set_are_measured_by_a_sample() -> None:
    found = {one.objects.name: one.objects for one in _objects(Part(Kept()))}
    assert sorted(found) == ["dataset.by_name", "dataset.rows"]
    rows = found["dataset.rows"]
    assert (rows.owner, rows.kind, rows.items) == ("Kept", "list", 2_000)
    # A dict, two keys, a string, a list and two numbers each.
    assert 300 * 2_000 < rows.bytes < 900 * 2_000


PROGRAM = """
import torch
from torch.utils.data import DataLoader, Dataset

class Notes(Dataset):
    def __init__(self):
        KEPT

    def __len__(self):
        return 200_000

    def __getitem__(self, index):
        return READ

torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
rule = torch.optim.SGD(model.parameters(), lr=1e-9)
loader = DataLoader(Notes(), batch_size=500, shuffle=True, num_workers=WORKERS, multiprocessing_context=CONTEXT)
for number, x in enumerate(loader):
    rule.zero_grad()
    model(x.view(-1, 1)).mean().backward()
    rule.step()
    if number > 250:
        break
"""
ROWS = "self.rows = [{'value': float(n), 'name': f'note {n} of all', 'parts': [n, n + 1]} for n in range(200_000)]"
ROW = "torch.tensor(self.rows[index]['value'])"
CACHED = "self.cache.setdefault(index, torch.full((128,), float(index)))[:1]"


@pytest.mark.parametrize(
    ("kept", "read", "workers", "told"),
    [
        (ROWS, ROW, 2, True),
        # The list is kept and not read: what rises is a cache.
        (ROWS + "; self.cache = {}", CACHED, 2, False),
        ("self.values = torch.arange(200_000.0)", "self.values[index]", 2, False),
        (ROWS, ROW, 0, False),
    ],
    ids=["objects", "a cache beside objects", "a tensor", "no workers"],
)
def test_a_run_measures_its_workers(kept: str, read: str, workers: int, told: bool, tmp_path: Path) -> None:
    text = PROGRAM.replace("KEPT", kept).replace("READ", read).replace("WORKERS", str(workers))
    text = text.replace("CONTEXT", "'fork'" if workers else "None")
    observed = forked(text, tmp_path)
    assert observed is not None
    lines = [text.splitlines()[f["location"]["line"] - 1].strip() for f in observed if f["code"] == "MEM115"]
    assert lines == ([kept] if told else [])
