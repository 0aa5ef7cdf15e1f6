"""Runs made up for the tests of what is concluded from them."""

from __future__ import annotations

from typing import Any

from torchvet.finding import Edit, Finding, Holder, Location, Measured, Remedy
from torchvet.verifying.trial import Trial

FILE = "/project/train.py"
TEXT = "total = 0\nfor x in data:\n    loss = f(x)\n    total += loss\nprint(total)\n"


def finding(code: str = "MEM101", line: int = 4, rate: float | None = None, name: str = "", **more: Any) -> Finding:
    """An observed finding with an edit; with a `rate` it is a growth of `name`."""
    edit = Edit(path=FILE, start=(line, 1), end=(line, 1), text="")
    facts: dict[str, Any] = {
        "severity": "error", "evidence": "observed", "message": f"{code} at {line}", "cause": "because",
        "location": Location(path=FILE, line=line), "remedy": Remedy(summary="do", safe=True, edits=[edit]),
        "measured": Measured(bytes_per_step=rate), "holder": Holder(name=name, kind="local") if name else None,
    }  # fmt: skip
    return Finding(code=code, name="a-fault", **{**facts, **more})


def trial(*findings: Finding, steps: int = 40, curve: list[float | None] | None = None, **more: Any) -> Trial:
    """A run of forty steps whose loss falls; names grow as the findings say."""
    losses = [1.0 / (n + 1) for n in range(steps)] if curve is None else curve
    rates = {f.holder.name: f.measured.bytes_per_step or 0.0 for f in findings if f.holder is not None}
    facts: dict[str, Any] = {"rates": rates, "windows": 5, "sources": {FILE: TEXT}}
    return Trial(findings=list(findings), steps=steps, curve=losses, **{**facts, **more})
