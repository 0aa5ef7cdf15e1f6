"""Workflow commands: one line each, and no text in them is taken for a command."""

from __future__ import annotations

import re
from urllib.parse import unquote

from check_reports import HOSTILE, PATHS, TEXTS, finding, report
from hypothesis import given

from torchvet.finding import Report
from torchvet.renderers import renderer_for

COMMAND = re.compile(r"::(?P<level>error|warning|notice) (?P<properties>[^\r\n]*?)::(?P<data>[^\r\n]*)")
PROPERTY = re.compile(r"(?P<name>file|line|endLine|col|title)=(?P<value>[^,:\r\n]*)")


def commands(subject: Report) -> list[tuple[str, dict[str, str], str]]:
    """As GitHub's runner reads them: split at commas, then unescaped."""
    text = renderer_for("github").render(subject)
    text.encode("utf-8")
    found = []
    for line in text.splitlines():
        match = COMMAND.fullmatch(line)
        assert match is not None, line
        pairs = [PROPERTY.fullmatch(pair) for pair in match["properties"].split(",")]
        assert all(pairs), line
        found.append((match["level"], {p["name"]: unquote(p["value"]) for p in pairs if p}, unquote(match["data"])))
    return found


def test_a_finding() -> None:
    assert renderer_for("github").render(report(finding("50 % of `x`\nis lost"))) == (
        "::error file=src/a.py,line=3,endLine=4,col=5,title=AMP101 clip-before-unscale::"
        "50 %25 of `x`%0Ais lost%0Ado it\n"
    )


def test_levels_and_what_was_not_checked(report: Report) -> None:
    found = commands(report)
    assert [level for level, _, _ in found] == ["notice", "error", "notice"]
    assert found[1][1]["file"] == "train.py" and found[1][1]["line"] == "4"
    assert found[2][1] == {"title": "torchvet: not checked"}


def test_a_cell_has_no_line_of_the_file() -> None:
    ((_, properties, data),) = commands(report(finding(path="nb.ipynb:cell 3")))
    assert properties == {"file": "nb.ipynb", "title": "AMP101 clip-before-unscale"}
    assert data.startswith("cell 3, line 3: m")


def test_nothing_found_is_nothing_said() -> None:
    assert renderer_for("github").render(report()).strip() == ""


def test_hostile_text_is_one_command() -> None:
    ((_, properties, data),) = commands(report(finding(HOSTILE, "a:b,c%.py")))
    assert properties["file"] == "a:b,c%.py"
    assert "::error::x" in data and "\x1b" not in data


@given(TEXTS, PATHS)
def test_any_text(message: str, path: str) -> None:
    found = commands(report(finding(message, path), missed=(message,)))
    assert [level for level, _, _ in found] == ["error", "notice"]
