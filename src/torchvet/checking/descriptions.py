"""What codes mean, as plain data for a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchvet.checking.own import OWN_CODES
from torchvet.finding import Report


def described(report: Report, rules: Sequence[Any]) -> dict[str, dict[str, str]]:
    """The knowledge of the rules that found something, by code, in the order of the codes."""
    known = {one.code: one for one in (*rules, *OWN_CODES)}
    found = sorted({f.code for f in report.findings} & set(known))
    return {code: _described(known[code]) for code in found}


def _described(rule: Any) -> dict[str, str]:
    parts = ("name", "severity", "summary", "what", "why", "when_not", "remedy")
    return {part: str(getattr(rule, part)) for part in parts if hasattr(rule, part)}
