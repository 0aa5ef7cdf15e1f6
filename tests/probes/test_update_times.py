"""The other implementations of an optimizer are timed on torchvet's own tensors; nothing of the program's is used."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from torchvet.probes.time import update_times
from torchvet.probes.time.update_times import UpdateTimer
from torchvet.recording.records.timing import UpdateTimes


def timed(optimizer: torch.optim.Optimizer, how: str = "finished", steps: int = 80, elapsed: float = 1e-6) -> Any:
    """What is written of an optimizer that stepped in a run."""
    written: list[Any] = []
    clock = SimpleNamespace(main_steps=steps)
    host: Any = SimpleNamespace(clock=clock, elapsed=lambda: elapsed, write=written.append)
    timer = UpdateTimer(host)
    timer.optimizer_starts(optimizer)
    timer.last_look(how, None)
    return written


def weights(count: int = 6, **more: Any) -> list[nn.Parameter]:
    made = [nn.Parameter(torch.rand(4, 5, **more)) for _ in range(count)]
    for one in made:
        one.grad = torch.rand_like(one)
    return made


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad])
def test_both_implementations_are_timed(kind: Any) -> None:
    (found,) = timed(kind([{"params": weights(4)}, {"params": weights(2), "weight_decay": 0.1}], lr=0.1))
    assert isinstance(found, UpdateTimes)
    assert (found.name, found.tensors, found.elements) == (kind.__name__, 6, 120)
    assert found.plain > 0 and found.fused and found.foreach
    assert found.place.path == __file__


def test_the_programs_tensors_hooks_and_random_numbers_are_left_alone() -> None:
    parameters = weights()
    optimizer = torch.optim.Adam(parameters)
    before, state = [p.detach().clone() for p in parameters], torch.get_rng_state()
    heard: list[Any] = []
    hook = register_optimizer_step_post_hook(lambda *given: heard.append(given))
    try:
        assert timed(optimizer)
    finally:
        hook.remove()
    assert not heard and not optimizer.state
    assert all(torch.equal(p, b) for p, b in zip(parameters, before, strict=True))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("chosen", [{"fused": True}, {"foreach": True}, {"differentiable": True}])
def test_what_the_program_has_chosen_stays(chosen: dict[str, bool]) -> None:
    assert not timed(torch.optim.Adam(weights(), **chosen))


def test_optimizers_that_have_one_implementation_are_left_alone() -> None:
    class Own(torch.optim.SGD):
        """A program's own."""

    assert not timed(torch.optim.LBFGS(weights())) and not timed(Own(weights(), lr=0.1))
    assert not timed(torch.optim.SparseAdam(weights()))


def test_an_implementation_that_does_not_take_such_tensors_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    original = update_times.twin_of

    def refusing(seen: Any, choice: dict[str, bool]) -> Any:
        if "fused" in choice:
            raise RuntimeError("no fused kernel for this dtype")
        return original(seen, choice)

    monkeypatch.setattr(update_times, "twin_of", refusing)
    (found,) = timed(torch.optim.Adam(weights()))
    assert found.fused is None and found.foreach


def test_nothing_is_timed_where_it_would_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = torch.optim.Adam(weights())
    assert not timed(optimizer, how="exception")
    assert not timed(optimizer, steps=10)
    assert not timed(optimizer, elapsed=1e6)
    monkeypatch.setattr(update_times, "MOST_BYTES", 4 * 100 * 4)
    assert not timed(optimizer)


def test_optimizers_that_one_line_makes_again_and_again_are_timed_once() -> None:
    written: list[Any] = []
    host: Any = SimpleNamespace(clock=SimpleNamespace(main_steps=80), elapsed=lambda: 1e-6, write=written.append)
    timer = UpdateTimer(host)
    for _ in range(40):
        optimizer = torch.optim.Adam(weights())
        timer.optimizer_made(optimizer)
        timer.optimizer_starts(optimizer)
    timer.last_look("finished", None)
    assert len(written) == 1
