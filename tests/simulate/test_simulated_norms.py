"""Norms and other operators that hold other memory on CUDA than on the CPU: with the CPU's numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def requested(which: str = "current") -> int:
    return int(torch.cuda.memory_stats()[f"requested_bytes.all.{which}"])


def passed(device: str, dtype: torch.dtype, norm: type[nn.Module], **options: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    given = torch.randn(3, 5, 16).to(dtype).to(device).requires_grad_()
    module = norm(16, **options).to(device, dtype)
    for p in module.parameters():
        nn.init.normal_(p)
    out = module(given)
    out.backward(torch.randn(3, 5, 16).to(dtype).to(device))
    return [t.detach().cpu() for t in (out, given.grad, *(p.grad for p in module.parameters())) if t is not None]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", [nn.RMSNorm, nn.LayerNorm])
@pytest.mark.parametrize("elementwise_affine", [True, False])
def test_numbers_are_the_cpus(dtype: torch.dtype, norm: type[nn.Module], elementwise_affine: bool) -> None:
    on_cpu = passed("cpu", dtype, norm, elementwise_affine=elementwise_affine)
    on_device = passed("cuda", dtype, norm, elementwise_affine=elementwise_affine)
    assert len(on_cpu) == len(on_device)
    assert all(torch.equal(a, b) for a, b in zip(on_cpu, on_device, strict=True))


def trained(device: str) -> list[float]:
    torch.manual_seed(0)
    norms, layers = (nn.ModuleList(made).to(device) for made in ([nn.RMSNorm(64)] * 2, [nn.Linear(64, 64)] * 2))
    optimizer = torch.optim.AdamW([*norms.parameters(), *layers.parameters()], lr=1e-2)
    losses = []
    for _ in range(4):
        x = torch.randn(2, 20, 64).to(device)
        for norm, layer in zip(norms, layers, strict=True):
            x = x + layer(norm(x))
        loss = x.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_losses_of_residual_blocks_are_the_cpus() -> None:
    assert trained("cpu") == trained("cuda")


def test_rms_norm_saves_its_input_and_a_number_for_each_row() -> None:
    given = torch.randn(64, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.ones(128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    before = requested()
    out = F.rms_norm(given, (128,), weight)
    assert requested() - before == 64 * 128 * 2 + 64 * 4
    torch.cuda.reset_peak_memory_stats()
    before = requested()
    out.backward(torch.ones_like(out))
    assert requested("peak") - before == 64 * 128 * 2 * 2 + 128 * 2


def test_rms_norm_of_mixed_dtypes_is_composed_as_on_cuda() -> None:
    given = torch.randn(4, 8, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.ones(8, device="cuda", requires_grad=True)
    with pytest.warns(UserWarning, match="Cannot dispatch to fused"):
        out = F.rms_norm(given, (8,), weight)
    assert out.grad_fn is not None and "FusedRmsNorm" not in out.grad_fn.name()


def test_rms_norm_can_be_differentiated_twice() -> None:
    given = torch.randn(4, 8, device="cuda", requires_grad=True)
    (first,) = torch.autograd.grad(F.rms_norm(given, (8,)).square().sum(), given, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), given)
    assert second.shape == given.shape


def test_layer_norm_of_half_precision_keeps_statistics_in_float32() -> None:
    given = torch.randn(64, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    before = requested()
    out = F.layer_norm(given, (128,))
    assert requested() - before == 64 * 128 * 2 + 2 * 64 * 4
    out.sum().backward()


@pytest.mark.parametrize("norm", [nn.RMSNorm, nn.LayerNorm])
def test_norms_copy_what_is_not_dense_in_order(norm: type[nn.Module]) -> None:
    given = torch.randn(4, 64, 32, device="cuda", requires_grad=True)
    module = norm(64, elementwise_affine=False)
    torch.cuda.reset_peak_memory_stats()
    before, one = requested(), 4 * 64 * 32 * 4
    out = module(given.transpose(1, 2))
    assert requested("peak") - before == 2 * one + (requested() - before - one)
    by_out = torch.ones_like(out)
    torch.cuda.reset_peak_memory_stats()
    before = requested()
    out.backward(by_out)
    assert requested("peak") - before >= 2 * one


def test_the_gradient_of_softmax_is_multiplied_into_memory_of_its_own() -> None:
    given = torch.randn(64, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    by_out, one = torch.ones_like(given), 64 * 128 * 2
    for function, times in ((F.softmax, 2), (F.log_softmax, 1)):
        out = function(given, dim=-1)
        torch.cuda.reset_peak_memory_stats()
        before = requested()
        torch.autograd.grad(out, given, by_out)
        assert requested("peak") - before == times * one


def test_softmax_over_a_transposed_tensor_copies_it() -> None:
    given = torch.randn(64, 128, device="cuda").t()
    torch.cuda.reset_peak_memory_stats()
    before = requested()
    F.softmax(given, dim=0)
    assert requested("peak") - before == 2 * 64 * 128 * 4


@pytest.mark.parametrize(("count", "beside"), [(3072, 0), (4000, 5 * 8 * 4000 - 2 * 8 * 3900 + 8 * 500 + 4 * 500 * 16)])
def test_many_indices_are_sorted_in_the_backward_pass(count: int, beside: int) -> None:
    table = torch.zeros(100, 16, device="cuda", requires_grad=True)
    out = F.embedding(torch.zeros(count, dtype=torch.int64, device="cuda"), table)
    by_out = torch.ones_like(out)
    torch.cuda.reset_peak_memory_stats()
    before = requested()
    out.backward(by_out)
    assert requested("peak") - before == 100 * 16 * 4 + beside


def grown(program: Callable[[], object]) -> int:
    torch.cuda.reset_peak_memory_stats()
    before = requested()
    program()
    return requested("peak") - before


def test_gradients_of_picked_rows_sort_the_indices() -> None:
    table = torch.randn(100, 16, device="cuda", requires_grad=True)
    places = torch.randint(0, 100, (50, 4), device="cuda")
    mask = torch.arange(100, device="cuda") < 30
    for index, count in ((places, 200), (mask, 30), ((slice(None), places % 16), 200)):
        picked = table[index]
        back = functools.partial(torch.autograd.grad, picked, table, torch.ones_like(picked))
        assert grown(back) == 100 * 16 * 4 + 4 * 8 * count


def test_copies_convert_and_gather_on_the_device_where_they_must() -> None:
    on_host, halves = torch.randn(64, 64), 64 * 64 * 2
    assert grown(lambda: on_host.to("cuda", torch.bfloat16)) == halves
    assert grown(lambda: on_host.to("cuda", torch.bfloat16, non_blocking=True)) == halves + 2 * halves
    assert grown(lambda: on_host.to("cuda", non_blocking=True)) == 2 * halves
    on_device = on_host.cuda()
    assert grown(lambda: on_device.t().cpu()) == 0
    assert grown(lambda: on_device[:, :8].cpu()) == 64 * 8 * 4
    assert grown(lambda: on_device.to("cpu", torch.bfloat16)) == 0


def test_log_sigmoid_keeps_nothing_beside_its_input() -> None:
    on_cpu = torch.randn(1000, requires_grad=True)
    on_device = on_cpu.detach().cuda().requires_grad_()
    before = requested()
    out = F.logsigmoid(on_device)
    assert requested() - before == 4000
    out.sum().backward()
    F.logsigmoid(on_cpu).sum().backward()
    assert on_cpu.grad is not None and on_device.grad is not None
    assert torch.equal(on_cpu.grad, on_device.grad.cpu())
