"""Casts that make large numbers the same are found; casts that leave what counts are not."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from example_runs import forked

import torchvet
from torchvet.probes.numerics.lost_differences import _compared

PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
start = 1.7e9
gaps = torch.rand(40, 16, dtype=torch.float64) * 30
times = start + gaps.cumsum(1)
{cast}
{use}
model = nn.Linear(15, 1)
rule = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(6):
    x = {given}
    loss = model(x.float().reshape(40, -1)[:, :15] / (x.float().abs().max() + 1)).pow(2).mean()
    rule.zero_grad()
    loss.backward()
    rule.step()
"""
FAULTY = {
    "float": ("seen = times.float()", "waits = seen[:, 1:] - seen[:, :-1]", "warning"),
    "to": ("seen = times.to(dtype=torch.float32)", "waits = torch.diff(seen, dim=1)", "warning"),
    "tensor of an array": ("seen = torch.tensor(times.numpy(), dtype=torch.float32)", "waits = seen.diff()", "warning"),
    "as_tensor": (
        "seen = torch.as_tensor(times.numpy(), dtype=torch.float32)",
        "waits = seen - seen[:, :1]",
        "warning",
    ),
    "a list": ("seen = torch.tensor(times.tolist())", "waits = seen.diff(dim=1)", "warning"),
    "whole milliseconds": ("seen = (times * 1000).long().float()", "waits = seen.diff(dim=1)", "warning"),
    "a column": (
        "seen = torch.stack([times.flatten(), torch.zeros(640)], 1).float()",
        "waits = seen[1:, 0] - seen[:-1, 0]",
        "warning",
    ),
    "in one expression": ("waits = times[:, 1:].float() - times[:, :-1].float()", "", "warning"),
    "without a difference": ("seen = times.float()", "waits = (seen - seen.mean()) / seen.std()", "info"),
}
HEALTHY = {
    "subtracted first": ("seen = times.diff(dim=1).float()", "waits = seen - seen[:, :1]"),
    "whole numbers subtracted first": ("seen = (times.long() - times.long()[:, :1]).float()", "waits = seen.diff()"),
    "in float64": ("seen = times.double()", "waits = seen.diff(dim=1)"),
    "ids that stay distinct": ("seen = torch.randint(0, 2**31, (40, 16)).float()", "waits = seen.diff(dim=1)"),
    "large and far apart": ("seen = (gaps * 1e9).float()", "waits = (seen - seen.mean()) / seen.std()"),
    "few different values": ("seen = (torch.randint(0, 7, (40, 16)) + 2**30).float()", "waits = seen.diff(dim=1)"),
    "days": ("seen = (start + 86400.0 * torch.arange(640).double().view(40, 16)).float()", "waits = seen.diff()"),
    "counts": ("seen = torch.arange(640).view(40, 16).float()", "waits = seen.diff(dim=1)"),
    "an image": ("seen = torch.randint(0, 256, (40, 16), dtype=torch.uint8).float()", "waits = seen.diff(dim=1)"),
    "a mask": ("seen = ((gaps > 15).double() * -1e9).float()", "waits = seen.diff(dim=1)"),
    "token ids": ("seen = torch.randint(0, 150000, (40, 16)).float()", "waits = seen.diff(dim=1)"),
    "prices": ("seen = (100 + gaps.cumsum(1)).float()", "waits = seen.diff(dim=1)"),
    "bfloat16 of small numbers": ("seen = gaps.bfloat16()", "waits = seen.diff(dim=1)"),
    "not finite": ("seen = (gaps * torch.inf).float()", "waits = gaps"),
}


def told(folder: Path, cast: str, use: str, given: str = "waits") -> list[tuple[str, int]]:
    found = forked(PROGRAM.format(cast=cast, use=use, given=given), folder)
    assert found is not None
    return [(f["severity"], f["location"]["line"]) for f in found if f["code"] == "NUM116"]


@pytest.mark.parametrize(("cast", "use", "severity"), FAULTY.values(), ids=FAULTY)
def test_differences_that_are_lost(cast: str, use: str, severity: str, tmp_path: Path) -> None:
    assert told(tmp_path, cast, use) == [(severity, 8)]


@pytest.mark.parametrize(("cast", "use"), HEALTHY.values(), ids=HEALTHY)
def test_differences_that_are_kept(cast: str, use: str, tmp_path: Path) -> None:
    assert told(tmp_path, cast, use) == []


