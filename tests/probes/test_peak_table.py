"""The table of the peak says the same of a step however the program writes it, and sums to the peak."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from autocast_runs import observed

from torchvet.analysis import growth_of
from torchvet.analysis.facts import facts_of

ROWS, WIDTH = 64, 256
WEIGHTS = 2 * (WIDTH * WIDTH + WIDTH) * 4
"""Bytes of the parameters, and so of their gradients."""


class Loop:
    """A model of two layers and its optimizer."""

    def __init__(self, make: type[torch.optim.Optimizer] = torch.optim.SGD, **more: float) -> None:
        torch.manual_seed(0)
        layers = (torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH))
        self.model = torch.nn.Sequential(*layers)
        self.optimizer = make(self.model.parameters(), lr=0.01, **more)  # type: ignore[call-arg]

    def backward(self) -> torch.Tensor:
        """A forward and a backward pass."""
        loss = self.model(torch.randn(ROWS, WIDTH)).square().mean()
        loss.backward()
        return loss


def plain(loop: Loop) -> None:
    """As it is written most often."""
    loop.optimizer.zero_grad()
    loop.backward()
    loop.optimizer.step()


def closure(loop: Loop) -> None:
    """The passes within the optimizer's step, as Lightning has it."""

    def passes() -> torch.Tensor:
        loop.optimizer.zero_grad()
        return loop.backward()

    loop.optimizer.step(passes)  # type: ignore[arg-type]


def zeroed(loop: Loop) -> None:
    """Gradients that stay where they are."""
    loop.optimizer.zero_grad(set_to_none=False)
    loop.backward()
    loop.optimizer.step()


def both(loop: Loop) -> None:
    """The passes within the step, and gradients that stay."""

    def passes() -> torch.Tensor:
        loop.optimizer.zero_grad(set_to_none=False)
        return loop.backward()

    loop.optimizer.step(passes)  # type: ignore[arg-type]


def table(step: Callable[[Loop], None], loop: Loop) -> dict[str, int]:
    """The categories of the peak of a run."""
    with observed() as run:
        for _ in range(16):
            step(loop)
    peak = facts_of(run.rank, growth_of(run.rank))["peak"]
    assert sum(peak["categories"].values()) == peak["bytes"]
    found: dict[str, int] = peak["categories"]
    return found


@pytest.mark.parametrize("step", [plain, closure, zeroed, both])
def test_gradients_are_gradients_and_activations_are_no_work_of_the_optimizer(step: Callable[[Loop], None]) -> None:
    found = table(step, Loop())
    assert (found["parameters"], found["gradients"]) == (WEIGHTS, WEIGHTS)
    # What the second layer's input is computed from is at least there at the peak, within the backward pass.
    assert found["activations"] >= ROWS * WIDTH * 4
    assert found.get("optimizer temporaries", 0) == 0


def test_a_closure_changes_nothing_in_the_table() -> None:
    assert table(closure, Loop()) == table(plain, Loop())
    assert table(both, Loop()) == table(zeroed, Loop())


def test_what_an_optimizer_makes_for_its_step_is_its_own_with_a_closure_too() -> None:
    plainly, within = (table(step, Loop(torch.optim.AdamW)) for step in (plain, closure))
    assert plainly["optimizer state"] == within["optimizer state"] == pytest.approx(2 * WEIGHTS, rel=0.001)
    assert plainly.get("optimizer temporaries", 0) == within.get("optimizer temporaries", 0) > 0
