"""A value that is not finite is located on the simulated GPU as on the CPU: at its line, with its cause."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchvet


def divided(device: str) -> None:
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        x = torch.rand(3, 4).to(device)
        if step == 2:
            x[1] = 0
        shares = x / x.sum(1, keepdim=True)  # here
        loss = model(shares).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def in_backward(device: str) -> None:
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        x = torch.rand(3, 4, device=device)
        h = model(x) * (step != 2)
        loss = h.square().sum(1).sqrt().mean()  # here
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def through_a_recurrent_network(device: str) -> None:
    model, head = nn.GRU(4, 8, batch_first=True).to(device), nn.Linear(8, 1).to(device)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    for step in range(4):
        x = torch.rand(3, 5, 4, device=device)
        if step == 2:
            x[1, 2] = -1
        h = x.log()  # here
        loss = head(model(h)[0][:, -1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def with_finite_gradients(device: str) -> None:
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        rate = torch.full((), float(step != 2), device=device)
        bound = rate.log()  # here
        loss = model(torch.rand(3, 4, device=device)).square().mean() - bound
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def with_a_generator_of_its_own(device: str) -> None:
    source = torch.Generator(device).manual_seed(3)
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of(share: float) -> torch.Tensor:
        x = torch.rand(8, 4, generator=source, device=device)
        x = torch.where(torch.rand(8, 1, generator=source, device=device) < share, 0.0, x)
        out: torch.Tensor = model(x / x.sum(1, keepdim=True))  # here
        return out.square().mean()

    for step in range(6):
        loss = loss_of(0.3 if step == 4 else 0.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


PROGRAMS = [
    divided,
    in_backward,
    through_a_recurrent_network,
    with_finite_gradients,
    with_a_generator_of_its_own,
]


def found(program: Callable[[str], None], device: str) -> dict[str, Any]:
    torch.manual_seed(0)
    with torchvet.watch() as watch:
        program(device)
    assert watch.report is not None
    (finding,) = [f for f in watch.report.findings if f.code.startswith("NUM")]
    assert finding.location is not None
    return {"code": finding.code, "line": finding.location.line, "severity": finding.severity, "cause": finding.cause}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_line_is_the_cpus(program: Callable[[str], None]) -> None:
    on_device = found(program, "cuda")
    lines = Path(__file__).read_text().splitlines()
    assert on_device["line"] in [n for n, text in enumerate(lines, 1) if text.endswith("# here")]
    assert on_device == found(program, "cpu")


def seeded_apart() -> None:
    model = nn.Linear(4, 2).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.cuda.manual_seed(7)

    def loss_of(share: float) -> torch.Tensor:
        x = torch.rand(8, 4, device="cuda")
        x = torch.where(torch.rand(8, 1, device="cuda") < share, 0.0, x)
        seen.append(x[:, 0].eq(0).nonzero().flatten().tolist())
        out: torch.Tensor = model(x / x.sum(1, keepdim=True))
        return out.square().mean()

    for step in range(6):
        loss = loss_of(0.3 if step == 4 else 0.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


seen: list[list[int]] = []


def test_the_step_is_done_again_with_the_numbers_of_a_device_that_was_seeded_apart() -> None:
    seen.clear()
    torch.manual_seed(0)
    with torchvet.watch() as watch:
        seeded_apart()
    assert watch.report is not None
    (finding,) = [f for f in watch.report.findings if f.code == "NUM101"]
    (rows,) = [rows for rows in seen if rows]
    assert f"in row {rows[0]}" in str(finding.cause) or f"in rows {rows[0]}" in str(finding.cause)


def test_backward_runs_in_a_fork_of_a_process_that_has_run_it() -> None:
    torch.ones(3, device="cuda", requires_grad=True).sum().backward()
    child = os.fork()
    if child == 0:
        x = torch.ones(3, device="cuda", requires_grad=True)
        x.sum().backward()
        os._exit(0 if x.grad is not None and x.grad.tolist() == [1.0, 1.0, 1.0] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_history_of_memory_does_not_grow_with_its_events() -> None:
    torch.cuda.memory._record_memory_history(max_entries=5000, context="alloc", stacks="python")

    def pass_by() -> None:
        for _ in range(500):
            with torch.autograd.profiler.record_function("step"):
                torch.ones(10, device="cuda")
        gc.collect()

    pass_by()
    before = sys.getallocatedblocks()
    pass_by()
    assert sys.getallocatedblocks() - before < 500
    kept = torch.cuda.memory._snapshot()
    assert [e["action"] for e in kept["device_traces"][0][:2]] == ["segment_alloc", "alloc"]
    assert len(kept["device_traces"][0]) == 1 + 2 * 3 * 500
    assert kept["external_annotations"][-1]["stage"] == "END" and kept["external_annotations"][-1]["name"] == "step"
    torch.cuda.memory._record_memory_history(max_entries=7, context="alloc", stacks="python")
    assert len(torch.cuda.memory._snapshot()["device_traces"][0]) == 7
