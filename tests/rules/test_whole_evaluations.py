"""Evaluations of a whole set in one pass, whose memory is many times that of a training step; and others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import RECORDING, forked
from handmade import GIB, program, recording

from torchvet.finding import Finding
from torchvet.recording import read
from torchvet.recording.records.base import Place, Site, SiteBytes, StepKind, Window
from torchvet.recording.records.memory import EvaluationPeak
from torchvet.rules import rule

MIB = 1 << 20
AT = Place("/project/train.py", 30, "evaluate")


def window(peak: int, kind: StepKind = "training", number: int = 1) -> Window:
    return Window(id=number, first=number, last=number + 1, kind=kind, born=peak, peak=peak * MIB)


def graded(peak: int, training: int, limit: int = 16 * GIB, **more: Any) -> list[Finding]:
    """MEM207's findings for an evaluation and a training step of so many MiB."""
    site = Site(op="aten.convolution", shape=(5000, 16, 28, 28), dtype="float32", device="cpu", place=AT, module="0")
    facts: dict[str, Any] = {"rows": 5000, "training_rows": 64, "sites": [SiteBytes(site=site, bytes=peak * MIB // 2)]}
    seen = EvaluationPeak(place=AT, module="Net", bytes=peak * MIB, **{**facts, **more})
    windows = [window(training), window(training, number=5), window(peak, number=9), window(peak, "evaluation", 13)]
    return list(rule("MEM207").in_recording(recording(program(memory_limit=limit), *windows, seen)))


@pytest.mark.parametrize(
    ("peak", "training", "limit", "severity"),
    [(500, 20, 16, "warning"), (500, 20, 256, "info"), (100, 10, 16, "info"), (500, 200, 16, "info"),
     (200, 20, 0, "warning")],
    ids=["large", "small for the machine", "small", "little more", "unknown machine"],
)  # fmt: skip
def test_an_evaluation_is_graded_by_what_it_takes(peak: int, training: int, limit: int, severity: str) -> None:
    (found,) = graded(peak, training, limit * GIB)
    assert found.severity == severity and found.location is not None and found.location.line == AT.line
    assert found.measured.bytes == (peak - training) * MIB and found.measured.peak_bytes == peak * MIB
    assert "5,000 rows in one pass" in found.message and "64 rows" in found.message


@pytest.mark.parametrize(
    ("peak", "training", "more"),
    [(30, 3, {}), (500, 300, {}), (500, 20, {"batches": 5})],
    ids=["a few megabytes", "as much as training", "in batches"],
)
def test_what_is_not_worth_a_line(peak: int, training: int, more: dict[str, Any]) -> None:
    assert not graded(peak, training, **more)


PROGRAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
model.append(nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(1600, 1, 24, 24), torch.randint(0, 4, (1600,))
loader = DataLoader(TensorDataset(x[:160], y[:160]), batch_size=16)
x, y = x[:{rows}], y[:{rows}]

def evaluate():
{evaluate}

for epoch in range(4):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    print(f"loss {{loss.item():.6f}} {{evaluate():.4f}}")
"""
_NO_GRAD = "    with torch.no_grad():\n        return (model(x).argmax(1) == y).sum().item()"
WAYS = {
    "without gradients": _NO_GRAD,
    "in eval mode": "    model.eval()\n    right = (model(x).argmax(1) == y).sum()\n    "
    "model.train()\n    return right.item()",
    "in inference mode": _NO_GRAD.replace("no_grad", "inference_mode"),
    "by name": _NO_GRAD.replace("model(x)", "model(input=x)"),
    "as it is": "    return (model(x).argmax(1) == y).sum().item()",
    "by a loader": "    with torch.no_grad():\n        return sum((model(a).argmax(1) == b).sum().item() "
    "for a, b in DataLoader(TensorDataset(x, y), batch_size=len(x)))",
}  # fmt: skip
AFTERWARDS = "    with torch.no_grad():\n        return (model(x).repeat(100, 1) @ torch.ones(4, 1000)).sum().item()"
IN_BATCHES = "    with torch.no_grad():\n        return sum(model(a).argmax(1).sum().item() for a in x.split({}))"


@pytest.mark.parametrize("way", WAYS)
def test_a_pass_over_a_whole_set_is_measured(tmp_path: Path, way: str) -> None:
    found = forked(PROGRAM.format(evaluate=WAYS[way], rows=1600), tmp_path)
    assert found is not None
    (one,) = [f for f in found if f["code"] == "MEM207"]
    assert one["severity"] == "info" and "1,600 rows" in one["message"] and "16 rows" in one["message"]
    assert "model(" in PROGRAM.format(evaluate=WAYS[way], rows=1600).splitlines()[one["location"]["line"] - 1]
    (rank,) = read(tmp_path / RECORDING).ranks
    seen = rank.last(EvaluationPeak)
    assert seen is not None and 2 <= seen.bytes / (1600 * 16 * 24 * 24 * 4) <= 2.5, "what a layer is given, and gives"
    assert seen.graph == (way in ("in eval mode", "as it is"))


@pytest.mark.parametrize(
    ("evaluate", "rows"),
    [(IN_BATCHES.format(64), 1600), (IN_BATCHES.format(240), 1600), (_NO_GRAD, 160), (AFTERWARDS, 200)],
    ids=["four times the rows", "many batches", "a small set", "what is made afterwards"],
)
def test_batches_and_small_sets_are_not(tmp_path: Path, evaluate: str, rows: int) -> None:
    found = forked(PROGRAM.format(evaluate=evaluate, rows=rows), tmp_path)
    assert found is not None and not [f for f in found if f["code"] == "MEM207"]
