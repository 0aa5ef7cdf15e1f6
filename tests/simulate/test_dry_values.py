"""What a program reads in a dry run, and what it may not leave behind."""

from __future__ import annotations

import copy
import math
import resource
from pathlib import Path

import pytest
import torch
from torch import nn

from torchvet.simulate.dry import bounds, files, values
from torchvet.simulate.dry.start import start

GIB = 1 << 30


def test_unknown_numbers_are_those_of_a_healthy_program() -> None:
    start()
    x = torch.randn(512, 512, device="cuda")
    loss = (x @ x).square().mean()
    assert loss.item() == 1.0 and math.log(loss.item()) == 0.0 and f"{loss:.2f}" == "1.00"
    assert x.argmax(1).tolist() == [0] * 512 and x.mean(1).cpu().numpy().tolist() == [1.0] * 512
    assert torch.isfinite(x).all() and not torch.isnan(x).any() and not torch.isnan(x.cpu()).any()
    assert not (~torch.isfinite(x)).any() and torch.equal(x, x) and torch.allclose(x, x)
    assert "1." in str(loss)


def test_numbers_of_the_program_are_its_own() -> None:
    start()
    lengths = torch.tensor([3, 5, 2]).cuda()
    assert (lengths * 2).cumsum(0).tolist() == [6, 16, 20] and int(lengths.max()) == 5
    lengths[0] = 7
    assert lengths.tolist() == [7, 5, 2]
    buffer = torch.zeros(4, device="cuda")
    part = buffer[1:3]
    part.add_(2)
    assert buffer.tolist() == [0, 2, 2, 0]
    part.copy_(torch.randn(512, 512, device="cuda").mean(1)[:2])
    assert buffer.tolist() == [1.0] * 4  # a part is not known any more, so none of it is


def test_a_scaler_sees_no_infinity() -> None:
    start()
    model = nn.Linear(300, 300).cuda()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda", growth_interval=2)
    for _ in range(2):
        scaler.scale(model(torch.randn(300, 300, device="cuda")).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 2 * 65536


def test_sizes_that_unknown_numbers_decide_are_the_largest() -> None:
    start()
    x = torch.randn(512, 512, device="cuda")
    assert x[x > 0].numel() == 512 * 512 and (x > 0).nonzero().shape == (512 * 512, 2)
    assert x.masked_select(x > 0).numel() == 512 * 512 and x.unique().numel() == 512 * 512
    assert set(bounds.taken) == {"index", "nonzero", "masked_select", "unique"}


def test_host_tensors_take_no_memory() -> None:
    """Eight gigabytes of parameters, made, initialised, converted, copied and moved."""
    start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = nn.Sequential(*[nn.Linear(8192, 8192) for _ in range(16)])
    nn.init.trunc_normal_(model[0].weight, std=0.02)
    other = copy.deepcopy(model[:4]).half()
    other.load_state_dict(other.state_dict())
    model[1].weight.data.mul_(0.5)
    assert model[0].weight.is_cpu and model[0].weight.mean().item() == 1.0 and other[0].weight.dtype is torch.half
    model.cuda()
    assert torch.cuda.memory_allocated() == 4 * 16 * (8192 * 8192 + 8192)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < GIB // 4


def test_small_host_tensors_and_arrays_are_real() -> None:
    start()
    array = torch.arange(100_000).numpy().copy() + 1
    assert torch.from_numpy(array)[99_999] == 100_000
    torch.manual_seed(0)
    assert len(set(torch.randperm(100).tolist())) == 100 and torch.tensor([1.5]).cuda().item() == 1.5


def test_tied_weights_are_told_by_their_addresses() -> None:
    start()
    one, other = torch.empty(100, device="cuda"), torch.empty(100, device="cuda")
    assert one.data_ptr() == one.view(10, 10).data_ptr() != other.data_ptr() > 0
    assert one[1:].data_ptr() == one.data_ptr() + 4


def test_no_file_is_written(tmp_path: Path) -> None:
    start()
    with pytest.warns(UserWarning, match=r"torch\.save writes nothing in a dry run"):
        torch.save(nn.Linear(2, 2).cuda().state_dict(), tmp_path / "model.pt")
    assert not list(tmp_path.iterdir()) and files.skipped == {"torch.save": 1}


def test_what_was_read_is_counted() -> None:
    start()
    x = torch.randn(512, 512, device="cuda")
    x.sum().item(), x.cpu(), torch.tensor(3.0, device="cuda").item()
    assert values.read == {"1.0": 1, "host tensor": 1}
