"""How a set of unseen programs is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from casebook import tries
from casebook.board import markdown
from casebook.unseen import Row, Told, Truth, entry, headline, judge, rates

TRUTH = Truth(accept=["MEM101"], lines=[10], holder=["losses"], bytes_per_step=1000)


def _finding(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "code": "MEM101",
        "severity": "error",
        "message": "trainer.losses keeps 1.1 kB alive",
        "location": {"path": "a/loop_bad.py", "line": 11},
        "related": [],
        "holder": {"name": "trainer.losses", "path": []},
        "measured": {"bytes_per_step": 1100.0},
    }
    return found | changes


def _told(*findings: dict[str, Any], first: str = "1 leak: ...", verdict: str = "findings") -> Told:
    return Told(1, first, {"findings": list(findings), "verdict": verdict})


CALM = _told(first="No fault found in 60 steps", verdict="clean")


def _row(faulty: Told, truth: Truth = TRUTH, twin: Told = CALM) -> Row:
    return judge("loop", truth, faulty, twin)


def test_a_finding_that_is_right_in_everything() -> None:
    row = _row(_told(_finding()))
    assert (row.found, row.line, row.holder, row.bytes, row.reassured, row.alarms) == (
        True,
        True,
        True,
        True,
        False,
        [],
    )


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"location": {"path": "a/loop_bad.py", "line": 14}}, "line"),
        ({"location": {"path": "a/other.py", "line": 10}}, "line"),
        ({"holder": {"name": "model", "path": ["model"]}}, "holder"),
        ({"measured": {"bytes_per_step": 1300.0}}, "bytes"),
        ({"code": "TRN101"}, "found"),
        ({"severity": "info"}, "found"),
    ],
)
def test_what_is_wrong_is_wrong(changes: dict[str, Any], wrong: str) -> None:
    row = _row(_told(_finding(**changes)))
    assert not getattr(row, wrong)


def test_places_that_a_finding_relates_to_count_for_its_line() -> None:
    stored = {"path": "loop_bad.py", "line": 9, "role": "stored"}
    assert _row(_told(_finding(location={"path": "loop_bad.py", "line": 40}, related=[stored]))).line


def test_a_calm_first_line_over_a_fault_reassures_and_so_does_harmless() -> None:
    assert _row(CALM).reassured
    note = _finding(severity="info", message="measured harmless over 60 steps: ...")
    assert _row(_told(note, first="1 note")).reassured
    assert not _row(_told(first="Cannot judge: 3 steps", verdict="undetermined")).reassured


def test_a_soft_fault_may_be_a_note() -> None:
    assert _row(_told(_finding(severity="info")), Truth(accept=["MEM101"], lines=[10], soft=True)).found


def test_where_no_code_is_named_a_true_line_is_enough() -> None:
    nameless = Truth(lines=[10])
    assert _row(_told(_finding(code="OPS204")), nameless).found
    assert not _row(_told(_finding(location={"path": "loop_bad.py", "line": 3})), nameless).found


def test_a_fault_may_lie_in_another_file_of_the_program() -> None:
    truth = Truth(lines=[10], where=["loop_bad_lib.py:36"])
    assert _row(_told(_finding(location={"path": "loop_bad_lib.py", "line": 37})), truth).line
    assert not _row(_told(_finding(location={"path": "loop_bad.py", "line": 36})), truth).line
    of_folder = Truth(lines=[10], where=["loop_bad/layers.py:36"])
    assert _row(_told(_finding(location={"path": "layers.py", "line": 36})), of_folder).line


def test_a_program_begins_with_its_file_or_with_its_folders_main(tmp_path: Path) -> None:
    (tmp_path / "a_bad.py").touch()
    assert entry(tmp_path, "a_bad") == tmp_path / "a_bad.py"
    assert entry(tmp_path, "b_bad") == tmp_path / "b_bad" / "main.py"


def test_a_warning_on_the_twin_is_an_alarm() -> None:
    assert _row(_told(_finding()), twin=_told(_finding(severity="warning"))).alarms == ["MEM101 warning"]


def test_the_headline_comes_after_all_that_the_program_printed() -> None:
    printed = "step 1\n3 errors so far\n1 leak: `a` keeps 3 kB per step alive\n\nWhat was seen\n  program  x\n"
    assert headline(printed) == "1 leak: `a` keeps 3 kB per step alive"


def test_rates_of_a_set_and_their_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries, "here", lambda: ("2030-01-02", "abc"))
    rows = [_row(_told(_finding())), _row(CALM)]
    found = rates(rows, of_pairs=True, title="mine", when="first")
    assert (found.found, found.reassured, found.fixed, found.clean) == ("1 of 2", "1 of 2", "", "2 of 2")
    monkeypatch.setattr(tries, "read", lambda: [found])
    assert "| 2030-01-02 | abc | mine | first | 2 | 1 of 2 |" in markdown(tries.table())
