"""Diagonal covariances: graded by the operators' share of the step, and written apart where the text allows it."""

from __future__ import annotations

from typing import Any

import pytest
from observed_fixes import fixed_lines

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import About, Finding
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place, Program
from torchvet.recording.records.distributions import DiagonalNormals
from torchvet.recording.records.timing import LineTime, LineTimes

PATH = "/home/user/train.py"


def found(**more: Any) -> list[Finding]:
    ran = Program(argv=[], path=PATH, cwd="", python="3.11", torch="2.13.0", device="cpu", started=0.0, pid=1)
    lines = [LineTime(place=Place(PATH, 4, "train"), seconds=10.0, looks=80, steps=80, phase="forward")]
    times = LineTimes(seconds=10.0, steps=100, looks=400, interval=0.01, own=0.0, lines=lines)
    facts: dict[str, Any] = {"seconds": 0.5, "every": 1.0, "whole": 0.01, "apart": 0.002, "asked": ["kl"], **more}
    seen = DiagonalNormals(
        place=Place(PATH, 4, "train"), others=[Place(PATH, 7, "prior")], rows=64, width=16, sampled=5, **facts
    )
    rank = RankRecording(0, [ran, times, seen])
    return [f for f in diagnose(Recording([rank]), select=["OPS321"]).findings if f.code == "OPS321"]


def test_what_matrices_take_is_told_and_graded() -> None:
    (finding,) = found()
    assert finding.severity == "warning" and "40.0 ms of a step of 100.0 ms (40 %)" in finding.message
    assert "Both distributions" in finding.remedy.summary and [r.line for r in finding.related] == [7]
    assert [f.severity for f in found(seconds=0.2)] == ["info"]
    assert not found(seconds=0.05) and not found(apart=0.009)


@pytest.mark.parametrize(
    ("made", "edited"),
    [
        (
            "MultivariateNormal(mean, torch.diag_embed(std**2))",
            "torch.distributions.Independent(torch.distributions.Normal(mean, (std**2).sqrt()), 1)",
        ),
        (
            "MultivariateNormal(mean, covariance_matrix=torch.diag(variance))",
            "torch.distributions.Independent(torch.distributions.Normal(mean, variance.sqrt()), 1)",
        ),
        ("MultivariateNormal(mean, scale_tril=torch.diag(std))", ""),
        ("MultivariateNormal(mean, covariance)", ""),
        ("MultivariateNormal(mean, torch.diag_embed(std, 1))", ""),
        ("MultivariateNormal(mean, torch.diag_embed(std)).covariance_matrix", ""),
        ("kl_divergence(MultivariateNormal(mean, torch.diag_embed(std)), other)", ""),
    ],
)
def test_the_edit_is_made_where_the_text_shows_the_diagonal(made: str, edited: str) -> None:
    text = f"from torch.distributions import MultivariateNormal\ndef act(mean, std):\n    return {made}\n"
    _, new = fixed_lines("OPS321", text, "return")
    assert new == ([f"    return {edited}"] if edited else [])
    assert fixed_lines("OPS321", text, "return", about=About(variant="kl")) == ([], [])
