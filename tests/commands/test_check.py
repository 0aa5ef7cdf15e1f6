"""`torchvet check` from the command line: what it prints, writes, mends, remembers and ends with."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from word_rules import FaultyRule, WordRule

import torchvet.rules
import torchvet.rules.core.lazy_loading
from torchvet.commands import main
from torchvet.docgen.documents import schema

RULES: tuple[Any, ...] = (
    WordRule("AAA101", "apple", "pear"),
    WordRule("AAA102", "anise", "basil", safe=False),
    WordRule("BBB101", "beech", severity="error"),
    WordRule("BBB201", "birch", severity="info"),
)
Check = Callable[..., tuple[int, str, str]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project in the working directory, and rules that find names of plants."""
    for name in list(os.environ):
        if name.startswith("TORCHVET_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.torchvet]\n")
    use(monkeypatch, RULES)
    return tmp_path


def use(monkeypatch: pytest.MonkeyPatch, rules: tuple[Any, ...]) -> None:
    monkeypatch.setattr(torchvet.rules, "all_rules", lambda: rules)
    monkeypatch.setattr(torchvet.rules, "codes", lambda: [rule.code for rule in rules])
    monkeypatch.setattr(torchvet.rules.core.lazy_loading, "source_rules", lambda: list(rules))


@pytest.fixture
def check(here: Path, capfd: pytest.CaptureFixture[str]) -> Check:
    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(["check", *arguments])
        out, err = capfd.readouterr()
        return status, out, err

    return run


def write(here: Path, **files: str) -> None:
    for name, text in files.items():
        path = here / name.replace("__", "/").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import torch\n" + text)


def test_findings_are_listed_with_line_remedy_and_summary(here: Path, check: Check) -> None:
    write(here, a_py="def f():\n    return apple + apple\nbeech = 1\n", b_py="x = 1\n", c_py="x = (\n")
    status, out, err = check(".")
    assert (status, err) == (1, "")
    assert out.splitlines() == [
        "a.py:3:12: AAA101 warning `apple` stands here",
        "  | return apple + apple",
        "  = write `pear`  [--fix]",
        "a.py:3:20: AAA101 warning `apple` stands here",
        "  | return apple + apple",
        "a.py:4:1: BBB101 error `beech` stands here",
        "  | beech = 1",
        "  = write `None`",
        *[line for line in out.splitlines() if "c.py" in line],
        "  | x = (",
        "  = Fix the syntax, or run torchvet with a Python at least as new as the program's.",
        "2 errors, 2 warnings in 2 of 3 files",
        "2 fixable with --fix (preview with --diff).",
    ]
    assert "c.py:2:5: SYN001 error the file does not parse" in out


def test_a_clean_project(here: Path, check: Check) -> None:
    write(here, a_py="x = 1\n")
    assert check() == (0, "No fault found in 1 file\n", "")
    assert check("--quiet") == (0, "", "")


def test_nothing_to_check_is_not_health(here: Path, check: Check) -> None:
    assert check(".")[:2] == (3, "No Python file or notebook to check\n")
    assert check(".", "--exit-zero")[0] == 0


