"""Codes: which a check is about, and those that no rule makes: text that does not parse, idle suppressions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from torchvet.finding import Edit, Finding, Location, Remedy, Report, Severity


class OwnCode(NamedTuple):
    """A code that is no rule's: what `explain` and a machine-readable report say of it."""

    code: str
    name: str
    severity: Severity
    summary: str
    what: str
    remedy: str


SYNTAX = OwnCode(
    code="SYN001",
    name="syntax-error",
    severity="error",
    summary="The file does not parse, so that no rule has looked at it",
    what=(
        "Python's own parser refuses the text. "
        "Syntax that is newer than the Python that torchvet runs on is refused too."
    ),
    remedy="Fix the syntax, or run torchvet with a Python at least as new as the program's.",
)
UNUSED = OwnCode(
    code="SUP001",
    name="unused-suppression",
    severity="info",
    summary="A suppression comment suppresses nothing",
    what=(
        "A `# torchvet: ignore` comment names a code that is not found there: "
        "the fault is gone, or the code is misspelled."
    ),
    remedy="Remove the comment, or the codes of it that are not found; `torchvet check --fix` does it.",
)
OWN_CODES = (UNUSED, SYNTAX)


def _finding(own: OwnCode, location: Location, message: str, cause: str, remedy: Remedy) -> Finding:
    return Finding(
        code=own.code,
        name=own.name,
        severity=own.severity,
        evidence="observed",
        message=message,
        location=location,
        cause=cause,
        remedy=remedy,
    )


def syntax_error(path: str, error: SyntaxError) -> Finding:
    """The finding of a file that does not parse."""
    line, column = max(1, error.lineno or 1), error.offset
    location = Location(path=path, line=line, column=column if column and column > 0 else None)
    message = f"the file does not parse as Python {sys.version_info[0]}.{sys.version_info[1]}: {error.msg}"
    cause = "no rule can look at a file that does not parse"
    return _finding(SYNTAX, location, message, cause, Remedy(summary=SYNTAX.remedy))


def unused_suppression(path: str, line: int, column: int, message: str, edit: Edit) -> Finding:
    """The finding of a comment, or of codes in it, that suppress nothing."""
    location = Location(path=path, line=line, column=column)
    remedy = Remedy(summary="remove it", safe=True, edits=[edit])
    return _finding(UNUSED, location, message, UNUSED.summary, remedy)


class Scope(NamedTuple):
    """Codes: all there are, those that source can show, and those that are wanted."""

    known: frozenset[str]
    source: frozenset[str]
    wanted: frozenset[str]

    @classmethod
    def of(cls, codes: Sequence[str]) -> Scope:
        """The scope where these rules, and torchvet's own findings, are all there is."""
        return cls(frozenset(codes), frozenset(codes), frozenset((*codes, SYNTAX.code, UNUSED.code)))

    def judges(self, prefix: str) -> bool:
        """Whether a check can say that no code with a prefix is found: every rule meant is asked, or there is none.

        What only a run can show is not judged.
        """
        return all(c in self.source and c in self.wanted for c in self.known if c.startswith(prefix))


def described(report: Report, rules: Sequence[Any]) -> dict[str, dict[str, str]]:
    """What the codes that were found mean, as plain data for a report, in the order of the codes."""
    known = {one.code: one for one in (*rules, *OWN_CODES)}
    parts = ("name", "severity", "summary", "what", "why", "when_not", "remedy")
    return {
        code: {part: str(getattr(known[code], part)) for part in parts if hasattr(known[code], part)}
        for code in sorted({finding.code for finding in report.findings} & set(known))
    }
