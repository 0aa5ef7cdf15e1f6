"""A forecast finds what would overflow in float16 where it would, follows half as CUDA's autocast, changes nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from torchvet.analysis.forecast import Forecast, forecast_of, headroom, underflow
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.precision.forecast import ForecastWatcher
from torchvet.recording import RankRecording
from torchvet.recording.records.base import Record

F = nn.functional
Loss = Callable[[nn.Module, int], torch.Tensor]


class _Host:
    active = True
    tick = 0

    def __init__(self) -> None:
        self.known = KnownMemory()
        self.options: Any = SimpleNamespace(precision_forecast=True, steps=None)

    def write(self, record: Record) -> None: ...

    @contextmanager
    def looking(self, what: str) -> Iterator[None]:
        yield


def train(
    model: nn.Module, loss_of: Loss, steps: int = 4, rate: float = 0.0, watch: bool = True
) -> tuple[Forecast, list[float]]:
    """A few steps under the watcher's eyes, and what it makes of them."""
    host = _Host()
    host.known.add_root(model)
    watcher = ForecastWatcher(host)
    watcher.install()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    losses = []
    if watch:
        watcher.optimizer_made(optimizer)
    for step in range(steps):
        loss = loss_of(model, step)
        optimizer.zero_grad()
        loss.backward()
        watcher.backward_ended(False)
        watcher.optimizer_starts(optimizer)
        optimizer.step()
        watcher.optimizer_ended(optimizer)
        if watch:
            watcher.boundary(step + 1, "training")
        losses.append(loss.item())
    watcher.finish("finished", None)
    records = list(watcher.totals(steps))
    watcher.remove()
    forecast = forecast_of(RankRecording(0, records))
    return forecast or Forecast(None, [], []), losses  # type: ignore[arg-type]


def mlp(factor: float) -> nn.Sequential:
    """Two layers, the second of which multiplies by `factor`."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 1))
    with torch.no_grad():
        model[1].weight.copy_(torch.eye(8) * factor)
    return model


def squared(model: nn.Module, step: int) -> torch.Tensor:
    x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
    return model(x).square().mean()


def test_a_layer_whose_outputs_reach_one_hundred_thousand() -> None:
    forecast, _ = train(mlp(6e4), squared)
    (site,) = forecast.overflowing
    assert (site.module, site.operator, site.calls, site.overflows) == ("Sequential.1", "addmm", 4, 4)
    largest = max(float(mlp(6e4)[:2](x).abs().max()) for x in (
        torch.randn(16, 8, generator=torch.Generator().manual_seed(s)) for s in range(4)))  # fmt: skip
    assert site.largest == pytest.approx(largest, rel=1e-5) and site.largest > 1e5
    assert site.place is not None and site.place.path == __file__
    assert inspect.getsource(squared).splitlines()[site.place.line - inspect.getsourcelines(squared)[1]].strip() == (
        "return model(x).square().mean()"
    )
    assert forecast.verdict == "float16 with islands"


@pytest.mark.parametrize(("target", "over"), [(65503.0, False), (65519.0, False), (65521.0, True)])
def test_the_limit_is_where_rounding_makes_an_infinity(target: float, over: bool) -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, target)
    forecast, _ = train(model, lambda m, _: m(torch.ones(1, 1)).mean())
    assert bool(torch.tensor(target).half().isinf()) == over
    assert [s.operator for s in forecast.overflowing] == (["mm"] if over else []) or forecast.overflowing[0].casts


class Masked(nn.Module):
    """Dropout by hand, as torch's own in some of its paths."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = x @ x.t()
        left = torch.full((half.numel(),), 3e38)
        del left  # the next memory of this size holds what it held
        mask = half.new_empty(half.shape)
        return half * mask.bernoulli_(0.5)


def test_what_uninitialised_memory_held_is_no_result() -> None:
    model = nn.Sequential(nn.Linear(8, 8), Masked())
    forecast, _ = train(model, squared)
    assert not forecast.overflowing and all("empty" not in s.operator for s in forecast.sites)


