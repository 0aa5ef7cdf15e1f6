"""Losses and gradient norms are sampled at every step at first, then ever more rarely, and only as they are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import torchvet
from torchvet.probes.numerics import number_samples
from torchvet.probes.numerics.number_samples import NumberSampler
from torchvet.recording import read
from torchvet.recording.records.nonfinite import NumberSamples


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a norm takes delays none."""
    monkeypatch.setattr(number_samples, "_SHARE", 0)


class Run:
    """A sampler, and the steps that it is told of."""

    def __init__(self) -> None:
        self.written: list[NumberSamples] = []
        self.host: Any = SimpleNamespace(step=0, write=self.written.append)
        self.sampler = NumberSampler(self.host)
        self.step(
            0, torch.tensor(0.0), gradients=[torch.zeros(1)]
        )  # the first event is only seen: it may be amid a step

    def step(self, number: int, *losses: torch.Tensor, gradients: list[torch.Tensor] | None = None) -> None:
        self.host.step = number
        for loss in losses:
            self.sampler.losses.left -= 1
            if self.sampler.losses.left <= 0:
                self.sampler.loss(loss)
        if gradients is not None:
            self.sampler.norms.left -= 1
            if self.sampler.norms.left <= 0:
                self.sampler.norm(gradients)

    def losses(self) -> list[tuple[int, float | None]]:
        self.sampler.write()
        return [pair for r in self.written for pair in zip(r.loss_steps, r.losses, strict=True)]

    def norms(self) -> list[tuple[int, float | None]]:
        self.sampler.write()
        return [pair for r in self.written for pair in zip(r.norm_steps, r.norms, strict=True)]


def test_steps_are_sampled_ever_more_rarely() -> None:
    run = Run()
    loss = torch.tensor(1.0)
    for number in range(1, 10_001):
        run.step(number, loss)
    steps = [step for step, _ in run.losses()]
    assert steps[:30] == list(range(1, 31)) and steps == sorted(set(steps))
    assert 150 < len(steps) < 300 and steps[-1] > 9_000
    assert len(run.written) > 2


def test_the_first_loss_and_the_first_optimizer_of_a_step_count() -> None:
    run = Run()
    run.step(1, torch.tensor(2.0), torch.tensor(3.0), gradients=[torch.tensor([3.0]), torch.tensor([[4.0, 0.0]])])
    run.step(1, gradients=[torch.tensor([1.0])])
    assert run.losses() == [(1, 2.0)] and run.norms() == [(1, 5.0)]


def test_of_a_step_of_two_losses_it_is_always_the_same_one() -> None:
    run = Run()
    for number in range(1, 2_000):
        run.step(number, torch.tensor(1.0), torch.tensor(2.0))
    assert {loss for _, loss in run.losses()} == {1.0}


def test_what_is_not_finite_is_none_and_what_is_no_single_number_is_no_loss() -> None:
    run = Run()
    run.step(1, torch.ones(3), torch.tensor(1), torch.empty((), device="meta"))
    run.step(2, torch.tensor(float("nan")), gradients=[torch.tensor([float("inf")])])
    run.step(3, torch.tensor(float("-inf"), dtype=torch.float64))
    assert run.losses() == [(2, None), (3, None)] and run.norms() == [(2, None)]


def test_norms_that_would_overflow_or_wait_for_others_are_left_out() -> None:
    class Spread(torch.Tensor):
        pass

    run = Run()
    half, mixed = [torch.ones(3, dtype=torch.float16)], [torch.ones(3), torch.ones(3, dtype=torch.float64)]
    for number, gradients in enumerate(
        (half, mixed, [torch.ones(3).to_sparse()], [torch.ones(3).as_subclass(Spread)], [])
    ):
        run.step(number + 1, gradients=gradients)
    assert run.norms() == []
    run.step(9, gradients=[torch.full((4,), 2.0, dtype=torch.bfloat16)])
    assert run.norms() == [(9, 4.0)]


def test_a_scaled_loss_counts_as_what_it_was() -> None:
    run = Run()
    loss, other = torch.tensor(0.25), torch.tensor(7.0)
    scaled = loss * 65536
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    run.sampler.scaled(scaled, scaler, loss)
    run.step(1, scaled)
    run.step(2, other)
    assert run.losses() == [(1, 0.25), (2, 7.0)] and run.written[0].scales == [65536.0, None]
    gone = torch.tensor(1.0) * 65536
    run.sampler.scaled(gone, scaler, torch.tensor(1.0))
    run.step(3, gone)
    assert run.losses()[2:] == []


def test_steps_that_are_counted_anew_are_sampled_anew() -> None:
    run = Run()
    run.step(40, torch.tensor(1.0))
    run.sampler.restart()
    run.step(1, torch.tensor(2.0))
    run.step(2, torch.tensor(3.0))
    assert run.losses() == [(2, 3.0)]


def test_norms_that_take_long_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(number_samples, "_SHARE", 1e9)
    run = Run()
    for number in range(1, 31):
        run.step(number, gradients=[torch.ones(2)])
    assert len(run.norms()) == 30  # so far they have taken next to nothing
    monkeypatch.setattr(number_samples, "_ALLOWANCE", 0.0)
    for number in range(31, 60):
        run.step(number, gradients=[torch.ones(2)])
    assert [step for step, _ in run.norms()][30:] == [31]


def test_a_runs_losses_are_its_own(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, norms = {}, {}
    with torchvet.watch(record=tmp_path / "run.vet"):
        for step in range(1, 61):
            loss = model(torch.randn(8, 4)).square().mean()
            if step == 50:
                loss = loss * float("nan")
            optimizer.zero_grad()
            loss.backward()
            losses[step] = loss.item()
            norms[step] = torch.stack([p.grad.norm() for p in model.parameters()]).norm().item()  # type: ignore[union-attr]
            optimizer.step()
    found = read(tmp_path / "run.vet").ranks[0].since_restart(NumberSamples)
    sampled = {step: loss for r in found for step, loss in zip(r.loss_steps, r.losses, strict=True)}
    assert len(sampled) > 30 and max(sampled) > 55
    for step, value in sampled.items():
        assert value == losses[step] if step < 50 else value is None
    for step, norm in ((s, n) for r in found for s, n in zip(r.norm_steps, r.norms, strict=True)):
        assert norm == pytest.approx(norms[step], rel=1e-5) if step < 50 else norm is None


def test_sampling_changes_no_gradient_and_no_generator() -> None:
    run = Run()
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * 2).sum()
    loss.backward()
    assert weight.grad is not None
    before, state = weight.grad.clone(), torch.get_rng_state()
    run.step(1, loss, gradients=[weight.grad])
    assert torch.equal(weight.grad, before) and torch.equal(torch.get_rng_state(), state) and torch.is_grad_enabled()
