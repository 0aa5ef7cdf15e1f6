"""Steps that a dry run tries with one thing changed take what the program takes with that change written into it."""

from __future__ import annotations

import gc
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from dry_running import dry_report

from torchvet.finding import Report

PROGRAM = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.narrow(nn.functional.gelu(self.widen(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(64) for _ in range(6)])
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        for block in self.blocks:
            x = CALL
        return self.head(x)


model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=FUSED)
for number in range(STEPS):
    torch.cuda.reset_peak_memory_stats()
    x = torch.randn(ROWS, 64)
    x, y = x.cuda(), torch.randint(0, 10, (len(x),), device="cuda")
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
"""


def program(rows: int = 4096, call: str = "block(x)", fused: bool = False, steps: int = 30) -> str:
    words = {"CALL": call, "FUSED": str(fused), "ROWS": str(rows), "STEPS": str(steps)}
    text = PROGRAM
    for name, value in words.items():
        text = text.replace(name, value)
    return text


def steady_peak(text: str) -> int:
    """The peak of the third step with real numbers, in bytes."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(text, names)
    peak = torch.cuda.max_memory_allocated()
    names.clear()
    gc.collect()
    torch.cuda.empty_cache()
    return peak


def found(report: Report, code: str) -> Any:
    return next(f for f in report.findings if f.code == code)


def test_sizes_of_changed_steps_are_those_of_changed_programs(tmp_path: Path) -> None:
    own, twice = steady_peak(program(steps=3)), steady_peak(program(rows=8192, steps=3))
    checkpointed = steady_peak(program(call="checkpoint(block, x, use_reentrant=False)", steps=3))
    report = dry_report(program(rows=4096), tmp_path)
    sizes = {b["batch"]: b["allocated"] for b in report.facts["dry"]["batches"]}
    assert sizes[4096] == own and sizes[8192] == twice
    assert report.facts["dry"]["batch"] == 4096 and max(sizes) > 8192
    finding = found(report, "MEM201")
    assert finding.measured.peak_bytes == own and own - finding.measured.bytes == checkpointed
    assert "6 Block blocks" in finding.message and "more arithmetic" in finding.message


def test_a_batch_that_does_not_fit_is_sized_all_the_same(tmp_path: Path) -> None:
    report = dry_report(program(rows=1 << 21), tmp_path)
    assert report.facts["outcome"]["how"] == "steps-reached"
    assert report.facts["dry"]["card"]["ran_out"] and report.facts["peak"]["bytes"] > 24 << 30
    failure, advice = found(report, "MEM304"), found(report, "MEM208")
    assert failure.severity == "error" and "caught" not in failure.message and advice.severity == "warning"
    fitting = [b["batch"] for b in report.facts["dry"]["batches"] if b["fits"]]
    assert 1 << 20 <= max(fitting) < 1 << 21 and f"the largest found to fit is {max(fitting):,}" in advice.message
    assert not list(tmp_path.glob("*.pickle"))


PAIRS = """
import torch
from torch import nn
model = nn.Linear(64, 32).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for number in range(30):
    z = model(torch.randn(ROWS, 64).cuda())
    pairs = (z @ z.t()).softmax(1)
    loss = pairs.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_what_a_step_that_is_too_large_leaves_bound_is_no_part_of_the_next(tmp_path: Path) -> None:
    """Every row meets every other: the line through two sizes promises far too much."""
    report = dry_report(PAIRS.replace("ROWS", "2048"), tmp_path)
    rows = report.facts["dry"]["batches"]
    assert any(not b["fits"] for b in rows)
    assert all(b["allocated"] < other["allocated"] for b, other in pairwise(rows))
    fitting = max(b["batch"] for b in rows if b["fits"])
    least = min(b["batch"] for b in rows if not b["fits"])
    assert fitting * 1.5 > least and all(
        b["reserved"] <= report.facts["dry"]["card"]["room"] for b in rows if b["fits"]
    )
    message = found(report, "MEM208").message
    assert f"{fitting:,}" in message and ("the largest found" in message) is (least - fitting <= least // 25)


def test_a_search_that_was_cut_short_says_so(tmp_path: Path) -> None:
    from torchvet.probes.dry import trials

    trials._TRIES = 1
    assert "the search ended early" in found(dry_report(PAIRS.replace("ROWS", "2048"), tmp_path), "MEM208").message


def test_what_breaks_in_a_changed_step_is_no_error_of_the_program(tmp_path: Path) -> None:
    text = program().replace("loss.item()", "loss.item()\n    assert len(x) == 4096")
    report = dry_report(text, tmp_path)
    assert {f.code for f in report.findings} <= {"MEM201", "MEM206"}
    assert any("a batch of 8192" in gap.check for gap in report.not_checked)
    assert [b["batch"] for b in report.facts["dry"]["batches"]] == [4096]


def test_an_error_in_the_programs_own_steps_is_its_own(tmp_path: Path) -> None:
    report = dry_report(program().replace("model(x)", "model(x.cpu())"), tmp_path)
    assert report.facts["outcome"]["how"] == "exception" and "same device" in report.facts["outcome"]["error"]


def test_numbers_that_nobody_worked_out_make_no_finding(tmp_path: Path) -> None:
    """A fault in the numbers is not seen, and a healthy program that looks odd with made-up ones is not blamed."""
    text = program().replace("loss.item()", "print(loss.item(), x.std().item(), torch.isnan(loss).item())")
    report = dry_report(text.replace("fused=False", "fused=False, lr=1e9"), tmp_path)
    assert all(f.code in ("MEM201", "MEM206", "MEM208") for f in report.findings)
    assert any("NaN, losses, scalers" in gap.check for gap in report.not_checked)
    assert any("made up" in gap.reason for gap in report.not_checked)


def test_modules_are_told_apart_where_events_were_forgotten(tmp_path: Path) -> None:
    from torchvet.probes.dry.observer import DryHistory

    DryHistory.events = 4000
    before = "for _ in range(5000):\n    torch.empty(1, device='cuda')\n"
    report = dry_report(program().replace("for number", f"{before}for number"), tmp_path)
    assert any("older ones were forgotten" in gap.reason for gap in report.not_checked)
    blocks = {m["name"]: m["blocks"] for m in report.facts["dry"]["modules"]}
    assert blocks["blocks.*.widen"] == 6 and blocks["blocks.*.norm"] >= 6
