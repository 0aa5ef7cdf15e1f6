"""The manifest lists the rules, and only those that a verb asks are imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import msgspec

from torchvet.finding import Finding
from torchvet.rules import Rule, all_rules, codes, rule, rules_with
from torchvet.rules.core import manifest
from torchvet.rules.core.base import INPUTS
from torchvet.rules.core.lazy_loading import LazyRule, source_rules
from torchvet.source.model import SourceFile

LOADED = "import sys, torchvet.rules as r; {}; print(*sys.modules)"
STALE = "the manifest of the rules is stale: run `make docs`"


def loaded_by(statement: str) -> list[str]:
    command = [sys.executable, "-c", LOADED.format(statement)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def rules_among(modules: list[str]) -> set[str]:
    listed = {f"{manifest.PACKAGE}.{entry.module}": entry.code for entry in manifest.entries()}
    return {listed[name] for name in modules if name in listed}


def test_the_manifest_lists_every_rule_that_has_a_file_and_nothing_else() -> None:
    assert codes() == [rule.code for rule in manifest.discovered()], STALE


def test_the_manifest_says_of_each_rule_what_the_rule_says() -> None:
    written = msgspec.json.decode(manifest.text(manifest.discovered()), type=tuple[manifest.Entry, ...])
    assert manifest.entries() == written, STALE


def test_a_matcher_that_a_rule_inherits_is_listed() -> None:
    class Owner(Rule):
        def in_source(self, file: SourceFile) -> Iterator[Finding]:
            return iter(())

    class Heir(Owner):
        pass

    assert Heir.inputs() == ("in_source",)
    assert Rule.inputs() == ()


def test_the_rules_with_a_matcher_are_those_that_override_it() -> None:
    for matcher in INPUTS:
        wanted = [r.code for r in all_rules() if matcher in r.inputs()]
        assert [r.code for r in rules_with(matcher)] == wanted and wanted


def test_what_checks_source_loads_no_reader_of_runs_and_snapshots() -> None:
    loaded = loaded_by("r.rules_with('in_source')")
    assert "MEM101" in rules_among(loaded)
    heavy = ("torchvet.snapshots", "torchvet.traces", "torchvet.allocator", "torchvet.recording.reader")
    assert not [name for name in loaded if name.startswith(heavy)]


def test_only_the_rules_that_are_asked_are_imported() -> None:
    assert rules_among(loaded_by("r.codes()")) == set()
    assert rules_among(loaded_by("r.rule('graph-retained')")) == {"MEM101"}
    assert rules_among(loaded_by("from torchvet.rules.core.lazy_loading import source_rules; source_rules()")) == set()


def test_a_lazy_rule_has_the_code_and_the_words_of_the_rule() -> None:
    lazy, known = source_rules(), rules_with("in_source")
    assert [(r.code, r.name, r.severity, r.words) for r in lazy] == [
        (r.code, r.name, r.severity, r.words) for r in known
    ]


def test_a_lazy_rule_finds_what_the_rule_does() -> None:
    file = SourceFile("train.py", rule("TRN101").BAD)
    lazy = next(r for r in source_rules() if r.code == "TRN101")
    assert isinstance(lazy, LazyRule) and lazy.rule is rule("TRN101")
    assert list(lazy.in_source(file)) == list(rule("TRN101").in_source(file)) != []
