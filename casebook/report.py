"""As much of ``torchvet.report/1`` as the casebook judges, read from the contract and not from torchvet's own types."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from casebook.case import SEVERITIES, Severity


@dataclass(frozen=True)
class Location:
    """Where a finding points."""

    path: str
    line: int


@dataclass(frozen=True)
class Holder:
    """What holds the memory."""

    name: str


@dataclass(frozen=True)
class Measured:
    """What was measured."""

    bytes_per_step: float | None = None
    bytes: float | None = None


@dataclass(frozen=True)
class Remedy:
    """What would fix it."""

    edits: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Finding:
    """One finding."""

    code: str
    severity: Severity
    message: str = ""
    location: Location | None = None
    holder: Holder | None = None
    measured: Measured | None = None
    cause: str = ""
    remedy: Remedy | None = None

    @property
    def loud(self) -> bool:
        """Whether it would fail a build: a warning or an error."""
        return at_least(self.severity, "warning")

    def __str__(self) -> str:
        where = f"{Path(self.location.path).name}:{self.location.line}" if self.location else "nowhere"
        held = f" held by {self.holder.name}" if self.holder else ""
        rate = self.measured.bytes_per_step if self.measured else None
        return f"{self.code} {self.severity} at {where}{held}" + (f", {rate:.0f} B/step" if rate is not None else "")


@dataclass(frozen=True)
class Report:
    """A report."""

    findings: list[Finding] = field(default_factory=list)
    verdict: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    not_checked: list[dict[str, str]] = field(default_factory=list)

    @property
    def said(self) -> list[Finding]:
        """The findings, and as one more with the code END that a rank was killed: at the line where it was seen last,
        held by `rank 1 in step 17`."""
        outcome = self.facts.get("outcome") or {}
        last = outcome.get("last") or {}
        place = outcome.get("place") or last.get("place")
        if outcome.get("how") != "killed" or "rank" not in outcome or "step" not in last:
            return self.findings
        where = Location(place["path"], place["line"]) if place else None
        holder = Holder(f"rank {outcome['rank']} in step {last['step']}")
        return [*self.findings, Finding("END", "error", location=where, holder=holder)]

    @property
    def healthy(self) -> bool:
        """Whether it says of the program that no fault was found: notes beside a clean run are none."""
        earned = (self.facts.get("verdict") or {}).get("earned", True)
        return self.verdict in ("clean", "findings") and earned and not any(f.loud for f in self.said)


def at_least(severity: Severity, least: Severity) -> bool:
    """Whether a severity is as high as another, or higher."""
    return SEVERITIES.index(severity) >= SEVERITIES.index(least)


def read(path: Path) -> Report:
    """Read a report in JSON."""
    return msgspec.json.decode(path.read_bytes(), type=Report)
