"""Every rule finds its own BAD example in a real run, and says nothing at warning or above of its GOOD one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from torchvet.rules import Rule, all_rules

RULES = [r for r in all_rules() if type(r).in_recording is not Rule.in_recording]
"""Those that a run can show."""


def findings(program: str, folder: Path, found_with: tuple[str, ...] = ("run",)) -> list[dict[str, Any]]:
    script, report = folder / "program.py", folder / "report.json"
    script.write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "torchvet", *found_with, "--quiet", "-o", str(report)]
    command += ["--memory-limit", "24GiB"] if found_with[0] == "run" else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([*command, str(script)], capture_output=True, text=True, env=environment, timeout=120)
    assert ended.returncode in (0, 1), ended.stderr
    found: list[dict[str, Any]] = msgspec.json.decode(report.read_bytes())["findings"]
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_the_faulty_example_is_found(rule: Rule, tmp_path: Path) -> None:
    found = findings(rule.BAD, tmp_path, rule.found_with)
    assert rule.code in [f["code"] for f in found], found


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_the_mended_example_is_silent(rule: Rule, tmp_path: Path) -> None:
    loud = [
        (f["code"], f["message"]) for f in findings(rule.GOOD, tmp_path, rule.found_with) if f["severity"] != "info"
    ]
    assert loud == []
