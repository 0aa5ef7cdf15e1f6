"""Suppressions: what they silence, where they count, and that those that are not needed are found and removed."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from word_rules import WordRule

from torchvet.checking.checker import Checker
from torchvet.checking.engine import check_text
from torchvet.checking.suppression import comments
from torchvet.configuration import Configuration, Layer
from torchvet.fixing.edits import apply

RULES = (WordRule("AAA101", "apple"), WordRule("AAA102", "anise"), WordRule("BBB101", "beech"))


def codes(text: str) -> list[tuple[str, int]]:
    found = check_text("a.py", "import torch\n" + textwrap.dedent(text), RULES).findings
    return [(f.code, f.location.line - 1) for f in found if f.location]


def fixed(text: str) -> str:
    result = check_text("a.py", text, RULES)
    return apply({"a.py": text}, [f for f in result.findings if f.code == "SUP001"])[0]["a.py"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("apple = 1", [("AAA101", 1)]),
        ("apple = 1  # torchvet: ignore[AAA101]", []),
        ("apple = 1  # torchvet: ignore", []),
        ("apple = 1  #torchvet:ignore[ aaa101 ]", []),
        ("apple = 1  # torchvet: ignore[AAA]", []),
        ("apple = anise  # torchvet: ignore[AAA101, AAA102]", []),
        ("apple = anise  # torchvet: ignore[AAA101]", [("AAA102", 1)]),
        ("apple = 1  # noqa  # torchvet: ignore[AAA101]", []),
        ("apple = 1  # torchvet: ignore[AAA101]  # noqa", []),
        ("apple = 1  # torchvet: ignore[AAA101] because it is ripe", []),
        ("apple = '# torchvet: ignore[AAA101]'", [("AAA101", 1)]),
        ('x = """\n# torchvet: ignore-file\n"""\napple = 1', [("AAA101", 4)]),
        ("x = (\n  apple,\n  2,\n)  # torchvet: ignore[AAA101]", []),
        ("x = (  # torchvet: ignore[AAA101]\n  3,\n  apple,\n)", []),
        ("x = (\n  3,  # torchvet: ignore[AAA101]\n  apple,\n)", [("SUP001", 2), ("AAA101", 3)]),
        ("def f(a,  # torchvet: ignore[AAA101]\n    apple=1):\n  x = 2\n", []),
        ("def f(a,\n    apple=1):  # torchvet: ignore[AAA101]\n  x = 2\n", []),
        ("if f(2,\n   apple):  # torchvet: ignore[AAA101]\n  beech = 1\n", [("BBB101", 3)]),
        ("# torchvet: ignore-file[AAA]\napple = beech", [("BBB101", 2)]),
        ("# torchvet: ignore-file\napple = beech", []),
        ("x = 1  # torchvet: ignore-file\napple = beech", [("AAA101", 2), ("BBB101", 2)]),
        ("if x:\n  # torchvet: ignore-file\n  apple = beech", [("AAA101", 3), ("BBB101", 3)]),
        ("x = 1  # torchvet: ignore[AAA101]", [("SUP001", 1)]),
        ("x = 1  # torchvet: ignore", [("SUP001", 1)]),
        ("x = 1  # torchvet: ignore[ZZZ9]", [("SUP001", 1)]),
        ("apple = 1  # torchvet: ignore[AAA101,BBB101]", [("SUP001", 1)]),
        ("x = 1  # torchvet: ignore[AAA101,SUP001]", []),
        ("# torchvet: ignore-file[BBB]\napple = 1", [("SUP001", 1), ("AAA101", 2)]),
        ("apple = 1  # torchvet: ignore[]", [("AAA101", 1), ("SUP001", 1)]),
        ("apple = 1  # torchvet: ignored", [("AAA101", 1)]),
        ("apple = 1  # noqa: AAA101", []),
        ("apple = 1  #NOQA:aaa101,F401", []),
        ("apple = anise  # noqa: F401 AAA102, E501 it is ripe", [("AAA101", 1)]),
        ("apple = beech  # noqa: AAA1", [("BBB101", 1)]),
        ("apple = 1  # noqa", [("AAA101", 1)]),
        ("apple = 1  # noqa: because it is ripe", [("AAA101", 1)]),
        ("apple = 1  # flake8: noqa: AAA101", [("AAA101", 1)]),
        ("apple = '# noqa: AAA101'", [("AAA101", 1)]),
        ("x = (\n  apple,\n  2,\n)  # noqa: AAA101", []),
        ("x = 1  # noqa: AAA101", []),
        ("x = 1  # torchvet: ignore[AAA101]  # noqa: AAA101", [("SUP001", 1)]),
    ],
)
def test_what_is_silenced(text: str, expected: list[tuple[str, int]]) -> None:
    assert codes(text) == expected


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("import torch\nx = 1  # torchvet: ignore[AAA101]\ny = 2\n", "import torch\nx = 1\ny = 2\n"),
        ("import torch\nx = 1  # torchvet: ignore", "import torch\nx = 1"),
        ("import torch\n# torchvet: ignore-file\ny = 2\n", "import torch\ny = 2\n"),
        ("import torch\n# torchvet: ignore-file", "import torch\n"),
        ("import torch\napple = 1  # torchvet: ignore[AAA101, BBB101]\n",
         "import torch\napple = 1  # torchvet: ignore[AAA101]\n"),
        ("import torch\nx = 1  # noqa  # torchvet: ignore\n", "import torch\nx = 1  # noqa\n"),
        ("import torch\nx = 1  # torchvet: ignore  # noqa\n", "import torch\nx = 1  # noqa\n"),
        ("import torch\nx = 1  # torchvet: ignore for now  # noqa\n", "import torch\nx = 1  # noqa\n"),
        ("import torch\nx = 1  # torchvet: ignore; y = 2\n", "import torch\nx = 1\n"),
        ("import torch\r\nx = 1\t# torchvet: ignore\r\ny = 2\r\n", "import torch\r\nx = 1\r\ny = 2\r\n"),
        ("import torch\n'é'; x = 1  # torchvet: ignore\n", "import torch\n'é'; x = 1\n"),
    ],
)  # fmt: skip
def test_what_is_not_needed_is_removed(text: str, after: str) -> None:
    assert fixed(text) == after


