"""A rule's `words` keep `check` from asking about a file: they may cost no finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from casebook.twins import PLANTED, built
from torchvet.checking.engine import check_text, source_rules
from torchvet.rules import Rule, all_rules
from torchvet.source.model import SourceFile

RULES = source_rules(all_rules())
PROGRAMS = sorted(built(PLANTED).glob("*.py"))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_example_of_a_rule_that_reads_source_has_one_of_its_words(rule: Rule) -> None:
    assert all(isinstance(word, str) and word for word in rule.words)
    assert check_text("bad.py", rule.BAD, [rule]).findings


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_nothing_is_lost_by_asking_only_the_rules_whose_words_stand_in_a_file(path: Path) -> None:
    text = path.read_text("utf-8")
    file = SourceFile(str(path), text)
    asked = {(f.code, f.message, f.location) for rule in RULES for f in rule.in_source(file)}
    assert {(f.code, f.message, f.location) for f in check_text(str(path), text, RULES).findings} == asked
