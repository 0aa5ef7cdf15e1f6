"""Training that goes on in eval mode after it was in train mode."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from torchvet.probes.base.schedule import Checkups
from torchvet.probes.training import eval_mode_training
from torchvet.probes.training.eval_mode_training import StuckModes
from torchvet.recording.records.training import EvalModeSteps


def watched(*models: nn.Module) -> StuckModes:
    host: Any = SimpleNamespace(active=True, sampling=True, known=SimpleNamespace(live_roots=lambda: list(models)))
    return StuckModes(host)


def step(model: nn.Module, probe: StuckModes, tick: int) -> None:
    model(torch.randn(4, 3)).sum().backward()
    probe.settle(tick, "training")


def net(layer: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 3), layer)


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.BatchNorm1d(3)])
def test_steps_in_eval_mode_after_steps_in_train_mode_are_counted(layer: nn.Module) -> None:
    model = net(layer)
    probe = watched(model)
    step(model, probe, 1)
    model.eval()
    step(model, probe, 2)
    step(model, probe, 5)
    assert list(probe.totals(5)) == [EvalModeSteps(model="Sequential", layer=type(layer).__name__, since=2, steps=2)]


def test_what_was_never_in_train_mode_is_meant_so() -> None:
    model = net(nn.Dropout(0.5)).eval()
    probe = watched(model)
    for tick in (1, 2):
        step(model, probe, tick)
    assert list(probe.totals(2)) == []


def test_some_layers_in_eval_mode_are_frozen_on_purpose() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.1))
    probe = watched(model)
    step(model, probe, 1)
    model[1].eval()
    step(model, probe, 2)
    assert list(probe.totals(2)) == []


def test_a_teacher_and_layers_without_a_mode_are_passed_by() -> None:
    teacher, plain = net(nn.Dropout(0.5)), net(nn.ReLU())
    probe = watched(teacher, plain)
    probe.settle(1, "training")
    teacher.eval(), plain.eval()
    with torch.no_grad():
        teacher(torch.randn(4, 3))
    probe.settle(2, "training")
    probe.settle(3, "evaluation")
    assert list(probe.totals(3)) == []


def test_a_model_that_is_kept_after_its_training_is_trained_no_more() -> None:
    first, second = net(nn.Dropout(0.5)), net(nn.Dropout(0.5))
    probe = watched(first, second)
    step(first, probe, 1)
    step(first, probe, 2)
    first.eval()
    for tick in range(3, 7):
        step(second, probe, tick)
    assert list(probe.totals(6)) == []


def test_a_model_in_a_dead_ones_place_was_not_trained_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [net(nn.Dropout(0.5))]
    probe = watched(models[0])
    monkeypatch.setattr(probe.host.known, "live_roots", lambda: list(models))
    monkeypatch.setattr(eval_mode_training, "id", lambda o: 1 if isinstance(o, nn.Sequential) else id(o), raising=False)
    step(models[0], probe, 1)
    models[0] = net(nn.Dropout(0.5)).eval()
    for tick in (2, 3, 4):
        step(models[0], probe, tick)
    assert list(probe.totals(4)) == []


def test_of_two_models_switched_together_each_is_seen_to_evaluate() -> None:
    first, second = net(nn.Dropout(0.5)), net(nn.Dropout(0.5))
    probe = watched(first, second)
    try:
        for tick in (1, 2):
            step(first, probe, tick), step(second, probe, tick)
        for model in (first, second):
            model.eval()
            probe.mode_changed(model, False)
        with torch.no_grad():
            second(first(torch.randn(4, 3)))
        first.train()
        probe.mode_changed(first, True)
        for tick in (3, 4, 5):
            step(first, probe, tick), step(second, probe, tick)
    finally:
        probe.remove()
    (stuck,) = probe.totals(5)
    assert isinstance(stuck, EvalModeSteps) and stuck.switched is not None


def test_looks_grow_rarer_and_never_end() -> None:
    checkups = Checkups()
    looks = [tick for tick in range(1, 2001) if checkups.due(tick)]
    assert looks[:4] == [4, 8, 12, 16] and looks[-1] > 1500 and len(looks) < 30
