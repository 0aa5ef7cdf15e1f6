"""Findings of torchvet's own, that no rule makes: text that does not parse, and suppressions that suppress nothing."""

from __future__ import annotations

import sys
from typing import NamedTuple

from torchvet.finding import Edit, Finding, Location, Remedy, Severity


class OwnCode(NamedTuple):
    """A code that is no rule's: what `explain` and a machine-readable report say of it."""

    code: str
    name: str
    severity: Severity
    summary: str
    what: str
    remedy: str


SYNTAX = OwnCode(
    "SYN001", "syntax-error", "error", "The file does not parse, so that no rule has looked at it",
    "Python's own parser refuses the text. Syntax that is newer than the Python that torchvet runs on is refused too.",
    "Mend the syntax, or run torchvet with a Python at least as new as the program's.",
)  # fmt: skip
UNUSED = OwnCode(
    "SUP001", "unused-suppression", "info", "A suppression comment suppresses nothing",
    "A `# torchvet: ignore` comment names a code that is not found there: the fault is gone, or the code is misspelt.",
    "Remove the comment, or the codes of it that are not found; `torchvet check --fix` does it.",
)  # fmt: skip
OWN_CODES = (UNUSED, SYNTAX)


def syntax_error(path: str, error: SyntaxError) -> Finding:
    """The finding of a file that does not parse."""
    line, column = max(1, error.lineno or 1), error.offset
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return Finding(
        code=SYNTAX.code, name=SYNTAX.name, severity=SYNTAX.severity, evidence="observed",
        message=f"the file does not parse as Python {version}: {error.msg}",
        location=Location(path=path, line=line, column=column if column and column > 0 else None),
        cause="no rule can look at a file that does not parse", remedy=Remedy(summary=SYNTAX.remedy),
    )  # fmt: skip


def unused_suppression(path: str, line: int, column: int, message: str, edit: Edit | None) -> Finding:
    """The finding of a comment, or of codes in it, that suppress nothing."""
    summary = "remove it" if edit is not None else UNUSED.remedy
    return Finding(
        code=UNUSED.code, name=UNUSED.name, severity=UNUSED.severity, evidence="observed", message=message,
        location=Location(path=path, line=line, column=column), cause=UNUSED.summary,
        remedy=Remedy(summary=summary, safe=True, edits=[edit] if edit is not None else []),
    )  # fmt: skip
