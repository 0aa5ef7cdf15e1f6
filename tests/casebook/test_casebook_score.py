"""Scores say what was right, what was missed and what was made up."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from casebook.__main__ import main
from casebook.case import Case, Expectation
from casebook.program import Program
from casebook.report import Finding, Holder, Location, Measured, Report
from casebook.run import Run, vetted
from casebook.score import Judgement, Observation, VariantScore, judge, score
from casebook.table import scoreboard

RIGHT = Finding("MEM101", "error", "", Location("faulty.py", 2), Holder("trainer.kept"), Measured(1050.0))

RIGHT_IN_ALL = Judgement(severity=True, line=True, holder=True, bytes=None)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    (tmp_path / "faulty.py").write_text("kept = []\nkept.append(loss)\n")
    expect = Expectation("MEM101", "warning", "kept.append", holder=["kept"], also_allowed=["MEM109"])
    return Case(tmp_path, expect)


def seen(*findings: Finding, name: str = "faulty", stdout: str = "loss\n", status: int = 1) -> Observation:
    """A program and what was found in it, counted at 1000 bytes per step."""
    return Observation(name, Run(0, "loss\n"), Run(status, stdout, Report(list(findings))), 1000.0)


def test_a_right_finding_is_right_in_everything(case: Case) -> None:
    judgement = judge(case, RIGHT, 1000.0)
    assert (judgement.severity, judgement.line, judgement.holder, judgement.bytes) == (True,) * 4


@pytest.mark.parametrize(
    ("finding", "wrong"),
    [
        (Finding("MEM101", "info", "", RIGHT.location, RIGHT.holder, RIGHT.measured), "severity"),
        (Finding("MEM101", "error", "", Location("faulty.py", 1), RIGHT.holder, RIGHT.measured), "line"),
        (Finding("MEM101", "error", "", Location("other.py", 2), RIGHT.holder, RIGHT.measured), "line"),
        (Finding("MEM101", "error", "", RIGHT.location, Holder("model"), RIGHT.measured), "holder"),
        (Finding("MEM101", "error", "", RIGHT.location, None, RIGHT.measured), "holder"),
        (Finding("MEM101", "error", "", RIGHT.location, RIGHT.holder, Measured(1101)), "bytes"),
        (Finding("MEM101", "error", "", RIGHT.location, RIGHT.holder, None), "bytes"),
    ],
)
def test_each_aspect_is_judged_by_itself(case: Case, finding: Finding, wrong: str) -> None:
    judgement = judge(case, finding, 1000.0)
    aspects = ("severity", "line", "holder", "bytes")
    assert [name for name in aspects if not getattr(judgement, name)] == [wrong]


@pytest.mark.parametrize(
    ("outcome", "wrong"),
    [
        ({}, []),
        ({"rank": 0}, ["holder"]),
        ({"last": {"step": 16, "place": {"path": "faulty.py", "line": 2}}}, ["holder"]),
        ({"last": {"step": 17, "place": None}}, ["line"]),
        ({"how": "exception"}, None),
        ({"last": None}, None),
    ],
)
def test_that_a_rank_was_killed_is_judged_like_a_finding(
    case: Case, outcome: dict[str, Any], wrong: list[str] | None
) -> None:
    last = {"step": 17, "place": {"path": "faulty.py", "line": 2}}
    facts = {"outcome": {"rank": 1, "how": "killed", "last": last} | outcome}
    killed = Observation("faulty", Run(1, ""), Run(1, "", Report(verdict="clean", facts=facts)))
    fine = Observation("fixed", Run(0, ""), Run(0, "", Report(verdict="clean")))
    asked = replace(case, expect=Expectation("END", "error", "kept.append", holder=["rank 1 in step 17"]))
    scored = score(asked, killed, fine, [fine])
    found = scored.found and [name for name in ("line", "holder") if not getattr(scored.found, name)]
    assert (found, bool(scored.notes)) == (wrong, wrong is None)
    assert not score(asked, killed, killed, [killed]).fixed_silent or wrong is None


def test_what_is_not_asked_is_not_judged(case: Case) -> None:
    assert judge(case, RIGHT, None).bytes is None


def test_a_perfect_case(case: Case) -> None:
    fixed, lookalike = seen(name="fixed", status=0), seen(Finding("MEM201", "info"), name="lookalike_a", status=0)
    result = score(case, seen(RIGHT, Finding("MEM109", "warning")), fixed, [lookalike])
    assert result.perfect
    assert "found 1 of 1, missed 0, false alarms 0" in scoreboard([result])


def test_what_a_verb_keeps_to_itself_is_no_disturbance(case: Case) -> None:
    silent = [seen(RIGHT, stdout=""), seen(name="fixed", stdout="", status=0)]
    assert not score(case, silent[0], silent[1], []).undisturbed
    asked = Case(case.folder, replace(case.expect, command=["amp", "--trials", "1"]))
    assert score(asked, silent[0], silent[1], []).perfect


def test_a_case_says_how_the_tool_is_called(tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text("print('one')\n")
    tool = f'{sys.executable} -c "import json, sys; print(json.dumps(sys.argv[1:]))"'
    program = Program(tmp_path, "faulty")
    given = json.loads(vetted(program, ["--steps", "2"], tool, ["amp", "--trials", "1"]).stdout)
    assert given[:3] == ["amp", "--trials", "1"] and given[-3:] == ["faulty.py", "--steps", "2"]
    assert "--memory-limit" not in given and "--memory-limit" in json.loads(vetted(program, [], tool).stdout)


def test_missed_and_made_up(case: Case) -> None:
    alarm = Finding("MEM102", "warning", "", Location("lookalike_a.py", 7))
    result = score(case, seen(), seen(name="fixed"), [seen(alarm, name="lookalike_a")])
    assert (result.found, result.false_alarms, result.lookalikes_silent) == (None, 1, [False])
    assert not result.perfect
    assert "lookalike_a: MEM102 warning at lookalike_a.py:7" in scoreboard([result])


@pytest.mark.parametrize(
    ("variant", "alarms", "shown"),
    [
        (VariantScore("class", None), 0, "missed as class"),
        (
            VariantScore("class", RIGHT_IN_ALL, ["MEM101 error at a.py:3"]),
            1,
            "as class besides: MEM101 error at a.py:3",
        ),
        (VariantScore("class", None, complaint="no report: killed"), 0, "as class: no report: killed"),
    ],
)
def test_what_is_not_true_of_a_variant_counts(case: Case, variant: VariantScore, alarms: int, shown: str) -> None:
    """A variant that is missed is counted as such; what is made up, or no report at all, is a fault of the case."""
    clean = score(case, seen(RIGHT), seen(name="fixed", status=0), [])
    result = replace(clean, variants=[VariantScore("renamed", RIGHT_IN_ALL), variant])
    assert clean.perfect and result.perfect == variant.honest
    assert result.alarms_in_variants == alarms
    board = scoreboard([result])
    assert f"false alarms in variants {alarms}" in board and f": {shown}" in board


def test_what_was_said_is_shown_where_something_is_off(case: Case) -> None:
    vague = Finding("MEM101", "error", "", Location("faulty.py", 1), RIGHT.holder, RIGHT.measured)
    board = scoreboard([score(case, seen(vague), seen(name="fixed"), [])])
    assert "said MEM101 error at faulty.py:1 held by trainer.kept, 1050 B/step" in board


def test_the_fixed_program_must_not_even_be_mentioned(case: Case) -> None:
    result = score(case, seen(RIGHT), seen(Finding("MEM101", "info"), name="fixed"), [])
    assert not result.fixed_silent


def test_a_fault_that_is_called_healthy_is_noted(case: Case) -> None:
    def notes(finding: Finding | None, verdict: str, earned: bool) -> list[str]:
        faulty = seen(*([finding] if finding else []), status=0)
        assert faulty.vetted.report is not None
        told = replace(faulty.vetted.report, verdict=verdict, facts={"verdict": {"earned": earned}})
        faulty = replace(faulty, vetted=replace(faulty.vetted, report=told))
        return score(case, faulty, seen(name="fixed", status=0), []).notes

    note = replace(RIGHT, severity="info")
    assert notes(None, "clean", True) == notes(note, "findings", True) == ["faulty: no fault found, says the verdict"]
    assert notes(None, "undetermined", False) == notes(note, "findings", False) == notes(RIGHT, "findings", True) == []


def test_a_run_that_could_not_be_judged_is_not_disturbed(case: Case) -> None:
    assert score(case, seen(RIGHT), seen(name="fixed", status=3), []).undisturbed


def test_other_output_or_another_exit_status_disturbs(case: Case) -> None:
    for changed in (seen(RIGHT, stdout="loss\nnoise\n"), seen(RIGHT, status=4)):
        assert not score(case, changed, seen(name="fixed"), []).undisturbed


def test_no_report_is_not_silence(case: Case) -> None:
    mute = Observation("fixed", Run(0, ""), Run(2, "", None, "no report: it fell over"))
    result = score(case, seen(RIGHT), mute, [])
    assert not result.fixed_silent
    assert "fixed: no report: it fell over" in result.notes


FAKE = """
import json, pathlib, runpy, sys
out, program = sys.argv[sys.argv.index("-o") + 1], sys.argv[sys.argv.index("--memory-limit") + 2]
finding = {"code": "MEM102", "severity": "error", "location": {"path": program, "line": 1, "column": 0}, "holder":
           {"name": "kept", "kind": "global"}, "measured": {"bytes_per_step": 5, "bytes": 9}, "evidence": "observed"}