def test_a_sound_model_has_headroom_and_fits() -> None:
    forecast, _ = train(mlp(1.0), squared)
    assert forecast.verdict == "float16" and not forecast.near and not forecast.vanishing
    assert min(headroom(s.largest) for s in forecast.sites) > 10


def test_what_comes_near_is_told_and_is_no_overflow() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 30_000.0)
    forecast, _ = train(model, lambda m, _: m(torch.ones(1, 1)).mean() * 1e-6)
    assert [(s.operator, round(headroom(s.largest), 2)) for s in forecast.near] == [("mm", 1.13), ("mean", 1.13)]
    assert not forecast.overflowing


def test_gradients_of_one_billionth_vanish_unscaled_and_live_scaled() -> None:
    forecast, _ = train(mlp(1.0), lambda m, s: squared(m, s) * 1e-8)
    weights = [g for g in forecast.gradients if g.kind == "parameter"]
    assert max(g.largest for g in weights) < 1e-7
    assert underflow(weights, 0) > 0.9 > 0.3 > underflow(weights, 16)
    assert forecast.scale is not None and forecast.scale > 30
    assert underflow(weights, forecast.scale) < 0.01
    assert not forecast.vanishing, "a scaler finds the scale for these"


def test_shares_are_those_of_float16_itself() -> None:
    forecast, _ = train(mlp(1.0), lambda m, s: squared(m, s) * 1e-6, steps=1)
    model = mlp(1.0)
    (squared(model, 0) * 1e-6).backward()
    for gradient in (g for g in forecast.gradients if g.kind == "parameter"):
        real = model.get_parameter(gradient.name).grad
        assert real is not None
        real = real[real != 0]
        for scale in (0, 16):
            lost = float(((real * 2.0**scale).half() == 0).float().mean())
            assert underflow([gradient], scale) == pytest.approx(lost, abs=0.02)


class _TwoBranches(nn.Module):
    """One weight's gradient is 2**60 times smaller than the other's: no one scale serves both."""

    def __init__(self) -> None:
        super().__init__()
        self.loud, self.quiet = nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.loud(x) + self.quiet(x) * 2.0**-60


def test_a_weight_that_no_scale_can_save() -> None:
    forecast, _ = train(_TwoBranches(), squared)
    assert [g.name for g in forecast.vanishing] == ["quiet.weight"]
    assert forecast.verdict == "bfloat16"


class _Exponential(nn.Module):
    """exp, softmax, sums and norms of half run in float32 on CUDA: large results are no overflow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        return (y * 20).exp().sum(1).log() + (y * 1e4).pow(2).mean(1).rsqrt() + F.softmax(y * 1e4, 1)[:, 0]


def test_operators_that_run_in_float32_cannot_overflow() -> None:
    forecast, _ = train(_Exponential(), squared)
    assert not forecast.overflowing
    assert {s.operator for s in forecast.sites} == {"addmm", "mul"}


class _HandMadeNorm(nn.Module):
    """`x * x` of half is half, and of 300 it is too large; `x.float()` first mends it."""

    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.layer, self.fixed = nn.Linear(8, 8), fixed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x) * 1000
        if self.fixed:
            y = y.float()
        return y / (y * y).mean(1, keepdim=True).sqrt()


@pytest.mark.parametrize("fixed", [False, True])
def test_a_norm_made_by_hand(fixed: bool) -> None:
    forecast, _ = train(_HandMadeNorm(fixed), squared)
    assert [s.operator for s in forecast.overflowing] == ([] if fixed else ["mul"])


class _Masked(nn.Module):
    """Attention's masks: infinities and the dtype's own minimum are healthy, a constant of 1e9 is not."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.layer, self.value = nn.Linear(8, 8), value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.layer(x) @ x.T
        mask = torch.ones_like(scores, dtype=torch.bool).triu(1)
        return scores.masked_fill(mask, self.value).softmax(-1) @ x


@pytest.mark.parametrize(("value", "over"), [(float("-inf"), 0), (torch.finfo(torch.float32).min, 0), (-1e9, 1)])
def test_masks(value: float, over: int) -> None:
    forecast, _ = train(_Masked(value), squared)
    assert [(s.operator, s.fills) for s in forecast.overflowing] == [("masked_fill", True)] * over


