"""RED: what shows of a fault by itself, beside the fixed program, measured by nothing of torchvet's.

In this order: how the process ends; numbers that are none among what it prints; tensor bytes gained per step, and their
peak, by the allocator's own events (`count`; for faults of memory); what it prints last. Where none of it differs, or
the program needs a GPU, the symptom is not measured.
"""

from __future__ import annotations

import re

from casebook.case import Case
from casebook.count import Count, CountError, count
from casebook.run import Means, Run
from casebook.score import Observation

NOT_MEASURED = "not measured"

_NO_NUMBER = re.compile(r"(?<![\w.])[+-]?(?:nan|inf)(?![\w.])", re.IGNORECASE)
_LEAST = 64
"""Bytes per step that are growth."""
_SMALL = 0.1
"""Share of the faulty program's growth that the fixed one may have."""
_HIGHER = 1.02
"""How much higher a peak is a symptom."""


def symptom(case: Case, faulty: Observation, fixed: Observation, means: Means) -> str:
    """The symptom in a few words."""
    if "--simulate-gpu" in case.expect.command:
        return f"{NOT_MEASURED}: the program needs a GPU"
    return (
        ending(faulty.bare, fixed.bare)
        or no_numbers(faulty.bare.stdout, fixed.bare.stdout)
        or (memory(case, means) if case.expect.code.startswith("MEM") else "")
        or last_line(faulty.bare.stdout, fixed.bare.stdout)
        or NOT_MEASURED
    )


def ending(faulty: Run, fixed: Run) -> str:
    """The error that only the faulty program ends with."""
    if faulty.status == 0 or fixed.status != 0:
        return ""
    return f"ends with {faulty.complaint.partition(':')[0]}" if faulty.complaint else f"exit status {faulty.status}"


def no_numbers(faulty: str, fixed: str) -> str:
    """The first number that is none, where the fixed program prints none such."""
    found = _NO_NUMBER.search(faulty)
    if found is None or _NO_NUMBER.search(fixed):
        return ""
    return f"prints {found[0]} in line {faulty[: found.start()].count(chr(10)) + 1}"


def memory(case: Case, means: Means) -> str:
    """Growth or a peak of tensor bytes that the fixed program does not have."""
    try:
        faulty, fixed = (count(p, case.expect.argv, means.interpreter) for p in (case.faulty, case.fixed))
    except CountError:
        return ""
    return growth(faulty, fixed)


def growth(faulty: Count, fixed: Count) -> str:
    """The same of two counts."""
    rate, other = faulty.bytes_per_step, fixed.bytes_per_step
    if rate >= _LEAST and other <= _SMALL * rate:
        return f"{rate:,.0f} bytes per step (fixed: {other:,.0f})"
    if faulty.peak > _HIGHER * fixed.peak:
        return f"peak of {faulty.peak:,} bytes (fixed: {fixed.peak:,})"
    return ""


def last_line(faulty: str, fixed: str) -> str:
    """How the ends of what they print differ."""
    ends = [(text.strip().splitlines() or ["nothing"])[-1].strip()[:60] for text in (faulty, fixed)]
    return f"prints “{ends[0]}” (fixed: “{ends[1]}”)" if ends[0] != ends[1] else ""
