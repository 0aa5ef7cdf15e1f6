"""Programs that go wrong in many ways: the line and the reason; programs that look like them: nothing."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import torch

import torchvet
from torchvet.finding import Report
from torchvet.recording import read
from torchvet.recording.records.nonfinite import NonFinite, NonFiniteTotals

PROGRAMS = Path(__file__).parent.parent / "data" / "nonfinite"
FAULTY = sorted(PROGRAMS.glob("*.py"))
HEALTHY = sorted((PROGRAMS / "healthy").glob("*.py"))


def expected(path: Path) -> tuple[int, str]:
    """The line that is marked, and the reason that stands there."""
    (found,) = (
        (number, match[1])
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (match := re.search(r"# EXPECT ([\w-]+)", line))
    )
    return found


def watched(path: Path, folder: Path) -> tuple[list[NonFinite], NonFiniteTotals | None, Report]:
    """What a run of a program leaves behind."""
    with torchvet.watch(record=folder / "run.vet") as watch:
        runpy.run_path(str(path), run_name="__main__")
    (rank,) = read(folder / "run.vet").ranks
    assert watch.report is not None
    return rank.all(NonFinite), rank.last(NonFiniteTotals), watch.report


@pytest.mark.parametrize("path", FAULTY, ids=lambda p: p.stem)
def test_the_line_and_the_reason_are_named(path: Path, tmp_path: Path) -> None:
    records, totals, report = watched(path, tmp_path)
    line, reason = expected(path)
    first = records[0]
    assert first.place is not None and Path(first.place.path).name == path.name
    assert (first.place.line, first.reason) == (line, reason), first
    assert first.found == ("input" if reason.startswith("bad-") else "operator")
    assert totals is not None and totals.last_bad is not None
    # A rule that knows the mechanism may speak at another line, and then the failed step is not said as well.
    lines = path.read_text("utf-8").splitlines()
    said = next((number for number, text in enumerate(lines, 1) if text.endswith("# SAID")), line)
    (finding,) = (f for f in report.findings if f.location is not None and f.location.line in (line, said))
    assert finding.location is not None and finding.location.line == said
    assert finding.code.startswith("NUM") and finding.cause and finding.remedy.summary


@pytest.mark.parametrize("path", HEALTHY, ids=lambda p: p.stem)
def test_healthy_infinities_are_no_matter(path: Path, tmp_path: Path) -> None:
    records, _, report = watched(path, tmp_path)
    assert records == []
    assert [f for f in report.findings if f.code.startswith("NUM")] == []


def test_nothing_is_left_installed(tmp_path: Path) -> None:
    before = (torch.amp.GradScaler.step, torch.amp.GradScaler.scale, torch.autograd.backward)
    watched(PROGRAMS / "where.py", tmp_path)
    assert (torch.amp.GradScaler.step, torch.amp.GradScaler.scale, torch.autograd.backward) == before


LOST_AT_ONCE = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 4)
nn.init.zeros_(model.weight)
nn.init.zeros_(model.bias)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    length = torch.sqrt(model(torch.ones(2, 4)).square().sum())
    optimizer.zero_grad()
    length.backward()
    optimizer.step()
"""


def test_steps_that_only_follow_from_lost_weights_are_not_looked_into(tmp_path: Path) -> None:
    """What the first step did explains them all; it is the first, though its backward counted as a step of its own."""
    program = tmp_path / "lost.py"
    program.write_text(LOST_AT_ONCE, "utf-8")
    records, totals, report = watched(program, tmp_path)
    assert [(r.tick, r.found, r.place.line if r.place else None) for r in records] == [(1, "operator", 10)]
    assert totals is not None and totals.first_stepped == 1 and totals.losses >= 10
    assert len([f for f in report.findings if f.code.startswith("NUM")]) == 1


SCALED = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale={init}, growth_interval={interval})
for step in range({steps}):
    x = torch.randn(16, 16)
    with torch.autocast("cpu", torch.float16):
        loss = nn.functional.mse_loss(model(x).float(), x.sum(1, keepdim=True))
    if {when}:
        loss = {change}
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def scaled(folder: Path, when: str, change: str, steps: int, init: float = 65536.0, interval: int = 2000) -> list[str]:
    """What the rules about numbers say of a program with a scaler."""
    program = folder / "scaled.py"
    program.write_text(SCALED.format(when=when, change=change, steps=steps, init=init, interval=interval), "utf-8")
    _, _, report = watched(program, folder)
    found = [f for f in report.findings if f.code.startswith("NUM")]
    line = next(n for n, text in enumerate(program.read_text("utf-8").splitlines(), 1) if change in text)
    assert all(f.location is not None and (f.severity == "info" or f.location.line == line) for f in found)
    return [f"{f.code} {f.severity}" for f in found]


@pytest.mark.parametrize("change", ["loss + (loss * 0).sqrt()", "loss + (loss * 0).log() * 0"])
def test_a_scaler_that_never_finds_its_scale_hides_no_fault(change: str, tmp_path: Path) -> None:
    """Every step from the first on is skipped: none of them counts as a step of the optimizer."""
    (said,) = scaled(tmp_path, "True", change, 8)
    assert said.endswith("warning")


def test_a_batch_that_is_skipped_at_any_scale_is_looked_into(tmp_path: Path) -> None:
    """Never two in a row, and never for a scale that had grown."""
    assert scaled(tmp_path, "step % 6 == 5", "loss + (loss * 0).sqrt()", 35) == ["NUM110 info"]


@pytest.mark.parametrize(("init", "interval"), [(1e9, 2000), (65536.0, 2)])
def test_a_scaler_that_finds_its_scale_is_no_warning(init: float, interval: int, tmp_path: Path) -> None:
    said = scaled(tmp_path, "False", "loss * 2", 40, init, interval)
    assert said == (["NUM101 info"] if init > 65536 else [])
