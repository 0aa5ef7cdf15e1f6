"""How wide a report is: a terminal's columns, and whole where nothing need be cut."""

from __future__ import annotations

import os

import pytest

from torchvet.renderers.page import USUAL, WHOLE, Page
from torchvet.renderers.sections.amounts import add_amounts
from torchvet.workflows import report_output

LONG = "a_very_long_name_of_a_line_of_code_that_stands_in_a_deep_folder.py:1234 in_a_function"


def test_a_long_label_is_whole_beside_its_text() -> None:
    page = Page(60)
    page.labelled("a label of more than twelve", "and what it says is wrapped, as that of all others is")
    first, *rest = [line.plain for line in page.lines]
    assert first.startswith("  a label of more than twelve and what it says") and all(len(r) <= 60 for r in rest)


def test_rows_are_cut_to_the_terminal_at_a_mark_and_whole_without_one() -> None:
    narrow, whole = Page(80), Page(WHOLE)
    for page in (narrow, whole):
        add_amounts(page, [(LONG, 1_000_000, "activations, 339 blocks, scaled_dot_product_attention")], 2_000_000)
    assert max(map(len, narrow.text(color=False).splitlines())) <= 80 and "..." in narrow.text(color=False)
    assert LONG in whole.text(color=False) and "scaled_dot_product_attention" in whole.text(color=False)


def test_paragraphs_are_wrapped_and_never_cut_in_a_file() -> None:
    page = Page(WHOLE)
    page.paragraph("word " * 200, most=2)
    lines = page.text(color=False).splitlines()
    assert len(lines) > 5 and max(map(len, lines)) <= USUAL and "..." not in lines[-1]


@pytest.mark.parametrize(("columns", "expected"), [(None, WHOLE), ("132", 132), ("none", WHOLE)])
def test_a_pipe_has_no_width_unless_columns_says_one(
    columns: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write, "w") as pipe:
        monkeypatch.setattr("sys.stdout", pipe)
        monkeypatch.setattr("sys.__stdout__", pipe)
        assert report_output._width() == expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_a_pipe_is_colored_where_it_is_asked_for(
    variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert report_output.color() is expected
