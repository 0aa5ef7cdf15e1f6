"""Casts that make large numbers the same are found; casts that leave what counts are not."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from example_runs import forked
from torch.utils._python_dispatch import TorchDispatchMode

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
    "by torch's functions": ("seen = times.float()", "waits = torch.sub(seen[:, 1:], seen[:, :-1])", "warning"),
    "in place": ("seen = times.float()", "waits = seen[:, 1:].clone(); waits -= seen[:, :-1]", "warning"),
    "of the largest": ("seen = times.float()", "waits = seen.max(1, keepdim=True).values - seen", "warning"),
    "of a number": ("seen = times.float()", "waits = seen - start", "warning"),
    "by a function of a cast": ("waits = torch.diff(times.float(), dim=1)", "", "warning"),
    "in three dimensions": (
        "seen = times.view(40, 4, 4).float()",
        "waits = (seen[:, 1:] - seen[:, :-1]).reshape(40, -1)",
        "warning",
    ),
    "of an item": (
        "seen = times.float()",
        "waits = torch.stack([row[1:] - row[:-1] for row in [seen[n] for n in range(40)]])",
        "warning",
    ),
    "to a mean that is near": ("seen = times.float()", "waits = (seen - seen.mean()) / seen.std()", "warning"),
    "without a difference": ("seen = times.float()", "waits = seen / seen.std()", "info"),
    "scaled": ("seen = times.float()", "waits = torch.sin(seen / 86400)", "info"),
    "differences of another column": (
        "seen = torch.stack([times.flatten(), gaps.flatten(), gaps.flatten() + 1], 1).float()",
        "waits = (seen[:, 2] - seen[:, 1]).view(40, 16)",
        "info",
    ),
    "columns taken apart": (
        "seen, low, high = torch.stack([times.flatten(), gaps.flatten(), gaps.flatten() + 1], 1).float().unbind(1)",
        "waits = (high - low).view(40, 16)",
        "info",
    ),
    "two on a line": ("seen, x = times.float(), gaps.float()", "waits = x[:, 1:] - x[:, :-1]", "info"),
    "by name": (
        "seen = {name: given.float() for name, given in (('t', times), ('x', gaps))}",
        "waits = seen['x'].diff(dim=1)",
        "info",
    ),
    "bound again": ("seen = times.float()", "seen = gaps.float(); waits = seen[:, 1:] - seen[:, :-1]", "info"),
    "far apart": (
        "seen = torch.randint(0, 60000, (400, 80)).bfloat16()",
        "waits = (seen[:, 1:] - seen[:, :-1])[:40, :16]",
        "info",
    ),
    "only some calls": (
        "seen = [given.float() for given in (times, times - start)]",
        "waits = seen[1][:, 1:] - seen[1][:, :-1]",
        "info",
    ),
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


def test_days_of_a_year_that_is_seconds_apart(tmp_path: Path) -> None:
    cast = "seen = (start + torch.rand(200000).double().mul(3e7).sort().values).float()"
    assert told(tmp_path, cast, "waits = ((seen - seen[0]) / 86400)[:640].view(40, 16)") == [("info", 8)]


def test_differences_are_told_of_first(tmp_path: Path) -> None:
    found = _compared(
        torch.stack([1.7e9 + torch.arange(400).double().pow(1.3), torch.rand(400).double()], 1), torch.float32
    )
    assert found is not None and found[0] == "differences" and found[1] > 300


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


LARGE = torch.arange(64, dtype=torch.float64) + 1.7e9


def casts() -> None:
    torch.tensor(LARGE.tolist())
    (LARGE.float() - LARGE.half()).diff()


class Names(torch.overrides.TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append("tensor" if func is torch.tensor else func.__name__)
        return func(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def heard_by(mode: Any) -> list[str]:
    with mode:
        casts()
    names: list[str] = mode.names
    return names


@pytest.mark.parametrize("mode", [Names, Operators])
def test_modes_of_the_program_hear_nothing_more(mode: Any, tmp_path: Path) -> None:
    alone = heard_by(mode())
    with torchvet.watch(record=tmp_path / "run.vet"):
        LARGE.float()
        assert heard_by(mode()) == alone


class Logged(torch.Tensor):
    names: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.names.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.usefixtures("watching")
def test_subclasses_hear_nothing_more() -> None:
    own = LARGE.as_subclass(Logged)
    LARGE.float()
    Logged.names.clear()
    own.float()
    torch.diff(own)
    assert Logged.names == ["float", "diff"]


@pytest.mark.usefixtures("watching")
def test_traces_have_nothing_more() -> None:
    def cast(x: torch.Tensor) -> torch.Tensor:
        return x.float().half() - 1

    graph = torch.jit.trace(cast, (LARGE,)).graph  # type: ignore[no-untyped-call]
    assert [n.kind() for n in graph.nodes() if n.kind() != "prim::Constant"] == ["aten::to", "aten::to", "aten::sub"]


class Sized(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.half().float() + torch.tensor(x.shape[0])


@pytest.mark.usefixtures("watching")
def test_an_export_keeps_its_sizes() -> None:
    size = torch.export.Dim("size", min=2, max=64)
    exported = torch.export.export(Sized(), (torch.ones(3, 2),), dynamic_shapes=({0: size},))
    assert exported.module()(torch.ones(5, 2)).tolist() == [[6.0, 6.0]] * 5


@pytest.mark.usefixtures("watching")
def test_graphs_write_methods_by_their_names() -> None:
    graph = torch.fx.Graph()
    graph.output(graph.call_function(torch.Tensor.to, (graph.placeholder("x"), torch.float32)))
    made = torch.fx.GraphModule(torch.nn.Module(), graph)
    assert "torch.Tensor.to(" in made.code or "torch_Tensor_to(" in made.code
    assert made(LARGE).dtype is torch.float32


HANDLED: dict[Any, Any] = {}


class Handled(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in HANDLED:
            return HANDLED[func](*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs or {})


def test_methods_are_what_they_were(tmp_path: Path) -> None:
    own, saved = LARGE.as_subclass(Handled), torch.Tensor.float
    with torchvet.watch(record=tmp_path / "run.vet"):
        LARGE.float()
        HANDLED[torch.Tensor.float] = lambda x: "handled"
        HANDLED[torch.Tensor.sub] = lambda x, y: "subtracted"
        assert pickle.loads(pickle.dumps(torch.Tensor.float)) is torch.Tensor.float == saved
        assert pickle.loads(pickle.dumps(LARGE.float))().dtype is torch.float32
        assert torch.Tensor.float.__qualname__ == saved.__qualname__
        assert own.float() == "handled" and own - 1 == "subtracted"
    assert own.float() == "handled" and own - 1 == "subtracted"
    HANDLED.clear()
    assert torch.Tensor.float is saved and (3 - LARGE).shape == LARGE.shape


@pytest.mark.usefixtures("watching")
def test_a_default_device_changes_nothing() -> None:
    with torch.device("meta"):
        assert torch.tensor(LARGE.tolist()).is_meta
        assert not LARGE.float().diff().is_meta


@pytest.mark.usefixtures("watching")
def test_numbers_of_transforms_pass() -> None:
    x = torch.full((4, 32), 1.7e9, dtype=torch.float64) + torch.rand(4, 32, dtype=torch.float64)
    assert torch.vmap(lambda row: row.float())(x).dtype is torch.float32
    assert torch.func.grad(lambda row: row.float().sum())(x).shape == x.shape