@pytest.mark.parametrize(
    ("text", "options", "status"),
    [
        ("birch", [], 0),
        ("birch", ["--fail-on", "info"], 1),
        ("apple", [], 1),
        ("apple", ["--fail-on", "error"], 0),
        ("beech", ["--fail-on", "error"], 1),
        ("beech", ["--fail-on", "never"], 0),
        ("beech", ["--exit-zero"], 0),
        ("beech", ["--ignore", "BBB"], 0),
        ("beech apple"[:5], ["--select", "AAA,BBB2"], 0),
        ("beech", ["--select", "AAA", "--extend-select", "bbb1"], 1),
        ("x = (", ["--select", "AAA"], 1),
        ("x = (", ["--ignore", "SYN"], 0),
        ("\0", [], 3),
    ],
)
def test_the_exit_status(here: Path, check: Check, text: str, options: list[str], status: int) -> None:
    write(here, a_py=text)
    assert check("a.py", *options)[0] == status


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py"], "nowhere.py: no such file or folder"),
        (["a.py", "--select", "XYZ"], "the command line: XYZ: no rule's code starts so"),
        (["a.py", "--format", "yaml"], "unknown format 'yaml'"),
        (["a.py", "-o", "out.pdf"], "the known extensions are"),
        (["a.py", "-o", "nowhere/out.json"], "does not exist"),
        (["a.py", "--unsafe-fixes"], "--unsafe-fixes needs"),
        (["-", "a.py"], "reads stdin"),
        (["a.py", "--stdin-filename", "b.py"], "needs the path `-`"),
        (["a.py", "--write-baseline", "b.json", "--fix"], "cannot be combined with"),
        (["a.py", "--baseline", "b.json"], "--write-baseline makes one"),
        (["a.py", "--jobs", "0"], "--jobs"),
        (["a.py", "--fail-on", "fatal"], "--fail-on"),
    ],
)
def test_what_cannot_be_done_is_said(here: Path, check: Check, arguments: list[str], message: str) -> None:
    write(here, a_py="x = 1\n")
    status, out, err = check(*arguments)
    assert (status, out) == (2, "")
    assert message in err and "Traceback" not in err


def test_a_mistake_in_the_configuration_is_named(here: Path, check: Check) -> None:
    write(here, a_py="x = 1\n")
    (here / "pyproject.toml").write_text('[tool.torchvet]\nselect = ["XYZ"]\n')
    status, _, err = check("a.py")
    assert status == 2 and "pyproject.toml, [tool.torchvet]: XYZ" in err


def test_the_configuration_holds_and_flags_go_over_it(here: Path, check: Check) -> None:
    write(here, a_py="beech\n", gen__b_py="beech\n", tests__c_py="beech; apple\n")
    (here / "pyproject.toml").write_text(
        '[tool.torchvet]\nexclude = ["gen"]\nfail-on = "error"\nper-file-ignores = { "tests/*" = ["BBB"] }\n'
    )
    status, out, _ = check(".")
    assert status == 1 and "in 2 of 2 files" in out
    assert [line.split(":")[0] for line in out.splitlines() if " stands" in line] == ["a.py", "tests/c.py"]
    assert check("tests")[0] == 0
    assert check("tests", "--fail-on", "warning")[0] == 1
    assert "in 1 of 1 file" in check(".", "--exclude", "a.py")[1]


def test_json_is_the_contract(here: Path, check: Check) -> None:
    write(here, a_py="apple\n")
    _, out, _ = check(".", "--format", "json", "-o", "report.sarif", "-o", "report.md", "-o", "report.txt")
    tree = json.loads(out)
    jsonschema.Draft202012Validator(json.loads(schema())).validate(tree)
    assert tree["subject"] == {"kind": "check", "paths": ["."]}
    assert tree["facts"]["statistics"] == {"AAA101": 1}
    assert tree["findings"][0]["remedy"]["edits"] == [{"path": "a.py", "start": [2, 1], "end": [2, 6], "text": "pear"}]
    sarif = json.loads((here / "report.sarif").read_text())
    (rule,) = sarif["runs"][0]["tool"]["driver"]["rules"]
    assert rule["shortDescription"]["text"] == RULES[0].summary
    assert "| warning | AAA101 word-apple | `a.py:2` |" in (here / "report.md").read_text().replace("\\", "")
    assert (here / "report.txt").read_text().startswith("a.py:2:1: AAA101")
    assert check(".", "--format", "github")[1].startswith("::warning file=a.py,line=2,col=1,")


def test_statistics(here: Path, check: Check) -> None:
    write(here, a_py="apple; apple; beech\n")
    status, out, _ = check(".", "--statistics")
    assert status == 1
    assert out.splitlines()[:2] == ["2  AAA101  warning  word-apple", "1  BBB101  error    word-beech"]


