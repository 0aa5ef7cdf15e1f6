"""A rank's step is apart in what it did of its own and what it waited for others; nothing of the program's changes."""

from __future__ import annotations

import time
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import hosts
import pytest
import torch

from torchvet.probes.base.watcher import EVERY_STEP
from torchvet.probes.ranks import arrivals, step_times
from torchvet.probes.ranks.arrivals import ArrivalTimer
from torchvet.probes.ranks.step_times import KeptSteps, StepTimes
from torchvet.recording.records.ranks import Arrivals


class Times:
    """A clock, and a machine that holds the thread up, by hand."""

    def __init__(self) -> None:
        self.now = self.held_up = 0.0

    def pass_(self, seconds: float, held_up: float = 0.0) -> None:
        self.now += seconds + held_up
        self.held_up += held_up


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    found = Times()
    monkeypatch.setattr(step_times, "time", SimpleNamespace(perf_counter=lambda: found.now))
    return found


def step_of(times: Times, number: int = 4) -> StepTimes:
    return StepTimes(number, 0.0, lambda: times.held_up)


def test_each_phase_has_its_own_seconds(times: Times) -> None:
    step = step_of(times)
    step.enter("data")
    times.pass_(1)
    step.leave()
    times.pass_(2)
    step.enter("backward")
    times.pass_(4)
    assert step.leave() == 0
    step.enter("optimizer")
    times.pass_(8)
    step.leave()
    times.pass_(16)
    step.end()
    assert step.own == {"data": 1, "other": 18, "backward": 4, "optimizer": 8} and step.waited == 0


def test_what_a_pass_takes_after_its_last_node_is_waiting(times: Times) -> None:
    step = step_of(times)
    step.enter("backward")
    times.pass_(1)
    assert step.wait()
    times.pass_(2)
    assert not step.wait(), "a collective that is waited for within has been counted"
    assert step.leave() == 2
    assert (step.own["backward"], step.waited) == (1, 2)


def test_a_collective_is_waited_for_in_any_phase(times: Times) -> None:
    step = step_of(times)
    step.enter("optimizer")
    assert step.wait()
    times.pass_(3)
    assert step.resume() == 3
    times.pass_(1)
    step.leave()
    assert (step.own["optimizer"], step.waited) == (1, 3)


def test_what_the_machine_held_up_is_nobodys(times: Times) -> None:
    step = step_of(times)
    times.pass_(1, held_up=5)
    step.wait()
    times.pass_(2, held_up=7)
    step.resume()
    step.end()
    assert (step.own["other"], step.delayed, step.waited) == (1, 5, 9)


def test_a_loader_at_its_end_leaves_no_phase_behind(times: Times) -> None:
    step = step_of(times)
    step.enter("data")
    times.pass_(1)
    step.enter("backward")
    times.pass_(2)
    step.leave()
    assert step.phase == "other" and step.own == {"data": 0, "other": 1, "backward": 2, "optimizer": 0}


def test_ranks_keep_the_same_few_steps(times: Times) -> None:
    mine, other = KeptSteps(), KeptSteps()
    for number in range(1, 5000):
        for kept in (mine, other):
            if kept.wants(number) and not (kept is other and number % 7 == 0):
                kept.add(step_of(times, number))
    found = [record.steps for kept in (mine, other) if (record := kept.record()) is not None]
    assert all(20 <= len(steps) <= 64 for steps in found) and len({*found[0]} & {*found[1]}) >= 16
    assert found[0][-1] > 4000 and len({number % 10 for number in found[0]}) >= 8
    assert not KeptSteps().wants(3)


def test_steps_that_send_to_one_rank_alone_are_no_meetings(times: Times) -> None:
    kept, step = KeptSteps(), step_of(times)
    step.paired = True
    kept.add(step)
    assert kept.record() is None


