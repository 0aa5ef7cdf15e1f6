"""Decompositions whose factors nobody reads: graded by what the cheaper call was measured to save, with an edit."""

from __future__ import annotations

from typing import Any

import pytest

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place, Program, Source
from torchvet.recording.records.distributions import UnreadFactors
from torchvet.recording.records.timing import LineTime, LineTimes

PATH = "/home/user/rank.py"
HEAD = "import torch\nimport torch.linalg as LA\ndef rank(a):\n    "
LINE = HEAD.count("\n") + 1


def found(line: str, seconds: float = 5.0, then: str = "return s.sum()", **more: Any) -> list[Finding]:
    text = f"{HEAD}{line}\n    {then}\n"
    at = Place(PATH, LINE, "rank")
    ran = Program(argv=[], path=PATH, cwd="", python="3.11", torch="2.13.0", device="cpu", started=0.0, pid=1)
    lines = [
        LineTime(place=at, seconds=seconds, looks=80, steps=80),
        LineTime(place=Place(PATH, 90, "train"), seconds=10.0 - seconds, looks=80, steps=80, phase="backward"),
    ]
    times = LineTimes(seconds=10.0, steps=100, looks=400, interval=0.01, own=0.0, lines=lines)
    facts: dict[str, Any] = {
        "name": "svd", "kind": "values", "shape": [400, 160], "full": False, "gradients": False,
        "seconds": 0.9, "every": 1.0, "whole": 0.01, "less": 0.002, **more,
    }  # fmt: skip
    seen = UnreadFactors(place=at, calls=9, sampled=5, **facts)
    rank = RankRecording(0, [ran, Source(path=PATH, text=text), times, seen])
    findings = diagnose(Recording([rank]), select=["OPS323"]).findings
    assert all(f.location is not None and f.location.line == LINE for f in findings)
    return findings


def edited(line: str, **more: Any) -> str:
    (finding,) = found(line, **more)
    for edit in sorted(finding.remedy.edits, key=lambda one: one.start, reverse=True):
        assert edit.start[0] == edit.end[0] == LINE
        line = line[: edit.start[1] - 5] + edit.text + line[edit.end[1] - 5 :]
    return line


def test_what_the_values_alone_save_is_told_and_graded() -> None:
    line = "_, s, _ = torch.linalg.svd(a)"
    (finding,) = found(line)
    assert finding.severity == "warning" and "36.0 ms of a step of 100.0 ms (36 %)" in finding.message
    assert "`torch.linalg.svdvals(A)`" in finding.message and "U and Vh are never read" in finding.message
    assert "10.0 ms by the call as it is, 2.0 ms by the other" in finding.cause
    assert [f.severity for f in found(line, 2.0)] == ["info"]
    assert not found(line, 0.5) and not found(line, less=0.009)


@pytest.mark.parametrize(
    ("line", "then"),
    [
        ("u, s, vh = torch.linalg.svd(a)", "if rare: show(vh)"),
        ("u, s, vh = torch.linalg.svd(a)", "return u, s, vh"),
        ("d = torch.linalg.svd(a)", "return d.S.sum(), d"),
        ("self.u, s, _ = torch.linalg.svd(a)", "return self.u"),
    ],
)
def test_what_the_text_reads_may_be_read_in_other_steps(line: str, then: str) -> None:
    (finding,) = found(line, then=then)
    assert finding.severity == "info" and "U and Vh are not seen to be read" in finding.message
    assert f"line {LINE + 1} names them" in finding.cause and f"line {LINE + 1} does not" in finding.remedy.summary


@pytest.mark.parametrize(
    ("line", "then"),
    [
        ("d = torch.linalg.svd(a)", "return d.S.sum() + d[1][0]"),
        ("self.u, s, _ = torch.linalg.svd(a)", "return s"),
        ("s = torch.svd(a).S", "return s"),
    ],
)
def test_what_the_text_does_not_read_is_never_read(line: str, then: str) -> None:
    (finding,) = found(line, then=then)
    assert finding.severity == "warning" and "never read" in finding.message


def test_fewer_columns() -> None:
    line = "u, s, vh = torch.linalg.svd(a)"
    (finding,) = found(line, kind="reduced", full=True, gradients=True)
    assert "svd with full factors of 400x160" in finding.message and "the first 160 are read" in finding.message
    assert "full_matrices=False" in finding.message and "with gradients" in finding.cause
    assert not finding.remedy.edits
    (finding,) = found("s = torch.linalg.qr(a, mode='complete')[0][:, :5]", kind="reduced", full=True, name="qr")
    assert 'mode="reduced"' in finding.message
    (finding,) = found("_, s = torch.linalg.qr(a)", name="qr")
    assert "Q is never read" in finding.message and 'mode="r"' in finding.message and not finding.remedy.edits


def test_lines_that_ask_for_the_values_alone_look_the_same_to_those_who_listen() -> None:
    assert not found("s = torch.linalg.svdvals(a)") and not found("s = torch.linalg.matrix_norm(a, ord='nuc')")
    assert not found("s = other_library(a)") and not found("_, s, _ = torch.linalg.svd(a)", name="eigh")


@pytest.mark.parametrize(
    ("name", "line", "then"),
    [
        ("svd", "_, s, _ = torch.linalg.svd(a)", "s = torch.linalg.svdvals(a)"),
        ("svd", "u, s, vh = LA.svd(a @ a.T, full_matrices=False)", "s = LA.svdvals(a @ a.T)"),
        ("svd", "s = torch.linalg.svd(a)[1].sum()", "s = torch.linalg.svdvals(a).sum()"),
        ("svd", "s = torch.linalg.svd(a).S[0]", "s = torch.linalg.svdvals(a)[0]"),
        ("eigh", "s, vectors = torch.linalg.eigh(a)", "s = torch.linalg.eigvalsh(a)"),
        ("eig", "s = torch.linalg.eig(a)[0].abs()", "s = torch.linalg.eigvals(a).abs()"),
        ("eigh", "s = torch.linalg.eigh(a).eigenvalues", "s = torch.linalg.eigvalsh(a)"),
    ],
)
def test_an_edit_that_takes_the_values_alone(name: str, line: str, then: str) -> None:
    assert edited(line, name=name) == then


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("svd", "u, s, _ = torch.linalg.svd(a)"),
        ("svd", "s = torch.linalg.svd(a)"),
        ("svd", "s = torch.linalg.svd(a)[0]"),
        ("svd", "s = torch.linalg.svd(a)[index]"),
        ("svd", "self.u, s, _ = torch.linalg.svd(a)"),
        ("svd", "s, s, _ = torch.linalg.svd(a)"),
        ("svd", "_, s, _ = torch.linalg.svd(a, driver='gesvd')"),
        ("svd", "_, s, _ = torch.svd(a)"),
        ("eigh", "s, _ = torch.linalg.eigh(a, UPLO='U')"),
        ("eigh", "s, *_ = torch.linalg.eigh(a)"),
    ],
)
def test_no_edit_where_more_may_be_read(name: str, line: str) -> None:
    assert edited(line, name=name, then="return u, s") == line
