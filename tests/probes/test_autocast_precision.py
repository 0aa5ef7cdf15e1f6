"""What runs in which precision: backward calls, operators outside of regions, gradients without a scaler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from autocast_runs import BF16, Training, observed
from torch.utils.checkpoint import checkpoint

from torchvet.recording.records.autocast import (
    AutocastBackward,
    FunctionOverflow,
    FunctionPrecision,
    HalfLoss,
    HalfOperator,
    RoundedProbabilities,
    UnscaledBackward,
)
from torchvet.recording.records.scaling import ScalingUse

F = torch.nn.functional
HALF = torch.float16


def last(rank: Any, kind: Any) -> Any:
    (found,) = {tuple(r.place for r in rank.all(kind))[-1:]}
    return next(r for r in reversed(rank.all(kind)) if r.place == found[0])


def test_backward_in_a_region_counts_what_had_run_in_float32() -> None:
    training, head = Training(), torch.nn.Linear(4, 4)
    with observed() as run:
        for x, y in training.batches():
            with torch.autocast("cpu", dtype=BF16):
                features = training.model(x)
                with torch.autocast("cpu", enabled=False):
                    loss = F.cross_entropy(head(features.float()), y)
                training.apply(loss)
    seen = last(run.rank, AutocastBackward)
    assert seen.calls == 16 and (seen.products, seen.full) == (3 * seen.looked, seen.looked)


def test_backward_outside_of_regions_and_under_checkpointing_is_none() -> None:
    training = Training()
    for reentrant in (True, False):
        with observed() as run:
            for x, y in training.batches():
                with torch.autocast("cpu", dtype=BF16):
                    out = checkpoint(training.model, x.requires_grad_(), use_reentrant=reentrant)
                    loss = F.cross_entropy(out, y)
                training.apply(loss)
        assert run.rank.all(AutocastBackward) == []


def operators(loss: Callable[[Any, Any, Any], Any], training: Training | None = None) -> Any:
    training = training or Training()
    with observed() as run:
        training.run(lambda x, y: loss(training.model, x, y))
    return run.rank


def outside(model: Any, x: Any, y: Any) -> Any:
    with torch.autocast("cpu", dtype=BF16):
        logits = model(x)
    return F.cross_entropy(logits, y)


def outside_in_float32(model: Any, x: Any, y: Any) -> Any:
    with torch.autocast("cpu", dtype=BF16):
        logits = model(x)
    return F.cross_entropy(logits.float(), y)


def test_a_loss_on_half_logits_outside_of_regions() -> None:
    rank = operators(outside)
    seen = [r for r in rank.all(HalfOperator) if r.situation == "outside"]
    assert {r.operator for r in seen} == {"log_softmax", "nll_loss_forward"} and max(r.error for r in seen) > 1e-4
    assert last(rank, HalfLoss).dtype == "bfloat16"


def test_a_loss_in_float32_is_none() -> None:
    rank = operators(outside_in_float32)
    assert rank.all(HalfOperator) == [] == rank.all(HalfLoss)


def test_a_half_loss_is_seen_through_a_scalers_factor() -> None:
    training, scaler = Training(), torch.amp.GradScaler("cpu")
    with observed() as run:
        for x, y in training.batches():
            with torch.autocast("cpu", dtype=HALF):
                logits = training.model(x)
            scaler.scale(F.cross_entropy(logits, y)).backward()
            scaler.step(training.optimizer)
            scaler.update()
            training.optimizer.zero_grad()
    seen = last(run.rank, HalfLoss)
    assert (seen.dtype, seen.scale) == ("float16", 65536.0)


def disabled(model: Any, x: Any, y: Any) -> Any:
    with torch.autocast("cpu", dtype=BF16):
        logits = model(x)
        with torch.autocast("cpu", enabled=False):
            return logits.exp().sum().log()


def disabled_in_float32(model: Any, x: Any, y: Any) -> Any:
    with torch.autocast("cpu", dtype=BF16):
        logits = model(x)
        with torch.autocast("cpu", enabled=False):
            return logits.float().exp().sum().log()


def disabled_for_half(model: Any, x: Any, y: Any) -> Any:
    with torch.autocast("cpu", dtype=BF16):
        logits = model(x)
        with torch.autocast("cpu", enabled=False):
            return (logits.float() * 2).to(BF16).exp().sum().float()


def disabled_with_a_half_target(model: Any, x: Any, y: Any) -> Any:
    with torch.autocast("cpu", dtype=BF16):
        logits = model(x)
        with torch.autocast("cpu", enabled=False):
            return F.mse_loss(logits, F.one_hot(y, 4).to(BF16)).float()


def test_half_operands_in_a_region_that_is_off() -> None:
    rank = operators(disabled)
    assert {r.operator for r in rank.all(HalfOperator) if r.situation == "disabled"} == {"exp", "sum", "log"}


def test_float32_there_and_half_made_by_hand_are_wanted() -> None:
    assert operators(disabled_in_float32).all(HalfOperator) == []
    assert operators(disabled_for_half).all(HalfOperator) == []


def test_a_half_target_beside_what_autocast_left_half_is_not() -> None:
    seen = operators(disabled_with_a_half_target).all(HalfOperator)
    assert {r.operator for r in seen} == {"mse_loss"}


def test_a_model_that_is_half_itself_is_no_ones_fault() -> None:
    training = Training(torch.nn.Sequential(torch.nn.Linear(16, 4)).to(BF16))
    rank = operators(lambda model, x, y: F.cross_entropy(model(x.to(BF16)), y), training)
    assert rank.all(HalfOperator) == []


def test_probabilities_rounded_before_their_entropy() -> None:
    def loss(model: Any, x: Any, y: Any) -> Any:
        with torch.autocast("cpu", dtype=BF16):
            return F.binary_cross_entropy(torch.sigmoid(100 * model(x)), F.one_hot(y, 4).float())

    seen = last(operators(loss), RoundedProbabilities)
    assert seen.rounded and 0 < seen.saturated < seen.elements


def test_probabilities_in_float32_are_not_rounded() -> None:
    def loss(model: Any, x: Any, y: Any) -> Any:
        with torch.autocast("cpu", dtype=BF16):
            return F.binary_cross_entropy(torch.sigmoid(model(x).float()), F.one_hot(y, 4).float())

    assert not last(operators(loss), RoundedProbabilities).rounded


class Unit(torch.autograd.Function):
    """Rows of length one. What it computes before its sum is put in by a test."""

    square: Callable[[torch.Tensor], torch.Tensor]

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(Unit.square(x).sum(-1, keepdim=True) + 1e-3)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


class UnitInSingle(Unit):
    """As torch recommends it."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return Unit.forward(ctx, x)


