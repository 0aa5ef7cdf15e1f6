"""Watching autocast changes no result: weights are the same to the bit after 50 steps, with torch.compile too."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from autocast_runs import BF16, observed

nn = torch.nn


def model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Dropout(0.2), nn.Linear(32, 4))


def with_scaler(net: nn.Module, optimizer: Any) -> None:
    scaler = torch.amp.GradScaler("cpu", growth_interval=5)
    for _ in range(50):
        x = torch.randn(32, 16)
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(net(x), x[:, :4].argmax(1))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def in_one_region(net: nn.Module, optimizer: Any) -> None:
    """Faulty in three ways, so that every look is taken."""
    with torch.autocast("cpu", dtype=torch.float16):
        for _ in range(50):
            x = torch.randn(32, 16)
            with torch.autocast("cpu", enabled=False):
                pass
            loss = nn.functional.cross_entropy(net(x), x[:, :4].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def without_scaler(net: nn.Module, optimizer: Any) -> None:
    for _ in range(50):
        x = torch.randn(32, 16)
        with torch.autocast("cpu", dtype=torch.float16):
            logits = net(x)
        loss = nn.functional.cross_entropy(logits, x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def compiled(net: nn.Module, optimizer: Any) -> None:
    @torch.compile(backend="eager")
    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=BF16):
            return net(x)  # type: ignore[no-any-return]

    for _ in range(50):
        x = torch.randn(32, 16)
        loss = nn.functional.cross_entropy(forward(x).float(), x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.mark.parametrize("train", [with_scaler, in_one_region, without_scaler, compiled])
def test_weights_are_the_same_to_the_bit(train: Callable[[nn.Module, Any], None]) -> None:
    for seed in (0, 1):
        results = []
        for watching in (False, True):
            net = model(seed)
            optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
            with observed() if watching else nullcontext():
                train(net, optimizer)
            results.append([*(t.clone() for t in net.state_dict().values()), torch.randn(3)])
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
