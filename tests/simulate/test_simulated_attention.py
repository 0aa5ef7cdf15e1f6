"""Attention on the simulated GPU: CUDA's kernels by CUDA's rules, the CPU's numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F


def asked(capability: tuple[int, int], **changed: Any) -> Any:
    from torchvet.simulate.operations.attention_rules import Asked

    shape = changed.pop("shape", (2, 4, 64, 16))
    dtype = changed.pop("dtype", torch.float16)
    query = torch.randn(shape).to(dtype).requires_grad_(changed.pop("learns", True))
    given = {"masked": False, "dropout": True, "causal": False, "grouped": False} | changed
    return Asked(query, query.clone(), query.clone(), capability=capability, **given)


@pytest.mark.parametrize(
    ("kernel", "capability", "changed"),
    [
        ("flash", (8, 0), {}),
        ("flash", (8, 0), {"causal": True, "dtype": torch.bfloat16}),
        ("efficient", (8, 0), {"masked": True}),
        ("efficient", (8, 9), {"dtype": torch.float32}),
        ("efficient", (7, 5), {}),
        (None, (7, 5), {"dtype": torch.bfloat16}),
        (None, (8, 0), {"dtype": torch.float64}),
        (None, (8, 0), {"dtype": torch.float32, "shape": (2, 4, 64, 6)}),
        ("efficient", (7, 0), {"dtype": torch.float32, "shape": (2, 4, 64, 6)}),
        ("flash", (8, 0), {"shape": (2, 4, 64, 256)}),
        ("efficient", (8, 0), {"shape": (2, 4, 64, 264)}),
        ("efficient", (8, 9), {"shape": (2, 4, 64, 208)}),
        ("flash", (8, 9), {"shape": (2, 4, 64, 208), "learns": False}),
        (None, (8, 0), {"shape": (4, 64, 16)}),
    ],
)
def test_which_kernel_takes_a_call(kernel: str | None, capability: tuple[int, int], changed: dict[str, Any]) -> None:
    from torchvet.simulate.operations.attention_rules import kernel_of

    assert kernel_of(asked(capability, **changed)) == kernel


def test_a_program_that_allows_no_kernel_that_could_is_refused_as_on_cuda() -> None:
    query = torch.randn(1, 2, 8, 16, device="cuda")
    with (
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION),
        pytest.raises(RuntimeError, match="No available kernel"),
    ):
        F.scaled_dot_product_attention(query, query, query)


def attended(device: str, masked: bool, causal: bool) -> tuple[list[torch.Tensor], int]:
    torch.manual_seed(0)
    mine = [torch.randn(2, 4, 64, 16).to(device).requires_grad_() for _ in range(3)]
    mask = torch.randn(2, 4, 64, 64).to(device).requires_grad_() if masked else None
    before = torch.cuda.memory_allocated()
    out = F.scaled_dot_product_attention(*mine, attn_mask=mask, dropout_p=0.25, is_causal=causal)
    held = torch.cuda.memory_allocated() - before
    out.square().sum().backward()
    found = [out.detach(), *(t.grad for t in (*mine, *([mask] if mask is not None else []))), torch.rand(2).to(device)]
    return [t.cpu() for t in found if t is not None], held


@pytest.mark.parametrize(("masked", "causal"), [(False, False), (False, True), (True, False)])
def test_dropout_is_fused_and_the_numbers_are_the_cpus(masked: bool, causal: bool) -> None:
    from torchvet.simulate.operations import attention

    (on_cpu, _), (on_device, held) = attended("cpu", masked, causal), attended("cuda", masked, causal)
    assert len(on_cpu) == len(on_device)
    assert all(torch.equal(a, b) for a, b in zip(on_cpu, on_device, strict=True))
    # The result, a sum for each query, and two numbers of the generator: no matrix of weights.
    assert held == 2 * 4 * 64 * 16 * 4 + 2 * 4 * 64 * 4 + 2 * 512
    assert not attention._composed


def test_passes_that_keep_their_graph_run_twice() -> None:
    x = torch.randn(1, 2, 8, 16, device="cuda", requires_grad=True)
    loss = F.scaled_dot_product_attention(x, x, x, dropout_p=0.5).sum()
    (first,) = torch.autograd.grad(loss, x, retain_graph=True)
    (second,) = torch.autograd.grad(loss, x)
    assert torch.equal(first.cpu(), second.cpu())


@pytest.mark.parametrize("allowed", ["EFFICIENT_ATTENTION", "FLASH_ATTENTION", "MATH"])
def test_a_kernel_that_a_program_allows_alone_is_taken(allowed: str) -> None:
    """Whatever the CPU would make of the same choice."""
    kernel = getattr(torch.nn.attention.SDPBackend, allowed)
    query = torch.randn(1, 2, 8, 16, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    expected = F.scaled_dot_product_attention(query, query, query)
    with torch.nn.attention.sdpa_kernel(kernel):
        out = F.scaled_dot_product_attention(query, query, query)
        F.scaled_dot_product_attention(query, query, query, dropout_p=0.5).sum().backward()
    assert torch.allclose(out.float(), expected.float(), atol=1e-2)
    assert torch.backends.cuda.math_sdp_enabled() and torch.backends.cuda.flash_sdp_enabled()
    with torch.nn.attention.sdpa_kernel(kernel):
        assert torch.backends.cuda.math_sdp_enabled() == (allowed == "MATH")
