"""Copies of weights that a region keeps, asked of torch itself: stale after a change, fresh everywhere else."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from autocast_runs import BF16, Training, observed

from torchvet.recording.records.autocast import StaleWeights

entropy = torch.nn.functional.cross_entropy


def stale(rank: Any) -> list[StaleWeights]:
    last = {(s.region, s.change, s.kind): s for s in rank.all(StaleWeights)}
    return [s for s in last.values() if s.stale]


def test_steps_within_one_region_leave_its_copies_behind() -> None:
    training = Training()
    with observed() as run, torch.autocast("cpu", dtype=BF16):
        training.run(lambda x, y: entropy(training.model(x), y))
    (found,) = stale(run.rank)
    assert (found.kind, found.changes, found.module) == ("step", 16, "Linear")
    assert found.looked == found.stale > 0.0 < found.deviation
    assert found.change is not None and found.change.function.endswith("apply")


@pytest.mark.parametrize("layer", [torch.nn.Conv1d(1, 4, 3), torch.nn.Conv2d(1, 4, (1, 3))])
def test_convolutions_keep_copies_too(layer: torch.nn.Module) -> None:
    shape = (32, 1, 16) if isinstance(layer, torch.nn.Conv1d) else (32, 1, 1, 16)
    training = Training(layer)
    with observed() as run, torch.autocast("cpu", dtype=BF16):
        training.run(lambda x, y: layer(x.reshape(shape)).float().square().mean())
    assert [s.module for s in stale(run.rank)] == [type(layer).__name__]


def test_without_the_cache_nothing_is_stale() -> None:
    training = Training()
    with observed() as run, torch.autocast("cpu", dtype=BF16, cache_enabled=False):
        training.run(lambda x, y: entropy(training.model(x), y))
    assert stale(run.rank) == []


def test_a_cleared_cache_is_fresh() -> None:
    training = Training()

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        torch.clear_autocast_cache()
        return entropy(training.model(x), y)

    with observed() as run, torch.autocast("cpu", dtype=BF16):
        training.run(loss)
    assert stale(run.rank) == []


def test_a_region_for_each_step_is_fresh_though_the_step_is_within() -> None:
    training = Training()
    with observed() as run:
        for x, y in training.batches():
            with torch.autocast("cpu", dtype=BF16):
                training.apply(entropy(training.model(x), y))
    assert stale(run.rank) == []


def test_half_weights_have_no_copies() -> None:
    training = Training(torch.nn.Sequential(torch.nn.Linear(16, 4)).to(BF16))
    with observed() as run, torch.autocast("cpu", dtype=BF16):
        training.run(lambda x, y: entropy(training.model(x), y))
    assert stale(run.rank) == []


def test_another_models_step_does_no_harm() -> None:
    training, other = Training(), Training()
    with observed() as run:
        for x, y in training.batches():
            with torch.autocast("cpu", dtype=BF16):
                other.apply(entropy(other.model(x), y))
                loss = entropy(training.model(x), y)
                again = training.model(x)
            training.apply(loss + again.float().mean())
    assert stale(run.rank) == []


def test_a_step_between_two_passes_of_one_region() -> None:
    training = Training()
    with observed() as run:
        for x, y in training.batches():
            with torch.autocast("cpu", dtype=BF16):
                training.apply(entropy(training.model(x), y))
                training.model(x)
    (found,) = stale(run.rank)
    assert (found.kind, found.changes) == ("step", 1)


def test_weights_loaded_between_two_passes_of_one_region() -> None:
    training = Training()
    states = [copy.deepcopy(Training(torch.nn.Sequential(torch.nn.Linear(16, 4))).model.state_dict()) for _ in range(1)]
    model = torch.nn.Sequential(torch.nn.Linear(16, 4))
    with observed() as run, torch.no_grad():
        for x, _ in training.batches(4):
            with torch.autocast("cpu", dtype=BF16):
                model(x)
                model.load_state_dict({k: v + 1 for k, v in states[0].items()})
                model(x)
    (found,) = stale(run.rank)
    assert found.kind == "load" and found.change is not None


def test_weights_loaded_before_the_first_pass_are_fresh() -> None:
    training = Training()
    model, state = torch.nn.Linear(16, 4), torch.nn.Linear(16, 4).state_dict()
    with observed() as run, torch.no_grad():
        for x, _ in training.batches(4):
            with torch.autocast("cpu", dtype=BF16):
                model.load_state_dict(state)
                model(x)
    assert stale(run.rank) == []


def test_weights_swapped_by_hand_between_two_passes() -> None:
    training = Training()
    average = [p.detach() + 0.5 for p in training.model.parameters()]
    with observed() as run:
        for x, y in training.batches():
            with torch.autocast("cpu", dtype=BF16), torch.no_grad():
                training.model(x)
                for parameter, value in zip(training.model.parameters(), average, strict=True):
                    parameter.data.copy_(value)
                training.model(x)
            training.apply(entropy(training.model(x), y))
    (found,) = stale(run.rank)
    assert found.kind == "other" and found.change is None and found.forward is not None


def test_an_evaluation_loop_in_one_region_is_fresh() -> None:
    training = Training()
    with observed() as run, torch.no_grad(), torch.autocast("cpu", dtype=BF16):
        for x, _ in training.batches():
            training.model(x)
    assert stale(run.rank) == []


def test_shared_layers_and_checkpointing_are_fresh() -> None:
    from torch.utils.checkpoint import checkpoint

    layer = torch.nn.Linear(16, 16)
    training = Training(torch.nn.Sequential(layer, torch.nn.Tanh(), layer))
    with observed() as run:
        for x, y in training.batches():
            with torch.autocast("cpu", dtype=BF16):
                out = checkpoint(training.model, x.requires_grad_(), use_reentrant=True)
                loss = entropy(out, y)
            training.apply(loss)
    assert stale(run.rank) == []
