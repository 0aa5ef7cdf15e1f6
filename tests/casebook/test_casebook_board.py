"""The scoreboard is what the kept scores say, and its page is what is rendered from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from casebook import board, rows, tries
from casebook.__main__ import main
from casebook.board import PAGE, README, families, fixes, in_terminal, page, readme
from casebook.case import Case, Expectation
from casebook.other_tools import recorded
from casebook.other_tools.recorded import Entry, Recorded, Verdict
from casebook.rows import KEPT, Kept, Row
from casebook.score import Fix, Judgement, Score, VariantScore

RIGHT = Judgement(severity=True, line=True, holder=None, bytes=True)

ROWS = [
    Row("amp101_a", "AMP101", healthy=3, silent=3, symptom="not measured", fix="no edit"),
    Row("mem101_a", "MEM101", holder=True, bytes=True, healthy=4, silent=4, symptom="64 bytes per step",
        fix="proven", variants={"renamed": "right", "split": "elsewhere"}, alarms_in_variants=0),
    Row("mem101_b", "MEM101", found=False, line=None, healthy=4, silent=3, alarms=2, symptom="exit status 3",
        fix="refused", reason="the losses | differ", variants={"renamed": "right", "split": "missed"},
        alarms_in_variants=2),
]  # fmt: skip

SAID = Recorded(
    {"memray": "1.20.0", "TorchFix": "0.7.0"},
    {
        "mem101_a": Entry("x", {"TorchFix": Verdict("silent"), "memray": Verdict("line", "alive-at-end")}),
        "mem101_b": Entry("y", {"TorchFix": Verdict("named"), "memray": Verdict("not run", "it fell over")}),
        "another": Entry("z", {"TorchFix": Verdict("named")}),
    },
)


def test_a_family_is_summed_up() -> None:
    heading, amp, mem, everything = families(ROWS)
    assert [len(each) for each in (amp, mem, everything)] == [len(heading)] * 3
    told = dict(zip(heading, mem, strict=True))
    assert told == {
        "family": "MEM", "cases": "2", "found": "1 of 2", "line right": "1 of 1", "holder right": "1 of 1",
        "bytes right": "1 of 1", "false alarms": "2", "silent where healthy": "7 of 8", "symptom measured": "2 of 2",
        "fixes proven": "1 of 2", "variants found": "3 of 4", "their line right": "2 of 3",
        "false alarms in variants": "2",
    }  # fmt: skip
    of_amp = dict(zip(heading, amp, strict=True))
    assert (of_amp["fixes proven"], of_amp["false alarms in variants"]) == ("-", "-")
    assert dict(zip(heading, everything, strict=True))["symptom measured"] == "2 of 3"


def test_a_fix_that_cannot_be_verified_is_not_proven() -> None:
    assert fixes([Row("a", "MEM101", fix="not verifiable"), Row("b", "MEM101", fix="disproved")]) == "0 of 2"


def test_other_tools_are_counted_over_the_cases_at_hand() -> None:
    assert board.other_tools(ROWS, SAID) == [
        ["tool", "version", "cases asked", "named", "line", "elsewhere", "silent", "not run"],
        ["memray", "1.20.0", "2 of 3", "0", "1", "0", "0", "1"],
        ["TorchFix", "0.7.0", "2 of 3", "1", "0", "0", "1", "0"],
    ]


def test_the_page_says_what_was_found_and_what_was_not() -> None:
    text = page(Kept({"torchvet": "1", "torch": "2"}, ROWS), SAID)
    assert "Made with torchvet 1, torch 2." in text
    assert "| mem101_b | exit status 3 | not run | named |" in text
    assert "- memray: it fell over (1)" in text
    fixed = "refused: the losses \\| differ"
    assert f"| mem101_b | **no** |  |  |  | 3 of 4 | {fixed} | 1 of 2, not split, **2 false alarms** |" in text
    assert "| mem101_a | yes | yes | yes | yes | 4 of 4 | proven | 2 of 2 |" in text


def test_the_terminal_has_the_same_totals() -> None:
    text = in_terminal(ROWS, SAID)
    assert "MEM     2      1 of 2" in text and "TorchFix  0.7.0    2 of 3       1" in text


def test_a_row_is_what_a_reader_is_told(tmp_path: Path) -> None:
    case = Case(tmp_path / "mem101_a", Expectation("MEM101", "error", "x"))
    score = Score("mem101_a", RIGHT, True, [True, False], True, 1, symptom="s", fix=Fix("refused", "r"))
    shapes = [
        VariantScore("renamed", RIGHT),
        VariantScore("split", replace(RIGHT, line=False), ["MEM102 error at a.py:3"]),
        VariantScore("c", None),
    ]
    kept = rows.row(case, replace(score, variants=shapes))
    assert kept == Row("mem101_a", "MEM101", bytes=True, healthy=3, silent=2, alarms=1, symptom="s", fix="refused",
                       reason="r", variants={"renamed": "right", "split": "elsewhere", "c": "missed"},
                       alarms_in_variants=1)  # fmt: skip
    assert rows.row(case, score).alarms_in_variants is None, "no variants, no figure"
    missed = rows.row(case, replace(score, found=None))
    assert (missed.found, missed.line, missed.severity) == (False, None, None)


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    rows.write(path, ROWS, {"torch": "2"})
    assert rows.read(path) == Kept({"torch": "2"}, ROWS)
    assert len(path.read_text("utf-8").splitlines()) == len(ROWS) + 3


@pytest.mark.skipif(not KEPT.exists(), reason="no run of the casebook has been kept yet")
def test_the_page_is_rendered_from_what_is_kept() -> None:
    assert PAGE.read_text("utf-8") == page(rows.read(), recorded.read())
    text = README.read_text("utf-8")
    assert text == readme(text)


def test_a_readme_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match=r"README\.md: no line"):
        readme("# torchvet\n")


def test_of_a_set_that_was_run_again_the_last_run_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def row(name: str, when: str, found: str, kind: str = "slow", reassured: str = "") -> tries.Try:
        return tries.Try("2030-01-02", "abc", name, when, 4, kind, found=found, reassured=reassured)

    monkeypatch.setattr(tries, "read", lambda: [
        row("a", "first", "1 of 4", reassured="2 of 4"), row("a", "after", "2 of 4"), row("a", "after", "3 of 4"),
        row("a", "after", ""), row("b", "first", "0 of 3"), row("c", "first", "9 of 9", kind=""),
    ])  # fmt: skip
    of_slow = dict(zip(tries.KINDS, tries.totals()[1:], strict=True))["slow"]
    assert of_slow == ["slow steps", "1/7", "2/4", "", "3/4"]


def test_every_kind_is_known() -> None:
    assert {t.kind for t in tries.read()} <= {"", *tries.KINDS}
    assert KEPT.stat().st_size < 100_000


@pytest.mark.parametrize("left_out", [["-k", "mem"], ["--every", "4"], ["--without", "fixes"], ["--tool", "true"]])
def test_only_a_whole_run_is_kept(left_out: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--record", *left_out])
    assert stopped.value.code == 2
    assert "whole run" in capsys.readouterr().err
