"""Healthy programs under autocast: watched as a whole they get no finding about it, not even one worth knowing."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import torchvet

nn, F = torch.nn, torch.nn.functional
BF16, HALF = torch.bfloat16, torch.float16


def batches(steps: int = 14) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for _ in range(steps):
        x = torch.randn(16, 16)
        yield x, x[:, :4].argmax(1)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))


def trained(
    loss_of: Callable[[Any, Any, Any], Any], model: Any = None, after: Callable[[Any], None] | None = None
) -> None:
    model = model or network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for x, y in batches():
        loss = loss_of(model, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if after is not None:
            after(model)


def plain_loss(model: Any, x: Any, y: Any) -> Any:
    with torch.autocast("cpu", dtype=BF16):
        return F.cross_entropy(model(x), y)


def forward_and_loss() -> None:
    trained(plain_loss)


def average_kept_and_evaluated() -> None:
    model = network()
    average = copy.deepcopy(model)

    def evaluate(model: Any) -> None:
        with torch.no_grad():
            for kept, now in zip(average.parameters(), model.parameters(), strict=True):
                kept.lerp_(now, 0.1)
        with torch.no_grad(), torch.autocast("cpu", dtype=BF16):
            for x, y in batches(3):
                F.cross_entropy(average(x), y)
                F.cross_entropy(model(x), y)

    trained(plain_loss, model, evaluate)


def checkpointed(reentrant: bool = True) -> None:
    trained(lambda m, x, y: plain_loss(lambda x: checkpoint(m, x.requires_grad_(), use_reentrant=reentrant), x, y))


def checkpointed_without_reentry() -> None:
    checkpointed(reentrant=False)


def accumulated_with_a_scaler() -> None:
    model, scaler = network(), torch.amp.GradScaler("cpu", init_scale=128.0)
    optimizer = torch.optim.AdamW(model.parameters())
    for number, (x, y) in enumerate(batches(28), 1):
        with torch.autocast("cpu", dtype=HALF):
            loss = F.cross_entropy(model(x), y) / 2
        scaler.scale(loss).backward()
        if number % 2 == 0:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def adversaries_with_a_region_each() -> None:
    makes, judges = nn.Linear(8, 16), network()
    of_makes, of_judges = torch.optim.Adam(makes.parameters()), torch.optim.Adam(judges.parameters())
    for x, _ in batches():
        with torch.autocast("cpu", dtype=BF16):
            fake = makes(torch.randn(16, 8))
            loss = F.softplus(judges(fake.detach()).float()).mean() + F.softplus(-judges(x).float()).mean()
        of_judges.zero_grad()
        loss.backward()
        of_judges.step()
        with torch.autocast("cpu", dtype=BF16):
            loss = F.softplus(-judges(fake).float()).mean()
        of_makes.zero_grad()
        loss.backward()
        of_makes.step()


def decorated_forward() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = network(), nn.Linear(4, 4)

        @torch.autocast("cpu", dtype=BF16)
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.body(x)
            with torch.autocast("cpu", enabled=False):
                return self.head(hidden.float()).log_softmax(-1)  # type: ignore[no-any-return]

    trained(lambda m, x, y: F.nll_loss(m(x), y), Model())


def prepared_by_a_framework() -> None:
    """As Accelerate prepares models: forward in a region, outputs in float32, the loss outside."""
    model = network()
    cast = torch.autocast("cpu", dtype=BF16)(model.forward)
    model.forward = lambda x: cast(x).float()  # type: ignore[method-assign, assignment]
    trained(lambda m, x, y: F.cross_entropy(m(x), y), model)


def one_region_without_copies() -> None:
    def loss_of(model: Any, x: Any, y: Any) -> Any:
        with torch.autocast("cpu", dtype=BF16, cache_enabled=False):
            return F.cross_entropy(model(model(x) @ torch.ones(4, 16)), y)

    trained(loss_of)


def shared_and_normalised_layers() -> None:
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16))
    other = nn.utils.parametrizations.weight_norm(nn.Linear(16, 4))
    trained(plain_loss, nn.Sequential(layer, nn.Tanh(), layer, nn.Tanh(), other))


def attention_and_recurrence() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(4, 16, batch_first=True)
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
            self.head = nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden, _ = self.rnn(x.view(16, 4, 4))
            return self.head(self.attention(hidden, hidden, hidden)[0].mean(1))  # type: ignore[no-any-return]

    trained(plain_loss, Model())


def closures() -> None:
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    for x, y in batches(6):

        def closure(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
            optimizer.zero_grad()
            loss = plain_loss(model, x, y)
            loss.backward()
            return loss  # type: ignore[no-any-return]

        optimizer.step(closure)  # type: ignore[arg-type]


def generation() -> None:
    model = network()
    for inference in (torch.no_grad, torch.inference_mode):
        for x, _ in batches():
            with inference(), torch.autocast("cpu", dtype=HALF):
                scores = model(x)
            with torch.no_grad():
                torch.multinomial((scores / 0.7).softmax(-1).float(), 1)


def threads_with_regions_of_their_own() -> None:
    model = network()

    def work(x: torch.Tensor) -> None:
        with torch.no_grad(), torch.autocast("cpu", dtype=BF16):
            model(x)

    def after(_: Any) -> None:
        with torch.autocast("cpu", dtype=BF16):
            thread = threading.Thread(target=work, args=(torch.randn(4, 16),))
            thread.start()
            thread.join()

    trained(plain_loss, model, after)


class Scaled(torch.autograd.Function):
    """A Function that autocast was told about."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, w = ctx.saved_tensors
        return grad @ w, grad.t() @ x


def functions_that_are_decorated() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Scaled.apply(x, self.weight)  # type: ignore[no-any-return, no-untyped-call]

    trained(plain_loss, Model())


def regions_switched_off_by_a_flag() -> None:
    def loss_of(model: Any, x: Any, y: Any) -> Any:
        with torch.autocast("cuda", dtype=HALF, enabled=torch.cuda.is_available()):
            return F.cross_entropy(model(x), y)

    trained(loss_of)


PROGRAMS = [
    forward_and_loss, average_kept_and_evaluated, checkpointed, checkpointed_without_reentry,
    accumulated_with_a_scaler, adversaries_with_a_region_each, decorated_forward, prepared_by_a_framework,
    one_region_without_copies, shared_and_normalised_layers, attention_and_recurrence, closures, generation,
    threads_with_regions_of_their_own, functions_that_are_decorated, regions_switched_off_by_a_flag,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_a_healthy_program_is_left_alone(program: Callable[[], None]) -> None:
    torch.manual_seed(0)
    with torchvet.watch() as watched:
        program()
    assert watched.report is not None
    found = [f for f in watched.report.findings if f.code.startswith("AMP") and f.evidence == "observed"]
    assert [(f.code, f.message) for f in found] == []
