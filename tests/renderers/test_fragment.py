"""HTML for notebooks: whole, short, and nothing of a program's runs or colors it."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from check_reports import HOSTILE, TEXTS, finding, report
from hypothesis import given

from torchvet.finding import Finding, Holder, Report
from torchvet.renderers.fragment import fragment

ALLOWED = {"div", "p", "strong", "details", "summary", "table", "tr", "th", "td", "code", "pre", "ul", "li"}


class Reader(HTMLParser):
    """The tags that are open, those that were seen, and the text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.seen.add(tag)
        assert {name for name, _ in attrs} <= {"class", "style", "open"}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == [] and reader.seen <= ALLOWED
    return reader


@given(TEXTS, TEXTS)
def test_texts_of_the_program_stay_texts(message: str, path: str) -> None:
    made = finding(message, path, summary=message)
    read(fragment(report(made, missed=(message,))))


def test_a_report_shows_itself() -> None:
    text = read(report(finding(), missed=("unreadable",))._repr_html_()).text
    assert "error AMP101 clip-before-unscale: m" in text
    assert "src/a.py:3 in train" in text and "do it" in text and "b.py: unreadable" in text


def test_a_hostile_text_is_shown_as_it_is_written() -> None:
    text = read(fragment(report(finding(HOSTILE)))).text
    assert "<b> *s*" in text and "\\x1b[31m \\u202e" in text


def test_who_holds_memory_is_told() -> None:
    held = Finding(
        **{n: getattr(finding(), n) for n in ("code", "name", "severity", "evidence", "message", "cause", "remedy")},
        location=None,
        holder=Holder(name="losses", kind="local", path=["main", "losses"]),
    )
    assert "main → losses" in read(fragment(report(held))).text


@pytest.mark.parametrize(("number", "whole", "brief"), [(3, 3, 0), (40, 5, 35)])
def test_a_page_stays_short(number: int, whole: int, brief: int) -> None:
    html = fragment(report(*[finding(f"m{n}") for n in range(number)]))
    assert html.count("<details open>") == whole
    assert (f"Also ({brief})" in html) is bool(brief) and html.count("<li>") <= 9


def test_a_run_begins_with_its_verdict() -> None:
    unsure = Report(subject={"kind": "run"}, verdict="undetermined", facts={"verdict": {"reason": "too <few> steps"}})
    assert read(fragment(unsure)).text.strip() == "torchvet: Could not judge: too <few> steps"
