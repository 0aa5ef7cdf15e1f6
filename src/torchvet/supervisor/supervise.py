"""Starts the observed process and sees it through to its end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torchvet
from torchvet.errors import BadInput
from torchvet.probes.session.exception_hook import BOTTOM
from torchvet.supervisor.preflight import Program
from torchvet.supervisor.signal_forwarding import run_relayed


@dataclass(frozen=True)
class Observe:
    """What the observed process is told: where to write, at which rank, when to stop, which limit to forecast by.

    `probes` are options of the session for probes that run only where they are asked for, `overlay` a folder with
    texts that stand in for the user's files, `undo` one where what the program changes on the disk is noted.
    """

    directory: Path
    rank: int
    steps: int | None
    memory_limit: int | None
    probes: dict[str, Any] = field(default_factory=dict)
    overlay: Path | None = None
    undo: Path | None = None


def child_command(program: Program, observe: Observe) -> list[str]:
    """The command line of the observed process: this interpreter, its options, our bootstrap, the program."""
    config = {
        "directory": str(observe.directory),
        "rank": observe.rank,
        "path": program.path,
        "module": program.module,
        "code": program.code,
        "steps": observe.steps,
        "memory_limit": observe.memory_limit,
        "probes": observe.probes,
        "overlay": str(observe.overlay) if observe.overlay is not None else None,
        "undo": str(observe.undo) if observe.undo is not None else None,
        "import_from": str(Path(torchvet.__file__).parents[1]),
    }
    # The program's arguments stay words of their own: the system limits the length of one, and they need not be text.
    return [sys.executable, *interpreter_options(sys.orig_argv), BOTTOM, json.dumps(config), *program.arguments]


def supervise(program: Program, observe: Observe, tick: Callable[[], None]) -> tuple[int, float]:
    """Run the program to its end. Gives its status (-N where signal N killed it) and the seconds that it took.

    Raises `BadInput` where the system refuses to start it.
    """
    if not Path(BOTTOM).is_file():
        raise BadInput(
            f"{BOTTOM}: the interpreter starts the observed program from this file, and it is not there. "
            "Install torchvet as files with their source (pip does), not as a zip or as bytecode alone"
        )
    command = child_command(program, observe)

    def start(prepare: Callable[[], None]) -> subprocess.Popen[bytes]:
        # Inheritable descriptors are the program's, as without us; our own are not inheritable.
        return subprocess.Popen(command, close_fds=False, preexec_fn=prepare)

    started = time.monotonic()
    try:
        status = run_relayed(start, tick)
    except (OSError, subprocess.SubprocessError) as error:
        raise BadInput(f"the program could not be started: {error}") from error
    return status, time.monotonic() - started


def interpreter_options(words: list[str]) -> list[str]:
    """The interpreter's own options on a command line (`sys.orig_argv`), for the next one: -O, -W, -X, -I, -u.

    Taken word by word: what came from PYTHON* variables is left to the variables, so that the program sees in
    `sys.orig_argv` and `sys.flags` what it would see alone.
    """
    options: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        if word == "--check-hash-based-pycs":
            options += [word, next(rest)]
        elif not word.startswith("-") or word.startswith("--") or len(word) < 2:
            break
        else:
            # Letters may be joined (`-OWerror`): one of these four ends the word, or takes the next.
            end = next((i for i, letter in enumerate(word) if i and letter in "cmWX"), None)
            if end is not None and word[end] in "cm":  # -m torchvet: the end of the options
                options += [word[:end]] if end > 1 else []
                break
            options += [word, next(rest)] if end == len(word) - 1 else [word]
    return options
