"""Applies the package's rule to remarks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

from benchmarks.rivals import SUBJECTS as OF_LINTERS
from benchmarks.rivals import Remark
from casebook.case import Case

NOT_RUN = "not run"
VERDICTS = ("named", "line", "elsewhere", "silent", NOT_RUN)
"""What a tool may be said to have done."""

_GROWTH = {f"MEM{number}" for number in range(101, 117)}
_TRANSFERS = {"DEV110", "OPS101", "OPS102", "OPS103", "OPS104", "OPS105"}

SUBJECTS: dict[str, set[str]] = {
    "TG001": {"MEM105", "MEM107", "MEM113", "MEM202"},
    "TG002": {"MEM202"},
    "TG003": {"MEM116", "AMP118"},
    "TG010": {"MEM204", "MEM205", "MEM207", "MEM304"},
    "TG013": {"OPS105", "DEV110"},
    "oom_leak": {"MEM103", "MEM107", "MEM113"},
    "leak": _GROWTH,
    "creep_early": _GROWTH,
    "creep_confirmed": _GROWTH,
    "high_process_rss": _GROWTH,
    "high_host_memory": _GROWTH,
    "host-memory": _GROWTH,
    "input_bound": {"OPS104"},
    "h2d_bound": _TRANSFERS,
    "loader": {"OPS104"},
    "transfers": _TRANSFERS,
    "attention": {"MEM207"},
    "gpu-memory": {"MEM201", "MEM204", "MEM205", "MEM207", "MEM304"},
}
"""Which rules' subjects a kind of remark speaks of, besides what `benchmarks/rivals.py` says of linters."""


def speaks_of(kind: str, code: str) -> bool:
    """Whether a kind of remark is about the subject of a rule."""
    if kind == "nan-gradient":
        return code.startswith(("AMP", "NUM"))
    return code in SUBJECTS.get(kind, ()) or kind in OF_LINTERS.get(code, ())


def classify(case: Case, faulty: Sequence[Remark], fixed: Sequence[Remark] | None = None) -> str:
    """What a tool is said to have done by its remarks on the faulty program; on the fixed one, where it was asked."""
    lines, file = case.line_numbers(), PurePath(case.expect.file)
    here = [r for r in faulty if r.line in lines and PurePath(r.path).parts[-len(file.parts) :] == file.parts]
    subject = [r for r in faulty if speaks_of(r.code, case.expect.code)]
    if any(r in here or not r.line for r in subject):
        return "named"
    if fixed is not None and Counter(r.code for r in subject) - Counter(r.code for r in fixed):
        return "named"
    return "line" if here else "elsewhere" if any(r.loud for r in faulty) else "silent"
