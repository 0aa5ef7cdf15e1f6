"""What a rank does by itself is written down with the line that asked for it; what torch does for it is not."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import hosts
import pytest
import torch

from torchvet.probes.ranks.own_acts import OwnActs
from torchvet.recording.records.ranks import OwnAct

HERE = __file__


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnActs]:
    monkeypatch.setenv("WORLD_SIZE", "2")
    host: Any = hosts.ByHand()
    host.clock = SimpleNamespace(trained=0)
    found = OwnActs(host)
    found.install()
    yield found
    found.remove()


def told(acts: OwnActs, kind: str) -> list[OwnAct]:
    return [act for act in [*acts.host.written, *acts.totals(1)] if isinstance(act, OwnAct) and act.kind == kind]


def line_of(text: str) -> int:
    with open(HERE, encoding="utf-8") as file:
        return next(n for n, line in enumerate(file, 1) if text in line and "line_of" not in line)


def seeding(seed: int) -> None:
    torch.manual_seed(seed)  # the helper


def run(base: int) -> None:
    seeding(base + 1)  # the rank's own


def test_a_seed_is_followed_to_the_line_that_made_it(acts: OwnActs) -> None:
    run(6)
    (act,) = told(acts, "seed")
    assert act.value == 7
    assert [place.line for place in act.places] == [line_of("# the helper"), line_of("# the rank's own")]


def test_later_seeds_say_nothing_of_how_parameters_began(acts: OwnActs) -> None:
    acts.host.clock.trained = 3
    torch.manual_seed(1)
    assert told(acts, "seed") == []


def test_without_other_ranks_seeds_are_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    found, before = OwnActs(hosts.ByHand()), torch.manual_seed  # type: ignore[arg-type]
    found.install()
    try:
        assert torch.manual_seed is before
    finally:
        found.remove()


def test_schedules_and_late_parameters_of_the_program_are_counted(acts: OwnActs) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = torch.optim.lr_scheduler.LinearLR(optimizer)
    both = torch.optim.lr_scheduler.ChainedScheduler([one])
    assert told(acts, "added") == told(acts, "schedule") == []
    for _ in range(3):
        optimizer.step()
        both.step()  # a schedule
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})  # more
    (stepped,), (added,) = told(acts, "schedule"), told(acts, "added")
    assert (stepped.places[0].line, stepped.times) == (line_of("# a schedule"), 3)
    assert (added.places[0].line, added.times) == (line_of("# more"), 1)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(2, 1)

    def loss(self) -> torch.Tensor:
        return self.body(torch.ones(3, 2)).mean()  # type: ignore[no-any-return]


def test_a_pass_around_the_wrapper_is_told_where_the_model_was_asked_for(acts: OwnActs) -> None:
    model = Model()
    acts._wrapped = [SimpleNamespace(module=model)]  # type: ignore[assignment]
    # The listener's frame is torchvet's own in a run; here it passes for the module's.
    heard: Any = lambda self, _, output: acts.forward_ended(self, output)  # noqa: E731
    handle = model.body.register_forward_hook(heard)
    other = torch.nn.Linear(2, 1)
    other.register_forward_hook(heard)
    model.loss()  # around
    other(torch.ones(1, 2))
    with torch.no_grad():
        model.loss()
    handle.remove()
    (act,) = told(acts, "around")
    assert (act.places[0].line, act.times) == (line_of("# around"), 1)


def test_what_is_converted_under_the_wrapper_is_told_once(acts: OwnActs) -> None:
    model = Model()
    model.to(torch.bfloat16)
    assert told(acts, "converted") == []
    acts._wrapped = [SimpleNamespace(module=model)]  # type: ignore[assignment]
    model.float()  # converts
    torch.nn.Linear(1, 1).double()
    (act,) = told(acts, "converted")
    assert (act.places[0].line, act.times) == (line_of("# converts"), 1)


def test_a_loaded_state_is_told(acts: OwnActs) -> None:
    model = Model()
    model.load_state_dict(model.state_dict())  # loads
    (act,) = told(acts, "loaded")
    assert (act.places[0].line, act.times) == (line_of("# loads"), 1)


def test_a_pass_around_the_wrapper_keeps_nothing_of_the_caller_alive(acts: OwnActs) -> None:
    model = Model()
    acts._wrapped = [SimpleNamespace(module=model)]  # type: ignore[assignment]
    model.body.register_forward_hook(lambda module, _, output: acts.forward_ended(module, output))
    batch = torch.ones(3, 2)
    gone = weakref.ref(batch)
    model.body(batch)
    del batch
    assert told(acts, "around") and gone() is None


def test_a_wrapper_that_is_converted_converts_what_it_wraps(acts: OwnActs) -> None:
    model = Model()
    wrapper = torch.nn.Sequential(model)
    wrapper.module = model
    acts._wrapped = [wrapper]  # type: ignore[assignment]
    wrapper.double()  # wrapped and converted
    (act,) = told(acts, "converted")
    assert (act.places[0].line, act.times) == (line_of("# wrapped and converted"), 1)
