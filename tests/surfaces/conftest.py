"""These tests watch a process, so each of their files runs in one of its own.

What a watch can judge goes by the size of the process and by the modules in it, and a worker of the suite is large.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

_WITHIN = "TORCHVET_TESTS_WITHIN"


@cache
def _outcomes(file: Path) -> tuple[dict[str, tuple[str, str]], str]:
    """How each test of a file ended in a process of its own (passed, skipped or failed, and why), and what it said."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes = Path(folder, "outcomes.xml")
        kept = {n: v for n, v in os.environ.items() if not n.startswith("PYTEST_")}
        command = [sys.executable, "-m", "pytest", str(file), "-p", "no:xdist", f"--junitxml={outcomes}", "--tb=short"]
        said = subprocess.run(
            command,
            env={**kept, _WITHIN: "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        ).stdout
        cases = ElementTree.parse(outcomes).iter("testcase") if outcomes.exists() else ()
        return {case.attrib["name"]: _outcome(case) for case in cases}, said


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    for kind, name in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        found = case.find(kind)
        if found is not None:
            return name, f"{found.attrib.get('message', '')}\n{found.text or ''}"
    return "passed", ""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    """Take the outcome from the process of the test's file."""
    if os.environ.get(_WITHIN):
        return None
    outcomes, said = _outcomes(pyfuncitem.path)
    outcome, why = outcomes.get(pyfuncitem.name, ("failed", f"the test did not run:\n{said}"))
    if outcome == "skipped":
        pytest.skip(why.strip())
    if outcome == "failed":
        pytest.fail(why, pytrace=False)
    return True
