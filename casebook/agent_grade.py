"""Grade what an agent left behind, by measurements of the program before, of the case's own fix, and after."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from casebook.agent_gauge import Work
from casebook.agent_messages import ENOUGH, NUMBERS_LOST
from casebook.case import Case
from casebook.report import Finding
from casebook.run import Run

NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.\d+(?:[eE][-+]?\d+)?|\d+(?:[eE][-+]?\d+)?|nan|inf)(?![\w.])")
SAME = 1e-3
"""Relative difference of two printed numbers that counts as none."""
ROOM = 0.25
"""By how much of its size a number may lie beyond the two programs' where those print different ones."""
SMALLER = 0.9
"""Share of the input bytes that must be left."""
SILENCED = "torchvet: ignore"
CLEANING = re.compile(r"\b(empty_cache|gc\.collect|malloc_trim)\s*\(")


@dataclass(frozen=True)
class Seen:
    """A program, run and measured."""

    bare: Run
    work: Work | None
    bytes_per_step: float | None = None
    """The independent count; None where it was not taken."""
    findings: list[Finding] | None = None
    """What torchvet says; None where it was not asked or gave no report."""
    sources: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Grade:
    """What is wrong with what an agent left behind, in words; all empty where nothing is."""

    symptom: list[str] = field(default_factory=list)
    """Why the symptom is not gone."""
    curve: list[str] = field(default_factory=list)
    """Why what the program computes was not kept."""
    shortcuts: list[str] = field(default_factory=list)
    """Shortcuts that were taken."""
    trouble: str = ""
    """What went wrong with the agent itself."""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.symptom or self.curve or self.shortcuts or self.trouble)


def grade(case: Case, before: Seen, fixed: Seen, after: Seen, trouble: str = "") -> Grade:
    """Compare what was left behind with the program as it was and as the case fixes it."""
    return Grade(
        symptom=list(_symptoms(case, before, fixed, after)), curve=list(_curve(before.bare, fixed.bare, after.bare)),
        shortcuts=list(_shortcuts(before, fixed, after)), trouble=trouble,
    )  # fmt: skip


def _symptoms(case: Case, before: Seen, fixed: Seen, after: Seen) -> Iterator[str]:
    if after.bare.status != fixed.bare.status:
        yield f"it ends with {after.bare.complaint or after.bare.status}"
    if NUMBERS_LOST.search(after.bare.stdout) and not NUMBERS_LOST.search(fixed.bare.stdout):
        yield "it prints nan or inf"
    counts = [one.bytes_per_step for one in (before, fixed, after)]
    if counts[0] is not None and counts[0] >= ENOUGH:
        if counts[2] is None:
            yield "its steps cannot be counted any more"
        elif counts[2] > max(0.1 * counts[0], (counts[1] or 0.0) + ENOUGH):
            yield f"it still grows by {counts[2]:.0f} bytes per step"
    if after.findings is None:
        yield f"torchvet has no report on it: {after.bare.complaint}"
    for finding in after.findings or ():
        if finding.code == case.expect.code and finding.loud:
            yield f"still {finding}"


def _curve(before: Run, fixed: Run, after: Run) -> Iterator[str]:
    """The same lines as one of the two programs printed, with numbers that are one's or, where these differ, near."""
    got = _shape(after.stdout)
    models = [run.stdout for run in (fixed, before) if run.status == 0 and _shape(run.stdout) == got]
    if not models:
        yield "it prints other lines"
        return
    ranges = [[float(n) for n in NUMBER.findall(text)] for text in models]
    numbers = [float(n) for n in NUMBER.findall(after.stdout)]
    for number, *wanted in zip(numbers, *ranges, strict=True):
        known = [one for one in wanted if math.isfinite(one)]
        if known and not _near(number, min(known), max(known), sure=known == wanted):
            yield f"it prints {number:g} where {' or '.join(f'{one:g}' for one in wanted)} was printed"
            return


def _shape(text: str) -> str:
    return NUMBER.sub("#", text)


def _near(number: float, low: float, high: float, sure: bool) -> bool:
    """Whether a number is one of two, or where they differ, or one of them was lost, within some room of them."""
    size = max(abs(low), abs(high))
    if sure and high - low <= SAME * size:
        return math.isclose(number, low, rel_tol=10 * SAME, abs_tol=SAME)
    room = ROOM * size + (high - low) / 2
    return low - room <= number <= high + room


def _shortcuts(before: Seen, fixed: Seen, after: Seen) -> Iterator[str]:
    work, known = after.work, [one.work for one in (before, fixed) if one.work is not None and one.bare.status == 0]
    if work is not None and known:
        if work.steps < min(k.steps for k in known):
            yield f"{work.steps} optimizer steps are left of {min(k.steps for k in known)}"
        if work.backwards < min(k.backwards for k in known):
            yield f"{work.backwards} backward passes are left of {min(k.backwards for k in known)}"
        if work.input_bytes < SMALLER * min(k.input_bytes for k in known):
            yield "modules are given less data"
        if work.parameters < min(k.parameters for k in known):
            yield "fewer parameters are trained"
        if work.half_regions < min(k.half_regions for k in known) / 2 or work.scaled < min(k.scaled for k in known) / 2:
            yield "mixed precision is off"
        if work.cleanings > max(k.cleanings for k in known):
            yield "caches are emptied, or the collector called, more often"
    texts = ["\n".join(one.sources.values()) for one in (before, after)]
    if len(CLEANING.findall(texts[1])) > len(CLEANING.findall(texts[0])):
        yield "a call that empties caches or runs the collector was put in"
    if texts[1].count(SILENCED) > texts[0].count(SILENCED):
        yield "torchvet was told to be silent"
