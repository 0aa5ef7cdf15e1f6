"""Edits: exact, together or not at all, and what is outside them stays to the byte."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from word_rules import WordRule

from torchvet.checking.checker import Checker
from torchvet.checking.decoding import decode
from torchvet.checking.discovery import Target
from torchvet.configuration import Configuration
from torchvet.finding import Edit, Finding, Remedy
from torchvet.fixing.edits import apply, line_before, rebased
from torchvet.fixing.files import fix_bytes, fix_file
from torchvet.source.model import SourceFile


def finding(*edits: tuple[tuple[int, int], tuple[int, int], str]) -> Finding:
    made = [Edit(path="a.py", start=start, end=end, text=text) for start, end, text in edits]
    return Finding(
        code="AAA101", name="a-b", severity="warning", evidence="suspected", message="m", location=None, cause="c",
        remedy=Remedy(summary="s", safe=True, edits=made),
    )  # fmt: skip


def applied(text: str, *findings: Finding) -> tuple[str, int]:
    texts, made = apply({"a.py": text}, findings)
    return texts["a.py"], len(made)


@pytest.mark.parametrize(
    ("text", "findings", "expected", "made"),
    [
        ("abc\ndef\n", [finding(((1, 2), (1, 3), "X"))], "aXc\ndef\n", 1),
        ("abc\ndef\n", [finding(((1, 1), (2, 1), ""))], "def\n", 1),
        ("abc\ndef", [finding(((2, 4), (2, 4), "!"))], "abc\ndef!", 1),
        ("abc\r\ndef\r\n", [finding(((2, 1), (2, 1), "x\n"))], "abc\r\nx\r\ndef\r\n", 1),
        ("a\x0cb\u2028c\nd", [finding(((1, 5), (1, 6), "X"))], "a\x0cb\u2028X\nd", 1),
        ("abc", [finding(((1, 1), (1, 3), "X")), finding(((1, 2), (1, 4), "Y"))], "Xc", 1),
        ("abc", [finding(((1, 1), (1, 2), "X")), finding(((1, 2), (1, 3), "Y"))], "XYc", 2),
        ("abc", [finding(((1, 2), (1, 2), "X")), finding(((1, 2), (1, 2), "Y"))], "aXbc", 1),
        ("abc", [finding(((1, 2), (1, 2), "X"), ((1, 2), (1, 2), "Y"))], "aXYbc", 1),
        ("abc", [finding(((1, 1), (1, 2), "X"), ((1, 3), (1, 4), "Z"))], "XbZ", 1),
        ("abc", [finding(((1, 1), (1, 2), "X")), finding(((1, 1), (1, 2), "Y"), ((1, 3), (1, 4), "Z"))], "Xbc", 1),
        ("abc", [finding(((1, 1), (1, 3), "X"), ((1, 2), (1, 4), "Y"))], "abc", 0),
        ("abc", [finding(((1, 1), (1, 9), "X"))], "abc", 0),
        ("abc", [finding(((2, 1), (2, 1), "X"))], "abc", 0),
        ("abc", [finding(((1, 3), (1, 1), "X"))], "abc", 0),
        ("abc", [finding(((0, 1), (1, 1), "X"))], "abc", 0),
        ("", [finding(((1, 1), (1, 1), "X"))], "X", 1),
    ],
)
def test_edits(text: str, findings: list[Finding], expected: str, made: int) -> None:
    assert applied(text, *findings) == (expected, made)


def test_an_edit_of_another_file_is_not_made() -> None:
    edit = Edit(path="b.py", start=(1, 1), end=(1, 1), text="X")
    other = msgspec.structs.replace(finding(), remedy=Remedy(summary="", edits=[edit]))
    assert applied("abc", finding(), other) == ("abc", 0)


PLACES = st.tuples(st.integers(0, 4), st.integers(0, 6))
EDITS = st.tuples(PLACES, PLACES, st.text("xy\n", max_size=3))
TEXTS = st.text("ab\n\r\té\u2028\x0c", max_size=25)


@given(TEXTS, st.lists(st.lists(EDITS, max_size=2).map(lambda e: finding(*e)), max_size=4))
def test_any_edits_of_any_text(text: str, findings: list[Finding]) -> None:
    """What the edits leave alone is still there, in its order."""
    after, made = applied(text, *findings)
    if not made:
        assert after == text
    kept = list(text)
    deleted = sum(_length(text, e.start, e.end) for f in apply({"a.py": text}, findings)[1] for e in f.remedy.edits)
    added = [c for c in after if c in "xy"]
    wanted = [c for f in apply({"a.py": text}, findings)[1] for e in f.remedy.edits for c in e.text if c in "xy"]
    assert sorted(added) == sorted(wanted)
    assert sum(c in "abé\t\u2028\x0c" for c in after) >= sum(c in "abé\t\u2028\x0c" for c in kept) - deleted


def _length(text: str, start: tuple[int, int], end: tuple[int, int]) -> int:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    at = [sum(len(x) + 1 for x in lines[: line - 1]) + column - 1 for line, column in (start, end)]
    return at[1] - at[0]


def checker(*rules: WordRule) -> Checker:
    return Checker(Configuration(Path()), rules)


APPLE = WordRule("AAA101", "apple", "pear")
UNSAFE = WordRule("AAA102", "anise", "basil", safe=False)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"import torch\r\nif apple:\r\n\tapple # apple \r\n", b"import torch\r\nif pear:\r\n\tpear # apple \r\n"),
        (b"\xef\xbb\xbfimport torch\napple", b"\xef\xbb\xbfimport torch\npear"),
        ("# coding: latin-1\nimport torch\nx = 'é'; apple\n".encode("latin-1"),
         "# coding: latin-1\nimport torch\nx = 'é'; pear\n".encode("latin-1")),
        ("import torch\nx = 'é€😀'; apple\n".encode(), "import torch\nx = 'é€😀'; pear\n".encode()),
        (b"import torch\nanise\n", b"import torch\nanise\n"),
        (b"import torch\nmixed = 1\r\napple\nlast\r", b"import torch\nmixed = 1\r\npear\nlast\r"),
    ],
)  # fmt: skip
def test_the_bytes_outside_an_edit_stay(before: bytes, after: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(before)
    path.chmod(0o751)
    inode = os.stat(path).st_ino
    fix_file(Target(str(path), "a.py"), checker(APPLE, UNSAFE), unsafe=False, write=True)
    assert path.read_bytes() == after
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert (os.stat(path).st_ino == inode) == (before == after)
    assert [p.name for p in tmp_path.iterdir()] == ["a.py"]
    again = fix_file(Target(str(path), "a.py"), checker(APPLE, UNSAFE), unsafe=False, write=True)
    assert path.read_bytes() == after and not again[0].counts


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.py").write_text("import torch\napple\n")
    (tmp_path / "link.py").symlink_to("real.py")
    fix_file(Target(str(tmp_path / "link.py"), "link.py"), checker(APPLE), unsafe=False, write=True)
    assert (tmp_path / "link.py").is_symlink()
    assert (tmp_path / "real.py").read_text() == "import torch\npear\n"


def test_unsafe_edits_are_made_when_asked_for() -> None:
    data = b"import torch\nanise = apple\n"
    assert fix_bytes("a.py", data, checker(APPLE, UNSAFE), True)[2] == b"import torch\nbasil = pear\n"


def test_fixing_goes_on_until_nothing_changes() -> None:
    chain = [WordRule(f"AAA10{n}", word, following) for n, (word, following) in enumerate(["ab", "bc", "cd", "de"])]
    _, fixed, content = fix_bytes("a.py", b"import torch\na = a\n", checker(*chain), False)
    assert content == b"import torch\ne = e\n"
    assert fixed.counts == {"AAA100": 2, "AAA101": 2, "AAA102": 2, "AAA103": 2}
    assert fixed.result.findings == []


@pytest.mark.parametrize("instead", ["1 +", "(", "'", "x\x00"])
def test_an_edit_that_breaks_the_text_is_dropped_and_said(instead: str) -> None:
    rules = checker(APPLE, WordRule("BBB101", "beech", instead))
    _, fixed, content = fix_bytes("a.py", b"import torch\nbeech\napple\n", rules, False)
    assert content == b"import torch\nbeech\npear\n"
    assert fixed.refused == ["a.py:2: BBB101: its edit would break the file: not made"]
    assert fixed.counts == {"AAA101": 1}


def test_edits_that_undo_one_another_end() -> None:
    rules = checker(WordRule("AAA101", "apple", "pear"), WordRule("AAA102", "pear", "apple"))
    _, fixed, _ = fix_bytes("a.py", b"import torch\napple\n", rules, False)
    assert "undo one another" in fixed.refused[0]


def test_edits_without_end_end() -> None:
    class Longer(WordRule):
        def in_source(self, file: SourceFile) -> Iterator[Finding]:
            end = len(file.lines[1]) + 1
            edit = Edit(path="a.py", start=(2, end), end=(2, end), text="x")
            yield msgspec.structs.replace(finding(), remedy=Remedy(summary="", safe=True, edits=[edit]))

    _, fixed, content = fix_bytes("a.py", b"import torch\nx\n", checker(Longer("AAA101", "")), False)
    assert content == b"import torch\n" + b"x" * 11 + b"\n"
    assert "not stable after 10 rounds" in fixed.refused[0]


def test_a_character_that_the_encoding_lacks_is_said() -> None:
    data = b"# coding: latin-1\nimport torch\napple\n"
    _, fixed, content = fix_bytes("a.py", data, checker(WordRule("AAA101", "apple", "'€'")), False)
    assert content == data and not fixed.counts
    assert "nothing was changed" in fixed.refused[0]


PIECES = ("apple", "anise", "x", "'é'", "#apple", "\t", " ", ";", "\n", "\r\n", "\r", "(", ")", "=", "\x0c")


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from(PIECES), max_size=15).map("".join),
    st.sampled_from(["utf-8", "utf-8-sig", "latin-1"]),
)
def test_hostile_files(text: str, encoding: str) -> None:
    head = "# coding: latin-1\nimport torch\n" if encoding == "latin-1" else "import torch\n"
    data = (head + text).encode(encoding)
    rules = checker(APPLE)
    findings = rules.check_bytes("a.py", data).findings
    if any(f.code == "SYN001" for f in findings):
        return
    _, fixed, content = fix_bytes("a.py", data, rules, False)
    before, after = decode(data), decode(content)
    assert (before.encoding, before.bom) == (after.encoding, after.bom)
    assert fixed.counts["AAA101"] == len(findings)
    # Taking each edit back gives the very bytes that were there.
    edits = sorted((e for f in findings for e in f.remedy.edits), key=lambda e: e.start)
    assert after.text.replace("pear", "apple") == before.text
    assert after.text.count("pear") == len(edits)


def test_edits_of_an_edited_text_are_edits_of_the_text_before() -> None:
    text = "import torch\nx = []\nx.append(y)\nprint(x)\n"
    first = finding(((1, 1), (1, 1), "import os\n"), ((3, 10), (3, 11), "y.detach()"))
    after, _ = applied(text, first)
    assert after == "import os\nimport torch\nx = []\nx.append(y.detach())\nprint(x)\n"
    later = [Edit(path="a.py", start=(3, 5), end=(3, 7), text="deque()"),
             Edit(path="a.py", start=(4, 21), end=(4, 21), text="\nx.pop()")]  # fmt: skip
    own = rebased(later, {"a.py": text}, [first])
    assert own is not None and [(e.start, e.end) for e in own] == [((2, 5), (2, 7)), ((3, 12), (3, 12))]
    assert line_before("a.py", 5, {"a.py": text}, [first]) == 4
    both = msgspec.structs.replace(first, remedy=Remedy(summary="s", edits=own))
    straight = msgspec.structs.replace(first, remedy=Remedy(summary="s", edits=later))
    assert applied(text, first, both)[0] == applied(after, straight)[0]


def test_edits_of_what_edits_have_put_there_are_none_of_the_text_before() -> None:
    first = finding(((1, 10), (1, 11), "y.detach()"))
    again = [Edit(path="a.py", start=(1, 10), end=(1, 20), text="y.detach().clone()")]
    within = [Edit(path="a.py", start=(1, 12), end=(1, 18), text="cpu")]
    assert rebased(within, {"a.py": "x.append(y)\n"}, [first]) is None
    own = rebased(again, {"a.py": "x.append(y)\n"}, [first])
    assert own is not None and (own[0].start, own[0].end) == ((1, 10), (1, 11))
    assert rebased(within, {}, [first]) == within  # a file that nothing changes
