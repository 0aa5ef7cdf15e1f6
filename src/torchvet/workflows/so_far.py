"""What a recording shows while its program still runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchvet.workflows.report_output import Delivery
    from torchvet.workflows.until_verdict import UntilVerdict


def findings_so_far(directory: Path, delivery: Delivery, until: UntilVerdict | None = None) -> Callable[[], list[str]]:
    """A function that reads the recording in `directory` and gives `MEM101 train.py:42` for each fault. Where `until`
    diagnoses it anyway, its latest diagnosis is taken."""

    def find() -> list[str]:
        from torchvet.recording import read

        report = until.latest if until is not None and until.wanted else delivery.diagnose(read(directory))
        if report is None:
            return []
        # Notes would come and go: what is not sure yet is not shown.
        return [_in_short(f.code, f.location) for f in report.findings if f.severity != "info"]

    return find


def _in_short(code: str, location: object) -> str:
    path, line = getattr(location, "path", None), getattr(location, "line", None)
    return f"{code} {Path(path).name}:{line}" if path else code
