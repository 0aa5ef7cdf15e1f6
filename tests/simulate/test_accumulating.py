"""What autograd does in place for CUDA's tensors takes no memory of its own here."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

SIDE = 256
WHOLE = 4 * SIDE * SIDE

SELECTING: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "gather": lambda x, at: x.gather(1, at),
    "index": lambda x, at: x[at[:, 0]],
    "index_select": lambda x, at: x.index_select(0, at[:, 0]),
    "max": lambda x, at: x.max(1)[0],
}


def peak_of_backward(loss: torch.Tensor) -> int:
    """Bytes that a backward pass takes at most."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    loss.backward()
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.parametrize("name", SELECTING)
def test_the_gradient_of_a_selection_takes_one_tensor(name: str) -> None:
    torch.manual_seed(0)
    plain = torch.randn(SIDE, SIDE, requires_grad=True)
    at = torch.randint(0, SIDE, (SIDE, 1))
    x = plain.detach().cuda().requires_grad_()
    peak = peak_of_backward(SELECTING[name](x, at.cuda()).sum())
    SELECTING[name](plain, at).sum().backward()
    assert x.grad is not None and plain.grad is not None
    assert torch.equal(x.grad.cpu(), plain.grad)
    assert WHOLE <= peak < 1.1 * WHOLE, "zeros, and what is added to them in their place"


def test_gradients_that_meet_are_added_up_in_the_first_ones_memory() -> None:
    def of(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return (y.exp() + y.sin() + y.cos()).sum()

    torch.manual_seed(0)
    plain = torch.randn(SIDE, SIDE, requires_grad=True)
    x = plain.detach().cuda().requires_grad_()
    loss = of(x)
    of(plain).backward()
    peak = peak_of_backward(loss)
    assert x.grad is not None and plain.grad is not None
    assert torch.equal(x.grad.cpu(), plain.grad)
    assert peak < 4 * WHOLE, "the sum takes no tensor of its own"


def test_a_gradient_that_the_program_keeps_stays_as_it_was() -> None:
    kept: list[torch.Tensor] = []
    x = torch.ones(SIDE, SIDE, device="cuda", requires_grad=True)
    first = x * 2
    first.register_hook(kept.append)
    (first.exp() + first.sin()).sum().backward()
    assert torch.equal(kept[0].cpu(), (torch.full((SIDE, SIDE), 2.0).exp() + torch.full((SIDE, SIDE), 2.0).cos()))
    held = torch.cuda.memory_allocated()
    kept.clear()
    assert held - torch.cuda.memory_allocated() == WHOLE


def test_sums_outside_of_a_backward_pass_are_tensors_of_their_own() -> None:
    x = torch.ones(SIDE, SIDE, device="cuda")
    before = torch.cuda.memory_allocated()
    with torch.no_grad():
        y = x + x
    assert torch.cuda.memory_allocated() - before == WHOLE and y.shape == x.shape


def test_what_a_hook_adds_up_and_keeps_is_counted() -> None:
    x = torch.ones(SIDE, SIDE, device="cuda", requires_grad=True)
    sums = [torch.zeros(SIDE, SIDE, device="cuda")]

    @torch.no_grad()
    def add_up(leaf: torch.Tensor) -> None:
        assert leaf.grad is not None
        sums.append(sums[-1] + leaf.grad)

    x.register_post_accumulate_grad_hook(add_up)
    before = torch.cuda.memory_allocated()
    for _ in range(5):
        x.grad = None
        (x * x).sum().backward()
    assert torch.cuda.memory_allocated() - before == 6 * WHOLE, "five sums and a gradient"


def test_what_a_function_of_the_programs_own_adds_is_counted() -> None:
    noise = torch.ones(SIDE, SIDE, device="cuda")
    weight = torch.ones(SIDE, SIDE, device="cuda")
    kept: list[torch.Tensor] = []

    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            kept.append(weight + noise)
            return gradient

    x = torch.ones(SIDE, SIDE, device="cuda", requires_grad=True)
    loss = Noisy.apply(x).sum()
    before = torch.cuda.memory_allocated()
    loss.backward()
    assert torch.cuda.memory_allocated() - before == 2 * WHOLE, "what is kept, and a gradient"
