"""A comparison as a report: facts for machines and a verdict for a gate."""

from __future__ import annotations

from typing import Any

import msgspec

from torchvet.comparing.tables import Comparison, Difference
from torchvet.finding import NotChecked, Report


def report_on(comparison: Comparison, gate: float | None = None) -> Report:
    """The report. `gate` is the share by which a gating total may grow; the verdict is `findings` where one grew more,
    `undetermined` where both sides have none, and `clean` without a gate: a change is no fault by itself."""
    over = comparison.over(gate) if gate is not None else []
    facts: dict[str, Any] = {
        "same": comparison.same,
        "gate": gate,
        "over": [d.title for d in over],
        "differences": [_plain(d) for d in comparison.differences],
    }
    sides = {"of": comparison.kind, "before": comparison.before, "after": comparison.after}
    return Report(
        subject={"kind": "comparison", **sides},
        verdict="findings" if over else "clean" if gate is None or comparison.gateable else "undetermined",
        facts={"comparison": facts},
        not_checked=[NotChecked(check=n.check, reason=n.reason) for n in comparison.notes],
    )


def _plain(difference: Difference) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(difference)
    growth = difference.growth
    # JSON has no infinity: what was nothing before has no share.
    return {**plain, "growth": None if growth in (None, float("inf")) else growth}
