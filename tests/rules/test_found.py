"""Every rule finds its own BAD example in a real run, and says nothing at warning or above of its GOOD one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from example_runs import RECORDING, forked
from warm_interpreters import torchvet

from torchvet.diagnosis import correlation, diagnose
from torchvet.finding import Finding
from torchvet.recording import read
from torchvet.rules import Rule, all_rules

RULES = [r for r in all_rules() if "in_recording" in r.inputs()]
"""Those that a run can show."""


def findings(program: str, folder: Path, found_with: tuple[str, ...] = ("run",)) -> list[dict[str, Any]]:
    script, report = folder / "program.py", folder / "report.json"
    script.write_text(program, encoding="utf-8")
    command = [*torchvet(), *found_with, "--quiet", "-o", str(report)]
    shutil.rmtree(folder / RECORDING, ignore_errors=True)
    command += ["--memory-limit", "24GiB", "--record", str(folder / RECORDING)] if found_with[0] == "run" else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([*command, str(script)], capture_output=True, text=True, env=environment, timeout=300)
    assert ended.returncode in (0, 1, 3), ended.stderr
    found: list[dict[str, Any]] = msgspec.json.decode(report.read_bytes())["findings"]
    return found


def _without_words(path: Path) -> list[dict[str, Any]]:
    """The findings on a recording where no rule says anything in words."""
    specific, suspicions = diagnose._most_specific, correlation._suspicions
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diagnose, "_most_specific", lambda found: [_silent(f) for f in specific(found)])
        patch.setattr(correlation, "_suspicions", lambda *asked: map(_silent, suspicions(*asked)))
        found: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(diagnose.diagnose(read(path)).findings))
        return found


def _silent(finding: Finding) -> Finding:
    remedy = msgspec.structs.replace(finding.remedy, summary="")
    return msgspec.structs.replace(finding, message="", cause="", remedy=remedy)


def _edits(findings: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    made = [(f["code"], f["remedy"]["edits"]) for f in findings if f["remedy"]["edits"]]
    return sorted(made, key=str)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_the_faulty_example_is_found_and_the_fixed_one_is_silent(rule: Rule, tmp_path: Path) -> None:
    """In a fork where that shows the fault, else as `torchvet run` does it (a program's own end, its exit status)."""
    card = rule.found_with[2] if rule.found_with[-1] == "--dry" else None
    in_fork = card is not None or (rule.found_with == ("run",) and not rule.code.startswith("MEM1"))
    found = forked(rule.BAD, tmp_path, card) if in_fork else None
    in_fork = found is not None and rule.code in [f["code"] for f in found]
    if not in_fork:
        found = findings(rule.BAD, tmp_path, rule.found_with)
        assert rule.code in [f["code"] for f in found], found
    assert found is not None
    if (tmp_path / RECORDING).exists():
        assert _edits(found) == _edits(_without_words(tmp_path / RECORDING)), "a fix goes by the words of a finding"
    fixed = forked(rule.GOOD, tmp_path, card) if in_fork else None
    if fixed is None:
        fixed = findings(rule.GOOD, tmp_path, rule.found_with)
    assert [(f["code"], f["message"]) for f in fixed if f["severity"] != "info"] == []
