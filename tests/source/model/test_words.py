"""What `Words` answers quickly is what looking through the text answers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchvet.source.model.words import Words, signs_of

PIECES = ["step", "steps", "to", "_", "1", "é", "²", "“", " ", "  ", "(", "\\", "\n", "\r\n", "\r", ".", "def ", "="]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
ASKED = ["step", "to", ".to(", "step(", " to", "é", "=", "step = ", "tos", "é.to(", "1"]


@given(TEXTS, st.sampled_from(ASKED))
def test_a_string_is_held_if_it_stands_in_the_text(text: str, word: str) -> None:
    assert Words(text)[word] == (word in text)


@given(TEXTS)
def test_signs_never_deny_a_word_that_stands_in_the_text(text: str) -> None:
    words = Words(text)
    held = words.signs({sign for word in ASKED for sign in signs_of([word])})
    for word in ASKED:
        assert word not in text or not held.isdisjoint(signs_of([word]))
        assert words[word] == (word in text), "asked after the signs"


@given(TEXTS)
def test_positions_are_on_the_lines_that_the_parser_counts(text: str) -> None:
    words = Words(text)
    for position in range(len(text)):
        within_an_end = text[:position].endswith("\r") and text[position] == "\n"
        assert words.line_of(position) == len(re.findall(r"\r\n|\r|\n", text[:position])) + 1 - within_an_end


@given(TEXTS, st.sampled_from(["step", "to", "é", "steps"]))
def test_lines_with_an_identifier_and_lines_that_call_it(text: str, name: str) -> None:
    words = Words(text)
    whole = [m.start() for m in re.finditer(rf"(?<![^\W])(?<!²){name}(?!\w|²)", text)]
    assert words.lines_with(name) == [words.line_of(p) for p in whole]
    called = [m.start() for m in re.finditer(rf"(?<!\w)(?<!²)(?<!def ){name}(?=[ \\\n]{{0,7}}\()", text)]
    assert words.lines_calling(name) == [words.line_of(p) for p in called]


@pytest.mark.parametrize("gap", ["", " ", "\\\n", "\n    ", " " * 7])
def test_a_call_may_have_blanks_before_its_bracket(gap: str) -> None:
    assert Words(f"x = 1\ny = step{gap}(x)\n").lines_calling("step") == [2]
    assert not Words(f"def step{gap}(x): pass\nsteps{gap}(1)\n").lines_calling("step")


def test_an_empty_name_stands_nowhere() -> None:
    """`terminal` gives it for what has no name. To search for it had no end."""
    words = Words("x = 1\nprint(x)\n")
    assert words.lines_with("") == [] == words.lines_calling("")
