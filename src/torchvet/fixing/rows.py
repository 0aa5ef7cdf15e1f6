"""A finding as a row of a report's facts."""

from __future__ import annotations

from typing import Any

from torchvet.finding import Finding


def row(finding: Finding) -> dict[str, Any]:
    """What the facts say of one finding: which it is, where, and what its fix would do."""
    at = finding.location
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity,
        "message": finding.message,
        "path": at.path if at else None,
        "line": at.line if at else None,
        "remedy": finding.remedy.summary,
        "safe": finding.remedy.safe,
    }
