"""A list that is read by a slice of its last elements is kept as long as that."""

from __future__ import annotations

import pytest
from observed_fixes import fixed_lines

from torchvet.finding import Holder

SMOOTHER = """\
LAST = 5
class Smoother:
    def __init__(self, horizon):
        self.horizon = horizon
        self.saved = []

    def __call__(self, pred):
        self.saved.append(pred.detach())
        return torch.stack(self.saved[-self.horizon:]).mean(0)
"""
AT = "self.saved.append"
PUT = "        del self.saved[:-self.horizon]"


def trimmed(text: str) -> list[str]:
    return fixed_lines("MEM102", text, AT, holder=Holder(name="smooth.saved", kind="attribute"))[1]


@pytest.mark.parametrize(("changes", "expected"), [
    ({}, [PUT]),
    ({"-self.horizon": "-10"}, ["        del self.saved[:-10]"]),
    ({"-self.horizon": "-LAST"}, ["        del self.saved[:-LAST]"]),
    ({"self.saved.append(pred.detach())": "if pred is not None:\n            self.saved.append(pred)"}, ["    " + PUT]),
    ({".mean(0)": ".mean(0) + (0 if not self.saved else self.saved[-1])"}, [PUT]),
    ({".mean(0)": ".mean(0) + self.saved[-3]", "-self.horizon": "-3"}, ["        del self.saved[:-3]"]),
])  # fmt: skip
def test_what_no_slice_reads_is_let_go(changes: dict[str, str], expected: list[str]) -> None:
    text = SMOOTHER
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    assert trimmed(text) == expected


@pytest.mark.parametrize(("old", "new"), [
    (".mean(0)", ".mean(0) + self.saved[-3]"),
    (".mean(0)", ".mean(0) * len(self.saved)"),
    (".mean(0)", ".mean(0) + self.saved[0]"),
    (".mean(0)", ".mean(0) + torch.stack(self.saved[-3:])"),
    ("-self.horizon:", "-self.horizon:-1"),
    ("-self.horizon:", "-self.horizon::2"),
    ("-self.horizon:", ":-self.horizon"),
    ("-self.horizon:", "-0:"),
    ("-self.horizon:", "-horizon:"),
    ("-self.horizon:", "-self.length():"),
    ("    def __call__", "    def widen(self):\n        self.horizon += 1\n\n    def __call__"),
    ("    def __call__", "    def all(self):\n        return self.saved\n\n    def __call__"),
    ("LAST = 5", "def set(smooth):\n    smooth.horizon = 9"),
    ("self.saved = []", "self.saved = [torch.zeros(3)]"),
])  # fmt: skip
def test_what_may_be_read_otherwise_is_left_alone(old: str, new: str) -> None:
    assert old in SMOOTHER
    assert trimmed(SMOOTHER.replace(old, new)) == []
