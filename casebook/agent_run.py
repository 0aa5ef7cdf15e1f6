"""Give an agent a program and a message, and leave it alone with them for a while."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from casebook.case import Case
from casebook.program import ROOT, Program, environment

NAME = "train"
"""What the program is called where an agent sees it."""

BUILTIN = (
    f"{shlex.quote(sys.executable)} {shlex.quote(str(ROOT / 'casebook' / 'reference_agent.py'))} "
    "{prompt_file} {workdir}"
)
"""The command that `--agent builtin` stands for."""


@dataclass(frozen=True)
class Attempt:
    """What became of an agent's run. `trouble` says why it counts as failed whatever it left behind."""

    program: Program
    trouble: str = ""


def workplace(case: Case, folder: Path, skill: Path | None) -> Program:
    """A fresh folder with a copy of the faulty program and nothing else of the case; the skill too, where given."""
    folder.mkdir(parents=True)
    source = case.faulty.path
    if source.is_dir():
        shutil.copytree(source, folder / NAME, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, folder / f"{NAME}.py")
    if skill is not None:
        shutil.copytree(skill, folder / skill.name)
    return Program(folder, NAME)


def sources(folder: Path) -> dict[str, str]:
    """The Python files below a folder by their names there; what cannot be read is left out."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        try:
            found[path.relative_to(folder).as_posix()] = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
    return found


def run_agent(template: str, prompt: Path, program: Program, said: Path, limit: float) -> Attempt:
    """Run the agent's command in the program's folder until it ends or its time is up; what it says goes to a file."""
    command = [
        part.replace("{prompt_file}", str(prompt)).replace("{workdir}", str(program.folder))
        for part in shlex.split(template)
    ]
    with said.open("wb") as stream:
        try:
            agent = subprocess.Popen(
                command, cwd=program.folder, env=_environment(), stdin=subprocess.DEVNULL, stdout=stream,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return Attempt(program, f"the agent could not be started: {error}")
        try:
            status = agent.wait(limit)
        except subprocess.TimeoutExpired:
            return Attempt(program, f"the agent was stopped after {limit:g} s")
        finally:
            _end(agent)
    return Attempt(program, f"the agent ended with status {status}" if status else "")


def _environment() -> dict[str, str]:
    """As for a program, but without the casebook, which has the answers, among what can be imported."""
    own = environment()
    given: Sequence[str] = own["PYTHONPATH"].split(os.pathsep)
    return {**own, "PYTHONPATH": os.pathsep.join(path for path in given if Path(path or ".").resolve() != ROOT)}


def _end(agent: subprocess.Popen[bytes]) -> None:
    """End the agent and all that it has started."""
    try:
        os.killpg(agent.pid, signal.SIGKILL)
    except (OSError, AttributeError):  # nothing is left of it, or there are no process groups here
        agent.kill()
    agent.wait()
