"""What lines make, and how often gradients are averaged: counted where two runs are compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torchvet.probes.base import frames
from torchvet.probes.base.ledger import Ledger
from torchvet.probes.memory.line_memory import LineMemory
from torchvet.probes.training.reductions import Reductions
from torchvet.recording.records.verify import MadeAt, Reduced


class _Host:
    active = True
    options: Any = SimpleNamespace(losses=True)

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.sampling = False

    @contextmanager
    def looking(self, what: str) -> Iterator[None]:
        yield


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> _Host:
    monkeypatch.setitem(frames._owner_of_file, __file__, frames.USER)
    return _Host()


def made(watcher: LineMemory) -> list[tuple[int, int, int]]:
    """Bytes, those of them copied, and steps of each line, the largest first."""
    found = [r for r in watcher.totals(0) if isinstance(r, MadeAt)]
    return sorted(((r.bytes, r.copied, r.sampled) for r in found), reverse=True)


def test_only_where_runs_are_compared() -> None:
    alone: Any = SimpleNamespace(losses=False)
    assert not LineMemory.wanted(alone) and not Reductions.wanted(alone)


def test_each_line_of_a_sampled_step_with_what_it_made_and_copied(host: _Host) -> None:
    watcher = LineMemory(host)  # type: ignore[arg-type]
    watcher.install()
    x = torch.ones(10, 10)
    host.sampling = True
    for step in range(2):
        assert host.ledger.enter()
        (x.t().contiguous() + 1).add_(1)
        x.view(-1)[3:]
        host.ledger.leave()
        watcher.boundary(step, "training")
        host.ledger.forget_window()
    watcher.remove()
    assert made(watcher) == [(1600, 800, 2)]


def test_passes_of_evaluations_are_looked_at_now_and_then_and_the_mode_is_left(host: _Host) -> None:
    watcher = LineMemory(host)  # type: ignore[arg-type]
    parts = torch.empty(0)
    for tick in range(20):
        parts = torch.cat([parts, torch.ones(1)])
        watcher.boundary(tick, "evaluation")
    assert made(watcher) and watcher._thread == 0
    (largest, copied, steps) = made(watcher)[0]
    assert steps == 8 and copied == 0 and largest == 4 * sum(range(2, 10)) + 4 * 8
    watcher.boundary(20, "training")
    watcher._passes = 64
    watcher.boundary(21, "evaluation")
    assert watcher._thread != 0
    watcher.remove()
    assert watcher._thread == 0 and not torch.utils._python_dispatch._get_current_dispatch_mode_stack()


def test_a_program_goes_on_where_counting_fails(host: _Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(tensor: torch.Tensor) -> list[Any]:
        raise RuntimeError("no storage")

    watcher = LineMemory(host)  # type: ignore[arg-type]
    watcher.boundary(1, "evaluation")
    assert watcher._thread != 0
    monkeypatch.setattr("torchvet.probes.base.graphs.storages_of", fails)
    assert torch.ones(3).sum() == 3
    watcher.boundary(2, "training")
    watcher.boundary(3, "evaluation")
    assert watcher._thread == 0 and made(watcher) == []


class _Parallel(torch.nn.parallel.DistributedDataParallel):
    """Without processes: all that is asked is whether the next backward averages."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.require_backward_grad_sync = True


def test_passes_after_which_gradients_are_averaged(host: _Host, monkeypatch: pytest.MonkeyPatch) -> None:
    parallel = torch.nn.parallel.DistributedDataParallel
    monkeypatch.setattr(parallel, "forward", lambda self, x: x)
    watcher = Reductions(host)  # type: ignore[arg-type]
    watcher.install()
    model = _Parallel()
    optimizer = torch.optim.SGD([torch.ones(1)], lr=1.0)
    for number in range(8):
        model.require_backward_grad_sync = number % 4 == 3
        model(torch.ones(1))
        if number % 4 == 3:
            watcher.optimizer_ended(optimizer)
    with torch.no_grad():
        model(torch.ones(1))
    watcher.remove()
    model(torch.ones(1))
    (found,) = [r for r in watcher.totals(0) if isinstance(r, Reduced)]
    assert (found.passes, found.reduced, found.steps) == (8, 2, 2)
    assert found.place.path == __file__
