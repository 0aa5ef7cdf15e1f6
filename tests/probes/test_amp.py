"""A mode that is asked for is what the program computes: wrapped, or by way of its own autocast and scaler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.precision.amp import AmpWatcher
from torchvet.recording.records.amp import AmpRun
from torchvet.recording.records.base import Record

F = nn.functional
HALF = {"float16": torch.float16, "bfloat16": torch.bfloat16}


class _Host:
    active = True
    tick = 0

    def __init__(self, mode: str) -> None:
        self.known = KnownMemory()
        self.options: Any = SimpleNamespace(amp_mode=mode)

    def write(self, record: Record) -> None: ...

    @contextmanager
    def looking(self, what: str) -> Iterator[None]:
        yield


def setting(factor: float = 1.0) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    with torch.no_grad():
        model[2].weight *= factor
    return model, torch.optim.Adam(model.parameters(), lr=1e-2)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(step))
    return x, x.sum(1, keepdim=True)


def by_hand(mode: str, factor: float = 1.0, steps: int = 12) -> tuple[list[torch.Tensor], int]:
    """What a person would write."""
    model, optimizer = setting(factor)
    scaler = torch.amp.GradScaler("cpu", enabled=mode == "float16")
    skips = 0
    for step in range(steps):
        x, y = batch(step)
        with torch.autocast("cpu", HALF.get(mode), enabled=mode in HALF):
            loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skips += scaler.get_scale() < before
    return [p.detach().clone() for p in model.parameters()], skips


def watched(
    mode: str, loop: Callable[[AmpWatcher, nn.Module, torch.optim.Optimizer], None], factor: float = 1.0
) -> Any:
    """The weights and the record after a loop under the watcher."""
    host = _Host(mode)
    model, optimizer = setting(factor)
    host.known.add_root(model)
    watcher = AmpWatcher(host)
    watcher.install()
    pre = optimizer.register_step_pre_hook(lambda *_: watcher.optimizer_starts(optimizer))
    post = optimizer.register_step_post_hook(lambda *_: watcher.boundary(1, "training"))
    try:
        loop(watcher, model, optimizer)
    finally:
        watcher.remove()
        pre.remove()
        post.remove()
    (record,) = watcher.totals(1)
    assert isinstance(record, AmpRun)
    return [p.detach().clone() for p in model.parameters()], record


def plain_loop(_: AmpWatcher, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(12):
        x, y = batch(step)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def amp_loop(_: AmpWatcher, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    scaler = torch.amp.GradScaler("cpu")
    for step in range(12):
        x, y = batch(step)
        with torch.autocast("cpu", torch.float16):
            loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("mode", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("loop", [plain_loop, amp_loop])
def test_it_computes_what_a_person_would_write(mode: str, loop: Any) -> None:
    expected, _ = by_hand(mode)
    weights, record = watched(mode, loop)
    assert all(torch.equal(a, b) for a, b in zip(weights, expected, strict=True))
    assert record.how == ("own" if loop is amp_loop else "wrapped")
    assert record.wanted == ("float16" if loop is amp_loop else None)
    assert len(record.losses) == 12 and 11 - record.skipped <= len(record.seconds) <= 11


@pytest.mark.parametrize("loop", [plain_loop, amp_loop])
def test_steps_with_infinite_gradients_are_skipped_as_a_scaler_does(loop: Any) -> None:
    expected, skips = by_hand("float16", factor=100.0)
    weights, record = watched("float16", loop, factor=100.0)
    assert record.skipped == skips > 0
    assert all(torch.equal(a, b) for a, b in zip(weights, expected, strict=True))


def test_a_region_that_a_module_switches_off_stays_off() -> None:
    seen: list[torch.dtype] = []

    class Island(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", enabled=False):
                seen.append((x.float() @ x.float().T).dtype)
            seen.append((x @ x.T).dtype)
            return x

    def loop(_: AmpWatcher, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        Island()(torch.ones(2, 2))
        with torch.autocast("cpu", torch.float16):
            Island()(torch.ones(2, 2))

    watched("bfloat16", loop)
    assert seen == [torch.float32, torch.bfloat16] * 2


def test_nothing_stays_installed(leftovers: Callable[[], list[str]]) -> None:
    before = torch.autograd.backward, torch.amp.GradScaler.__init__, torch.amp.GradScaler.scale
    watched("float16", plain_loop)
    assert leftovers() == []
    assert before == (torch.autograd.backward, torch.amp.GradScaler.__init__, torch.amp.GradScaler.scale)
    assert not torch.is_autocast_enabled("cpu")
