"""Rules are found by their files, and only those that a verb asks are loaded."""

from __future__ import annotations

import subprocess
import sys

from torchvet.rules import Rule, all_rules, codes, rules_with

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
