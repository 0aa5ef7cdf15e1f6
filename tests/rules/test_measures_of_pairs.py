"""MEM204: measures that compare a column of predictions with a row of targets, and comparisons that mean all pairs."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked
from handmade import FILE, evidence, outcome, program, recording, steps

from torchvet.diagnosis.diagnose import diagnose
from torchvet.recording.records.base import Place, Source
from torchvet.recording.records.memory import PairTable
from torchvet.recording.records.training import Ran

PROGRAM = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
features = torch.randn(96, 12)
labels = (features.sum(1, keepdim=True) > 0).float()

if __name__ == "__main__":
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(1, 33):
        x, y = features[:64], labels[:64]
        loss = F.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"loss {{loss.item():.6f}}")
        if step % 8 == 0:
            model.eval()
            with torch.no_grad():
                x, y, row = features[64:], labels[64:], labels[64:, 0].clone()
                p = (model(x) > 0).float()
                {measure}
            model.train()
"""
LINE = PROGRAM[: PROGRAM.index("{measure}")].count("\n") + 1
FAULTY = {
    "column, row": "right = (p == row).sum().item()",
    "row, column": "right = (row == p).float().mean()",
    "targets are the column": "right = (p[:, 0].clone() == y).sum()",
    "eq": "right = p.eq(row).float().mean()",
    "wrong ones": "wrong = (p != row).sum()",
    "an error": "error = (model(x) - row).abs().mean()",
    "an error, the targets the column": "error = (y - p[:, 0].clone()).pow(2).sum()",
}
PAIRS_OR_NONE = {
    "columns": "right = (p == y).sum()",
    "rows": "right = (p.squeeze(1) == row).sum()",
    "pairs of labels": "same = (y == y.T).float().mean()",
    "pairs of labels, given a dimension": "same = (row[:, None] == row).float().sum()",
    "retrieval": "hits = (p.squeeze(1)[:, None] == row[None]).float().mean()",
    "retrieval, a row": "hits = (p.squeeze(1).unsqueeze(1) == row).float().mean()",
    "a column with itself": "same = (y == y[:, 0]).float().mean()",
    "classes": "counts = (y == torch.arange(32)).sum()",
    "thresholds": "distance = (model(x) - torch.linspace(-1, 1, 32)).abs().mean()",
    "distances": "distance = (p - p.T).abs().mean()",
    "distances, a dimension given": "distance = (model(x).flatten()[:, None] - row).abs().mean()",
    "errors": "error = (model(x) - y).abs().mean()",
    "a mask": "mask = (p == row); best = model(x) @ torch.ones(1, 32) * mask",
    "top 5": "top = torch.randn(32, 10).topk(5, 1)[1]; right = top.t().eq(row.view(1, -1).expand(5, 32)).sum()",
    "first of five": "top = torch.randn(32, 10).topk(5, 1)[1]; right = (top == row[:, None]).any(1).sum()",
    "three samples": "right = (p[:3] == row[:3]).sum()",
}


def findings(tmp_path: Path, measure: str) -> list[dict[str, object]]:
    found = forked(PROGRAM.format(measure=measure), tmp_path)
    assert found is not None
    return [f for f in found if f["code"] == "MEM204"]


@pytest.mark.parametrize("what", FAULTY)
def test_measures_over_all_pairs(tmp_path: Path, what: str) -> None:
    (found,) = findings(tmp_path, FAULTY[what])
    assert (found["severity"], found["location"]["line"]) == ("warning", LINE)  # type: ignore[index]
    assert "1,024 answers for 32 samples" in str(found["message"])


SUSPECTED = """
import torch
from torch import nn
model = nn.Linear(12, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(80):
    x = torch.randn(12, 12)
    y = x.sum(1)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_few_rows_make_a_loss_as_wrong_as_many(tmp_path: Path) -> None:
    (found,) = losses(tmp_path, "F.mse_loss(model(x[:6]), y[:6, 0])")
    assert (found["severity"], found["evidence"]) == ("error", "observed")


@pytest.mark.parametrize(("fits", "calls", "said"), [(3, 0, False), (3, 1, True), (0, 0, True)])
def test_a_suspicion_is_dropped_only_where_its_line_was_heard(fits: int, calls: int, said: bool) -> None:
    line = SUSPECTED[: SUSPECTED.index("loss =")].count("\n") + 1
    table = PairTable(place=Place(FILE, line, ""), operator="mse_loss", shapes="", bytes=0, fits=fits, calls=calls)
    text = Source(path=FILE, text=SUSPECTED), Ran(path=FILE, lines=list(range(1, 20)))
    heard = [table] if fits or calls else []
    report = diagnose(recording(program(), *text, *steps(80), *evidence(80), *heard, outcome(80)))
    assert bool([f for f in report.findings if f.code == "MEM204"]) is said


LOSSES = {
    "written out": "((model(x)[:, 0] - y) ** 2).mean()",
    "mse_loss": "F.mse_loss(model(x).squeeze(1), y)",
    "a module": "nn.SmoothL1Loss()(model(x).flatten(), y)",
}
CENTERS = {"centers": "((y - centers) ** 2).mean() + F.mse_loss(model(x), y)"}


def losses(tmp_path: Path, loss: str) -> list[dict[str, object]]:
    written = "F.binary_cross_entropy_with_logits(model(x), y)"
    made = PROGRAM.replace("    optimizer =", "    centers = nn.Parameter(torch.randn(64))\n    optimizer =")
    found = forked(made.replace(written, loss).format(measure="pass"), tmp_path)
    assert found is not None
    return [f for f in found if f["code"] == "MEM204" and f["severity"] != "info"]


@pytest.mark.parametrize("what", LOSSES)
def test_targets_that_are_the_column(tmp_path: Path, what: str) -> None:
    (found,) = losses(tmp_path, LOSSES[what])
    assert found["severity"] == "error"


@pytest.mark.parametrize("what", CENTERS)
def test_tables_of_centers(tmp_path: Path, what: str) -> None:
    assert not losses(tmp_path, CENTERS[what])


@pytest.mark.parametrize("what", PAIRS_OR_NONE)
def test_comparisons_that_mean_it(tmp_path: Path, what: str) -> None:
    assert not [f for f in findings(tmp_path, PAIRS_OR_NONE[what]) if f["severity"] != "info"]
