"""The rule by which other tools are judged holds, and what they have been found to say is kept in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.rivals import Remark
from casebook.case import Case, load
from casebook.other_tools.judging import classify, speaks_of
from casebook.other_tools.recorded import Recorded, Verdict, fingerprint, read, write
from casebook.other_tools.tools import INSIGHTS, OTHER_TOOLS, reader, reason_not_to

TOML = 'code = "MEM101"\nseverity = "error"\nline = "kept.append(loss)"\n'


@pytest.fixture
def case(tmp_path: Path) -> Case:
    folder = tmp_path / "mem101_case"
    folder.mkdir()
    for name, last in (("faulty", "kept.append(loss)"), ("fixed", "kept.append(loss.item())")):
        (folder / f"{name}.py").write_text(f"import torch\nkept = []\nloss = torch.ones(1)\n{last}\n")
    (folder / "case.toml").write_text(TOML)
    return load(folder)


def said(kind: str, line: int, path: str = "/somewhere/faulty.py", severity: str = "warning") -> Remark:
    """One remark."""
    return Remark(path, line, kind, severity, "")


@pytest.mark.parametrize(
    ("faulty", "fixed", "verdict"),
    [
        ([], None, "silent"),
        ([said("TG001", 4)], [], "named"),
        ([said("TG001", 4)], [said("TG001", 4)], "named"),
        ([said("TG001", 2)], [], "named"),
        ([said("TG001", 2)], [said("TG001", 2)], "elsewhere"),
        ([said("TG001", 2), said("TG001", 3)], [said("TG001", 2)], "named"),
        ([said("TG001", 2)], None, "elsewhere"),
        ([said("TG001", 2, severity="note")], None, "silent"),
        ([said("TG013", 4, severity="note")], None, "line"),
        ([said("TG013", 4, path="other.py")], None, "elsewhere"),
        ([said("creep_confirmed", 0, path="")], None, "named"),
        ([said("input_bound", 0, path="")], None, "elsewhere"),
        ([said("alive-at-end", 4)], None, "line"),
        ([said("leak", 4)], None, "named"),
        ([said("nan-gradient", 4)], None, "line"),
    ],
)
def test_the_rule(case: Case, faulty: list[Remark], fixed: list[Remark] | None, verdict: str) -> None:
    assert classify(case, faulty, fixed) == verdict


def test_an_operator_that_gives_nan_is_the_subject_of_numbers() -> None:
    assert speaks_of("nan-gradient", "NUM101") and speaks_of("nan-gradient", "AMP118")
    assert not speaks_of("nan-gradient", "TRN101")


def test_the_readers_of_source_are_those_of_the_benchmark() -> None:
    assert [r.name for r in OTHER_TOOLS if r.reads] == ["TorchFix", "torch-preflight", "mldoct"]
    with pytest.raises(StopIteration):
        reader("another")


def test_programs_for_a_gpu_are_read_and_not_run(case: Case) -> None:
    card = Case(case.folder, case.expect.__class__("OPS101", "error", "x", command=["run", "--simulate-gpu", "l4"]))
    assert [r.name for r in OTHER_TOOLS if not reason_not_to(r, card)] == ["TorchFix", "torch-preflight", "mldoct"]
    assert not any(reason_not_to(r, case) for r in OTHER_TOOLS)


def test_verdicts_are_kept_until_the_program_changes(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "recorded.json"
    kept = Recorded({"memray": "1"})
    kept.entry("b", "1").verdicts["memray"] = Verdict("not run", "it broke")
    kept.entry("a", fingerprint(case)).verdicts["memray"] = Verdict("line", "alive-at-end")
    write(path, kept)
    again = read(path)
    assert again == Recorded(kept.tools, dict(sorted(kept.cases.items())))
    assert again.entry("a", fingerprint(case)).verdicts["memray"].verdict == "line"
    (case.folder / "lookalike_a.py").write_text("")
    assert again.entry("a", fingerprint(case)).verdicts
    (case.folder / "faulty.py").write_text("kept = []\n")
    assert not again.entry("a", fingerprint(case)).verdicts
    assert read(tmp_path / "none.json") == Recorded()


def test_insights_are_told_by_their_titles() -> None:
    assert len(set(INSIGHTS.values())) == len(INSIGHTS)
