"""Convolutions and grid sampling in half precision: numbers as CUDA's kernels have them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F


def _step(dtype: torch.dtype, device: str) -> tuple[torch.Tensor, list[torch.Tensor]]:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 8, 16, 16), torch.randn(12, 4, 3, 3)
    leaves = [t.to(device, dtype).requires_grad_() for t in (x, weight, torch.randn(12))]
    out = F.conv2d(*leaves, padding=1, stride=2, groups=2)
    out.square().sum().backward()
    return out.detach(), [t.grad for t in leaves if t.grad is not None]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_is_float32_rounded(dtype: torch.dtype) -> None:
    out, gradients = _step(dtype, "cuda")
    torch.manual_seed(0)
    x, weight = torch.randn(2, 8, 16, 16).to(dtype), torch.randn(12, 4, 3, 3).to(dtype)
    leaves = [t.float().requires_grad_() for t in (x, weight, torch.randn(12).to(dtype))]
    exact = F.conv2d(*leaves, padding=1, stride=2, groups=2)
    assert out.dtype is dtype and torch.equal(out.cpu(), exact.to(dtype))
    # Not compared with the CPU's own half precision: some CPUs accumulate in it.
    sent = (2 * exact.detach().to(dtype)).float()
    for mine, theirs in zip(gradients, torch.autograd.grad(exact, leaves, sent), strict=True):
        assert mine.dtype is dtype and torch.equal(mine.cpu(), theirs.to(dtype))


def test_float32_is_the_cpus_to_the_bit_and_dtypes_do_not_mix() -> None:
    for mine, theirs in zip(_step(torch.float32, "cuda")[1], _step(torch.float32, "cpu")[1], strict=True):
        assert torch.equal(mine.cpu(), theirs)
    x, weight = torch.randn(1, 1, 4, 4, device="cuda"), torch.randn(1, 1, 3, 3, device="cuda")
    mixed = r"^Input type \({}\) and weight type \({}\) should be the same$"
    with pytest.raises(RuntimeError, match=mixed.format("torch.cuda.HalfTensor", "torch.cuda.FloatTensor")):
        F.conv2d(x.half(), weight)
    with pytest.raises(RuntimeError, match=mixed.format("torch.cuda.FloatTensor", "CUDABFloat16Type")):
        F.conv2d(x, weight.bfloat16())
    assert F.conv2d(x.half() * 6e4, weight.half().abs() * 6e4).isinf().any()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = F.conv2d(x.half(), weight.half())
    assert torch.cuda.max_memory_allocated() - before <= 3 * 512 and kept.is_cuda


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(8, 8), (4, 8, 8)])
def test_points_are_placed_in_float32(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    image, grid = torch.randn(2, 3, *shape), torch.rand(2, *shape, len(shape)) * 2 - 1
    results = []
    for device in ("cuda", "cpu"):
        working = dtype if device == "cuda" else torch.float32
        leaves = [t.to(dtype).to(device, working).requires_grad_() for t in (image, grid)]
        F.grid_sample(*leaves, align_corners=True).backward(torch.ones(2, 3, *shape, device=device, dtype=working))
        results.append([F.grid_sample(*leaves, align_corners=True), *(t.grad for t in leaves)])
    for mine, exact in zip(*results, strict=True):
        assert mine.dtype is dtype and torch.equal(mine.cpu(), exact.to(dtype))


WITHOUT_A_KERNEL = {
    "pooling": lambda x, target: F.avg_pool3d(x.view(1, 1, 2, 3, 4), (1, 3, 2)),
    "margins": lambda x, target: F.multi_margin_loss(x, target[:, 0]),
    "margins of labels": lambda x, target: F.multilabel_margin_loss(x, target),
    "antialiasing": lambda x, target: F.interpolate(x[None, None], size=(3, 2), mode="bilinear", antialias=True),
    "bicubic": lambda x, target: F.interpolate(x[None, None], size=(3, 2), mode="bicubic", antialias=True),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("what", WITHOUT_A_KERNEL)
def test_what_the_cpu_has_no_kernel_for_is_done(what: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    values, target = torch.randn(6, 4).to(dtype), torch.randint(0, 4, (6, 4))
    mine, exact = values.to("cuda").requires_grad_(), values.float().requires_grad_()
    out, reference = WITHOUT_A_KERNEL[what](mine, target.cuda()), WITHOUT_A_KERNEL[what](exact, target)
    out.sum().backward()
    reference.sum().backward()
    assert out.dtype is dtype and torch.equal(out.cpu(), reference.to(dtype))
    assert mine.grad is not None and exact.grad is not None
    assert torch.allclose(mine.grad.cpu().float(), exact.grad, rtol=1e-2, atol=1e-3)


def _normalized(device: str, dtype: torch.dtype, training: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    x = (10 * torch.rand(4, 6, 16)).half().to(device, dtype).requires_grad_()
    norm = torch.nn.InstanceNorm1d(6, affine=True, track_running_stats=True).half().to(device, dtype).train(training)
    out = norm(x)
    out.backward(torch.linspace(-1, 1, out.numel()).half().to(device, dtype).view_as(out))
    assert norm.running_var is not None and norm.running_mean is not None
    gradients = [t.grad for t in (x, *norm.parameters()) if t.grad is not None]
    return [t.detach().cpu() for t in (out, *gradients, norm.running_mean, norm.running_var)]


@pytest.mark.parametrize("training", [True, False])
def test_norms_over_batches_are_rounded_once(training: bool) -> None:
    """With weights in half precision, too; the statistics of the instances are averaged in it afterwards."""
    mine, exact = _normalized("cuda", torch.float16, training), _normalized("cpu", torch.float32, training)
    assert [t.dtype for t in mine] == [torch.float16] * len(mine)
    for one, other in zip(mine[:2], exact, strict=False):
        assert torch.equal(one, other.half())
    for one, other in zip(mine[2:], exact[2:], strict=True):
        assert torch.allclose(one.float(), other, rtol=2e-3, atol=0.05)