def overflows(kind: Any, square: Any, factor: float, dtype: torch.dtype = HALF) -> list[Any]:
    def loss(model: Any, x: Any, y: Any) -> Any:
        with torch.autocast("cpu", dtype=dtype):
            return F.cross_entropy(kind.apply(factor * model(x)).float(), y)

    Unit.square = square
    return list(operators(loss).all(FunctionOverflow))


SQUARES = {
    "product": (lambda x: x * x, 150.0),
    "power": (lambda x: x**2, 400.0),
    "float32 after the square": (lambda x: (x * x).float(), 400.0),
}


@pytest.mark.parametrize("name", SQUARES)
def test_a_sum_of_squares_that_overflows_in_a_function(name: str) -> None:
    square, factor = SQUARES[name]
    seen = overflows(Unit, square, factor)[-1]
    assert (seen.name, seen.operator) == ("Unit", "sum") and seen.place.function.endswith("forward")
    assert 0 < seen.overflowed <= seen.calls and 0 < seen.infinite <= seen.elements


WITHIN_BOUNDS = {
    "small": (Unit, lambda x: x * x, 1.0, HALF),
    "in float32": (UnitInSingle, lambda x: x * x, 400.0, HALF),
    "of bfloat16": (Unit, lambda x: x * x, 400.0, BF16),
    "saturated before the sum": (Unit, lambda x: (x * x * x).tanh(), 400.0, HALF),
    "an infinity that was written down": (
        Unit, lambda x: x.masked_fill(x < 0, torch.inf).mul(1), 1.0, HALF
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHIN_BOUNDS)
def test_a_function_whose_sums_fit_is_none(name: str) -> None:
    assert overflows(*WITHIN_BOUNDS[name]) == []


class Twice(torch.autograd.Function):
    """Its backward minds the dtypes; its forward is cast all the same."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, w = ctx.saved_tensors
        return grad.float() @ w, grad.float().t() @ x


def test_a_function_that_autocast_casts_within_is_seen() -> None:
    weight = torch.nn.Parameter(torch.randn(4, 16))

    def loss(model: Any, x: Any, y: Any) -> Any:
        with torch.autocast("cpu", dtype=BF16):
            return F.cross_entropy(Twice.apply(x, weight) + model(x), y)  # type: ignore[no-untyped-call]

    seen = last(operators(loss), FunctionPrecision)
    assert (seen.name, seen.dtype) == ("Twice", "bfloat16")


def unscaled(factor: float, dtype: torch.dtype = HALF, by_hand: float = 1.0) -> Any:
    def loss(model: Any, x: Any, y: Any) -> Any:
        with torch.autocast("cpu", dtype=dtype):
            return F.mse_loss(model(x).float(), F.one_hot(y, 4).float()) * factor * by_hand

    return operators(loss)


def test_small_gradients_are_lost_without_a_scaler() -> None:
    seen = last(unscaled(1e-7), UnscaledBackward)
    assert seen.calls == 16 and seen.looked > 0
    assert seen.lost / seen.elements > 0.9 and seen.zeros / seen.gradients > 0.9


def test_gradients_of_ordinary_size_are_not_lost() -> None:
    seen = last(unscaled(1.0), UnscaledBackward)
    assert seen.elements > 0 and seen.lost / seen.elements < 0.01


def test_a_factor_by_hand_saves_them() -> None:
    seen = last(unscaled(1e-7, by_hand=1e7), UnscaledBackward)
    assert seen.lost / seen.elements < 0.01


def test_bfloat16_needs_no_scaler() -> None:
    assert unscaled(1e-7, BF16).all(UnscaledBackward) == []


def scaled(dtype: torch.dtype) -> Any:
    training, scaler = Training(), torch.amp.GradScaler("cpu", init_scale=1024.0)
    with observed() as run:
        for x, y in training.batches():
            with torch.autocast("cpu", dtype=dtype):
                loss = F.cross_entropy(training.model(x), y)
            training.optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(training.optimizer)
            scaler.update()
    return run.rank


def test_where_a_scaler_is_at_work_no_backward_is_without_one() -> None:
    for dtype in (HALF, BF16):
        rank = scaled(dtype)
        use = last(rank, ScalingUse)
        assert (use.steps, use.half_parameters) == (16, False)
        assert rank.all(UnscaledBackward) == []


def test_a_program_without_autocast_writes_none_of_it() -> None:
    training = Training()
    with observed() as run:
        training.run(lambda x, y: F.cross_entropy(training.model(x), y))
    kinds = {type(line).__module__ for line in run.rank.lines}
    assert "torchvet.recording.records.autocast" not in kinds
