"""Dropout and batch norm at work where gradients are off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as nn_module

from torchvet.probes.training.train_mode import TrainModePasses
from torchvet.recording.records.training import TrainModePass


class _Host:
    active = True

    @contextmanager
    def looking(self, what: str) -> Iterator[None]:
        yield


@pytest.fixture
def probe() -> Iterator[TrainModePasses]:
    host: Any = _Host()
    watcher = TrainModePasses(host)
    entered, hooks = torch.no_grad.__enter__, len(nn_module._global_forward_pre_hooks)
    watcher.install()
    yield watcher
    watcher.remove()
    assert torch.no_grad.__enter__ is entered and len(nn_module._global_forward_pre_hooks) == hooks


def net(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), *layers)


def seen(probe: TrainModePasses) -> list[TrainModePass]:
    return [r for r in probe.totals(1) if isinstance(r, TrainModePass)]


def evaluate(model: nn.Module, region: Any = torch.no_grad) -> None:
    for x in torch.randn(3, 2, 4):
        with region():
            model(x)


@torch.no_grad()
def decorated(model: nn.Module) -> None:
    model(torch.randn(2, 4))


@pytest.mark.parametrize("layer", [nn.Dropout(0.1), nn.BatchNorm1d(4), nn.AlphaDropout(0.2)])
@pytest.mark.parametrize("region", [torch.no_grad, torch.inference_mode])
def test_a_layer_that_acts_is_seen_with_the_lines_around_it(probe: TrainModePasses, layer: Any, region: Any) -> None:
    evaluate(net(layer), region)
    (found,) = seen(probe)
    assert found.layer == type(layer).__name__ and found.passes == 3
    assert found.place.function == "evaluate" and found.place.path == __file__
    assert found.around[0].function == "test_a_layer_that_acts_is_seen_with_the_lines_around_it"


def test_a_decorated_function_is_looked_into_by_its_caller_s_line(probe: TrainModePasses) -> None:
    for _ in range(9):
        decorated(net(nn.Dropout(0.5)))
    (found,) = seen(probe)
    assert found.place.function == "decorated" and found.passes == 3


@pytest.mark.parametrize(
    "model",
    [net(nn.Dropout(0.5)).eval(), net(nn.Dropout(0.0)), net(nn.LayerNorm(4)),
     net(nn.BatchNorm1d(4, track_running_stats=False))],
    ids=["eval", "never drops", "layer norm", "no statistics"],
)  # fmt: skip
def test_what_is_the_same_in_both_modes_is_not_seen(probe: TrainModePasses, model: nn.Module) -> None:
    evaluate(model)
    assert not seen(probe)


def test_training_behind_a_region_is_not_seen_and_ends_the_hearing(probe: TrainModePasses) -> None:
    model = net(nn.Dropout(0.5))
    hooks = len(nn_module._global_forward_pre_hooks)
    with torch.no_grad():
        pass
    assert len(nn_module._global_forward_pre_hooks) == hooks + 1
    model(torch.randn(2, 4))
    assert not seen(probe) and len(nn_module._global_forward_pre_hooks) == hooks


def test_a_line_is_looked_into_a_few_times_only(probe: TrainModePasses) -> None:
    for _ in range(5):
        evaluate(net(nn.Dropout(0.5)))
    (found,) = seen(probe)
    assert found.passes == 3


def test_what_is_not_compiled_is_seen_beside_what_is(probe: TrainModePasses) -> None:
    compiled = torch.compile(net(nn.Dropout(0.5)), backend="eager")
    with torch.no_grad():
        compiled(torch.randn(2, 4))
    assert not seen(probe)
    evaluate(net(nn.Dropout(0.5)))
    (found,) = seen(probe)
    assert found.passes == 3


def test_scripts_and_traces_are_as_without_it(probe: TrainModePasses) -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x * 2
        return y + x

    x = torch.ones(2)
    assert torch.equal(torch.jit.script(twice)(x), twice(x))
    assert torch.equal(torch.jit.trace(twice, x)(x), twice(x))
