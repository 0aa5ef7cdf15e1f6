"""`run --until-verdict`: the recording is diagnosed while it grows, and the program is stopped once that says no more.

The verdict stands when two diagnoses agree, the second after half as many steps again. The report is the diagnosis of
the whole recording after the program has stopped: stopping early may hide what comes later, and never what was seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from torchvet.finding import Finding, NotChecked, Report
from torchvet.recording import Recording, read
from torchvet.rules.memory.mem118_growth_unattributed.rule import GrowthUnattributed

FIRST, EVERY, SHARE = 5.0, 3.0, 0.1
"""Seconds before the first diagnosis and between two; and the share of the time that they may take."""
STEPS, FURTHER = 30, 1.5
"""Steps before which no verdict stands, and how many times as many the second diagnosis has."""
ALIKE = 0.1
"""Relative difference up to which two measurements of a growth agree."""


class UntilVerdict:
    """Watches the recording in `directory`; `diagnose` gives the report on what there is of it."""

    def __init__(self, directory: Path, diagnose: Callable[[Recording], Report], wanted: bool = True) -> None:
        self.file = directory / "stop"
        """The program stops at a step boundary once this file is there."""
        self._directory, self._diagnose, self.wanted = directory, diagnose, wanted
        self.latest: Report | None = None
        """The newest diagnosis, whether it is compared or not."""
        self._earlier: Report | None = None
        self._due = time.monotonic() + FIRST
        self.agreed: tuple[int, int] | None = None
        """The steps of the two diagnoses that agreed."""

    @property
    def options(self) -> dict[str, str]:
        """What the observed process is told."""
        return {"stop_file": str(self.file)} if self.wanted else {}

    def beside(self, other: Callable[[], None]) -> Callable[[], None]:
        """What is to be called while the program runs: another function, and `tick` where it is wanted."""

        def both() -> None:
            other()
            self.tick()

        return both if self.wanted else other

    def tick(self) -> None:
        """Diagnose if it is time for it, and ask the program to stop if the verdict stands."""
        started = time.monotonic()
        if self.agreed is not None or started < self._due:
            return
        try:
            recording = read(self._directory)
            # Ranks must stop at one step: one that stops alone leaves the others waiting.
            report = self._diagnose(recording) if len(recording.ranks) == 1 else None
        except Exception:
            report = None  # of a file that is being written; what is wrong with it is said at the end
        if report is not None:
            self.latest = report
            self.judge(report)
        ended = time.monotonic()
        self._due = ended + max(EVERY, (ended - started) / SHARE)

    def judge(self, report: Report) -> None:
        """Compare a diagnosis with the one before."""
        earlier = self._earlier
        if earlier is not None and _steps(report) < FURTHER * _steps(earlier):
            return
        if earlier is not None and stands(earlier, report):
            self.agreed = _steps(earlier), _steps(report)
            self.file.touch()
        self._earlier = report

    def noted(self, report: Report) -> Report:
        """The final report; what the program would have done further on was not looked at."""
        if self.wanted:
            self.file.unlink(missing_ok=True)
        if self.agreed is None or report.part("outcome").get("how") != "steps-reached":
            return report
        first, second = self.agreed
        gap = NotChecked(
            check=f"what the program does after step {_steps(report):,}",
            reason=f"--until-verdict stopped it there: the diagnoses at steps {first:,} and {second:,} agree",
        )
        return msgspec.structs.replace(report, not_checked=[*report.not_checked, gap])


def stands(earlier: Report, later: Report) -> bool:
    """Whether a further look would say the same: the same observed faults at the same rates, or twice a clean run that
    has earned that."""
    if _steps(earlier) < STEPS:
        return False
    before, after = _serious(earlier), _serious(later)
    if not after:
        return not before and earlier.earned and later.earned
    if before.keys() != after.keys():
        return False
    return all(_settled(before[key], after[key]) for key in after)


def _steps(report: Report) -> int:
    return int(report.facts.get("steps") or 0)


def _serious(report: Report) -> dict[tuple[object, ...], Finding]:
    """Errors and warnings by what they are about."""
    return {
        (f.code, f.severity, f.location and (f.location.path, f.location.line), f.holder and f.holder.name): f
        for f in report.findings
        if f.severity != "info"
    }


def _settled(before: Finding, after: Finding) -> bool:
    """Whether a finding was measured, and its rate is as before. Growth without a name may get one yet."""
    if after.evidence == "suspected" or after.code == GrowthUnattributed.code:
        return False
    first, second = before.measured.bytes_per_step or 0.0, after.measured.bytes_per_step or 0.0
    return abs(first - second) <= ALIKE * max(first, second)
