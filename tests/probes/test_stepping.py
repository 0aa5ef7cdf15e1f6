"""Threads that train side by side: each step counts, whoever looks meanwhile."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import torchvet
from torchvet.analysis.steps import current_steps
from torchvet.probes.base.clock import StepClock
from torchvet.probes.session.step_log import StepLog
from torchvet.probes.session.stepping import Stepping
from torchvet.recording import RecordingWriter, read


def _elsewhere(work: object) -> None:
    thread = threading.Thread(target=work)  # type: ignore[arg-type]
    thread.start()
    thread.join()


def test_a_step_on_another_thread_counts_while_one_looks(tmp_path: Path) -> None:
    clock = StepClock()
    log = StepLog(RecordingWriter(tmp_path), 0.0)
    steps = Stepping(clock, log)
    refused: list[bool] = []

    def train() -> None:
        with steps.turn() as mine:
            refused.append(not mine)
        assert steps.heard_elsewhere()
        steps.backward_ended(False)
        steps.count(steps.optimizer_ended(2))

    with steps.turn() as mine:
        assert mine and steps.looking and not steps.heard_elsewhere()
        _elsewhere(train)
    assert not steps.looking
    log.flush()
    (rank,) = read(tmp_path).ranks
    assert refused == [True]
    assert [(s.kind, s.count) for s in current_steps(rank)] == [("training", 1)]


def test_counting_anew_is_not_lost_while_another_thread_looks(tmp_path: Path) -> None:
    clock = StepClock()
    log = StepLog(RecordingWriter(tmp_path), 0.0)
    steps = Stepping(clock, log)
    for _ in range(2):
        steps.count(steps.backward_ended(False))
    with steps.turn():
        _elsewhere(lambda: steps.count(steps.optimizer_ended(2)))
    passed = steps.optimizer_ended(2)
    assert passed is not None and steps.resumed(passed).restarted
    steps.count(passed)
    log.flush()
    (rank,) = read(tmp_path).ranks
    assert sum(s.count for s in current_steps(rank)) == 2


def _train(steps: int) -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def test_two_threads_that_train_have_all_their_steps_counted() -> None:
    with torchvet.watch() as watched:
        threads = [threading.Thread(target=_train, args=(60,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert watched.report is not None
    assert watched.report.facts["step_kinds"] == {"training": 120}


def test_passes_of_a_thread_beside_another_all_count() -> None:
    """A thread generates and the main one decodes, as in speech synthesis: the first module's calls are the steps."""
    made: queue.Queue[torch.Tensor | None] = queue.Queue(maxsize=4)
    generator, decoder = (torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(2))

    def generate() -> None:
        x = torch.ones(2, 8)
        for _ in range(120):
            x = generator(x).detach()
            made.put(x)
        made.put(None)

    with torchvet.watch() as watched:
        worker = threading.Thread(target=generate)
        worker.start()
        while (x := made.get()) is not None:
            decoder(x)
        worker.join()
    assert watched.report is not None
    assert watched.report.facts["step_kinds"] == {"forward": 119}, "the last pass's end is not seen"


def test_optimizers_that_step_within_backward_are_sampled() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}
    for parameter, optimizer in optimizers.items():
        parameter.register_post_accumulate_grad_hook(lambda _, one=optimizer: one.step())
    with torchvet.watch() as watched:
        for _ in range(20):
            model(torch.ones(2, 4)).sum().backward()
    assert watched.report is not None
    assert watched.report.facts["step_kinds"] == {"training": 20}
    assert "peak" in watched.report.facts
    assert not [n for n in watched.report.not_checked if "sampled" in n.check]


def test_inference_beside_an_optimizer_that_never_steps_is_judged_by_its_names() -> None:
    model = torch.nn.Linear(64, 64)
    kept: list[torch.Tensor] = []
    with torchvet.watch() as watched, torch.no_grad():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(30):
            kept.append(model(torch.randn(256, 64)))
    assert optimizer.state == {} and watched.report is not None
    (found,) = [f for f in watched.report.findings if f.measured.bytes_per_step]
    assert found.holder is not None and found.holder.name == "kept", found


EVENTS = ("optimizer_stepped", "backward_ended", "batch_asked", "forward_started", "manual", "optimizer_made")


@pytest.mark.parametrize("event", EVENTS)
def test_a_failure_of_the_clock_does_not_reach_the_program(event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step may have been missed for it: the verdict is open."""

    def broken(*told: object) -> None:
        raise RuntimeError("the clock stands")

    monkeypatch.delenv("TORCHVET_DEBUG", raising=False)
    monkeypatch.setattr(StepClock, event, broken)
    with torchvet.watch(show=False) as watch:
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for (x,) in DataLoader(TensorDataset(torch.ones(40, 4))):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            watch.step()
    assert watch.report is not None and not watch.report.earned
    assert [(u.check, u.reason) for u in watch.report.not_checked if u.check == "steps"] == [
        ("steps", "RuntimeError: the clock stands")
    ]


def test_batches_that_another_thread_loads_ahead_take_no_time_of_the_steps(tmp_path: Path) -> None:
    log = StepLog(RecordingWriter(tmp_path), 0.0)
    log.add("data", 1.0)
    log.boundary(1, "training", 1, None)
    log.add("data", 2.0)
    _elsewhere(lambda: log.add("data", 50.0))
    assert log.seconds("data") == 3.0
    log.boundary(2, "training", 1, None)
    assert log.seconds("data") == 3.0 and log.seconds("backward") == 0.0
