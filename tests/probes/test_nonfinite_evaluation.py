"""Evaluation whose numbers are NaN though training is finite: the line is named. Rates of nothing are no matter."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import torchvet
from torchvet.finding import Finding, Report

PROGRAM = """
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def batches(number, size=16):
    return [(torch.randn(size, 8), torch.randint(0, 3, (size,))) for _ in range(number)]


def evaluate(valid):
    model.eval()
    total, seen = 0.0, []
    with torch.no_grad():
        for x, y in valid:
            out = model(x)
            {each}
    model.train()
    return {result}


valid = batches(3)
{before}
for epoch in range(4):
    for x, y in batches(6):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    value = evaluate(valid)
    print(loss.item(), {taken})
"""
EMPTY = "valid.append((torch.randn(0, 8), torch.zeros(0, dtype=torch.long)))"
FAULTY = {
    "the entropy of probabilities that round to 0": (
        "p = (200 * out).softmax(1); total += (p * p.log()).sum().item()  # HERE", "total", "", "value"),
    "an empty batch, and the number is taken outside": (
        "seen.append(F.cross_entropy(out, y))  # HERE", "torch.stack(seen).mean()", EMPTY, "value.item()"),
    "a loss over rows of which none is chosen": (
        "w = (y == 3).float(); total += (F.cross_entropy(out, y, reduction='none') * w).sum().div(w.sum()).item()"
        "  # HERE", "total", "", "value"),
    "a deviation of one row": (
        "total += out[:1].std(0).mean().item()  # HERE", "total", "", "value"),
}  # fmt: skip
HEALTHY = {
    "the entropy, clamped": (
        "p = (200 * out).softmax(1); total += (p * p.clamp_min(1e-9).log()).sum().item()", "total", "", "value"),
    "the accuracy of a class that is not there": (
        "total += (out.argmax(1) == y)[y == 3].float().mean().item()", "total", "", "value"),
    "a rate of counts": (
        "hit = ((out.argmax(1) == 3) & (y == 3)).sum(); total += (hit / (y == 3).sum()).item()", "total", "", "value"),
    "a best value that is not there yet": (
        "total += torch.tensor(float('nan')).item() if not seen else 0.0", "total", "", "value"),
    "NaN that is left out": (
        "p = (200 * out).softmax(1); seen.append((p * p.log()).sum())", "torch.stack(seen).nanmean()", "",
        "value.nan_to_num().item()"),
    "NaN that the program asks for": (
        "v = (out / 0 * 0).mean(); total += 0.0 if torch.isnan(v) else v.item()", "total", "", "value"),
}  # fmt: skip


def program(each: str, result: str, before: str, taken: str) -> str:
    return PROGRAM.format(each=each, result=result, before=before, taken=taken)


def watched(text: str, folder: Path) -> Report:
    path = folder / "train.py"
    path.write_text(text)
    with torchvet.watch(record=folder / "run.vet") as watch:
        runpy.run_path(str(path), run_name="__main__")
    assert watch.report is not None
    return watch.report


def about_numbers(report: Report) -> list[Finding]:
    return [f for f in report.findings if f.code.startswith("NUM")]


@pytest.mark.parametrize("case", FAULTY)
def test_a_number_of_evaluation_that_is_nan_has_its_line(case: str, tmp_path: Path) -> None:
    text = program(*FAULTY[case])
    (finding,) = about_numbers(watched(text, tmp_path))
    line = next(number for number, one in enumerate(text.splitlines(), 1) if one.endswith("# HERE"))
    assert (finding.severity, finding.location and finding.location.line) == ("warning", line)


def test_of_two_logarithms_on_a_line_none_is_blamed_on_the_softmax(tmp_path: Path) -> None:
    each = "p = out.softmax(1); t = F.one_hot(y, 4).float(); total += (t * (t.log() - p.log())).sum().item()"
    (finding,) = about_numbers(watched(program(each, "total", "", "value"), tmp_path))
    assert finding.code == "NUM101"


@pytest.mark.parametrize("case", HEALTHY)
def test_numbers_that_are_no_matter_of_the_parameters_are_quiet(case: str, tmp_path: Path) -> None:
    assert about_numbers(watched(program(*HEALTHY[case]), tmp_path)) == []


@pytest.mark.parametrize("broken", [True, False])
def test_in_inference_mode_what_the_model_gives_is_looked_at(broken: bool, tmp_path: Path) -> None:
    each = "total += F.cross_entropy(out, y).item()"
    text = program(each, "total", "valid[1][0][3, 2] = float('nan')" if broken else "", "value")
    text = text.replace("with torch.no_grad()", "with torch.inference_mode()")
    report = watched(
        text.replace("    model.eval()\n", "").replace("            out =", "            model.eval(); out ="), tmp_path
    )
    assert [f.code for f in about_numbers(report)] == ["NUM101"] * broken
    assert [u.check for u in report.not_checked if "inference_mode" in u.reason and "numbers" in u.check]