class Ranks(hosts.ByHand):
    """A host in a group of several ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = SimpleNamespace(level="training", main_steps=0)
        self.costs = SimpleNamespace(seconds=dict.fromkeys(("windows", "censuses", "graphs"), 0.0))
        self.way: list[Any] = []


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    monkeypatch.setattr(arrivals, "_trains_with_others", lambda: True)
    return Ranks()


def trained(host: Any, probe: ArrivalTimer, steps: int = 8, late: float = 0.0) -> list[float]:
    """Some steps of a model whose gradients are waited for as DistributedDataParallel does it."""
    torch.manual_seed(0)
    weight = torch.randn(4, 4, requires_grad=True)
    losses = []
    queued = torch.autograd.Variable._execution_engine.queue_callback  # type: ignore[attr-defined]
    for _ in range(steps):
        loss = (weight @ weight).square().sum()
        weight.register_post_accumulate_grad_hook(lambda _: queued(lambda: time.sleep(late)))
        probe.backward_starts(loss, False)
        loss.backward()
        probe.backward_ended(False)
        with torch.no_grad():
            weight.sub_(0.01 * weight.grad)
        weight = weight.detach().requires_grad_()
        host.clock.main_steps += 1
        probe.boundary(host.clock.main_steps, "training")
        losses.append(loss.item())
    return losses


def test_the_end_of_a_pass_is_timed_and_losses_stay(host: Ranks) -> None:
    probe = ArrivalTimer(host)  # type: ignore[arg-type]
    alone = trained(host, ArrivalTimer(host))  # type: ignore[arg-type]
    host.clock.main_steps = 0
    probe.settle(0, "training")
    try:
        assert trained(host, probe, late=0.02) == alone
        (record,) = probe.totals(9)
    finally:
        probe.remove()
    assert isinstance(record, Arrivals) and record.steps == [4, 5, 6, 7, 8]
    assert min(record.waited) >= 0.02 and max(record.own["backward"]) < 0.02


def test_what_fails_here_does_not_reach_the_program(host: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = trained(host, ArrivalTimer(host))  # type: ignore[arg-type]
    failed: list[str] = []

    def broken(step: StepTimes) -> bool:
        failed.append("wait")
        raise RuntimeError("broken")

    class Waits:
        def wait(self) -> str:
            return "arrived"

    monkeypatch.setattr(StepTimes, "wait", broken)
    monkeypatch.setattr(torch.distributed, "Work", Waits)
    host.looking = lambda *_: suppress(RuntimeError)  # type: ignore[method-assign, assignment]
    host.clock.main_steps = 0
    probe = ArrivalTimer(host)  # type: ignore[arg-type]
    probe.settle(0, "training")
    try:
        assert trained(host, probe) == alone
        assert Waits().wait() == "arrived"
    finally:
        probe.remove()
    assert len(failed) == 6, "five passes and one collective"


def test_a_step_that_was_looked_at_is_left_out(host: Ranks) -> None:
    probe = ArrivalTimer(host)  # type: ignore[arg-type]
    probe.settle(0, "training")
    trained(host, probe, 4)
    host.sampling = True
    trained(host, probe, 1)
    host.sampling = False
    trained(host, probe, 1)
    host.costs.seconds["censuses"] += 0.5
    trained(host, probe, 1)
    probe.remove()
    (record,) = probe.totals(9)
    assert isinstance(record, Arrivals) and record.steps == [4, 6]


def test_nothing_is_heard_or_replaced_of_a_program_that_trains_alone() -> None:
    wait = vars(torch.distributed.Work)["wait"]
    probe = ArrivalTimer(Ranks())  # type: ignore[arg-type]
    probe.settle(0, "training")
    assert probe.ignored == EVERY_STEP and vars(torch.distributed.Work)["wait"] is wait
    assert not [*probe.totals(1)] and not [*probe.unchecked()]


def test_all_is_put_back(host: Ranks) -> None:
    before = vars(torch.distributed.Work)["wait"], torch.nn.parallel.DistributedDataParallel.forward
    probe = ArrivalTimer(host)  # type: ignore[arg-type]
    probe.settle(0, "training")
    assert vars(torch.distributed.Work)["wait"] is not before[0] and not probe.ignored
    probe.remove()
    assert (vars(torch.distributed.Work)["wait"], torch.nn.parallel.DistributedDataParallel.forward) == before


def test_on_a_device_it_says_that_it_cannot_tell(host: Ranks) -> None:
    probe = ArrivalTimer(host)  # type: ignore[arg-type]
    probe.settle(0, "training")
    host.clock.main_steps = 5
    probe.boundary(5, "training")
    probe.backward_starts(torch.ones(1, device="meta", requires_grad=True).sum(), False)
    probe.backward_ended(False)
    probe.remove()
    assert "traces of all ranks" in next(iter(probe.unchecked())).reason
