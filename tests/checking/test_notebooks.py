"""Notebooks: cells and their lines, magics, cells that do not parse, and edits that touch nothing else in the JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from word_rules import WordRule

from torchvet.checking.cells import without_magics
from torchvet.checking.checker import Checker
from torchvet.configuration import Configuration
from torchvet.fixing.files import difference, fix_bytes

APPLE = WordRule("AAA101", "apple", "pear")


def code(*lines: str) -> dict[str, Any]:
    source = [line + "\n" for line in lines[:-1]] + [lines[-1]]
    return {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [], "source": source}


def text(*lines: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": list(lines)}


def notebook(*cells: dict[str, Any], **more: Any) -> bytes:
    tree = {"cells": list(cells), "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, **more}
    return json.dumps(tree, indent=1, ensure_ascii=False).encode() + b"\n"


def found(data: bytes) -> list[tuple[str, str, int]]:
    result = Checker(Configuration(Path()), (APPLE,)).check_bytes("a.ipynb", data)
    assert not result.not_checked
    return [(f.code, f.location.path, f.location.line) for f in result.findings if f.location]


def fixed(data: bytes, *rules: WordRule) -> bytes:
    return fix_bytes("a.ipynb", data, Checker(Configuration(Path()), rules or (APPLE,)), False)[2]


def test_a_finding_names_its_cell_and_the_line_in_it() -> None:
    data = notebook(text("# torch apple"), code("import torch"), code("x = 1", "apple = 2"), code("apple"))
    assert found(data) == [("AAA101", "a.ipynb:cell 3", 2), ("AAA101", "a.ipynb:cell 4", 1)]
    result = Checker(Configuration(Path()), (APPLE,)).check_bytes("a.ipynb", data)
    assert result.lines == {"a.ipynb:cell 3": {"2": "apple = 2"}, "a.ipynb:cell 4": {"1": "apple"}}
    assert result.findings[0].remedy.edits[0].path == "a.ipynb:cell 3"
    assert result.findings[0].remedy.edits[0].start == (2, 1)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("%matplotlib inline\nx = 1", "pass\nx = 1"),
        ("if x:\n    !ls -l\ny", "if x:\n    pass\ny"),
        ("files = !ls\nx", "files = None\nx"),
        ("out = %sql select 1", "out = None"),
        ("?print\nprint??\nx", "pass\npass\nx"),
        ("%%time\napple = 1", "pass\napple = 1"),
        ("%%bash\nrm -rf apple\nls", "\n\n"),
        ("!pip install \\\n  torch\napple", "pass\n\napple"),
        ("x = (7\n% 2)", "x = (7\n% 2)"),
        ("x = '''\n%apple\n!ls\n'''", "x = '''\n%apple\n!ls\n'''"),
        ("  x = [1,\n       2]", "\n"),
        ("  x = [1,\ny z", "  x = [1,\ny z"),
        ("pip install -r needs.txt\nx = 1", "pass\nx = 1"),
        ("cd = 3\nls (1)\nx ==", "cd = 3\nls (1)\nx =="),
        ("a = b != c", "a = b != c"),
        ("print('50 %')", "print('50 %')"),
        ("", ""),
    ],
)
def test_magics(source: str, expected: str) -> None:
    assert without_magics(source) == expected


def test_lines_count_past_magics() -> None:
    data = notebook(
        code("import torch", "%load_ext x", "!pip install apple"), code("%%writefile apple.py", "apple"), code("apple")
    )
    assert found(data) == [("AAA101", "a.ipynb:cell 3", 1)]


def test_a_cell_that_does_not_parse_is_a_finding_and_the_others_are_checked() -> None:
    data = notebook(code("import torch"), code("x = 1", "y = = 2"), code("z = 1", "apple"))
    assert found(data) == [("SYN001", "a.ipynb:cell 2", 2), ("AAA101", "a.ipynb:cell 3", 2)]


def test_suppressions_hold_in_cells() -> None:
    assert found(notebook(code("import torch"), code("apple = 1  # torchvet: ignore[AAA101]"))) == []
    assert found(notebook(code("import torch", "x = 1  # torchvet: ignore"))) == [("SUP001", "a.ipynb:cell 1", 2)]


@pytest.mark.parametrize(
    "data",
    [b"torch", b'{"torch": 1}', b'["torch"]', b'{"cells": 3, "x": "torch"}',
     b'{"cells": [{"cell_type": "code", "source": 3, "x": "torch"}]}',
     b'{"cells": ["torch"', b"\xff torch", b'{"worksheets": [3], "x": "torch"}', b"[" * 100_000 + b"torch"],
)  # fmt: skip
def test_what_is_no_notebook_is_said(data: bytes) -> None:
    result = Checker(Configuration(Path()), (APPLE,)).check_bytes("a.ipynb", data)
    assert not result.findings
    assert "no valid notebook" in result.not_checked[0].reason


def test_other_languages_are_left_alone() -> None:
    assert found(notebook(code("library(torch); apple"), metadata={"kernelspec": {"language": "R"}})) == []


def test_old_notebooks() -> None:
    cell = {"cell_type": "code", "input": ["import torch\n", "apple"], "outputs": []}
    data = json.dumps({"worksheets": [{"cells": [cell]}], "nbformat": 3}).encode()
    assert found(data) == [("AAA101", "a.ipynb:cell 1", 2)]
    assert fixed(data) == data.replace(b'"apple"', b'"pear"')


@pytest.mark.parametrize(
    "write",
    [
        lambda tree: json.dumps(tree, indent=1, ensure_ascii=False).encode() + b"\n",
        lambda tree: json.dumps(tree, indent=4).encode(),
        lambda tree: json.dumps(tree, separators=(",", ":")).encode(),
        lambda tree: json.dumps(tree, indent="\t").replace("\n", "\r\n").encode(),
    ],
)
def test_an_edit_changes_no_other_byte(write: Any) -> None:
    tree = json.loads(notebook(
        text("apple é"), code("import torch", 's = "é\\t"', "apple = 1"), code("x"), code("apple"),
        metadata={"apple": [1.0, 1e5, None, "source"]},
    ))  # fmt: skip
    tree["cells"][3]["source"] = "apple"
    tree["cells"][1]["outputs"] = [{"text": ["apple = 1"]}]
    before = write(tree)
    tree["cells"][3]["source"] = "pear"
    tree["cells"][1]["source"][2] = "pear = 1"
    assert fixed(before) == write(tree)
    assert fixed(write(tree)) == write(tree)


def test_lines_come_and_go() -> None:
    longer = WordRule("AAA101", "apple", "x\ny")
    before = notebook(code("import torch"), code("apple"), code("a", "apple", "é"))
    after = notebook(code("import torch"), code("x", "y"), code("a", "x", "y", "é"))
    assert json.loads(fixed(before, longer)) == json.loads(after)
    unused = notebook(code("import torch", "x = 1", "# torchvet: ignore-file[AAA101]"), code("y"))
    sources = [cell["source"] for cell in json.loads(fixed(unused))["cells"]]
    assert sources == [["import torch\n", "x = 1\n"], ["y"]]


def test_the_difference_is_told_by_cell() -> None:
    checker = Checker(Configuration(Path()), (APPLE,))
    before, after, _ = fix_bytes("a.ipynb", notebook(code("import torch"), code("apple")), checker, False)
    assert difference(before, after.document).splitlines()[:4] == [
        "--- a.ipynb:cell 2", "+++ a.ipynb:cell 2", "@@ -1 +1 @@", "-apple",
    ]  # fmt: skip


LINES = st.lists(
    st.sampled_from(["apple", "%m", "!x \\", "x = !y", "'''", "if x:", "  apple", "#", "%%bash", "a?", "é", "("]),
    max_size=5,
)


@given(st.lists(LINES, max_size=4))
def test_hostile_cells(cells: list[list[str]]) -> None:
    """Whatever the cells hold: what is found lies in a cell that has the word, and mending changes only that word."""
    data = notebook(code("import torch"), *(code(*(lines or [""])) for lines in cells))
    texts = ["import torch", *("\n".join(lines) for lines in cells)]
    for kind, path, line in found(data):
        number = int(path.rpartition(" ")[2])
        assert 1 <= line <= len(texts[number - 1].split("\n"))
        if kind == "AAA101":
            assert "apple" in texts[number - 1].split("\n")[line - 1]
    assert fixed(data).replace(b"pear", b"apple") == data
