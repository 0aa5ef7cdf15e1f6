"""Asks torch in a process of its own, so that a torch that crashes or hangs is a finding and no crash of ours."""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

SECONDS = 180
"""How long importing torch and asking it may take: from a slow network disk it takes minutes."""


class Answer(msgspec.Struct, frozen=True):
    """What torch said (empty where it could not be asked), and why it could not."""

    said: dict[str, Any] = {}
    failure: str = ""
    installed: bool = True


def ask(seconds: float = SECONDS) -> Answer:
    """Import the torch that this interpreter finds, and ask it."""
    if not _is_installed():
        where = f"torch is not installed for {sys.executable}; install torchvet into the program's own environment"
        return Answer({}, where, installed=False)
    # The parent's own places, without the working directory, whose files are the user's.
    places = [str(Path(__file__).resolve().parents[2]), *filter(None, sys.path)]
    code = (
        f"import sys; bare = set(sys.modules); sys.path[:] = {places!r}; "
        "from torchvet.probes.environment.torch_facts import main; main(bare)"
    )
    with tempfile.TemporaryDirectory(prefix="torchvet-") as folder:
        file = Path(folder) / "torch.json"
        try:
            ran = subprocess.run(
                [sys.executable, "-c", code, str(file)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Answer({}, f"importing torch did not end within {seconds:g} s")
        if ran.returncode == 0 and file.is_file():
            return Answer(json.loads(file.read_text(encoding="utf-8")))
        return Answer({}, _failure(ran))


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):
        return True  # something of that name is there, and importing it will say what is wrong


def _failure(ran: subprocess.CompletedProcess[str]) -> str:
    if ran.returncode < 0:
        try:
            return f"importing torch ended the process by {signal.Signals(-ran.returncode).name}"
        except ValueError:
            return f"importing torch ended the process by signal {-ran.returncode}"
    lines = [line.strip() for line in ran.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"importing torch ended the process with status {ran.returncode}"
