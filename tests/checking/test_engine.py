"""One text and the rules: what is skipped, what does not parse, what a broken rule costs, what stays in memory."""

from __future__ import annotations

import gc
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from word_rules import FaultyRule, WordRule

from torchvet.checking.checker import LARGEST, Checker
from torchvet.checking.engine import check_text, source_rules
from torchvet.configuration import Configuration
from torchvet.rules import Rule


def test_findings_come_in_the_order_of_the_text_with_their_lines(words: tuple[WordRule, ...]) -> None:
    result = check_text("a.py", "import torch\nbeech = 1\n  \napple = beech\n", words)
    assert [(f.code, f.location.line) for f in result.findings if f.location] == [
        ("BBB101", 2), ("AAA101", 4), ("BBB101", 4),
    ]  # fmt: skip
    assert result.lines == {"a.py": {"2": "beech = 1", "4": "apple = beech"}}


def test_a_file_that_does_not_speak_of_torch_is_not_even_parsed(words: tuple[WordRule, ...]) -> None:
    result = check_text("a.py", "apple = (", words)
    assert (result.findings, result.not_checked) == ([], [])
    assert check_text("a.py", "import lightning\napple = 1", words).findings


def test_a_syntax_error_is_a_finding(words: tuple[WordRule, ...]) -> None:
    (found,) = check_text("a.py", "import torch\nx = (1,\ny = 2 3\n", words).findings
    assert (found.code, found.name, found.severity) == ("SYN001", "syntax-error", "error")
    assert found.location is not None and found.location.line in (2, 3) and found.location.column
    assert f"Python {sys.version_info[0]}.{sys.version_info[1]}" in found.message


@pytest.mark.parametrize("text", ["torch = 1\n\0", "torch = " + "(" * 50_000, "torch = " + "-" * 300_000 + "1"])
def test_what_python_cannot_read_is_said(text: str, words: tuple[WordRule, ...]) -> None:
    result = check_text("a.py", text, words)
    assert len(result.not_checked) + len(result.findings) == 1
    assert all(item.check == "a.py" for item in result.not_checked)
    assert all(f.code == "SYN001" for f in result.findings)


def test_a_rule_that_raises_costs_only_itself(words: tuple[WordRule, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHVET_DEBUG", raising=False)
    rules = (FaultyRule("CCC101", "apple"), *words)
    result = check_text("a.py", "import torch\napple = 1\n", rules)
    assert [f.code for f in result.findings] == ["AAA101", "CCC101"]
    (item,) = result.not_checked
    assert item.check == "CCC101 in a.py" and "KeyError: 'oops'" in item.reason and "fault in torchvet" in item.reason
    monkeypatch.setenv("TORCHVET_DEBUG", "1")
    with pytest.raises(KeyError):
        check_text("a.py", "import torch\napple = 1\n", rules)


def test_a_finding_that_is_made_twice_is_one(words: tuple[WordRule, ...]) -> None:
    assert len(check_text("a.py", "import torch\napple = 1\n", (words[0], words[0])).findings) == 1


def test_only_rules_that_look_at_source_are_asked(words: tuple[WordRule, ...]) -> None:
    class OnlyRuns(Rule):
        """Looks at recordings."""

        code = "DDD101"

    assert source_rules([OnlyRuns(), *words]) == list(words)


def test_warnings_about_the_users_text_are_not_shown(words: tuple[WordRule, ...]) -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        check_text("a.py", 'import torch\nx = "\\d"\n', words)
    assert shown == []


def test_the_collector_is_as_it_was(words: tuple[WordRule, ...]) -> None:
    for on in (True, False):
        (gc.enable if on else gc.disable)()
        try:
            check_text("a.py", "import torch\napple = (", words)
            assert gc.isenabled() is on
        finally:
            gc.enable()


def test_a_checked_file_does_not_wait_for_the_collector(words: tuple[WordRule, ...]) -> None:
    """The model knows itself in rings; the engine takes them apart, so that memory stays flat without the collector."""
    text = "import torch\n" + "def f(x):\n    for i in x:\n        x.step(i)\n" * 50

    class Walks(WordRule):
        def in_source(self, file):  # type: ignore[no-untyped-def]
            list(file.calls("step"))
            return iter(())

    gc.collect()
    gc.disable()
    try:
        check_text("a.py", text, [Walks("AAA101", "x")])
        before = sum(sys.getallocatedblocks() for _ in range(1))
        for _ in range(5):
            check_text("a.py", text, [Walks("AAA101", "x")])
        assert sys.getallocatedblocks() - before < 500
    finally:
        gc.enable()


@settings(max_examples=100)
@given(st.text(max_size=200))
def test_any_text_is_checked_or_said_not_to_be(text: str) -> None:
    result = check_text("a.py", f"torch\n{text}", (WordRule("AAA101", "apple"), WordRule("AAA102", "torch")))
    assert result.not_checked or result.findings


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_any_bytes_are_checked_or_said_not_to_be(data: bytes) -> None:
    checker = Checker(Configuration(Path()), (WordRule("AAA101", "torch"),))
    for shown in ("a.py", "a.ipynb"):
        result = checker.check_bytes(shown, b"torch\n" + data)
        assert result.findings or result.not_checked


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ("# -*- coding: latin-1 -*-\nimport torch\napple = 'é'\n".encode("latin-1"), 3),
        (b"\xef\xbb\xbfimport torch\r\napple = 1\r\n", 2),
        (b"import torch\rapple = 1\r", 2),
        (b"import torch\n\x0capple = 1\n", 2),
        (b"import torch\nx = '\xe2\x80\xa8'; apple = 1\n", 2),
    ],
)
def test_encodings_and_line_ends(data: bytes, line: int, words: tuple[WordRule, ...]) -> None:
    (found,) = Checker(Configuration(Path()), words).check_bytes("a.py", data).findings
    assert found.location is not None and (found.code, found.location.line) == ("AAA101", line)


@pytest.mark.parametrize(
    "data", [b"torch = '\xff'", b"# coding: klingon\ntorch", b"\xef\xbb\xbf# coding: latin-1\ntorch"]
)
def test_what_cannot_be_decoded_is_said(data: bytes, words: tuple[WordRule, ...]) -> None:
    (item,) = Checker(Configuration(Path()), words).check_bytes("a.py", data).not_checked
    assert item.check == "a.py" and "cannot be decoded" in item.reason


def test_a_file_that_nobody_wrote_is_left_alone(words: tuple[WordRule, ...]) -> None:
    (item,) = Checker(Configuration(Path()), words).check_bytes("a.py", b"torch\n" + b"#" * LARGEST).not_checked
    assert "larger than 5.0 MB" in item.reason
