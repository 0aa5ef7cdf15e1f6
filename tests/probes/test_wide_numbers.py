"""Operators on float64 of models whose parameters are: what they take, and what they would take in float32."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from example_runs import RECORDING, forked

from torchvet.probes.time.wide import both_widths
from torchvet.recording import read
from torchvet.recording.records.precision import WideNumbers

PROGRAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
FIRST
rows = torch.randn(640, 96, dtype=KIND)
loader = DataLoader(TensorDataset(rows), batch_size=64)
model = nn.Sequential(nn.Linear(96, 256), nn.GELU(), nn.Linear(256, 96))
CAST
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for (x,) in loader:
        y = model(INPUT)
        loss = LOSS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
USUAL = {
    "FIRST": "pass",
    "KIND": "torch.float64",
    "CAST": "model.double()",
    "INPUT": "x",
    "LOSS": "(y - x).pow(2).mean()",
}
NARROW = {"CAST": "pass", "KIND": "torch.float32"}


def seen(folder: Path, text: str = PROGRAM, **more: str) -> list[WideNumbers]:
    for name, value in {**USUAL, **more}.items():
        text = text.replace(name, value)
    assert forked(text, folder) is not None
    return read(folder / RECORDING).ranks[0].all(WideNumbers)


def test_a_model_that_was_cast_is_timed_both_ways(tmp_path: Path) -> None:
    (found,) = seen(tmp_path)
    assert found.cast is not None and found.cast.line == 9
    assert (found.loaded, found.batches, found.by_default) == (True, True, False)
    assert 0 < found.timed <= found.seconds <= found.every <= found.whole and found.sampled > 1
    assert found.wide == found.timed and found.narrow > 0
    assert 12 <= found.place.line <= 17 and found.operators


@pytest.mark.parametrize("cast", ["model = model.to(torch.float64)", "model.to(dtype=torch.float64)"])
def test_other_ways_to_cast(cast: str, tmp_path: Path) -> None:
    (found,) = seen(tmp_path, CAST=cast)
    assert found.cast is not None and found.cast.line == 9


def test_float64_that_was_chosen(tmp_path: Path) -> None:
    (found,) = seen(tmp_path, FIRST="torch.set_default_dtype(torch.float64)", CAST="pass")
    assert found.by_default and found.cast is None


def test_what_needs_the_digits_is_noted(tmp_path: Path) -> None:
    solved = "(y - torch.linalg.solve(torch.eye(96, dtype=x.dtype) + x.T @ x, x.T).T).pow(2).mean()"
    (found,) = seen(tmp_path, LOSS=solved)
    assert found.solver.startswith("linalg_") and not found.derived
    twice = "torch.autograd.grad(y.sum(), model[0].weight, create_graph=True)[0].pow(2).sum() + y.mean()"
    (found,) = seen(tmp_path, LOSS=twice)
    assert found.derived and not found.solver
    (found,) = seen(tmp_path)
    assert not found.derived and not found.solver


def test_a_loop_without_a_loader(tmp_path: Path) -> None:
    text = PROGRAM.replace("for (x,) in loader", "for x in rows.split(64)").replace(
        "loader = Data", "unused = lambda: Data"
    )
    (found,) = seen(tmp_path, text)
    assert not found.loaded and not found.batches


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"LOSS": "(y.double() - x.double()).pow(2).mean().float()"},
        {"LOSS": "(y - x).pow(2).mean(); total = (y.detach().double() ** 2).sum().item()"},
        {"KIND": "torch.float64", "INPUT": "((x - x.mean()) / x.std()).float()"},
        {"INPUT": "(x.double() @ torch.eye(96, dtype=torch.float64)).float()"},
        {"FIRST": "torch.autograd.gradcheck(torch.tanh, torch.ones(9, dtype=torch.float64, requires_grad=True))"},
        {"KIND": "torch.complex128", "INPUT": "x.abs().float()", "LOSS": "y.pow(2).mean()"},
        {"CAST": "kept = nn.Linear(500, 500).double()"},
        {"CAST": "model.double(); model.float()"},
    ],
    ids=["float32", "loss", "metric", "loader", "solver", "gradcheck", "complex", "other model", "cast back"],
)
def test_float64_beside_a_float32_model_is_no_matter(more: dict[str, str], tmp_path: Path) -> None:
    assert seen(tmp_path, **{**NARROW, **more}) == []


def test_a_complex_model_in_two_types_is_no_matter(tmp_path: Path) -> None:
    cast = "model = nn.Linear(96, 96, dtype=torch.complex128)"
    loss = "(y - x).abs().pow(2).mean()"
    assert seen(tmp_path, CAST=cast, LOSS=loss, INPUT="x.to(torch.complex128)") == []


def call(func: Any, *args: Any, **kwargs: Any) -> both_widths.Call:
    found = both_widths.told(func, args, kwargs)
    assert found is not None
    return found


def test_what_is_timed_draws_no_numbers_of_the_programs() -> None:
    x, state = torch.ones(64, 64, dtype=torch.float64), torch.get_rng_state()
    calls = {
        call(torch.ops.aten.mm.default, x.t(), x): 3.0,
        call(torch.ops.aten._foreach_add_.List, [x, x], [x, x]): 1.0,
        call(torch.ops.aten.embedding.default, x, torch.zeros(4, dtype=torch.int64)): 0.5,
    }
    taken = both_widths.timed(calls)
    # The first two are nine tenths of the time, or nearly.
    assert taken.of == pytest.approx(4.5) and taken.wide == taken.of and taken.narrow > 0
    assert torch.equal(state, torch.get_rng_state())


def test_layouts_and_types_are_those_of_the_program() -> None:
    x = torch.ones(8, 4, dtype=torch.float64).t()
    one = call(torch.ops.aten.sum.dim_IntList, x.expand(2, 4, 8), [0], dtype=torch.float64)
    for dtype in (torch.float64, torch.float32):
        (made, dims), named = both_widths._made(one, dtype)
        assert (made.shape, made.stride(), made.dtype) == ((2, 4, 8), (0, 1, 4), dtype)
        assert (dims, named) == ([0], {"dtype": dtype})


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (torch.ops.aten.bernoulli.default, (torch.ones(3, dtype=torch.float64),)),
        (torch.ops.aten.relu.default, (torch.ones(3, dtype=torch.float64).to_sparse(),)),
        (torch.ops.aten.relu.default, (object(),)),
    ],
    ids=["chance", "sparse", "object"],
)
def test_calls_that_cannot_be_made_are_none(func: Any, args: tuple[Any, ...]) -> None:
    assert both_widths.told(func, args, {}) is None


def test_an_operator_that_is_not_torchs_own_is_called_by_the_program_alone() -> None:
    with torch.library._scoped_library("songs", "DEF") as library:
        library.define("own(Tensor x) -> Tensor")
        assert both_widths.told(torch.ops.songs.own.default, (torch.ones(3, dtype=torch.float64),), {}) is None


def test_an_operator_that_refuses_what_was_made_is_left_out() -> None:
    refused = call(torch.ops.aten.mm.default, torch.ones(2, 3, dtype=torch.float64), torch.ones(2, 3))
    assert both_widths.timed({refused: 1.0}) == both_widths.Taken()


def test_warnings_of_what_is_timed_are_not_the_programs() -> None:
    def loud() -> None:
        warnings.warn("not deterministic", stacklevel=2)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert both_widths.timed({(loud, both_widths._told(()), both_widths._told(())): 1.0}).of == 1.0


def test_nothing_large_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(both_widths, "_MOST_BYTES", 1000)
    large = call(torch.ops.aten.relu.default, torch.ones(126, dtype=torch.float64))
    assert both_widths.timed({large: 1.0}).of == 0
    x = torch.ones(16, 1, dtype=torch.float64)
    assert both_widths.told(torch.ops.aten.mm.default, (x, x.t()), {}, x @ x.t()) is None
