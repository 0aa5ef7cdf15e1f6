"""What programs do with a GPU, on one that is not there: the same numbers as on the CPU."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def losses(device: str, make: Any, steps: int = 4) -> list[float]:
    """The loss curve of a small model, trained on a device."""
    torch.manual_seed(0)
    model = make().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = []
    for _ in range(steps):
        x = torch.randn(4, 6, 8).to(device)
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


class Recurrent(nn.Module):
    """An LSTM or GRU and its head."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.cell = kind(8, 5, 2, bidirectional=True, batch_first=True)  # type: ignore[call-arg]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The states."""
        states: torch.Tensor = self.cell(x)[0]
        return states


EXACT = {
    "linear": lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 3)),
    "attention": lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
    "convolution": lambda: nn.Sequential(nn.Conv1d(6, 4, 3), nn.BatchNorm1d(4), nn.SiLU(), nn.MaxPool1d(2)),
}


@pytest.mark.parametrize("name", EXACT)
def test_the_loss_curve_is_the_cpus(name: str) -> None:
    assert losses("cuda", EXACT[name]) == losses("cpu", EXACT[name])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_networks_are_the_cpus(kind: type[nn.Module]) -> None:
    assert losses("cuda", lambda: Recurrent(kind)) == losses("cpu", lambda: Recurrent(kind))


def penalized(device: str, kind: type[nn.Module]) -> list[float]:
    """The output, and the gradients of a penalty on gradients."""
    torch.manual_seed(0)
    model, x = kind(3, 4, num_layers=2, bidirectional=True), torch.randn(5, 2, 3)
    model, x = model.to(device), x.to(device).requires_grad_()
    out = model(x)[0]
    (by_x,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    by_x.square().sum().backward()
    return [t.sum().item() for t in (out, by_x, x.grad, *(p.grad for p in model.parameters())) if t is not None]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_networks_are_differentiated_twice_only_without_cudnn(kind: type[nn.Module]) -> None:
    with pytest.raises(RuntimeError, match="please disable the CuDNN backend temporarily"):
        penalized("cuda", kind)
    with torch.backends.cudnn.flags(enabled=False):
        assert penalized("cuda", kind) == pytest.approx(penalized("cpu", kind), rel=1e-4, abs=1e-6)


def test_attention_is_the_cpus() -> None:
    def trained(device: str, **options: Any) -> list[Any]:
        torch.manual_seed(0)
        q, k, v = (torch.randn(2, 3, 7, 8).to(device).requires_grad_() for _ in range(3))
        mask = (torch.rand(7, 7) > 0.3).to(device) if options.pop("masked", False) else None
        out = F.scaled_dot_product_attention(q, k, v, mask, **options)
        out.square().sum().backward()
        return [t.tolist() for t in (out, q.grad, k.grad, v.grad) if t is not None]

    for options in ({"is_causal": True}, {"masked": True}, {"dropout_p": 0.2}, {"scale": 0.3}):
        assert trained("cuda", **options) == trained("cpu", **options)


def test_a_tensor_says_where_it_is() -> None:
    x = torch.ones(2, 3).cuda()
    assert (x.device, x.is_cuda, x.get_device(), x.type()) == (
        torch.device("cuda:0"),
        True,
        0,
        "torch.cuda.FloatTensor",
    )
    assert x.to("cuda") is x and x.cuda() is x and x.to(x.device) is x
    assert torch.zeros(2, device=x.device).device == x.device == torch.zeros_like(x).device
    assert repr(x) == "tensor([[1., 1., 1.],\n        [1., 1., 1.]], device='cuda:0')"
    assert x.cpu().device.type == "cpu" and isinstance(x, torch.Tensor)


def test_views_share_memory_with_what_they_view() -> None:
    x = torch.zeros(4, 4, device="cuda")
    held = torch.cuda.memory_allocated()
    x[1].add_(1)
    x.t()[0, 2] = 5
    assert torch.cuda.memory_allocated() == held
    assert x.sum().item() == 9
    x.resize_(40, 40)
    assert x.shape == (40, 40) and torch.cuda.memory_allocated() == held - 512 + 6656


def test_devices_do_not_mix() -> None:
    x = torch.ones(3, device="cuda")
    for wrong in (torch.ones(3), torch.ones(3, device="cuda:1")):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            x + wrong
    assert (x + torch.tensor(1.0)).sum().item() == 6
    assert x[torch.tensor([0, 2])].shape == (2,)
    with pytest.raises(RuntimeError, match="indices should be either on"):
        torch.ones(3)[torch.tensor([0], device="cuda")]
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        x.numpy()
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        x.to("cuda:7")


def test_autocast_goes_by_cudas_lists() -> None:
    x = torch.randn(4, 4, device="cuda", requires_grad=True)
    with torch.autocast("cuda"):
        assert (x @ x).dtype is torch.float16
        assert (x @ x).softmax(-1).dtype is torch.float32
        assert F.mse_loss(x @ x, x).dtype is torch.float32
        recurrent = nn.LSTM(4, 3).cuda()
        states = recurrent(x)[0]
        assert states.dtype is torch.float16
    states.float().sum().backward()
    assert recurrent.weight_ih_l0.grad is not None and recurrent.weight_ih_l0.grad.dtype is torch.float32
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert F.linear(x, x).dtype is torch.bfloat16
        held = torch.cuda.memory_allocated()
        F.linear(x, x)
        assert torch.cuda.memory_allocated() == held, "the weight's copy is kept within the region"
    assert (x @ x).dtype is torch.float32


def test_float16_overflows_and_the_scaler_skips() -> None:
    model = nn.Linear(4, 4).cuda()
    before = copy.deepcopy(model.weight)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda")
    with torch.autocast("cuda"):
        loss = model(torch.full((2, 4), 6e4, device="cuda")).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 32768.0 and torch.equal(model.weight, before)


def test_checkpoints_are_what_a_gpu_would_write() -> None:
    model = nn.Linear(2, 2).cuda()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    model(torch.ones(1, 2, device="cuda")).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    for where in (None, "cuda", "cpu", torch.device("cuda", 1), lambda storage, location: storage):
        file.seek(0)
        found = torch.load(file, map_location=where)
        device = found["model"]["weight"].device
        wanted = "cpu" if callable(where) else str(where or "cuda:0").replace("cuda", "cuda:0").replace(":0:", ":")
        assert str(device) in (wanted, "cuda:0" if where in (None, "cuda") else wanted)
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])


