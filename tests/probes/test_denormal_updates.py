"""An optimizer whose moments have decayed into denormal numbers is seen, and an update is timed with and without."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torchvet.probes.time import denormal_updates
from torchvet.probes.time.denormal_updates import DenormalUpdates
from torchvet.recording.records.timing import DenormalState


def seen(moment: float, how: str = "finished") -> list[DenormalState]:
    """What is written of an optimizer of which three quarters of both moments are this number."""
    weight = torch.nn.Parameter(torch.ones(4000))
    optimizer = torch.optim.Adam([weight])
    weight.grad = torch.ones(4000)
    written: list[Any] = []
    known = SimpleNamespace(live_optimizers=lambda: [optimizer])
    host: Any = SimpleNamespace(known=known, write=written.append)
    probe = DenormalUpdates(host)
    probe.optimizer_starts(optimizer)
    optimizer.step()
    for value in optimizer.state[weight].values():
        if value.numel() > 1:
            value[:3000] = moment
    before = [value.clone() for value in optimizer.state[weight].values()]
    for tick in range(1, 9):
        probe.settle(tick, "training")
    probe.last_look(how, None)
    for a, b in zip(before, optimizer.state[weight].values(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    return written


def test_denormal_state_is_timed_and_the_setting_is_as_it_was() -> None:
    (record,) = seen(1e-42)
    assert record.name == "Adam" and record.elements == 4000 and abs(record.share - 0.75) < 0.02
    assert record.plain > 0 and record.flushed > 0
    assert float(torch.tensor(1e-42) * 1.0) > 0


@pytest.mark.parametrize("moment", [0.0, 1e-30, float("nan")])
def test_zero_and_small_numbers_are_none(moment: float) -> None:
    assert seen(moment) == []


def test_nothing_is_timed_after_an_error_or_where_they_are_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(1e-42, how="exception") == []
    monkeypatch.setattr(denormal_updates, "_flushes", lambda: True)
    assert seen(1e-42) == []
