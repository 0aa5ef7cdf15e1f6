"""The scale of a scaler on a device, worked out without reading it: reading makes the host wait."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchvet.probes.precision import scaler_states
from torchvet.probes.precision.scaler_states import Scalers

SKIPS = {
    "all": [True] * 30,
    "none": [False] * 30,
    "some": [False, False, True, False, False, False, True, True] * 4,
}


@pytest.mark.parametrize("skips", SKIPS.values(), ids=SKIPS)
def test_it_is_what_torch_makes_it(skips: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], 0.1)
    scaler = torch.amp.GradScaler("cpu", growth_interval=3)
    state = Scalers().of(scaler)
    state.note_scale()
    monkeypatch.setattr(scaler_states.ScalerState, "on_device", lambda self: True)
    for skip in skips:
        optimizer.zero_grad()
        scaler.scale(parameter * (torch.inf if skip else 1.0)).backward()
        scaler.step(optimizer)
        state.stepped_with(id(optimizer), skip)
        scaler.update()
        state.updated(None)
        assert state.use.scale == scaler.get_scale()


def test_what_is_not_known_is_not_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    scaler: Any = torch.amp.GradScaler("cpu")
    state = Scalers().of(scaler)
    state.note_scale()
    monkeypatch.setattr(scaler_states.ScalerState, "on_device", lambda self: True)
    state.stepped_with(1, None)
    state.updated(None)
    assert state.scales.get(state.generation) is None


def test_updates_that_are_alike_are_remembered_as_one() -> None:
    scaler: Any = torch.amp.GradScaler("cpu")
    state = Scalers().of(scaler)
    for step in range(10):
        state.stepped_with(1, False)
        state.divided.add(1 if step < 8 else 2)
        state.updated(None)
    assert len(state.updates) == 10 and len({id(one) for one in state.updates.values()}) == 2
    assert state.updates[8].divided == {1} and state.updates[9].divided == {2} == state.updates[10].divided
