"""torchvet's word is not taken for a fix: what was written is looked at."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from casebook.case import Case, load
from casebook.fixing import agree, difference, fix, what_differs, what_is_wrong, why_refused
from casebook.report import Finding, Location, Remedy, Report
from casebook.run import Means, Run
from casebook.score import Fix, Observation, score

FAULTY = "kept = []\nprint('loss 1.0')\n"
FOUND = Finding("MEM102", "error", location=Location("faulty.py", 1), remedy=Remedy([{"text": ""}]))

TOOL = """
import json, pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("-o") + 1])
program = pathlib.Path(sys.argv[2] if sys.argv[1] == "fix" else "faulty.py")
row = {"code": "MEM102", "changes_results": CHANGES, "reason": "the losses differ"}
if sys.argv[1] == "fix":
    assert "--verify" in sys.argv and "--apply" in sys.argv and sys.argv[-2:] == ["--steps", "60"]
    proven = PROVEN
    if proven:
        program.write_text(WRITTEN)
    facts = {"proven": [{**row, "code": CODE}] if proven else [], "also_gone": [row] if proven else [],
             "refused": [] if proven else [row], "not_shown": []}
    out.write_text(json.dumps({"findings": [{"code": "MEM102", "severity": "error"}], "facts": {"fix": facts}}))
else:
    text = program.read_text()
    exec(text)
    found = [{"code": "MEM102", "severity": "error"}] if "kept" in text else []
    out.write_text(json.dumps({"findings": found}))
"""


@pytest.fixture
def case(tmp_path: Path) -> Case:
    folder = tmp_path / "mem102_case"
    folder.mkdir()
    (folder / "faulty.py").write_text(FAULTY)
    (folder / "case.toml").write_text('code = "MEM102"\nseverity = "error"\nline = "kept = []"\n')
    return load(folder)


def seen(*findings: Finding, stdout: str = "loss 1.0\n") -> Observation:
    """The faulty program, bare and under the tool."""
    return Observation("faulty", Run(0, stdout), Run(1, stdout, Report(list(findings))))


def tool(folder: Path, written: str, proven: bool = True, changes: bool = False, code: str = "MEM102") -> Means:
    """A tool that claims what it is told to claim."""
    path = folder / "tool.py"
    text = TOOL.replace("PROVEN", repr(proven)).replace("CHANGES", repr(changes)).replace("WRITTEN", repr(written))
    path.write_text(text.replace("CODE", repr(code)))
    return Means(tool=f"{sys.executable} {path}")


def test_without_edits_there_is_nothing_to_prove(case: Case) -> None:
    assert fix(case, seen(Finding("MEM102", "error")), Means(tool="false")).status == "no edit"
    other = Finding("MEM101", "error", remedy=Remedy([{}]))
    assert fix(case, seen(other), Means(tool="false")).status == "no edit"


@pytest.mark.parametrize(
    ("written", "changes", "status", "reason"),
    [
        ("print('loss 1.0')\n", False, "proven", ""),
        ("kept = ()\nprint('loss 1.0')\n", False, "disproved", "still there"),
        ("print('loss 1.5')\n", False, "disproved", "line 1 of what it prints"),
        ("print('loss 1.5')\n", True, "proven", "the numbers change"),
        ("print('loss 1.0'); raise SystemExit(3)\n", True, "disproved", "the fixed program"),
    ],
)
def test_a_claim_is_looked_into(
    case: Case, tmp_path: Path, written: str, changes: bool, status: str, reason: str
) -> None:
    result = fix(case, seen(FOUND), tool(tmp_path, written, changes=changes))
    assert result.status == status and result.reason.startswith(reason)
    assert (case.folder / "faulty.py").read_text() == FAULTY


def test_another_fix_may_do_away_with_it(case: Case, tmp_path: Path) -> None:
    result = fix(case, seen(FOUND), tool(tmp_path, "print('loss 1.5')\n", changes=True, code="TRN101"))
    assert (result.status, result.reason) == ("proven", "by the fix of TRN101, the numbers change")


def test_a_refusal_has_its_reason(case: Case, tmp_path: Path) -> None:
    result = fix(case, seen(FOUND), tool(tmp_path, "", proven=False))
    assert (result.status, result.reason) == ("refused", "the losses differ")


def test_why_a_fix_was_refused_is_always_said() -> None:
    facts = {"fix": {"proven": [], "refused": [], "not_shown": []}}
    plain = Finding("MEM102", "error")
    assert why_refused("MEM102", Report([], facts=facts)) == "not found in the run of the verification"
    assert why_refused("MEM102", Report([plain], facts=facts)) == "found without an edit in the run of the verification"
    few = [{"check": "the fixes", "reason": "4 steps are too few"}]
    assert why_refused("MEM102", Report([FOUND], facts=facts, not_checked=few)) == "4 steps are too few"


SEVERAL = "`fix --verify` observes one process, and the case has several ranks"


def test_what_cannot_be_verified_is_said(case: Case) -> None:
    broken = f"{sys.executable} -c \"import sys; sys.exit('no such option')\""
    assert fix(case, seen(FOUND), Means(tool=broken)).status == "not verifiable"
    several = replace(case, expect=replace(case.expect, command=["run", "--nproc", "2"]))
    assert fix(several, seen(FOUND), Means(tool=broken)) == Fix("not verifiable", SEVERAL)


def test_a_fix_that_is_disproved_is_off(case: Case, tmp_path: Path) -> None:
    whole = score(case, seen(FOUND), seen(), [])
    wrong = fix(case, seen(FOUND), tool(tmp_path, "kept = ()\nprint('loss 1.0')\n"))
    assert whole.perfect and not replace(whole, fix=wrong).perfect


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("step 10 loss 2.2825", "step 10 loss 2.2826", True),
        ("step 10 loss 2.2825", "step 10 loss 2.2925", False),
        ("step 10 loss 2.2825", "step 11 loss 2.2825", False),
        ("loss 1.00000e-03", "loss 1.00005e-03", True),
        ("loss 1.0e-03", "loss 1.0e-02", False),
        ("loss 2.5", "cost 2.5", False),
        ("loss 2.5", "loss 2.5 2.5", False),
        ("loss 2.5", "loss nan", False),
    ],
)
def test_numbers_agree_within_the_tolerance(before: str, after: str, same: bool) -> None:
    assert agree(before, after) is same


def test_lines_are_compared_up_to_what_is_no_number() -> None:
    assert difference(["a 1", "a nan", "a 3"], ["a 1", "a 2", "a 9"]) == ""
    assert difference(["a 1", "a 2"], ["a 1"]).startswith("line 2 of what it prints: None")
    assert difference(["a 1"], ["a 1", "a 2"]) == ""


def test_the_last_words_of_a_failure_are_not_compared() -> None:
    failed = Run(3, "loss 1.0\nstopped: no\n")
    assert what_differs(failed, Run(0, "loss 1.0\nloss 0.9\n"), changes=False) == ""
    assert what_differs(failed, Run(0, "loss 1.5\nloss 0.9\n"), changes=False)
    assert what_differs(failed, Run(1, "loss 1.0\n", None, "it broke"), changes=True) == "the fixed program: it broke"


def test_no_report_is_no_proof(case: Case) -> None:
    assert "it fell over" in what_is_wrong(case, Run(2, "", None, "it fell over"))