def test_safe_edits_are_made_and_told(here: Path, check: Check) -> None:
    write(here, a_py="apple = anise\n", b_py="beech\n")
    status, out, _ = check(".", "--fix")
    assert (here / "a.py").read_text() == "import torch\npear = anise\n"
    assert status == 1 and "Fixed 1 finding (AAA101)." in out and "AAA101 warning" not in out
    assert "1 fixable with --fix --unsafe-fixes" in out
    status, out, _ = check("a.py", "--fix", "--unsafe-fixes")
    assert (here / "a.py").read_text() == "import torch\npear = basil\n"
    assert (status, out) == (0, "No fault found in 1 file\nFixed 1 finding (AAA102).\n")
    assert check("a.py", "--fix") == (0, "No fault found in 1 file\n", "")


@pytest.mark.parametrize("asked", [["--diff"], ["--fix", "--diff"]], ids=" ".join)
def test_the_difference_is_shown_and_nothing_written(here: Path, check: Check, asked: list[str]) -> None:
    write(here, a_py="apple = anise", src__b_py="apple\n")
    before = (here / "a.py").read_text()
    status, out, err = check(".", *asked)
    assert status == 1 and (here / "a.py").read_text() == before
    assert (here / "src" / "b.py").read_text().endswith("apple\n")
    assert out.startswith(
        "--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n import torch\n-apple = anise\n\\ No newline at end of file\n+pear"
    )
    assert "2 findings would be fixed in 2 files" in err
    patch = subprocess.run(["patch", "-p0"], input=out, text=True, cwd=here, capture_output=True, check=False)
    assert patch.returncode == 0, patch.stdout + patch.stderr
    assert (here / "a.py").read_text() == "import torch\npear = anise"
    assert check(".", *asked)[1] == ""


def test_an_unused_suppression_is_fixed(here: Path, check: Check) -> None:
    write(here, a_py="x = 1  # torchvet: ignore[AAA101]\napple  # torchvet: ignore[AAA101]\n")
    status, out, _ = check(".")
    assert status == 0 and "a.py:2:8: SUP001 info the suppression of AAA101 is not needed here" in out
    check(".", "--fix")
    assert (here / "a.py").read_text() == "import torch\nx = 1\napple  # torchvet: ignore[AAA101]\n"


def test_a_baseline(here: Path, check: Check) -> None:
    write(here, a_py="apple; beech\n")
    assert check(".", "--write-baseline", "known.json") == (
        0,
        "",
        "torchvet: saved 2 findings to the baseline known.json\n",
    )
    assert check(".", "--baseline", "known.json") == (
        0, "No fault found in 1 file; 2 findings known from the baseline\n", "",
    )  # fmt: skip
    (here / "pyproject.toml").write_text('[tool.torchvet]\nbaseline = "known.json"\n')
    write(here, a_py="x = 1\napple; beech\napple\n")
    status, out, _ = check(".")
    assert status == 1 and out.startswith("a.py:4:1: AAA101") and "1 warning in 1 of 1 file; 2 findings known" in out
    # What is new is mended; a file in which all is known is left alone.
    write(here, b_py="")
    check("b.py", "--fix")
    write(here, a_py="apple; beech\n")
    check(".", "--fix")
    assert (here / "a.py").read_text() == "import torch\napple; beech\n"


def feed(monkeypatch: pytest.MonkeyPatch, text: str | bytes) -> None:
    data = text.encode() if isinstance(text, str) else text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_stdin(here: Path, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, "import torch\napple\n")
    status, out, _ = check("-", "--stdin-filename", "src/x.py")
    assert status == 1 and out.startswith("src/x.py:2:1: AAA101 warning")
    feed(monkeypatch, "import torch\napple\n")
    assert check("-")[1].startswith("<stdin>:2:1: AAA101")
    feed(monkeypatch, b"import torch\r\napple = '\xc3\xa9'\r\n")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stream := io.BytesIO()))
    status = main(["check", "-", "--fix"])
    assert status == 0 and stream.getvalue() == b"import torch\r\npear = '\xc3\xa9'\r\n"


