"""Tensor classes around simulated tensors, traces of them, and the names in torch's own errors."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


def test_a_jagged_tensor_goes_through_a_layer_and_back() -> None:
    parts = [torch.randn(3, 4), torch.randn(5, 4)]
    ragged = torch.nested.nested_tensor(parts, layout=torch.jagged, device="cuda", requires_grad=True)
    layer = nn.Linear(4, 2).cuda()
    out = layer(ragged)
    assert str(ragged.device) == str(out.device) == "cuda:0" and out.is_cuda
    out.values().sum().backward()
    assert layer.weight.grad is not None and ragged.grad is not None
    assert torch.allclose(layer.weight.grad.cpu()[0], torch.cat(parts).sum(0), atol=1e-5)


def test_an_export_is_refused_and_not_aborted() -> None:
    with pytest.raises(RuntimeError, match=r"torch\.export does: not simulated"):
        torch.export.export(nn.Linear(4, 4).cuda(), (torch.randn(2, 4, device="cuda"),))


def test_a_host_cache_can_be_emptied() -> None:
    torch.randn(10).pin_memory()
    torch.accelerator.empty_host_cache()


def test_meshes_and_distributed_tensors_are_on_cuda() -> None:
    from torch.distributed import destroy_process_group, init_process_group
    from torch.distributed.tensor import Shard, distribute_tensor

    store = torch.distributed.HashStore()
    init_process_group("gloo", store=store, rank=0, world_size=1)
    mesh = init_device_mesh("cuda", (1,))
    spread = distribute_tensor(torch.ones(4, 4, device="cuda"), mesh, [Shard(0)])
    assert str(spread.device) == "cuda:0" and spread.is_cuda
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(nn.Linear(4, 2).cuda())
    model(torch.ones(3, 4, device="cuda")).sum().backward()
    assert all(str(p.device) == "cuda:0" and p.grad is not None for p in model.parameters())
    destroy_process_group()


def test_errors_name_cuda_and_no_backend() -> None:
    sparse = torch.eye(3, device="cuda").to_sparse()
    with pytest.raises(NotImplementedError, match="from the 'SparseCUDA' backend"):
        sparse.view(9)
    with pytest.raises(NotImplementedError, match="_cuda\" not implemented for 'Bool'"):
        torch.ones(2, device="cuda").bool().cumsum(0, dtype=torch.bool)
    with pytest.raises(NotImplementedError, match="_cpu\" not implemented for 'Bool'"):
        torch.ones(2).bool().cumsum(0, dtype=torch.bool)
