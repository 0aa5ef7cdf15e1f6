"""The user's lines that ran in sampled steps are written once each, callers included."""

from __future__ import annotations

import sys
from types import FrameType

import torch

from torchvet.probes.base.ledger import Ledger
from torchvet.probes.base.lines_seen import LinesSeen


def here() -> FrameType:
    return sys._getframe(1)


def test_lines_around_a_frame_are_written_once() -> None:
    seen = LinesSeen()

    def inner() -> int:
        seen.around(here())
        return here().f_lineno - 1

    line = inner()
    called = here().f_lineno - 1
    (record,) = [r for r in seen.records() if r.path == __file__]
    assert {line, called} <= set(record.lines) and record.lines == sorted(record.lines)
    assert list(seen.records()) == []


def test_the_ledger_notes_where_operators_ran_and_who_called() -> None:
    ledger = Ledger()

    def work() -> torch.Tensor:
        return torch.ones(3) + 1

    assert ledger.enter()
    try:
        work()
        called = here().f_lineno - 1
    finally:
        ledger.leave()
    lines = next(r.lines for r in ledger.lines.records() if r.path == __file__)
    assert called in lines and work.__code__.co_firstlineno + 1 in lines
