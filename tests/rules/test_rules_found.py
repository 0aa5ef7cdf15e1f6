"""Rules are found by their files, and only those that a verb asks are loaded."""

from __future__ import annotations

import subprocess
import sys

from torchvet.rules import Rule, all_rules, codes, rule, rules_with
from torchvet.rules.waiting import WaitingRule, source_rules
from torchvet.source.model import SourceFile

LOADED = "import sys, torchvet.rules as r; r.rules_with('in_source'); print(*sys.modules)"


def test_a_rules_file_begins_with_its_code() -> None:
    assert codes() == [rule.code for rule in all_rules()]


def test_the_rules_with_a_matcher_are_those_that_override_it() -> None:
    for matcher in ("in_source", "in_snapshot", "in_trace"):
        wanted = [r.code for r in all_rules() if getattr(type(r), matcher) is not getattr(Rule, matcher)]
        assert [r.code for r in rules_with(matcher)] == wanted and wanted


def test_what_checks_source_loads_no_reader_of_runs_and_snapshots() -> None:
    loaded = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True).stdout.split()
    assert "torchvet.rules.memory.mem101_graph_retained" in loaded
    heavy = ("torchvet.snapshots", "torchvet.traces", "torchvet.allocator", "torchvet.recording.reader")
    assert not [name for name in loaded if name.startswith(heavy)]


def test_a_waiting_rule_has_the_code_and_the_words_of_the_rule() -> None:
    waiting = source_rules()
    assert [rule.code for rule in waiting] == [rule.code for rule in rules_with("in_source")]
    assert {r.code: r.words for r in waiting} == {r.code: r.words for r in rules_with("in_source")}
    still_loaded = [r for r in waiting if not isinstance(r, WaitingRule)]
    assert not still_loaded, "write words and code as literals, so that the rule can wait"


def test_a_waiting_rule_finds_what_the_rule_does() -> None:
    file = SourceFile("train.py", rule("TRN101").BAD)
    waiting = next(r for r in source_rules() if r.code == "TRN101")
    assert isinstance(waiting, WaitingRule) and type(waiting.rule) is type(rule("TRN101"))
    assert list(waiting.in_source(file)) == list(rule("TRN101").in_source(file)) != []
