"""The loss of each step, written down as it was before a scaler scaled it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torchvet.probes.training.loss_curve import LossCurve
from torchvet.recording.records.base import Record
from torchvet.recording.records.verify import Losses


class _Host:
    active = True
    step = 9
    options: Any = SimpleNamespace(losses=True)

    def __init__(self) -> None:
        self.written: list[Record] = []

    def write(self, record: Record) -> None:
        self.written.append(record)

    @contextmanager
    def looking(self, what: str) -> Iterator[None]:
        yield


@pytest.fixture
def curve() -> Iterator[LossCurve]:
    watcher = LossCurve(_Host())  # type: ignore[arg-type]
    watcher.install()
    yield watcher
    watcher.remove()


def losses(watcher: LossCurve) -> list[tuple[int, list[float | None]]]:
    return [(r.tick, r.values) for r in watcher.host.written if isinstance(r, Losses)]  # type: ignore[attr-defined]


def test_each_step_has_the_roots_of_its_backward_passes(curve: LossCurve) -> None:
    curve.backward_starts(torch.tensor(0.1), False)
    curve.backward_starts((torch.tensor([2.0]), torch.tensor(3.0, dtype=torch.float64)), False)
    curve.boundary(1, "training")
    curve.boundary(2, "training")
    curve.backward_starts(torch.tensor(float("nan")), False)
    curve.backward_starts(torch.ones(3), False)
    curve.backward_starts(torch.tensor(1.0), True)
    curve.finish("finished", None)
    assert losses(curve) == [(1, [float(torch.tensor(0.1)), 2.0, 3.0]), (9, [None])]


def test_a_scaled_loss_counts_as_what_it_was(curve: LossCurve) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    loss = torch.tensor(0.3, requires_grad=True) * 1
    scaled = scaler.scale(loss)
    assert float(scaled.detach()) > 300
    curve.backward_starts(scaled, False)
    curve.backward_starts((loss * 2).detach(), False)
    curve.boundary(1, "training")
    assert losses(curve) == [(1, [loss.item(), loss.item() * 2])]


def test_it_is_there_only_where_runs_are_compared() -> None:
    assert LossCurve.wanted(SimpleNamespace(losses=True)) and not LossCurve.wanted(SimpleNamespace(losses=False))