def test_a_cast_in_each_step(tmp_path: Path) -> None:
    assert told(tmp_path, "", "", "times.float().diff(dim=1)") == [("warning", 13)]


def test_what_is_said(tmp_path: Path) -> None:
    found = forked(PROGRAM.format(cast="seen = times.float()", use="waits = seen.diff(dim=1)", given="waits"), tmp_path)
    assert found is not None
    (one,) = [f for f in found if f["code"] == "NUM116"]
    assert one["message"] == "600 different gaps between neighbors become 2: float32 has steps of 128 at 1.7e+09"
    assert "line 9 takes differences" in one["cause"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half(dtype: torch.dtype) -> None:
    numbers = torch.arange(5000, 6000)
    found = _compared(numbers, dtype)
    assert found is not None and found[0] == "values" and found[1] == 1000 and found[2] <= 251
    assert _compared(numbers.float(), dtype) is None  # autocast does that all the time
    assert _compared(torch.arange(200), dtype) is None


def test_large_and_read_only_data(tmp_path: Path) -> None:
    lines = (
        "wide = (start + torch.rand(300000, dtype=torch.float64).cumsum(0)).numpy()",
        "wide.flags.writeable = False",
        "import warnings; warnings.simplefilter('error')",
        "seen = torch.tensor(wide, dtype=torch.float32)",
        "listed = torch.tensor(wide.tolist())",
    )
    use = "waits = seen.diff()[:600]; others = listed[1:] - listed[:-1]"
    assert told(tmp_path, "\n".join(lines), use) == [("warning", 11), ("warning", 12)]


# What stands in torch meanwhile -----------------------------------------------------------------------------------


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[None]:
    with torchvet.watch(record=tmp_path / "run.vet"):
        yield


def scripted(x: torch.Tensor) -> torch.Tensor:
    return x + torch.tensor(2.0) + torch.as_tensor(1.0).float()


class Holder:
    make = torch.tensor


@pytest.mark.usefixtures("watching")
def test_functions_are_what_they_were() -> None:
    assert pickle.loads(pickle.dumps(torch.tensor)) is torch.tensor
    assert copy.deepcopy(torch.as_tensor) is torch.as_tensor
    assert float(torch.jit.script(scripted)(torch.zeros(()))) == 3.0
    Holder.make = torch.tensor
    assert Holder().make([1, 2]).tolist() == [1, 2]
    assert torch.tensor.__name__ == "tensor" and torch.tensor.__doc__
    with torch.device("meta"):
        assert torch.tensor([1.0]).is_meta and torch.as_tensor([1.0]).is_meta
    assert torch.as_tensor(data=[2**31], dtype=torch.float32).dtype is torch.float32
    with pytest.raises(TypeError):
        torch.tensor()


def test_functions_are_put_back(tmp_path: Path) -> None:
    before = [torch.tensor, torch.as_tensor, torch.Tensor.to, torch.Tensor.float]
    model = torch.nn.Linear(2, 2)
    rule = torch.optim.SGD(model.parameters(), lr=0.1)
    with torchvet.watch(record=tmp_path / "run.vet"):
        ours = torch.tensor
        assert ours is not before[0]
        for _ in range(4):
            model(torch.ones(1, 2)).sum().backward()
            rule.step()
        assert [torch.tensor, torch.as_tensor, torch.Tensor.to, torch.Tensor.float] == before
        assert ours([1]).tolist() == [1]
    assert float(torch.jit.script(scripted)(torch.zeros(()))) == 3.0


@pytest.mark.usefixtures("watching")
def test_functions_are_put_back_before_a_graph_is_compiled() -> None:
    wrapped = torch.tensor
    torch.compile(torch.nn.Linear(2, 2), backend="eager")
    assert torch.tensor is not wrapped
    assert not hasattr(torch.tensor, "_told")


@pytest.mark.usefixtures("watching")
def test_a_compiler_knows_what_stands_in_torch() -> None:
    tensor = torch.tensor

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * tensor(2.0) + torch.as_tensor(1.0)

    compiled = torch.compile(doubled, backend="eager", fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]


@pytest.mark.usefixtures("watching")
def test_numbers_of_transforms_pass() -> None:
    x = torch.full((4, 32), 1.7e9, dtype=torch.float64) + torch.rand(4, 32, dtype=torch.float64)
    assert torch.vmap(lambda row: row.float())(x).dtype is torch.float32
    assert torch.func.grad(lambda row: row.float().sum())(x).shape == x.shape
