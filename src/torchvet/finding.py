"""The one contract: what torchvet says about a program, typed.

A `Report` holds `Finding`s. Renderers print it, agents read it as JSON, CI gates on it. The JSON Schema in
`docs/report.schema.json` is generated from these types; sizes are bytes, times are seconds, rates are per step.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

import msgspec

from torchvet._version import __version__

SCHEMA = "torchvet.report/1"

Severity = Literal["error", "warning", "info"]
Evidence = Literal["suspected", "observed", "proven"]
Verdict = Literal["clean", "findings", "undetermined"]
HolderKind = Literal[
    "global", "local", "attribute", "class-attribute", "closure", "default-argument", "cache", "queue", "iterator",
    "exception", "hook", "ctx", "graph", "thread", "cycle", "native", "unknown",
]  # fmt: skip

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")
"""Mildest first, so that an index compares."""


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """The line that the user would change. Lines and columns count from 1; `column` may be unknown."""

    path: str
    line: int
    column: int | None = None
    end_line: int | None = None
    function: str | None = None


class Related(msgspec.Struct, frozen=True, kw_only=True):
    """Another place that belongs to a finding; `role` is e.g. `allocated`, `also-held-by`, `called-from`."""

    role: str
    message: str
    path: str | None = None
    line: int | None = None


ALSO_GROWS = "also-grows"
"""The role of a related place that is another name's which the same fault makes grow."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The name that keeps memory alive; `path` leads from a Python root to what is held, a hop an entry."""

    name: str
    kind: HolderKind
    path: list[str] = []


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured; a quantity that was not is None, never zero.

    `bytes` is the total at the last look, `share` a fraction of the peak (or of the step's time) from 0 to 1.
    """

    bytes_per_step: float | None = None
    tensors_per_step: float | None = None
    bytes: int | None = None
    steps: int | None = None
    peak_bytes: int | None = None
    seconds_per_step: float | None = None
    share: float | None = None
    exhausted_at_step: int | None = None


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """A replacement of the text between two (line, column) positions, both counted from 1, end exclusive."""

    path: str
    start: tuple[int, int]
    end: tuple[int, int]
    text: str


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, in the user's own names; `safe` edits leave the program's results as they were."""

    summary: str
    safe: bool = False
    edits: list[Edit] = []


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: what, where, who holds it, how much, why, and what to change.

    Of a program of several ranks it is `rank`'s, or of all of them where that is None; where more than one has it,
    `ranks` lists them, and what was measured is of the worst.
    """

    code: str
    name: str
    severity: Severity
    evidence: Evidence
    message: str
    location: Location | None
    cause: str
    remedy: Remedy
    related: list[Related] = []
    holder: Holder | None = None
    measured: Measured = Measured()
    rank: int | None = None
    ranks: list[int] = []
    device: str | None = None


class About(msgspec.Struct, frozen=True):
    """What a finding is about, for the code that writes its fix: the wording may change, this may not.

    `variant` says in which of its rule's forms the fault was found, `operands` which names, operators or shapes of the
    program it is about; the rule says what they mean.
    """

    variant: str = ""
    operands: tuple[str, ...] = ()


NOTHING_MORE = About()


class DetailedFinding(Finding, frozen=True, kw_only=True):
    """A finding on its way through the rules. A report holds plain ones: `about` is no part of the contract."""

    about: About = NOTHING_MORE


def about(finding: Finding) -> About:
    """What a rule has noted of its finding."""
    return finding.about if isinstance(finding, DetailedFinding) else NOTHING_MORE


def plain(finding: Finding) -> Finding:
    """The finding as a report holds it."""
    if type(finding) is Finding:
        return finding
    return Finding(**{name: getattr(finding, name) for name in Finding.__struct_fields__})


class NotChecked(msgspec.Struct, frozen=True, kw_only=True):
    """Something that could not be looked at: silence is not health."""

    check: str
    reason: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole result. `facts` and `overhead` are plain JSON objects; `subject` says what was looked at."""

    subject: dict[str, Any]
    verdict: Verdict
    findings: list[Finding] = []
    not_checked: list[NotChecked] = []
    facts: dict[str, Any] = {}
    overhead: dict[str, Any] = {}
    schema: str = SCHEMA
    version: str = __version__

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "findings", [plain(f) for f in self.findings])

    def _repr_html_(self) -> str:
        """What notebooks show where a report is a cell's value."""
        # By its name: what a report is does not depend on how it is shown.
        return str(import_module("torchvet.renderers.fragment").fragment(self))

    @property
    def earned(self) -> bool:
        """Whether finding no fault is backed by evidence; true of reports that claim nothing of the kind: see
        `facts["verdict"]` of a run."""
        return bool(self.part("verdict").get("earned", True))

    def part(self, name: str) -> dict[str, Any]:
        """One group of the facts; empty where the report has none of that name."""
        found: dict[str, Any] = self.facts.get(name) or {}
        return found

    def worst(self) -> Severity | None:
        """The gravest severity among the findings, or None when there are none."""
        return max((f.severity for f in self.findings), key=SEVERITIES.index, default=None)
