"""Markdown: a table whose cells stay cells whatever stands in them."""

from __future__ import annotations

import re

from check_reports import HOSTILE, PATHS, TEXTS, finding, report
from hypothesis import given

from torchvet.finding import Report
from torchvet.renderers import renderer_for, renderer_for_path
from torchvet.renderers.markdown_text import code_span, escaped

MARKDOWN = renderer_for("markdown")


def rows(text: str) -> list[list[str]]:
    """The table's cells, cut at every bar that no backslash stands before: as GitHub does, code or not."""
    table = [line for line in text.splitlines() if line.startswith("|")]
    return [re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1] for line in table]


def test_a_checks_report() -> None:
    text = MARKDOWN.render(report(finding("`x` is lost"), missed=("too deep",)))
    assert text.splitlines()[0] == "## torchvet: 1 error in 1 of 4 files; 1 file not checked"
    assert rows(text)[2] == [" error ", " AMP101 clip-before-unscale ", " `src/a.py:3` ", " `x` is lost ", " do it "]
    assert "### Not checked\n\n- b.py: too deep" in text


def test_a_runs_report(report: Report) -> None:
    text = MARKDOWN.render(report)
    assert text.startswith("## torchvet: 1 leak: `trainer.stats.losses` keeps 4.2 MB per step alive")
    assert [row[1].split()[0] for row in rows(text)[2:]] == ["MEM104", "MEM101"]


def test_a_clean_report_has_no_table() -> None:
    assert MARKDOWN.render(report()) == "## torchvet: No fault found in 4 files\n"


def test_marks_are_escaped_and_code_stays_code() -> None:
    assert escaped("<b> *x* `a*b|c` [l](u)") == r"\<b\> \*x\* `a*b\|c` \[l\](u)"
    assert code_span("a`|b") == r"``a`\|b``"
    assert code_span("`a") == "`` `a ``"


@given(TEXTS, PATHS, TEXTS)
def test_any_text_keeps_five_cells_on_one_line(message: str, path: str, summary: str) -> None:
    text = MARKDOWN.render(report(finding(message, path, summary=summary), finding(HOSTILE)))
    text.encode("utf-8")
    assert [len(row) for row in rows(text)] == [5, 5, 5, 5]


def test_the_extension_picks_it() -> None:
    assert renderer_for_path("summary.md").format == "markdown"
