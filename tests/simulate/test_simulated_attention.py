"""Attention on the simulated GPU: CUDA's kernels by CUDA's rules, the CPU's numbers."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def asked(capability: tuple[int, int], **changed: Any) -> Any:
    from torchvet.simulate.operations.attention_rules import Asked

    shape = changed.pop("shape", (2, 4, 64, 16))
    dtype = changed.pop("dtype", torch.float16)
    query = torch.randn(shape).to(dtype).requires_grad_(changed.pop("learns", True))
    bias = torch.zeros(shape[-2], shape[-2]) if changed.pop("masked", False) else None
    key = query[:, : changed.pop("heads", None)].clone()
    given = {"bias": bias, "dropout": 0.1, "causal": False, "grouped": False} | changed
    return Asked(query, key, key.clone(), capability=capability, **given)


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
        # cuDNN goes first on Hopper, and knows chances in sixteenths; elsewhere it goes last, behind composing.
        ("cudnn", (9, 0), {"dropout": 0.0}),
        ("cudnn", (9, 0), {"dropout": 0.125, "masked": True}),
        ("cudnn", (10, 0), {"dropout": 0.0, "heads": 2, "grouped": True}),
        ("flash", (9, 0), {}),
        ("efficient", (9, 0), {"masked": True}),
        ("flash", (9, 0), {"dropout": 0.0, "shape": (2, 4, 64, 136)}),
        ("flash", (12, 0), {"dropout": 0.0}),
        (None, (8, 0), {"masked": True, "heads": 2, "grouped": True}),
        (None, (8, 0), {"dtype": torch.float32, "heads": 2, "grouped": True}),
        ("flash", (8, 0), {"heads": 2, "grouped": True}),
        (None, (8, 0), {"heads": 2}),
        ("flash", (8, 0), {"shape": (2, 4, 64, 44)}),
        (None, (8, 0), {"masked": True, "shape": (2, 4, 64, 44)}),
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
    from torchvet.simulate.operations import attention_graphs

    (on_cpu, _), (on_device, held) = attended("cpu", masked, causal), attended("cuda", masked, causal)
    assert len(on_cpu) == len(on_device)
    assert all(torch.equal(a, b) for a, b in zip(on_cpu, on_device, strict=True))
    # The result and a sum for each query: no matrix of weights. The generator's state is on the host.
    assert held == 2 * 4 * 64 * 16 * 4 + 2 * 4 * 64 * 4
    assert not attention_graphs._composed


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
    # Within two units in the last place: bfloat16 has eight bits.
    torch.testing.assert_close(out, expected, rtol=2**-7, atol=1e-2)
    assert torch.backends.cuda.math_sdp_enabled() and torch.backends.cuda.flash_sdp_enabled()
    with torch.nn.attention.sdpa_kernel(kernel):
        assert torch.backends.cuda.math_sdp_enabled() == (allowed == "MATH")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_saved_tensors_that_come_back_as_copies_give_the_same_gradients(dtype: torch.dtype) -> None:
    from torchvet.simulate.operations import attention_graphs

    given, found = torch.randn(1, 2, 8, 16).to(dtype), []
    hooks = (
        contextlib.nullcontext(),
        torch.autograd.graph.save_on_cpu(),
        torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda t: t),
    )
    for hook in hooks:
        x = given.cuda().requires_grad_()
        torch.manual_seed(1)
        with hook:
            loss = F.scaled_dot_product_attention(x, x, x, dropout_p=0.5).square().sum()
        drawn = torch.rand(1)
        loss.backward()
        assert x.grad is not None
        found.append((x.grad.cpu(), drawn, torch.rand(1)))
    assert all(torch.equal(a, b) for one in found[1:] for a, b in zip(found[0], one, strict=True))
    del loss
    assert not attention_graphs._composed


def test_checkpoints_give_the_same_gradients() -> None:
    given, found = torch.randn(1, 2, 8, 16), []
    for reentrant in (None, True, False):
        x = given.cuda().requires_grad_()
        torch.manual_seed(1)

        def attended_to(t: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(t, t, t, dropout_p=0.5)

        out = attended_to(x) if reentrant is None else checkpoint(attended_to, x, use_reentrant=reentrant)
        out.square().sum().backward()
        assert x.grad is not None
        found.append(x.grad.cpu())
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def peaks(*shapes: tuple[int, ...], bias: torch.Tensor | None = None, grouped: bool = False) -> tuple[int, int]:
    """Bytes that a call saves, and the most at once in its backward pass beside what was there before the call."""
    q, k, v = (torch.zeros(s, dtype=torch.bfloat16, device="cuda", requires_grad=True).transpose(1, 2) for s in shapes)
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    out = F.scaled_dot_product_attention(q, k, v, bias, dropout_p=0.1, enable_gqa=grouped)
    saved = torch.cuda.memory_stats()["requested_bytes.all.current"] - before
    by_out = torch.zeros_like(out.transpose(1, 2)).transpose(1, 2)
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    torch.cuda.reset_peak_memory_stats()
    out.backward(by_out)
    return saved, torch.cuda.memory_stats()["requested_bytes.all.peak"] - before


def test_flash_adds_gradients_up_in_float32() -> None:
    saved, most = peaks(*[(2, 100, 4, 40)] * 3)
    rows = 2 * 4 * 100
    assert saved == rows * 40 * 2 + rows * 4 + 16 + 8
    # Three gradients; a sum for each of 128 queries, and their gradients with heads of 64.
    assert most == 3 * rows * 40 * 2 + 2 * 4 * 128 * 4 + 2 * 4 * 128 * 64 * 4


def test_flash_expands_gradients_of_shared_heads() -> None:
    _, most = peaks((2, 128, 4, 64), (2, 128, 2, 64), (2, 128, 2, 64), grouped=True)
    one = 2 * 128 * 4 * 64 * 2
    assert most == 2 * one + 2 * 4 * 128 * 4 + 2 * one + 2 * one


def test_flash_saves_heads_padded_to_a_multiple_of_eight() -> None:
    saved, most = peaks(*[(2, 128, 4, 44)] * 3)
    padded = 2 * 4 * 128 * 48 * 2
    assert saved == 4 * padded + 2 * 4 * 128 * 4 + 16 + 8
    # Gradients of the result with its padding, a copy of that and of the result; three gradients; sums.
    assert most == 3 * padded + 3 * padded + 2 * 4 * 128 * 4 + 2 * 4 * 128 * 64 * 4


def test_the_efficient_kernel_has_the_whole_gradient_of_an_expanded_bias() -> None:
    bias = torch.zeros(1, 4, 100, 100, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    saved, most = peaks(*[(2, 100, 4, 32)] * 3, bias=bias)
    rows = 2 * 4 * 100
    assert saved == rows * 32 * 2 + 2 * 4 * 128 * 4 + 4 * 100 * 104 * 2  # sums in blocks of 32, rows padded to 104
    assert most == 3 * rows * 32 * 2 + rows * 112 * 2 + rows * 4 + 2 * 4 * 2 * (16 + 4 * 64 * 64)
    assert bias.grad is not None and bias.grad.shape == bias.shape


@pytest.mark.parametrize("length", [100, 104])
def test_a_mask_becomes_numbers_in_rows_that_are_padded_where_they_must_be(length: int) -> None:
    mask = torch.ones(2, 1, 1, length, dtype=torch.bool, device="cuda")
    saved, _ = peaks(*[(2, length, 4, 32)] * 3, bias=mask)
    assert saved == 2 * 4 * length * 32 * 2 + 2 * 4 * 128 * 4 + 2 * 104 * 2


def test_evaluation_keeps_no_sums() -> None:
    q = torch.zeros(1, 2, 64, 16, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    F.scaled_dot_product_attention(q, q, q)
    assert torch.cuda.max_memory_allocated() - before == 2 * 64 * 16 * 4


@pytest.mark.parametrize(
    ("queries", "keys", "heads", "expected"),
    [(1, 4096, 32, 4 * 6 * 32 * (1 + 128)), (1, 100, 32, 0), (2048, 2048, 32, 0)],
)
def test_few_queries_are_split_by_keys(queries: int, keys: int, heads: int, expected: int) -> None:
    from torchvet.simulate.operations.attention_memory import Call, while_forward

    # An A100 has 108 processors with two places each: 32 blocks in six parts fill 192 of the 216.
    call = Call(1, heads, heads, queries, keys, 128, 128, 2, (8, 0), 108, dropout=False)
    assert sum(while_forward("flash", call)) == expected
    assert not sum(while_forward("flash", call._replace(dropout=True)))


def test_wide_heads_of_the_efficient_kernel_are_added_up_in_float32() -> None:
    from torchvet.simulate.operations.attention_memory import Call, while_backward, while_forward

    call = Call(2, 4, 4, 128, 128, 136, 136, 2, (8, 0), 108, dropout=True)
    rows = 2 * 4 * 128
    assert while_forward("efficient", call) == [4 * rows * 136]
    # Gradients of queries in 128 by 64, and of keys and values, which do not fit into registers: 64 by 256 each, twice.
    numbers = 3 * (4 + 128 * 64) + 2 * 64 * 2 * 256
    assert while_backward("efficient", call) == [[4 * rows, 4 * 8 * numbers]]
    assert while_backward("cudnn", call) == [[4 * rows * 136 + 4 * rows]]
    narrow = call._replace(width=32, value_width=32)
    assert while_backward("efficient", narrow._replace(item=4))[0] == [4 * rows * 32, 4 * rows, 4 * rows]
