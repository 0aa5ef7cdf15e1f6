"""The reported failures are well formed, the rules that judge tools hold, and one small failure really fails."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

from casebook.field import other_tools
from casebook.field.__main__ import Row, printed, symptom, table, verdict
from casebook.field.known import Failure, load, load_all
from casebook.program import Program
from casebook.report import Finding, Location

FAILURES = list(load_all())
PROGRAMS = [pytest.param(p, id=f"{f.name}/{p.name}") for f in FAILURES for p in (f.faulty, f.fixed)]


def sources(program: Program) -> dict[Path, str]:
    """The files of a program, by path."""
    return {path: path.read_text() for path in program.files}


def test_there_are_enough_failures_and_several_kinds() -> None:
    assert len(FAILURES) >= 14
    assert len({code for failure in FAILURES for code in failure.known.codes}) >= 10


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)
def test_a_failure_is_well_formed(failure: Failure) -> None:
    known = failure.known
    assert failure.line_numbers()
    assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", known.source)
    assert known.symptom and known.reason
    assert all(re.fullmatch(r"(AMP|NUM|TRN)\d{3}", code) for code in [*known.codes, *known.also])
    assert re.compile(known.shows) and re.compile(known.healthy)
    assert not set(known.codes) & set(known.also)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_parses_and_no_comment_gives_the_fault_away(program: Program) -> None:
    files = sources(program)
    assert any("manual_seed(" in text for text in files.values())
    assert any('"--steps"' in text for text in files.values())
    for text in files.values():
        ast.parse(text)
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        assert [token.string for token in tokens if token.type == tokenize.COMMENT] == []


def test_a_small_failure_fails_and_its_twin_does_not() -> None:
    failure = next(load_all("llama_padding_mask"))
    argv = ["--steps", "4"]
    faulty, fixed = printed(failure.faulty, argv), printed(failure.fixed, argv)
    assert symptom(failure, faulty, fixed) == "shown"
    assert symptom(failure, fixed, fixed) == "NOT SHOWN"
    assert symptom(failure, faulty, faulty) == "MENDED IS NOT HEALTHY"


@pytest.fixture
def made_up(tmp_path: Path) -> Failure:
    """A failure whose only accepted line is line 2 of faulty.py."""
    (tmp_path / "faulty.py").write_text("import torch\nloss = torch.zeros(()).log()\n")
    (tmp_path / "case.toml").write_text(
        'codes = ["NUM101"]\nline = "loss = torch"\nreason = ["log(0)"]\nsymptom = "inf"\nshows = "inf"\n'
        'healthy = "fine"\nsource = "https://github.com/a/b/issues/1"\n'
    )
    return load(tmp_path)


def finding(code: str, line: int, **fields: str) -> Finding:
    """A warning in faulty.py."""
    return Finding(code, "warning", **fields, location=Location("/somewhere/faulty.py", line))


def test_what_torchvet_said_is_graded(made_up: Failure) -> None:
    assert verdict(made_up, [finding("NUM101", 2)]) == "named"
    assert verdict(made_up, [finding("NUM101", 2, cause="log(0) is -inf")]) == "named, with the reason"
    assert verdict(made_up, [finding("NUM101", 1)]) == "partly"
    assert verdict(made_up, [finding("NUM110", 2)]) == "partly"
    assert verdict(made_up, [finding("NUM110", 1)]) == "missed"
    assert verdict(made_up, []) == "missed"
    mild = Finding("NUM101", "info", location=Location("faulty.py", 2))
    assert verdict(made_up, [mild]) == "partly"


ANOMALY = """w.py:3: UserWarning: Error detected in LogBackward0. Traceback of forward call that caused the error:
  File "/lib/runpy.py", line 1, in run
  File "faulty.py", line {line}, in <module>
    loss = torch.zeros(()).log()
  File "/lib/torch/functional.py", line 9, in log
 (Triggered internally at python_anomaly_mode.cpp:122.)
{said}
Traceback (most recent call last):
  File "faulty.py", line 1, in <module>
RuntimeError: Function 'LogBackward0' returned nan values in its 0th output.
"""


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        ("loss inf\n", "silent"),
        (ANOMALY.format(line=2, said=""), "names the line"),
        (ANOMALY.format(line=2, said="because of log(0)"), "names the cause"),
        (ANOMALY.format(line=2, said="the program prints log(0)"), "names the line"),
        (ANOMALY.format(line=2, said="catalog(0)"), "names the line"),
        (ANOMALY.format(line=1, said="because of log(0)"), "raises elsewhere"),
        ("ModuleNotFoundError: No module named 'transformers'\n", "not installed"),
    ],
)
def test_what_another_tool_said_is_classified(made_up: Failure, text: str, grade: str) -> None:
    assert other_tools.classify("anomaly", text, "the program prints log(0)\n", made_up) == grade


def test_the_table_counts() -> None:
    rows = [
        Row("a", "shown", "named", "silent", {"x": "silent"}),
        Row("b", "shown", "missed", "ALARMS", {"x": "silent"}, ["n"]),
    ]
    text = table(rows, ["x"])
    assert "| b | shown | missed | ALARMS | silent |" in text
    assert "- b: n" in text
    assert "1 named, 0 partly, 1 missed of 2; silent on 1 of 2" in text and "x: 2 silent." in text
    assert [row.right for row in rows] == [True, False]
