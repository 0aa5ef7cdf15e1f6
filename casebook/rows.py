"""Scores as they are kept for the scoreboard: what a reader is told of each case."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from casebook.case import Case
from casebook.program import environment, python
from casebook.score import Score

KEPT = Path(__file__).with_name("scores.json")

Shape = Literal["right", "elsewhere", "missed"]


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One case."""

    case: str
    code: str
    found: bool = True
    line: bool | None = True
    """Whether the line is right; so with the others. None where the case does not ask."""
    severity: bool | None = True
    holder: bool | None = None
    bytes: bool | None = None
    healthy: int = 0
    """Healthy programs of the case: the fixed one and the look-alikes."""
    silent: int = 0
    """How many of them nothing is said of."""
    alarms: int = 0
    undisturbed: bool = True
    symptom: str = ""
    fix: str = ""
    """A `FixStatus`; empty where the fix was not asked for."""
    reason: str = ""
    variants: dict[str, Shape] = {}
    alarms_in_variants: int | None = None
    """Warnings and errors on variants that are not true; None where there are none of those."""

    @property
    def family(self) -> str:
        """The letters of its code."""
        return self.code[:3]


class Kept(msgspec.Struct):
    """A whole run of the casebook."""

    versions: dict[str, str]
    """What it was run with."""
    rows: list[Row]


def row(case: Case, score: Score) -> Row:
    """What is kept of a score."""
    found = score.found
    healthy = [score.fixed_silent, *score.lookalikes_silent]
    shapes: dict[str, Shape] = {
        v.name: "missed" if v.found is None else "right" if v.found.line else "elsewhere" for v in score.variants
    }
    return Row(
        case=case.name, code=case.expect.code, found=found is not None,
        line=found.line if found else None, severity=found.severity if found else None,
        holder=found.holder if found else None, bytes=found.bytes if found else None,
        healthy=len(healthy), silent=sum(healthy), alarms=score.false_alarms, undisturbed=score.undisturbed,
        symptom=score.symptom, fix=score.fix.status if score.fix else "",
        reason=score.fix.reason if score.fix else "", variants=shapes,
        alarms_in_variants=score.alarms_in_variants if shapes else None,
    )  # fmt: skip


def versions() -> dict[str, str]:
    """Of torchvet, torch and Python."""
    asked = "import torch, torchvet; print(torchvet.__version__, torch.__version__)"
    done = subprocess.run(python("-c", asked), env=environment(), capture_output=True, text=True, check=True)
    torchvet, torch = done.stdout.split()
    return {"torchvet": torchvet, "torch": torch, "Python": platform.python_version()}


def write(path: Path, rows: Sequence[Row], made_with: dict[str, str]) -> None:
    """Keep a run, one case a line."""
    lines = ",\n".join("  " + msgspec.json.encode(each).decode() for each in rows)
    path.write_text(f'{{"versions": {msgspec.json.encode(made_with).decode()},\n"rows": [\n{lines}\n]}}\n', "utf-8")


def read(path: Path = KEPT) -> Kept:
    """What was kept."""
    return msgspec.json.decode(path.read_bytes(), type=Kept)