def test_stdin_that_needs_no_fixing_comes_out_as_it_went_in(
    here: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    for data in (b"import torch\n\xff", b"import torch (", b""):
        feed(monkeypatch, data)
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stream := io.BytesIO()))
        main(["check", "-", "--fix"])
        assert stream.getvalue() == data


def test_notebooks(here: Path, check: Check) -> None:
    cells = [
        {"cell_type": "markdown", "source": []},
        {"cell_type": "code", "source": ["import torch\n", "%time\n", "apple"]},
    ]
    (here / "n.ipynb").write_text(json.dumps({"cells": cells}, indent=1))
    status, out, _ = check(".")
    assert status == 1 and out.startswith("n.ipynb:cell 2:3:1: AAA101 warning")
    check(".", "--fix")
    assert json.loads((here / "n.ipynb").read_text())["cells"][1]["source"] == ["import torch\n", "%time\n", "pear"]


def test_what_was_not_checked_is_said(here: Path, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here, a_py="x = 1\n")
    (here / "b.py").write_bytes(b"torch = '\xff'\n")
    status, out, _ = check(".")
    assert status == 0
    assert "b.py: not checked: it cannot be decoded" in out and "in 2 files; 1 file not checked" in out
    use(monkeypatch, (FaultyRule("CCC101", "apple"), *RULES))
    status, out, _ = check("a.py", "--no-cache")
    assert "CCC101 in a.py: not checked: KeyError: 'oops'; this is a fault in torchvet" in out


def test_what_could_not_be_judged_is_not_called_healthy(here: Path, check: Check) -> None:
    write(here, a_py="\0")
    status, out, _ = check("a.py")
    assert status == 3 and out.splitlines()[-1] == "Could not judge; 1 file not checked"


def test_the_cache_is_used_moved_and_left_out(here: Path, check: Check) -> None:
    write(here, a_py="apple\n")
    old = time.time() - 100
    os.utime(here / "a.py", (old, old))
    assert check(".", "--no-cache")[0] == 1
    assert not (here / ".torchvet_cache").exists()
    first = check(".", "--cache-dir", "elsewhere")
    assert (here / "elsewhere/CACHEDIR.TAG").exists() and not (here / ".torchvet_cache").exists()
    assert check(".", "--cache-dir", "elsewhere") == first
    assert check(".") == first and check(".", "--jobs", "2") == first


def test_colours_are_for_terminals(here: Path, check: Check) -> None:
    from torchvet.finding import Report
    from torchvet.renderers import renderer_for

    write(here, a_py="apple\n")
    out = check(".", "--format", "json")[1]
    import msgspec

    report = msgspec.json.decode(out, type=Report)
    assert "\x1b[" not in check(".")[1]
    assert "\x1b[1;33mwarning\x1b[0m" in renderer_for("text").render(report, color=True)


def test_control_characters_of_the_source_do_nothing(here: Path, check: Check) -> None:
    write(here, a_py="apple = '\x1b[31m\u202e'\n")
    out = check(".")[1]
    assert "\x1b" not in out and "\u202e" not in out and "\\x1b[31m" in out


def test_a_reader_that_goes_away_is_no_error(here: Path) -> None:
    write(here, **{f"f{n}_py": "x = (\n" for n in range(300)})
    command = f"{sys.executable} -m torchvet check . | head -1; exit ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", command], cwd=here, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "")


def test_many_files_by_several_processes(here: Path, check: Check) -> None:
    write(here, **{f"f{n:03}_py": "apple\n" if n % 10 == 0 else "x = 1\n" for n in range(120)})
    one, two = check(".", "--no-cache", "--jobs", "1"), check(".", "--no-cache", "--jobs", "3")
    assert one == two and "12 warnings in 12 of 120 files" in one[1]


def test_a_small_file_loads_nothing_heavy(here: Path) -> None:
    write(here, a_py="x = 1\n")
    code = "import sys; from torchvet.commands import main; main(['check', 'a.py']); print(sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True, check=True).stdout
    heavy = ("torch", "rich", "numpy", "multiprocessing", "pathspec", "difflib", "tomllib")
    assert not [m for m in heavy if f"'{m}'" in out and m != "tomllib"]
