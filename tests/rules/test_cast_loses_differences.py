"""NUM116 in source: times since 1970 that are cast and subtracted, and such as are not."""

from __future__ import annotations

import pytest

from torchvet.recording.records.base import Place
from torchvet.recording.records.numeric import LostDifference
from torchvet.rules import rule
from torchvet.rules.numerics.num116_cast_loses_differences.rule import _step
from torchvet.source.model import SourceFile

HEAD = """
import numpy as np
import pandas as pd
import torch

class Visits:
    def __init__(self, frame, timestamps, steps):
"""
FAULTY = {
    "a list of times": (
        "seen = torch.tensor([d.timestamp() for d in frame], dtype=torch.float32)",
        "self.waits = seen[1:] - seen[:-1]",
    ),
    "a named argument": ("seen = torch.as_tensor(timestamps, dtype=torch.float32)", "self.waits = torch.diff(seen)"),
    "NumPy": ("seen = timestamps.astype(np.float32)", "self.waits = np.diff(seen)"),
    "pandas": (
        "seen = pd.to_datetime(frame['when']).astype('int64').to_numpy().astype('float32')",
        "self.waits = np.diff(seen)",
    ),
    "bound before": (
        "whole = pd.to_datetime(frame['when']).astype('int64').to_numpy()",
        "seen = torch.from_numpy(whole).float()",
        "self.waits = seen.diff()",
    ),
    "all pairs": ("unix = timestamps.float()", "self.waits = unix.unsqueeze(1) - unix.unsqueeze(0)"),
}
HEALTHY = {
    "subtracted first": ("seen = (timestamps - timestamps[0]).float()", "self.waits = seen.diff()"),
    "differences first": ("self.waits = timestamps.diff().float()",),
    "float64": ("seen = torch.as_tensor(timestamps, dtype=torch.float64)", "self.waits = seen.diff()"),
    "not subtracted": ("self.seen = timestamps.float()",),
    "a mean": ("seen = timestamps.float()", "self.seen = (seen - seen.mean()) / seen.std()"),
    "steps": ("seen = steps.float()", "self.waits = seen.diff()"),
    "something else is subtracted": ("seen = timestamps.float()", "self.waits = steps[1:] - steps[:-1]"),
    "subtracted before the cast": ("self.waits = timestamps.diff()", "seen = timestamps.float()"),
}


def found(lines: tuple[str, ...]) -> list[tuple[str, int]]:
    text = HEAD + "".join(f"        {line}\n" for line in lines)
    findings = rule("NUM116").in_source(SourceFile("visits.py", text))
    return [(f.severity, f.location.line) for f in findings if f.location is not None and f.location.line is not None]


@pytest.mark.parametrize("lines", FAULTY.values(), ids=FAULTY)
def test_times_that_are_cast_first(lines: tuple[str, ...]) -> None:
    assert found(lines) == [("info", 6 + len(lines))]


@pytest.mark.parametrize("lines", HEALTHY.values(), ids=HEALTHY)
def test_times_whose_differences_are_kept(lines: tuple[str, ...]) -> None:
    assert found(lines) == []


@pytest.mark.parametrize(
    ("dtype", "at", "step"),
    [("float32", 1.7e9, 128), ("float32", 2.0**24, 2), ("float16", 5000, 4), ("bfloat16", 5000, 32)],
)
def test_steps_of_a_type(dtype: str, at: float, step: float) -> None:
    place = Place("a.py", 1, "f")
    assert _step(LostDifference(place=place, dtype=dtype, what="values", some=9, left=1, at=at)) == step
