"""Stacks are numbered by content, whether their frames are the same objects or only equal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchvet.errors import BadInput
from torchvet.readers.stacks import Stacks


def frame(line: int) -> dict[str, Any]:
    return {"filename": "train.py", "line": line, "name": "f"}


SHARED = [frame(line) for line in range(4)]


@given(st.lists(st.lists(st.integers(0, 3), max_size=7), max_size=60), st.booleans())
def test_equal_stacks_have_one_number(told: list[list[int]], shared: bool) -> None:
    stacks = Stacks()
    kept = [[SHARED[n] if shared else frame(n) for n in lines] for lines in told]
    numbers = [stacks.number(frames) for frames in kept]
    frames, table = list(stacks.frames), list(stacks.stacks)
    assert [[frames[n].line for n in table[number]] for number in numbers] == told
    assert len(set(map(tuple, told)) | {()}) == len(table)


def test_no_frames_are_no_stack() -> None:
    assert Stacks().number(None) == Stacks().number([]) == 0


@pytest.mark.parametrize("frames", [5, "train.py", [1], [None, frame(1)], {"a": 1}])
def test_what_is_no_stack_is_refused(frames: Any) -> None:
    with pytest.raises(BadInput):
        Stacks().number(frames)