def test_memory_is_the_allocators() -> None:
    assert torch.cuda.memory_allocated() == 0
    x = torch.empty(1000, device="cuda")
    assert torch.cuda.memory_allocated() == 4096 and torch.cuda.memory_reserved() == 2 << 20
    del x
    assert torch.cuda.memory_allocated() == 0 and torch.cuda.max_memory_allocated() == 4096
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0
    with pytest.raises(torch.OutOfMemoryError, match=r"CUDA out of memory\. Tried to allocate 30\.00 GiB"):
        torch.empty(30 << 30, dtype=torch.uint8, device="cuda")


def test_threads_and_default_devices_are_translated_too() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work() -> torch.Tensor:
        x = torch.ones(3, device="cuda:1", requires_grad=True)
        (x * 2).sum().backward()
        assert x.grad is not None
        return x.grad

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result().device == torch.device("cuda:1")
    with torch.device("cuda"):
        assert torch.zeros(2).is_cuda


def test_sparse_gradients_and_matrices_keep_their_layout() -> None:
    table = nn.Embedding(9, 4, sparse=True).cuda()
    table(torch.tensor([1, 2, 1], device="cuda")).sum().backward()
    assert table.weight.grad is not None and table.weight.grad.is_sparse
    torch.optim.SparseAdam(table.parameters()).step()
    rows = torch.eye(3).to_sparse_csr().cuda().requires_grad_()
    torch.sparse.mm(rows, torch.ones(3, 2, device="cuda")).sum().backward()
    assert rows.layout is torch.sparse_csr and rows.grad is not None
    with pytest.raises(NotImplementedError, match="no CUDA kernel"):
        torch.sparse.mm(rows.detach(), torch.ones(3, 2, device="cuda"), "mean")
