"""A dry run ends where the program waits for a number, and only there."""

from __future__ import annotations

from pathlib import Path

from dry_running import dry_report

WAITING = """
import torch
x = torch.randn(4096, 64, device="cuda")
centre = x[:8]
while True:
    near = torch.cdist(x, centre).argmin(1)
    new = x[near[:8]] * 0.5
    moved = (new - centre).norm().item()
    centre = new
    if moved < 1e-3:
        break
"""
EVALUATING = """
import torch
model = torch.nn.Linear(64, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
wrong = 0.0
with torch.no_grad():
    for number in range(300):
        wrong += model(torch.randn(4096, 64, device="cuda")).mean().item()
for step in range(10):
    loss = model(torch.randn(4096, 64, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_loop_that_waits_for_a_number_is_ended_and_named(tmp_path: Path) -> None:
    from torchvet.probes.dry import waiting

    waiting.READS, waiting.SECONDS = 50, 0.0
    report = dry_report(WAITING, tmp_path)
    assert report.verdict == "undetermined" and report.facts["outcome"]["how"] == "steps-reached"
    assert "waits for a number" in report.not_checked[0].check
    assert "program.py:8 read numbers 50 times" in report.not_checked[0].reason


def test_passes_of_a_model_are_no_waiting(tmp_path: Path) -> None:
    from torchvet.probes.dry import waiting

    waiting.READS, waiting.SECONDS = 50, 0.0
    report = dry_report(EVALUATING, tmp_path)
    assert report.verdict == "clean" and report.facts["dry"]["batch"] == 4096
    assert not any("waits for a number" in g.check for g in report.not_checked)


def test_a_program_that_stays_on_the_cpu_is_told_so(tmp_path: Path) -> None:
    report = dry_report(EVALUATING.replace(', device="cuda"', "").replace(".cuda()", ""), tmp_path)
    assert report.verdict == "undetermined"
    assert "put nothing on the simulated GPU" in report.not_checked[0].reason