def unused_with(layer: Layer, text: str) -> list[str]:
    checker = Checker(Configuration(Path(), (layer,)), RULES)
    return [f.code for f in checker.check_bytes("a.py", b"import torch\n" + text.encode()).findings]


def test_what_was_not_looked_for_is_not_judged() -> None:
    only_b = Layer("test", select=("BBB", "SUP"))
    assert unused_with(only_b, "x = 1  # torchvet: ignore[AAA101]") == []
    assert unused_with(only_b, "x = 1  # torchvet: ignore") == []
    assert unused_with(only_b, "x = 1  # torchvet: ignore[BBB101]") == ["SUP001"]
    assert unused_with(Layer("test", select=("BBB",)), "x = 1  # torchvet: ignore[BBB101]") == []
    assert unused_with(Layer("test", ignore=("SUP001",)), "x = 1  # torchvet: ignore[BBB101]") == []


PIECES = st.sampled_from([
    "# torchvet: ignore", "# torchvet: ignore[AAA101]", "# torchvet: ignore-file", "# torchvet: ignore-file[BBB]", "#",
    "# noqa: AAA101",
    "'", '"', '"""', "\\", "\n", "\n", "\n  ", " ", "apple", "anise", "beech", "=", "1", "(", ")", "é", "\r\n", "\x0c",
    "\t", "f'{apple}'", ";", ",", "if 1:",
])  # fmt: skip


@settings(max_examples=300)
@example("apple\n# torchvet: ignore# torchvet: ignore-file")
@example("\\\n# torchvet: ignore")
@example("apple\n# torchvet: ignore-file# torchvet: ignore")
@example("apple  # torchvet: ignore# noqa: AAA101")
@given(st.lists(PIECES, max_size=14).map("".join))
def test_hostile_text(text: str) -> None:
    """Removing what is not needed leaves a program that means the same and has no such finding any more."""
    text = f"import torch\n{text}\n"
    result = check_text("a.py", text, RULES)
    if any(f.code == "SYN001" for f in result.findings) or result.not_checked:
        return
    after = text
    while fixed(after) != after:
        after = fixed(after)
    assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(text))
    again = check_text("a.py", after, RULES).findings
    assert [f.code for f in again if f.code != "SUP001"] == [f.code for f in result.findings if f.code != "SUP001"]
    assert "SUP001" not in [f.code for f in again]


def test_comments_are_found_where_the_parser_sees_them() -> None:
    found = comments("x = '''\n# torchvet: ignore\n'''\ny = 1  # torchvet: ignore[A, b]\n")
    assert [(c.line, c.codes) for c in found] == [(4, ["A", "B"])]
