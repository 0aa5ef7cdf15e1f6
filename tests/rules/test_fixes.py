"""Edits that rules offer for their own faulty examples: they mend, parse, run, and the safe ones change no result."""

from __future__ import annotations

import math
import re

import pytest
from example_runs import printed_by

from torchvet.fixing.edits import apply
from torchvet.rules import Rule, all_rules
from torchvet.source.model import SourceFile

PATH = "train.py"


def fixed(rule: Rule, text: str) -> tuple[str, bool]:
    """A text with all the edits of a rule's findings made, and whether all of them are safe."""
    offered = [f for f in rule.in_source(SourceFile(PATH, text)) if f.remedy.edits]
    return apply({PATH: text}, offered)[0][PATH], all(f.remedy.safe for f in offered)


FIXED = {r.code: fixed(r, r.BAD) for r in all_rules()}
FIXING = [r for r in all_rules() if FIXED[r.code][0] != r.BAD]
RUNNING = [r for r in FIXING if r.runs_on == "cpu" and not r.bad_raises]
each_fix = pytest.mark.parametrize("subject", FIXING, ids=lambda r: r.code)
each_that_runs = pytest.mark.parametrize("subject", RUNNING, ids=lambda r: r.code)


@each_fix
def test_an_edit_makes_its_finding_go_away_and_is_made_once(subject: Rule) -> None:
    text, _ = FIXED[subject.code]
    assert not [f for f in subject.in_source(SourceFile(PATH, text)) if f.remedy.edits]
    assert fixed(subject, text)[0] == text


@each_that_runs
def test_an_edited_program_runs_and_a_safe_edit_changes_no_result(subject: Rule) -> None:
    before, after = (
        printed_by(text, f"{subject.code}_{kind}.py")
        for kind, text in (("BAD", subject.BAD), ("FIXED", FIXED[subject.code][0]))
    )
    assert after[1] is None, after[1]
    figures = [float(f) for f in re.findall(r"\bloss (\S+)", after[0])]
    assert figures and all(map(math.isfinite, figures))
    if FIXED[subject.code][1]:
        assert after[0] == before[0]


def test_what_changes_losses_on_purpose_is_never_safe() -> None:
    changing = [r for r in FIXING if r.fix_changes_results or r.fix_may_change_losses]
    assert len(changing) > 10
    assert not [r.code for r in changing if FIXED[r.code][1]]
