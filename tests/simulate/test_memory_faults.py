"""Faults of memory in programs on the simulated GPU, and their healthy likes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn

import torchvet
from torchvet.finding import Finding

MIB = 1 << 20


def said(*programs: Callable[[], None], steps: int = 12) -> list[Finding]:
    """What is said of programs that take their steps in turns, so that all of them are sampled."""
    with torchvet.watch() as watch:
        for _ in range(steps):
            for step in programs:
                step()
    assert watch.report is not None
    return watch.report.findings


def the(code: str, findings: list[Finding]) -> Finding:
    """The only finding of a code."""
    (found,) = [f for f in findings if f.code == code]
    return found


def trainer(model: nn.Module, loss_of: Callable[[], torch.Tensor], after: Callable[[], None] = lambda: None
            ) -> Callable[[], None]:  # fmt: skip
    """A function that does one step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after()

    return step


def wide() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    """A layer whose result takes a large segment."""
    model = nn.Sequential(nn.Linear(16, 1024), nn.ReLU(), nn.Linear(1024, 4)).cuda()
    return model, lambda: model(torch.randn(512, 16, device="cuda")).square().mean()


def test_a_cache_that_is_emptied_in_every_step() -> None:
    finding = the("MEM302", said(trainer(*wide(), after=lambda: torch.cuda.empty_cache())))
    assert finding.severity == "warning" and finding.measured.bytes == 12 * 20 * MIB, "a segment of 20 MiB a step"


def now_and_then() -> Callable[[], None]:
    """Empties the cache in every fifth step."""
    count = 0

    def after() -> None:
        nonlocal count
        count += 1
        if count % 5 == 0:
            torch.cuda.empty_cache()

    return trainer(*wide(), after=after)


def head() -> nn.Module:
    """Ends in one number a row."""
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).cuda()


def of_column_and_row(model: nn.Module) -> torch.Tensor:
    x = torch.randn(300, 8, device="cuda")
    return nn.functional.mse_loss(model(x), x.sum(1))


def of_difference(model: nn.Module) -> torch.Tensor:
    x = torch.randn(300, 8, device="cuda")
    return (x.sum(1) - model(x)).abs().mean()


def of_distances(model: nn.Module) -> torch.Tensor:
    """`l1_loss` stretches both and subtracts then."""
    x = torch.randn(300, 8, device="cuda")
    return nn.functional.l1_loss(model(x), x.sum(1))


def of_two_parts(model: nn.Module) -> torch.Tensor:
    """Huber's loss, written by hand."""
    x = torch.randn(300, 8, device="cuda")
    error = model(x) - x.sum(1)
    return torch.where(error.abs() < 1, 0.5 * error**2, error.abs() - 0.5).mean()


def of_quantiles(model: nn.Module) -> torch.Tensor:
    x = torch.randn(300, 8, device="cuda")
    error = x.sum(1) - model(x)
    return torch.maximum(0.9 * error, -0.1 * error).sum()


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_column_against_a_row() -> None:
    model = head()
    losses = (of_column_and_row, of_difference, of_distances, of_two_parts, of_quantiles)
    findings = [f for f in said(*(trainer(model, partial(loss, model)) for loss in losses)) if f.code == "MEM204"]
    assert {f.severity for f in findings} == {"error"} and {f.measured.bytes for f in findings} == {300 * 300 * 4}
    assert {f.location.function for f in findings if f.location} == {loss.__name__ for loss in losses}


def of_columns(model: nn.Module) -> torch.Tensor:
    x = torch.randn(300, 8, device="cuda")
    return nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))


def of_all_pairs(model: nn.Module) -> torch.Tensor:
    predicted = model(torch.randn(300, 8, device="cuda")).squeeze(1)
    return (predicted[:, None] - predicted[None, :]).square().mean()


def of_ranks(model: nn.Module) -> torch.Tensor:
    scores = model(torch.randn(300, 8, device="cuda"))
    return (scores - scores.squeeze(1)).abs().mean()


def of_energy(model: nn.Module) -> torch.Tensor:
    """Samples held against samples: the row was made a row."""
    drawn, real = model(torch.randn(300, 8, device="cuda")), torch.randn(300, device="cuda")
    return (drawn - real.unsqueeze(0)).abs().mean() + (real[None] - drawn).abs().mean()


def of_a_made_column(model: nn.Module) -> torch.Tensor:
    """The column was made one, out of a row that a model gave as a column."""
    drawn, real = model(torch.randn(300, 8, device="cuda")).squeeze(1), torch.randn(300, device="cuda")
    return (drawn[:, None] - real).abs().mean()


def of_stretched(model: nn.Module) -> torch.Tensor:
    drawn, real = model(torch.randn(300, 8, device="cuda")), torch.randn(300, device="cuda")
    return (drawn.expand(300, 300) - real.expand(300, 300)).abs().mean()


def of_one_row(model: nn.Module) -> torch.Tensor:
    x = torch.randn(300, 8, device="cuda")
    return (model(x) - x.sum()).square().mean()


def under_autocast(rows: int, width: int, depth: int) -> Callable[[], None]:
    """A step whose gradients are there in the forward pass, as usual."""
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(depth))).cuda()

    def loss() -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return model(torch.randn(rows, width, device="cuda")).square().mean()

    return trainer(model, loss)


def test_copies_of_wide_layers_for_few_rows() -> None:
    finding = the("MEM205", said(under_autocast(rows=2, width=512, depth=4)))
    copies = 4 * 512 * 512 * 2
    assert finding.measured.bytes is not None and 0.97 * copies < finding.measured.bytes <= copies
    assert finding.severity == "info", "2 MiB are no one's trouble"
    assert finding.location is not None and finding.location.function is not None
    assert finding.location.function.endswith("loss")


def test_what_is_meant_is_silent() -> None:
    model = head()
    meant = (of_columns, of_all_pairs, of_ranks, of_energy, of_a_made_column, of_stretched, of_one_row)
    healthy = [trainer(model, partial(loss, model)) for loss in meant]
    findings = said(*healthy, now_and_then(), under_autocast(rows=2048, width=128, depth=4))
    assert not {"MEM204", "MEM205", "MEM302"} & {f.code for f in findings}
