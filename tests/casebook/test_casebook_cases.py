"""The cases are well formed. What they do when run is the casebook's own business."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

from casebook import case
from casebook.case import Case, load, load_all
from casebook.program import Program

CASES = [*load_all(), *load_all(folder=case.CASES.with_name("pending"))]

CODES = {
    *("MEM101", "MEM102", "MEM103", "MEM104", "MEM105", "MEM106", "MEM107", "MEM108", "MEM109", "MEM110", "MEM111"),
    *("MEM112", "MEM113", "MEM114", "MEM116", "MEM202", "MEM203", "TRN101", "TRN104", "TRN105"),
}


def sources(program: Program) -> dict[Path, str]:
    """The files of a program, by path."""
    return {path: path.read_text() for path in program.files}


PROGRAMS = [pytest.param(p, id=f"{c.name}/{p.name}") for c in CASES for p in c.programs]


def test_the_codes_that_must_be_covered_are() -> None:
    assert {case.expect.code for case in CASES} >= CODES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_complete(case: Case) -> None:
    assert case.name.startswith(case.expect.code.lower() + "_")
    assert case.line_numbers()
    assert len(case.lookalikes) >= 2
    assert all(sources(program) for program in case.programs)
    assert case.expect.code not in case.expect.also_allowed


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_parses_and_takes_steps(program: Program) -> None:
    files = sources(program)
    for text in files.values():
        ast.parse(text)
    assert any('"--steps"' in text for text in files.values())
    assert any("manual_seed(" in text for text in files.values())


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_comment_gives_the_fault_away(program: Program) -> None:
    for text in sources(program).values():
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        assert [token.string for token in tokens if token.type == tokenize.COMMENT] == []


def test_a_snippet_must_name_one_line(tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text("a = 1\na = 1\n")
    (tmp_path / "case.toml").write_text('code = "MEM101"\nseverity = "error"\nline = "a = 1"\n')
    with pytest.raises(ValueError, match="is in 2 lines"):
        load(tmp_path).line_numbers()
