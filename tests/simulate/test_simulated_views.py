"""Conjugate and negative views on the simulated GPU: what is written through them reaches what they view."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch


def numbers(device: str, *shape: int) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(*shape, dtype=torch.complex64).to(device)


def copied(device: str) -> torch.Tensor:
    x = torch.zeros(3, dtype=torch.complex64, device=device)
    x.conj().copy_(numbers(device, 3))
    return x


def adjoint(device: str) -> torch.Tensor:
    x = torch.zeros(3, 3, dtype=torch.complex64, device=device)
    x.mH.copy_(numbers(device, 3, 3))
    return x


def imaginary(device: str) -> torch.Tensor:
    x = numbers(device, 4)
    x.conj().imag.fill_(1)
    return x


def negated(device: str) -> torch.Tensor:
    x = numbers(device, 4)
    x.conj().imag.neg_().add_(2)
    return x


def multiplied(device: str) -> torch.Tensor:
    x = numbers(device, 4)
    x.conj().mul_(2j)
    return x


def assigned(device: str) -> torch.Tensor:
    x = numbers(device, 4, 4)
    x.conj()[0] = 1j
    return x


def learned(device: str) -> torch.Tensor:
    x = numbers(device, 4).requires_grad_()
    y = x * 1
    y.conj().imag.fill_(1)
    y.abs().sum().backward()
    assert x.grad is not None
    return x.grad


def only_read(device: str) -> torch.Tensor:
    x = numbers(device, 4, 4)
    return x.mH @ x + torch.view_as_real(x.conj().resolve_conj()).sum()


@pytest.mark.parametrize("program", [copied, adjoint, imaginary, negated, multiplied, assigned, learned, only_read])
def test_a_view_writes_what_it_views(program: Callable[[str], torch.Tensor]) -> None:
    assert torch.equal(program("cpu").resolve_conj(), program("cuda").cpu().resolve_conj())


def test_views_say_that_they_are_and_share_memory() -> None:
    x = numbers("cuda", 3)
    before = torch.cuda.memory_allocated()
    view = x.conj()
    assert view.is_conj() and view.imag.is_neg() and view.data_ptr() == x.data_ptr()
    assert torch.cuda.memory_allocated() == before
    assert view.tolist() == numbers("cpu", 3).conj().tolist()
    assert copy.deepcopy(view).tolist() == view.tolist()
    assert not view.resolve_conj().is_conj()
