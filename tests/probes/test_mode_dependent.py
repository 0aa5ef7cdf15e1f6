"""A window changes no digit of what the program computes, also where torch asks whether a dispatch mode is on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch

from torchvet.probes.base.ledger import Ledger

_BATCH, _ONE, _SQUARE = torch.randn(16, 3, 3), torch.randn(1, 3, 3), torch.randn(33, 33)


def _gradient(of: Callable[[torch.Tensor], torch.Tensor], leaf: torch.Tensor) -> torch.Tensor:
    mine = leaf.clone().requires_grad_()
    result = of(mine)
    (found,) = torch.autograd.grad(result, mine, torch.randn(result.shape))
    return found


CASES: dict[str, Callable[[], torch.Tensor]] = {
    "@": lambda: _BATCH @ _ONE,
    "torch.matmul": lambda: torch.matmul(_BATCH, _ONE),
    "Tensor.matmul": lambda: _BATCH.matmul(_ONE),
    "svdvals": lambda: torch.linalg.svdvals(_SQUARE),
    "eigvalsh": lambda: torch.linalg.eigvalsh(_SQUARE + _SQUARE.T),
    "cond": lambda: torch.linalg.cond(_SQUARE),
    "nuclear norm": lambda: torch.linalg.matrix_norm(_SQUARE, "nuc"),
    "norm by p": lambda: _SQUARE.norm(p="nuc"),
    "norm of vectors": lambda: _SQUARE.norm(2, dim=1),
    "backward of a norm of vectors": lambda: _gradient(lambda x: torch.linalg.norm(x, 2, dim=1), torch.randn(20, 30)),
    "backward of prod": lambda: _gradient(lambda x: x.prod(1), torch.randn(20, 30)),
    "backward of a number filled in": lambda: _gradient(lambda v: _SQUARE.masked_fill(_SQUARE > 0, v), torch.ones(())),
}


@pytest.mark.parametrize("name", CASES)
def test_a_window_changes_no_digit(name: str) -> None:
    torch.manual_seed(0)
    plain = CASES[name]()
    ledger = Ledger()
    assert ledger.enter()
    try:
        torch.manual_seed(0)
        watched = CASES[name]()
    finally:
        ledger.leave()
    assert torch.equal(plain, watched)


@pytest.mark.parametrize("norm", [torch.norm, torch.linalg.norm])
def test_norms_of_vectors_are_heard(norm: Callable[..., torch.Tensor]) -> None:
    ledger = Ledger()
    heard: list[object] = []
    operator = torch.ops.aten.linalg_vector_norm.default
    ledger.hear([operator], lambda *_: heard.append(1), lambda what: contextlib.nullcontext())
    assert ledger.enter()
    try:
        norm(_SQUARE, 2, dim=1)
    finally:
        ledger.leave()
    assert heard


def test_what_ran_aside_is_noted() -> None:
    ledger = Ledger()
    assert ledger.enter()
    try:
        product = _BATCH @ _ONE
    finally:
        ledger.leave()
    born = {birth.key: birth for birth in ledger.births}
    birth = born[product.untyped_storage()._cdata]
    assert birth.nbytes == product.numel() * 4
    assert birth.site().place is not None and birth.site().place.path == __file__


def test_torch_is_as_it_was_afterwards() -> None:
    before = (torch.matmul, torch.linalg.svdvals, torch.Tensor.__matmul__, torch.Tensor.prod)
    ledger = Ledger()
    assert ledger.enter()
    assert torch.matmul is not before[0]
    ledger.leave()
    assert (torch.matmul, torch.linalg.svdvals, torch.Tensor.__matmul__, torch.Tensor.prod) == before
    assert "__matmul__" not in torch.Tensor.__dict__


def test_modes_of_the_programs_own_stay_on() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    heard: list[str] = []

    class Theirs(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            heard.append(str(func))
            return func(*args, **(kwargs or {}))

    ledger = Ledger()
    assert ledger.enter()
    try:
        with Theirs():
            _BATCH @ _ONE
    finally:
        ledger.leave()
    assert heard
