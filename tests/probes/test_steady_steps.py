"""Steady steps go a short way through the probes: what it counts and finds is what the long way would."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import torchvet
from torchvet.analysis.steps import current_steps
from torchvet.probes.session.steady_steps import SteadySteps
from torchvet.recording import RankRecording, read
from torchvet.recording.records.nonfinite import NonFinite
from torchvet.recording.records.optimizers import OptimizerUse

_FOLDER = os.path.dirname(torchvet.__file__)
Program = Callable[[int], None]


@pytest.fixture
def dealt(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many events of each kind steady steps have dealt with."""
    found: dict[str, int] = {}

    def counted(name: str, original: Callable[..., bool]) -> Callable[..., bool]:
        def ask(*given: Any) -> bool:
            yes = original(*given)
            found[name] = found.get(name, 0) + yes
            return yes

        return ask

    for name in ("_backward_starts", "_optimizer_starts"):
        monkeypatch.setattr(SteadySteps, name, counted(name, getattr(SteadySteps, name)))
    return found


def watched(folder: Path, program: Program, steps: int) -> RankRecording:
    """What a program's steps left."""
    with torchvet.watch(record=folder / "run.vet"):
        program(steps)
    (rank,) = read(folder / "run.vet").ranks
    return rank


def plain(steps: int) -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def of_two(steps: int) -> None:
    """Two networks that train in turns, as a GAN's do: one iteration is one step."""
    nets = [nn.Linear(4, 4), nn.Linear(4, 4)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.01) for net in nets]
    for _ in range(steps):
        for net, optimizer in zip(nets, optimizers, strict=True):
            optimizer.zero_grad()
            net(torch.ones(2, 4)).sum().backward()
            optimizer.step()


def of_four_parts(steps: int) -> None:
    """Gradients of four batches make one step."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(4):
            model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def with_closures(steps: int) -> None:
    """The optimizer calls backward itself."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)


def one_after_another(steps: int) -> None:
    """A second program's optimizer comes when the first one's steps have long been steady."""
    plain(steps // 2)
    plain(steps - steps // 2)


@pytest.mark.parametrize(
    ("program", "by_optimizer"),
    [(plain, [200]), (of_two, [200, 200]), (of_four_parts, [200]), (with_closures, [200]),
     (one_after_another, [100, 100])],
)  # fmt: skip
def test_every_step_is_counted(program: Program, by_optimizer: list[int], tmp_path: Path) -> None:
    rank = watched(tmp_path, program, 200)
    uses = {use.id: use.steps for use in rank.latest(OptimizerUse, "id")}
    assert sum(step.count for step in current_steps(rank)) == 200
    assert [uses[key] for key in sorted(uses)] == by_optimizer


def test_most_steps_go_the_short_way(dealt: dict[str, int], tmp_path: Path) -> None:
    watched(tmp_path, plain, 400)
    assert min(dealt["_backward_starts"], dealt["_optimizer_starts"]) > 200


def test_closures_go_the_short_way_too(dealt: dict[str, int], tmp_path: Path) -> None:
    watched(tmp_path, with_closures, 400)
    assert min(dealt["_backward_starts"], dealt["_optimizer_starts"]) > 200


def test_time_is_counted_by_phase(tmp_path: Path) -> None:
    rank = watched(tmp_path, plain, 200)
    steady = [step.phases for step in current_steps(rank) if step.n > 100]
    assert steady and all(phases["backward"] > 0 and phases["optimizer"] > 0 for phases in steady)


def test_a_gradient_that_is_nan_is_looked_into_in_its_step(dealt: dict[str, int], tmp_path: Path) -> None:
    def program(steps: int) -> None:
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(steps):
            optimizer.zero_grad()
            out = model(torch.ones(2, 4))
            bad = out.detach() * 0 if step == 297 else out.detach() + 9
            (out * 0 + bad).sqrt().sum().backward()
            optimizer.step()

    rank = watched(tmp_path, program, 300)
    (first, *_) = rank.all(NonFinite)
    assert dealt["_backward_starts"] > 150
    assert (first.tick, first.symptom) == (298, "gradient")


def test_a_probe_that_fails_does_not_reach_the_program(
    monkeypatch: pytest.MonkeyPatch, dealt: dict[str, int], tmp_path: Path
) -> None:
    from torchvet.probes.crash.carried_graphs import CarriedGraphs
    from torchvet.recording.records.training import Unchecked

    original = CarriedGraphs.backward_starts

    def failing(self: Any, tensors: Any, is_grad: bool) -> None:
        if self.host.tick == 150:
            raise ValueError("in a steady step")
        original(self, tensors, is_grad)

    monkeypatch.setattr(CarriedGraphs, "backward_starts", failing)
    rank = watched(tmp_path, plain, 200)
    assert dealt["_backward_starts"] > 50
    assert sum(step.count for step in current_steps(rank)) == 200
    assert any("in a steady step" in gap.reason for gap in rank.all(Unchecked))


def calls(step: Callable[[], None], steps: int) -> float:
    """Functions of torchvet's own that are called in one of these steps."""
    count = 0

    def hear(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(_FOLDER)

    sys.setprofile(hear)
    try:
        for _ in range(steps):
            step()
    finally:
        sys.setprofile(None)
    return count / steps


@pytest.fixture
def step() -> Iterator[Callable[[], None]]:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def one() -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()

    yield one


def test_what_a_steady_step_costs(step: Callable[[], None], tmp_path: Path) -> None:
    """Counted in calls: seconds differ by machine. Each takes a microsecond after a step of 1 ms, 3 after one of 10."""
    with torchvet.watch(record=tmp_path / "run.vet") as watch:
        for _ in range(70):
            step()
        assert watch._session is not None and watch._session.observer is not None
        steady: Any = watch._session.observer.steady
        while not steady.on:
            step()
        counted = min(calls(step, 1) for _ in range(40))
    assert 10 < counted < 75


@pytest.mark.parametrize(("steps", "pause"), [(8, 0.03), (400, 0.002)])
def test_passes_of_closures_are_no_time_of_the_optimizer(steps: int, pause: float, tmp_path: Path) -> None:
    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            time.sleep(pause)
            return gradient

    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = Slow.apply(model(torch.ones(2, 4)).sum())
        loss.backward()
        return loss

    def program(steps: int) -> None:
        for _ in range(steps):
            optimizer.step(closure)

    rank = watched(tmp_path, program, steps)
    first, *others = current_steps(rank)
    backward, optimizing = (sum(step.phases.get(x, 0.0) for step in others) for x in ("backward", "optimizer"))
    assert backward >= pause * sum(step.count for step in others)
    # A second of two phases would be counted twice, and no time is.
    assert backward + optimizing <= others[-1].t - first.t