findings = [finding] if program in FLAGGED else []
pathlib.Path(out).write_text(json.dumps({"schema": "torchvet.report/1", "findings": findings}))
runpy.run_path(program)
sys.exit(1 if findings else 0)
"""


@pytest.mark.parametrize(("flagged", "status"), [(["faulty.py"], 0), ([], 1), (["faulty.py", "fixed.py"], 1)])
def test_the_whole_board_with_a_tool_put_in_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flagged: list[str], status: int
) -> None:
    folder = tmp_path / "mem102_case"
    folder.mkdir()
    for name in ("faulty", "fixed", "lookalike_a", "lookalike_b"):
        (folder / f"{name}.py").write_text("kept = []\nprint('loss')\n")
    toml = 'code = "MEM102"\nseverity = "error"\nline = "kept = []"\nholder = ["kept"]\ncount = false\n'
    (folder / "case.toml").write_text(toml)
    (tmp_path / "fake.py").write_text(FAKE.replace("FLAGGED", repr(flagged)))
    scores = tmp_path / "scores.json"
    argv = [
        "--cold",
        "--cases",
        str(tmp_path),
        "--tool",
        f"{sys.executable} {tmp_path / 'fake.py'}",
        "--json",
        str(scores),
    ]
    assert main(argv) == status
    assert "mem102_case" in capsys.readouterr().out
    assert json.loads(scores.read_text())[0]["fixed_silent"] == ("fixed.py" not in flagged)


def test_no_such_case(tmp_path: Path) -> None:
    assert main(["--cases", str(tmp_path), "-k", "nothing"]) == 2
