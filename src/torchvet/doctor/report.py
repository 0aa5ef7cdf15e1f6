"""The whole look as one report: facts of the environment, checks, the checklist, and what `check` finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from torchvet.doctor.asking import Answer, ask
from torchvet.doctor.check import LEVELS, Check
from torchvet.doctor.machine import Machine, this_machine
from torchvet.doctor.machine_checks import machine_checks
from torchvet.doctor.script import Item, checklist, project_files, shadowed, worker_guard
from torchvet.doctor.torch_checks import torch_checks
from torchvet.errors import BadInput
from torchvet.finding import NotChecked, Report, Verdict


def examine(script: Path | None, checked: Report | None = None) -> Report:
    """Look at everything. `checked` is what `check` says of the script's files."""
    machine, answer = this_machine(), ask()
    found: list[Check | NotChecked] = [*machine_checks(machine), *torch_checks(answer, machine)]
    items: list[Item] = []
    if script is not None:
        found += _beside(script, machine, answer)
        items = checklist(project_files(script), script.resolve().parent)
    checks = sorted((c for c in found if isinstance(c, Check)), key=lambda c: -LEVELS.index(c.level))
    facts: dict[str, Any] = {
        "environment": _environment(machine, answer),
        "checks": msgspec.to_builtins(checks),
        "checklist": msgspec.to_builtins(items),
    }
    source = checked or Report(subject={}, verdict="clean")
    return Report(
        subject={"kind": "doctor", "path": str(script) if script is not None else None},
        verdict=_verdict(checks, source, answer),
        findings=source.findings,
        not_checked=[*(m for m in found if isinstance(m, NotChecked)), *source.not_checked],
        facts={**source.facts, "doctor": facts},
    )


def _beside(script: Path, machine: Machine, answer: Answer) -> Iterator[Check | NotChecked]:
    """What the script's own folder and text do to its start."""
    yield from shadowed(script, answer.said.get("imported", ()))
    yield from worker_guard(script, machine)
    if not answer.said:
        yield NotChecked(check="files that shadow what torch imports", reason="torch was not imported")


def _verdict(checks: Sequence[Check], source: Report, answer: Answer) -> Verdict:
    """Without torch most was not looked at: finding nothing is no verdict then."""
    if source.findings or any(c.level != "ok" for c in checks):
        return "findings"
    return "clean" if answer.said else "undetermined"


def script_files(path: str) -> Sequence[str]:
    """The script and what it imports from beside it. Raises `BadInput` for what is no file."""
    if not Path(path).is_file():
        what = "is a folder: give the script that is started" if Path(path).is_dir() else "no such file"
        raise BadInput(f"{path}: {what}")
    return [str(file) for file in project_files(Path(path))]


def worst(report: Report) -> str:
    """The gravest level of a check: `ok` where none found anything."""
    checks = report.facts["doctor"]["checks"]
    return max((c["level"] for c in checks), key=[*LEVELS].index, default="ok")


def _environment(machine: Machine, answer: Answer) -> dict[str, Any]:
    """The values, for people who compare machines."""
    said = answer.said
    return {
        "machine": msgspec.to_builtins(machine),
        "torch": {name: said[name] for name in _SHOWN if name in said} if said else None,
    }


_SHOWN = ("version", "file", "numpy", "build", "cuda", "half", "precision", "threads", "allocator", "pinned")
