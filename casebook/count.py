"""The independent count: tensor bytes that a program gains per step, from the allocator's own events."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from casebook.meter import MARKERS
from casebook.program import Program, environment

ENOUGH = 8
"""Marks of one kind needed before they are taken for steps."""

MOST_POINTS = 400
"""Points used for a slope, evenly thinned beyond this, for all their pairs are taken."""


@dataclass(frozen=True)
class Count:
    """What one run of a program used."""

    marker: str
    """What was taken for a step: optimizer, backward, loader or module."""
    in_use: list[int]
    """Bytes of CPU tensors alive at each step."""
    peak: int
    """Most bytes of CPU tensors alive at any moment."""

    @property
    def steps(self) -> int:
        """Number of steps seen."""
        return len(self.in_use)

    @property
    def bytes_per_step(self) -> float:
        """Growth of the bytes in use, in bytes per step, over the steady part of the run."""
        return slope(steady(self.in_use))


class CountError(RuntimeError):
    """The program could not be counted."""


def steady(values: Sequence[int]) -> Sequence[int]:
    """The values after warm-up: without the first quarter, and without the first five at least."""
    return values[max(5, len(values) // 4) :]


def slope(values: Sequence[int]) -> float:
    """The Theil-Sen slope: the median rise per index over all pairs, blind to outliers and to jumps that cancel."""
    thinned = range(0, len(values), -(-len(values) // MOST_POINTS) or 1)
    rises = [(values[j] - values[i]) / (j - i) for i, j in itertools.combinations(thinned, 2)]
    return statistics.median(rises) if rises else 0.0


def choose(marks: dict[str, list[int]]) -> tuple[str, list[int]]:
    """The first kind of mark, in the order of ``MARKERS``, that occurs often enough to be the program's step."""
    for kind in MARKERS:
        if len(marks[kind]) >= ENOUGH:
            return kind, marks[kind]
    seen = ", ".join(f"{kind} {len(values)}" for kind, values in marks.items())
    raise CountError(f"no kind of step occurs {ENOUGH} times: {seen}")


def count(program: Program, argv: Sequence[str], interpreter: str = sys.executable) -> Count:
    """Run the program in its own process under the allocator's events. Raises `CountError` where it takes no steps."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "curve.json")
        command = [interpreter, "-m", "casebook.meter", str(out), *program.target, *argv]
        done = subprocess.run(command, cwd=program.folder, env=environment(), capture_output=True, text=True)
        if not out.exists():
            raise CountError(f"{program.name}: {done.stderr[-400:]}")
        curve = json.loads(out.read_text())
    marker, in_use = choose(curve["marks"])
    return Count(marker, in_use, curve["peak"])
