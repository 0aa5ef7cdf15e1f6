"""Checks one text with the rules. An error is reported for the rule and file that it occurs in; the others go on."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from torchvet.checking.codes import Scope
from torchvet.checking.result import FAULT, FileResult, lines_of, not_checked
from torchvet.finding import Finding, Location, NotChecked, Severity
from torchvet.gc_pause import collector_off

if TYPE_CHECKING:
    from torchvet.rules import Rule
    from torchvet.rules.core.lazy_loading import LazyRule
    from torchvet.source.model import SourceFile

__all__ = ["FileResult", "Scope", "SourceRule", "check_text", "mentions_torch", "source_rules"]

MENTIONED = ("torch", "lightning", "transformers", "accelerate", "fabric", "deepspeed", "ignite", "fastai")
"""A file without any of these words has nothing that a rule could find."""
_NOQA = re.compile(r"#\s*noqa\s*:", re.IGNORECASE)
_TOO_DEEP = "nested too deeply"
_MENTIONED = tuple(word.encode() for word in MENTIONED)


class SourceRule(Protocol):
    """What the engine asks of a rule."""

    code: str
    name: str
    severity: Severity

    def in_source(self, file: SourceFile) -> Iterator[Finding]:
        """Yield what one file shows."""
        ...


def mentions_torch(data: bytes) -> bool:
    """Whether a file names torch or a framework on it, also in a comment."""
    return any(word in data for word in _MENTIONED)


def source_rules(rules: Sequence[Rule | LazyRule]) -> list[SourceRule]:
    """Those of the rules that read source."""
    return [rule for rule in rules if "in_source" in rule.inputs()]  # type: ignore[misc]


def check_text(path: str, text: str, rules: Sequence[SourceRule], scope: Scope | None = None) -> FileResult:
    """What the rules find in a text. `scope` says which other codes there are; without it, these rules are all."""
    if not any(word in text for word in MENTIONED):
        return FileResult(path)
    with collector_off(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the compiler, such as invalid escapes, are no findings
        scope = scope or _all_of(tuple(rules))
        result = _check(path, text, rules, scope)
        if any(_TOO_DEEP in missed.reason for missed in result.not_checked):
            from torchvet.checking.deep import with_room

            result = with_room(lambda: _check(path, text, rules, scope)) or result
        return result


@lru_cache(maxsize=16)
def _all_of(rules: tuple[SourceRule, ...]) -> Scope:
    return Scope.of([rule.code for rule in rules])


def _check(path: str, text: str, rules: Sequence[SourceRule], scope: Scope) -> FileResult:
    from torchvet.source.model import SourceFile

    # Python 3.10 and 3.11 raise ValueError for these, 3.12 SyntaxError: one answer for all.
    if "\0" in text:
        return not_checked(path, "it has null bytes: no Python source")
    try:
        file = SourceFile(path, text)
    except SyntaxError as error:
        from torchvet.checking.codes import syntax_error

        found = [syntax_error(path, error)] if "SYN001" in scope.wanted else []
        return FileResult(path, found, lines=lines_of(found, path, text))
    except (RecursionError, MemoryError):
        return not_checked(path, f"its expressions are {_TOO_DEEP} to be parsed")
    except ValueError as error:
        return not_checked(path, f"Python cannot parse it: {error}")
    try:
        result = _ask(file, rules)
        # Few files have such a comment, and for the others tokenize need not be imported.
        if "torchvet:" in text or (result.findings and _NOQA.search(text)):
            from torchvet.checking.suppression import suppress

            result.findings = suppress(file, result.findings, scope)
        result.findings.sort(key=_order)
        result.lines = lines_of(result.findings, path, text)
        return result
    finally:
        _take_apart(file)


@lru_cache(maxsize=16)
def _with_signs(rules: tuple[SourceRule, ...]) -> tuple[list[tuple[SourceRule, frozenset[str]]], frozenset[str]]:
    """Rules, each with the signs of which a file must have one (empty: any file will do), and all those signs."""
    from torchvet.source.model import signs_of

    asked = [(rule, signs_of(getattr(rule, "words", ()))) for rule in rules]
    return asked, frozenset().union(*(signs for _, signs in asked))


def _ask(file: SourceFile, rules: Sequence[SourceRule]) -> FileResult:
    result = FileResult(file.path, [], [])
    found: dict[tuple[str, Location | None, str], Finding] = {}
    asked, every = _with_signs(tuple(rules))
    # Most rules have nothing to find in most files: their words say so before anything is walked.
    held = file.words.signs(every)
    for rule, signs in asked:
        if signs and held.isdisjoint(signs):
            continue
        try:
            for finding in rule.in_source(file):
                found.setdefault((finding.code, finding.location, finding.message), finding)
        except Exception as error:
            if os.environ.get("TORCHVET_DEBUG") and not isinstance(error, RecursionError):
                raise
            deep = isinstance(error, RecursionError)
            reason = _TOO_DEEP if deep else f"{type(error).__name__}: {error}; {FAULT}"
            result.not_checked.append(NotChecked(check=f"{rule.code} in {file.path}", reason=reason))
    result.findings = list(found.values())
    return result


def _order(finding: Finding) -> tuple[int, int, str]:
    at = finding.location
    return (at.line, at.column or 0, finding.code) if at is not None else (0, 0, finding.code)


def _take_apart(file: SourceFile) -> None:
    """Cut a model's references: its parts know each other, and such a ring would wait for the collector."""
    for part in (*getattr(file, "units", ()), *getattr(file, "classes", {}).values()):
        vars(part).clear()
    vars(file).clear()
