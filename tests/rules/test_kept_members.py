"""Edits for archives whose members are read again: what they change, and where there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from observed_fixes import fixed_lines

from torchvet.finding import About

np = pytest.importorskip("numpy")

TEXT = """
import numpy as np
class Songs:
    def __init__(self, names):
        self.archives = [np.load(name) for name in names]
        self.labels = [archive["label"] for archive in self.archives]
    def __getitem__(self, at):
        return torch.from_numpy(self.archives[at]["tune"][0])
"""
AGAIN = About(variant="read again", operands=("npz",))


def fixed(text: str, at: str = '["tune"]') -> tuple[list[str], list[str]]:
    return fixed_lines("OPS301", text, at, about=AGAIN)


def test_archives_become_dicts_and_what_is_handed_out_is_a_copy() -> None:
    assert fixed(TEXT)[1] == [
        "        self.archives = [dict(np.load(name)) for name in names]",
        '        self.labels = [archive["label"].copy() for archive in self.archives]',
        '        return torch.from_numpy(self.archives[at]["tune"][0].copy())',
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('["tune"][0].copy())', None),
        ('["tune"].astype("float32"))', None),
        ('["tune"].astype("float32", copy=False))', '["tune"].copy().astype("float32", copy=False))'),
        ('["tune"])', '["tune"].copy())'),
        ('["tune"][0, 1:3].T)', '["tune"][0, 1:3].copy().T)'),
    ],
)
def test_only_what_shares_memory_is_copied(old: str, new: str | None) -> None:
    made = fixed(TEXT.replace('["tune"][0])', old))[1]
    assert len(made) == (3 if new else 2)
    assert not new or made[2].endswith(new)


def test_an_archive_in_a_name_or_a_dict() -> None:
    name = 'import numpy as np\narchive = np.load("a.npz")\nfor step in range(9):\n    x = archive["tune"].sum()\n'
    assert fixed(name)[1] == ['archive = dict(np.load("a.npz"))']
    each = TEXT.replace("[np.load(name) for name in names]", "{name: np.load(name) for name in names}")
    assert fixed(each) == ([], [])
    each = each.replace("in self.archives]", "in self.archives.values()]")
    assert fixed(each)[1][0] == "        self.archives = {name: dict(np.load(name)) for name in names}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("np.load(name)", 'np.load(name, mmap_mode="r")'),
        ("np.load(name)", "opened(name)"),
        ('archive["label"]', "archive.files"),
        ('archive["label"]', "archive[:1]"),
        ('archive["label"]', 'archive["label.npy"]'),
        ('archive["label"]', "helper(archive)"),
        ('archive["label"] for', "value for value in archive.values() for"),
        ('[archive["label"] for archive in self.archives]', "self.archives[0]"),
        ('[archive["label"] for archive in self.archives]', "self.archives"),
        ("    def __getitem__", "        other.archives.clear()\n    def __getitem__"),
        ("    def __getitem__", '        self.archives[0]["tune"][0] += 1\n    def __getitem__'),
        ("import numpy as np", "from data import np"),
        ("    def __getitem__", "        self.archives = []\n    def __getitem__"),
        ('self.archives[at]["tune"][0]', 'np.load(self.names[at])["tune"][0]'),
        ('["tune"][0]', "[self.key][0]"),
    ],
    ids=[
        "mapped",
        "other function",
        "attribute",
        "slice",
        "file name",
        "handed on",
        "values",
        "alias",
        "whole",
        "other object",
        "written",
        "other module",
        "bound twice",
        "opened here",
        "no key",
    ],
)
def test_what_is_not_sure_is_left_to_the_reader(old: str, new: str) -> None:
    assert fixed(TEXT.replace(old, new), "torch.from_numpy(") == ([], [])


OTHERS = """
import numpy as np
class Songs:
    def __init__(self, name):
        self.archive = np.load(name)
        self.mean = {key: self.archive[key].mean() for key in self.archive}
    def __len__(self):
        return len(self.archive["tune"])
    def __getitem__(self, at):
        tune = self.archive["tune"][at]
        label = self.archive["label"]
        label *= 2
        return tune, label[at], self.archive[self.more].shape
"""


def test_whatever_else_is_read_of_an_archive_is_a_copy_too() -> None:
    # In place, as above, it would be changed for good.
    assert fixed(OTHERS)[1] == [
        "        self.archive = dict(np.load(name))",
        '        tune = self.archive["tune"][at].copy()',
        '        label = self.archive["label"].copy()',
    ]


def test_files_that_others_close_are_no_archives() -> None:
    assert fixed(TEXT + "def show():\n    plt.close()\n")[1]


def test_items_are_the_same_and_may_still_be_written_to(tmp_path: Path) -> None:
    for number in range(2):
        np.savez_compressed(tmp_path / f"{number}.npz", tune=np.arange(6.0).reshape(2, 3) + number, label=number)
    after = TEXT
    for old, new in zip(*fixed(TEXT), strict=True):
        after = after.replace(old, new)
    texts = [TEXT, after]
    seen: list[list[Any]] = []
    for text in texts:
        made: dict[str, Any] = {}
        exec("import torch\n" + text, made)
        songs = made["Songs"]([tmp_path / f"{number}.npz" for number in range(2)])
        # In place, as an augmentation does.
        seen.append([songs[at % 2].add_(at).tolist() for at in range(6)])
    assert texts[0] != texts[1] and seen[0] == seen[1]