class _Attention(nn.Module):
    """Logits of attention are float32 inside the fused kernel, whatever path the CPU takes."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layer, self.dropout = nn.Linear(8, 8), dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.layer(x)[None, None] * 500
        return F.scaled_dot_product_attention(q, q, q, dropout_p=self.dropout)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_attention_logits_do_not_count_and_its_result_is_half(dropout: float) -> None:
    forecast, _ = train(_Attention(dropout), lambda m, s: squared(m, s) + m(torch.ones(2, 8)).mul(2).sum())
    assert not forecast.overflowing
    assert "mul" in {s.operator for s in forecast.sites if s.module is None}


def test_a_region_that_switches_autocast_off_is_an_island() -> None:
    class Island(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = mlp(1e5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", enabled=False):
                y: torch.Tensor = self.layer(x)
            return y

    forecast, _ = train(Island(), squared)
    assert not forecast.overflowing and forecast.run.off == 4 * 3 and not forecast.run.half


def test_inputs_that_are_too_large_are_cast_to_infinity() -> None:
    forecast, _ = train(nn.Linear(8, 1), lambda m, _: m(torch.full((4, 8), 1e6)).mean() * 1e-9)
    (site,) = forecast.overflowing
    assert site.casts == 4 and site.operand == 1e6


@pytest.mark.parametrize("cell", ["GRUCell", "LSTMCell", "RNNCell"])
def test_a_recurrent_cell_gives_half(cell: str) -> None:
    model = getattr(nn, cell)(8, 8)

    def loss(m: nn.Module, step: int) -> torch.Tensor:
        out = m(torch.ones(2, 8))
        return ((out[0] if cell == "LSTMCell" else out) * 2).mean()

    forecast, _ = train(model, loss)
    assert [s.operator for s in forecast.sites if s.module is None] == ["mul", "mean"]


def test_recomputation_is_no_gradient() -> None:
    def loss(model: nn.Module, step: int) -> torch.Tensor:
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step), requires_grad=True)
        y: torch.Tensor = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
        return y.square().mean()

    plain, _ = train(mlp(1000.0), squared)
    again, _ = train(mlp(1000.0), loss)
    assert plain.scale == again.scale


def test_what_a_formula_computes_besides_is_no_gradient() -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.layer(x).relu() * 1e4 + 1e4).sqrt()

    forecast, _ = train(Root(), lambda m, s: m(torch.ones(4, 8)).mean())
    assert max(s.largest for s in forecast.sites if s.operator == "sqrt") > 100
    assert forecast.largest_gradient is not None and forecast.largest_gradient.largest < 100, (
        "sqrt' has 2 sqrt(x) in it"
    )


def test_a_loss_scale_is_taken_out() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    plain, _ = train(mlp(1.0), squared)

    def scaled(model: nn.Module, step: int) -> torch.Tensor:
        return scaler.scale(squared(model, step))

    host_scale = ForecastWatcher.backward_starts
    forecast, _ = train(mlp(1.0), scaled)
    assert host_scale is ForecastWatcher.backward_starts
    assert plain.scale is not None and forecast.scale == plain.scale - 10, "nobody told of the backward pass here"


def test_nothing_is_changed(leftovers: Callable[[], list[str]]) -> None:
    def noisy(model: nn.Module, step: int) -> torch.Tensor:
        x = torch.randn(16, 8)
        return F.dropout(model(x), 0.1).square().mean()

    results = []
    for watch in (False, True):
        model = mlp(1.0)
        torch.manual_seed(1)
        _, losses = train(model, noisy, steps=12, rate=0.1, watch=watch)
        results.append((losses, [p.detach().clone() for p in model.parameters()]))
    assert results[0][0] == results[1][0]
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))
    assert leftovers() == [] and "float" not in vars(torch.Tensor)


def test_sampling_gets_rarer_and_is_never_far_from_the_end() -> None:
    forecast, _ = train(mlp(1.0), squared, steps=100)
    assert 20 <= forecast.run.sampled <= 40
    assert forecast.run.last >= 88
