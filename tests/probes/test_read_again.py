"""What datasets and loops read from files again: counted by the call that reads, and once for each pass."""

from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from example_runs import RECORDING, forked

from torchvet.recording import read
from torchvet.recording.records.reading import ReadAgain

np = pytest.importorskip("numpy")

PROGRAM = """
import json
from zipfile import ZipFile
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
class Songs(Dataset):
    def __init__(self):
        self.archives = [np.load(f"{number}.npz") for number in range(3)]
        self.zip, self.kept = ZipFile("texts.zip"), {}
    def __len__(self):
        return 12
    def __getitem__(self, at):
        return torch.as_tensor(ITEM, dtype=torch.float32)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Songs(), batch_size=2, shuffle=True, OPTIONS)
for epoch in range(3):
    for x in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
"""
IN_WORKERS = "num_workers=1, multiprocessing_context='fork'"


def program(item: str, options: str = "") -> str:
    return PROGRAM.replace("ITEM", item).replace("OPTIONS", options)


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        np.savez_compressed(f"{number}.npz", tune=np.ones((4, 4)), label=number)
    for number in range(12):
        np.save(f"{number}.npy", np.ones(4))
    torch.save(torch.ones(4), "rows.pt")
    texts = [json.dumps({"rows": [1.0] * count}) for count in (4, 4000)]
    Path("small.json").write_text(texts[0], encoding="utf-8")
    Path("large.json").write_text(texts[1], encoding="utf-8")
    with ZipFile("texts.zip", "w") as file:
        file.writestr("rows", b"1111")


def seen(text: str, folder: Path) -> list[ReadAgain]:
    assert forked(text, folder) is not None
    return read(folder / RECORDING).ranks[0].latest(ReadAgain, "id", "workers")


def test_members_of_archives_that_items_read(tmp_path: Path) -> None:
    (found,) = seen(program('self.archives[at // 4]["tune"][at % 4]'), tmp_path)
    assert (found.what, found.name, found.members, found.bytes) == ("npz", "tune", 3, 3 * 16 * 8)
    # Of 18 steps the first is not counted; of its pass only the other steps are.
    assert (found.place.line, found.steps, found.reads) == (14, 17, 34)
    assert found.again == 34 - 3 * 3 and found.seconds > 0
    assert found.in_loader and found.callers[0].line == 19


def test_the_same_in_a_worker(tmp_path: Path) -> None:
    (found,) = seen(program('self.archives[at // 4]["tune"][at % 4]', IN_WORKERS), tmp_path)
    assert (found.reads, found.again, found.members, found.workers) == (36, 27, 3, 3)
    assert found.watched > found.seconds > 0 and found.place.line == 14
    assert not list((tmp_path / RECORDING).glob("reads-*"))


def test_workers_that_stay_begin_passes_anew(tmp_path: Path) -> None:
    options = f"{IN_WORKERS}, persistent_workers=True"
    # Such a worker may be ended by a signal: what it has written until then counts.
    slow = '(__import__("time").sleep(0.03), self.archives[at // 4]["tune"][at % 4])[1]'
    (found,) = seen(program(slow, options), tmp_path)
    assert found.workers == 1 and found.reads > 12
    # In each of two passes, or three, the first of each member is none.
    assert 9 >= found.reads - found.again >= 4


@pytest.mark.parametrize(
    ("item", "what", "size"),
    [
        ('np.load(f"{at % 3}.npz")["tune"][at % 4]', "npz", 3 * 16 * 8),
        ('list(self.zip.read("rows"))', "zip", 4),
        ('np.load(f"{at % 3}.npy")', "npy", 3 * 4 * 8),
        ('torch.load("rows.pt")', "torch", 16),
        ('json.load(open("large.json"))["rows"][:4]', "json", None),
    ],
)
def test_other_files_that_items_read_whole(item: str, what: str, size: int | None, tmp_path: Path) -> None:
    (found,) = seen(program(item), tmp_path)
    assert (found.what, found.bytes) == (what, size or found.bytes)
    assert found.again > found.reads / 2


@pytest.mark.parametrize(
    "item",
    [
        'np.load(f"{at}.npy")',
        'np.load(f"{at % 3}.npy", mmap_mode="r")',
        'torch.load("rows.pt", mmap=True)',
        'self.kept["x"] if "x" in self.kept else self.kept.setdefault("x", self.archives[0]["tune"][0])',
        'json.load(open("small.json"))["rows"]',
        "np.frombuffer(np.ones(4).tobytes())",
    ],
    ids=["once a pass", "mapped", "mapped by torch", "kept", "small", "memory"],
)
@pytest.mark.parametrize("options", ["", IN_WORKERS])
def test_what_is_read_once_in_each_pass_is_not_read_again(item: str, options: str, tmp_path: Path) -> None:
    assert seen(program(item, options), tmp_path) == []


def test_a_file_that_changes_is_another_one(tmp_path: Path) -> None:
    item = '(np.save("0.npy", np.full(4, at)), np.load("0.npy"))[1]'
    assert seen(program(item).replace("range(3):\n    for", "range(1):\n    for"), tmp_path) == []


LOOP = """
import numpy as np
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
archives = [np.load(f"{number}.npz") for number in range(3)]
for step in range(12):
    rows, kind = READ
    optimizer.zero_grad()
    model(torch.as_tensor(rows, dtype=torch.float32)).sum().backward()
    optimizer.step()
"""


def test_a_loop_by_hand_that_reads_one_archive_in_each_step(tmp_path: Path) -> None:
    found = seen(LOOP.replace("READ", 'archives[0]["tune"], archives[0]["label"]'), tmp_path)
    # Two calls on one line: each reads the same again.
    assert [(one.name, one.reads, one.again, one.in_loader) for one in found] == [
        ("tune", 11, 10, False),
        ("label", 11, 10, False),
    ]


def test_a_loop_by_hand_that_goes_through_archives_reads_each_in_its_turn(tmp_path: Path) -> None:
    assert seen(LOOP.replace("READ", '(lambda one: (one["tune"], one["label"]))(archives[step % 3])'), tmp_path) == []


def test_errors_are_the_programs_own(tmp_path: Path) -> None:
    text = LOOP.replace("READ", 'archives[0]["tune"], 0').replace(
        "    optimizer.step()",
        """    optimizer.step()
    try:
        archives[0]["other"]
    except KeyError as error:
        assert "other" in str(error)
    for wrong in ("no such file.npy", None):
        try:
            np.load(wrong)
        except (FileNotFoundError, TypeError):
            pass
""",
    )
    (found,) = seen(text, tmp_path)
    assert found.name == "tune"
