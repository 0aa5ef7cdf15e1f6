"""Whatever the files hold, a question gets an answer and no exception."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchvet import source
from torchvet.source.program import reading
from torchvet.source.program.project import Project
from torchvet.source.stores import SourceIndex

SOURCE = Path(source.__file__).parent
PIECES = st.sampled_from(
    ["rows", "self.rows", ".append(x)", "[0]", " = ", " += ", "\n", "\n    ", "\n        ", "for x in xs:",
     "def f(rows):", "class A:", "lambda x: ", "(", ")", "[", "]", "if len(rows) > 3:", "rows = rows[-3:]", "f(rows)",
     "del rows[0]", "return rows", "global rows", "import rows", "from a import rows", "@cache", "with rows as y:",
     "yield", "*", ", ",
     "match rows:\n    case [x]:\n        rows.append(x)", "é", "'", '"""', "\\", "\t", "\r", "\x0c", "\ufeff"]
)  # fmt: skip
TEXTS = st.one_of(st.text(), st.lists(PIECES).map("".join))
NAMES = st.one_of(
    st.text(max_size=30),
    st.lists(st.sampled_from(["rows", "self", ".rows", "[3]", "['a']", ".<closure>", ".<default>", " (lru_cache)",
                              ".ctx", "._forward_hooks", ".__traceback__", " → f(): rows", "[", "."])).map("".join),
)  # fmt: skip


def ask_everything(index: SourceIndex, name: str, scope: str, path: str) -> None:
    for store in index.stores(name, scope, path, [path]):
        index.passed_by(store)
    index.removals(name, scope, path, [path])
    index.loop_bound(scope, path, name, 3)
    for line in (0, 1, 3, 99):
        index.function_at(path, line)
        index.enclosing_loop(path, line)


@settings(deadline=None, max_examples=300)
@given(text=TEXTS, other=TEXTS, name=NAMES, scope=st.sampled_from(["__main__", "__main__.f", "a.A.f", "", "…"]))
def test_any_text(text: str, other: str, name: str, scope: str) -> None:
    ask_everything(SourceIndex({"a.py": text, "b.py": other}), name, scope, "a.py")


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_real_text_cut_anywhere(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(sorted(SOURCE.rglob("*.py")))).read_text("utf-8")
    cut = data.draw(st.integers(0, len(text)))
    name = data.draw(st.sampled_from(["found", "self.touches", "module.flows", "name", "x.keys['a']"]))
    ask_everything(SourceIndex({"a.py": text[:cut], "b.py": text}), name, "__main__", "a.py")


@pytest.mark.parametrize(
    "text",
    [
        "\ufefffor x in xs:\n    rows.append(x)\n", "for x in xs:\r\n    rows.append(x)\r\n",
        "for x in xs:\r    rows.append(x)\r",
        "for x in xs:\n\trows.append(x)\n", "for x in xs:\n    rows.append(x)",
        "# é\x0c\u2028\nfor x in xs: rows.append(x)",
    ],
)  # fmt: skip
def test_marks_tabs_and_line_ends(text: str) -> None:
    found = SourceIndex({"a.py": text}).stores("rows", "__main__", "a.py")
    assert [(s.line, s.text.endswith("rows.append(x)")) for s in found] == [(2, True)]


@pytest.mark.parametrize(
    "text",
    ["x = " + "(" * 500 + ")" * 500, "x = " + "-" * 20_000 + "1", "x = " + " + ".join(["y"] * 20_000), "a\0b", "\ud800",
     "x = " + ".f()" * 5_000, "x = y" + "[0]" * 20_000, "rows.append(" + "a(" * 150 + ")" * 151],
    ids=["parentheses", "signs", "sum", "null", "surrogate", "chain", "index", "calls"],
)  # fmt: skip
def test_texts_that_break_parsers(text: str) -> None:
    for name in ("x", "y", "rows", "f"):
        ask_everything(SourceIndex({"a.py": text}), name, "__main__", "a.py")


def test_a_file_is_read_once_and_only_when_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    read = reading.read
    monkeypatch.setattr(reading, "read", lambda path, *given: seen.append(path) or read(path, *given))
    index = SourceIndex({"a.py": "for x in xs:\n    rows.append(x)\n", "b.py": "rows = 3\n", "c.py": "nothing = 1\n"})
    assert seen == []
    for _ in range(3):
        assert len(index.stores("holder.rows", "__main__", "a.py")) == 0
        assert len(index.stores("rows", "__main__", "a.py")) == 1
    assert sorted(seen) == ["a.py", "b.py"]


def test_reading_costs_a_small_multiple_of_parsing() -> None:
    every_fourth = sorted(SOURCE.parent.rglob("*.py"))[::4]
    files = {str(p): p.read_text("utf-8") for p in every_fourth}

    def seconds(work: object) -> float:
        best = 1e9
        for _ in range(3):
            start = time.process_time()
            for path, text in files.items():
                work(path, text)  # type: ignore[operator]
            best = min(best, time.process_time() - start)
        return best

    assert len(files) > 90
    parsing = seconds(lambda path, text: ast.parse(text))
    project = Project({})
    assert seconds(lambda path, text: reading.read(path, text, project)) < 12 * parsing
