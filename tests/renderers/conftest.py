"""A report with everything in it, and the source file that it is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchvet.finding import Finding, Holder, Location, Measured, NotChecked, Related, Remedy, Report

SOURCE = """\
def evaluate(self, loader):
    for x, y in loader:
        loss = self.criterion(self.model(x), y)
        self.stats.losses.append(loss)
    return self.stats
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source file whose line 4 is the fault, in the working directory: paths are shown short."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def leak(program: Path) -> Finding:
    """A leak with every field filled in."""
    return Finding(
        code="MEM101",
        name="graph-retained",
        severity="error",
        evidence="observed",
        message="`trainer.stats.losses` keeps 4.2 MB per step alive: losses that own their graphs",
        location=Location(path=str(program), line=4, column=9, function="Trainer.evaluate"),
        cause="`loss` never went through backward, so its graph keeps what the forward pass saved.",
        remedy=Remedy(summary="Append `loss.item()`."),
        related=[
            Related(role="allocated", message="aten.addmm, (128, 256) float32", path=str(program), line=3),
            Related(role="also-held-by", message="`history`"),
        ],
        holder=Holder(name="trainer.stats.losses", kind="attribute", path=["__main__: trainer", ".stats", ".losses"]),
        measured=Measured(
            bytes_per_step=4_200_000, tensors_per_step=6, bytes=210_000_000, steps=50, exhausted_at_step=5700
        ),
    )


@pytest.fixture
def note(program: Path) -> Finding:
    """A finding that is only worth knowing."""
    return Finding(
        code="MEM104",
        name="evaluation-builds-graph",
        severity="info",
        evidence="observed",
        message="evaluation builds a graph that nobody goes back through",
        location=Location(path=str(program), line=3),
        cause="Gradients were on.",
        remedy=Remedy(summary="Put it under `torch.no_grad()`."),
    )


@pytest.fixture
def report(leak: Finding, note: Finding) -> Report:
    """A run with a leak, a note, something that was not checked and every known fact."""
    return Report(
        subject={"kind": "run", "path": "train.py", "argv": ["train.py", "--name", "a b"]},
        verdict="findings",
        findings=[note, leak],
        not_checked=[NotChecked(check="CUDA allocator", reason="no CUDA device was used")],
        facts={
            "steps": 300,
            "step_kinds": {"training": 200, "evaluation": 100},
            "seconds": 12.3,
            "phases": {"forward": 0.4, "backward": 0.56, "data": 0.04, "optimizer": 0.0},
            "peak": {"bytes": 500_000_000, "categories": {"parameters": 5_000_000, "activations": 495_000_000}},
            "growth": {"bytes_per_step": 4.2e6, "explained_share": 0.98, "unexplained_bytes_per_step": 84_000},
            "host": {"resident_per_step": 4.3e6, "heap_per_step": 4.2e6},
            "memory_limit": {"bytes": 24 * 2**30, "source": "--memory-limit"},
            "outcome": {"how": "finished", "status": 0},
            "device": "cpu",
            "torch": "2.13.0",
            "python": "3.11.7",
            "recording": "/elsewhere/my run.vet",
        },
        overhead={"ratio": 1.02, "seconds": 0.3, "by_probe": {"census": 0.1, "window": 0.2}},
    )
