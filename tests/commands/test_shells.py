"""Completion in the shells themselves, by the lines of docs/editors.md."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torchvet.rules import codes, rule

DOCUMENTED = (Path(__file__).parents[2] / "docs" / "editors.md").read_text("utf-8")
LONGEST = 60.0
"""Seconds that a shell may be silent."""
ZSHRC = """
autoload -Uz compinit; compinit -u -D
{line}
bindkey '^I' expand-or-complete
save() {{ print -r -- "$BUFFER" >> $OUT/typed; BUFFER= }}
zle -N save; bindkey '^X^W' save
zle-line-init() {{ print ready >> $OUT/ready }}
zle -N zle-line-init
"""


def documented(shell: str) -> str:
    found = re.search(rf"^    (.*{shell}_source.*?)\s+# ", DOCUMENTED, re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.fixture
def environment(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """Where `torchvet` is a command, and the shell has no settings but the test's."""
    command = tmp_path / "bin" / "torchvet"
    command.parent.mkdir()
    code = "from torchvet.commands import main; raise SystemExit(main())"
    command.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{code}' \"$@\"\n")
    command.chmod(0o755)
    path = os.pathsep.join((str(command.parent), os.environ["PATH"]))
    own = {"PATH": path, "HOME": str(tmp_path), "ZDOTDIR": str(tmp_path), "OUT": str(tmp_path), "TERM": "vt100"}
    return {**own, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "LC_ALL": "C.UTF-8"}


def need(shell: str) -> str:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    return path


def test_fish_completes_codes_with_all_that_they_mean(environment: dict[str, str]) -> None:
    lines = ["explain MEM10", "check --select MEM101,amp10", "check --select=MEM101,amp10", "exp", "fix bin/tor"]
    asked = "; echo; ".join(f'complete -C "torchvet {line}"' for line in lines)
    command = [need("fish"), "--no-config", "-c", f"{documented('fish')}; {asked}"]
    ran = subprocess.run(command, env=environment, cwd=environment["OUT"], capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    offered = [part.splitlines() for part in ran.stdout.split("\n\n")]
    of_memory = [c for c in codes() if c.startswith("MEM10")]
    assert offered[0] == [f"{c}\t{rule(c).summary}" for c in of_memory]
    of_autocast = [c for c in codes() if c.startswith("AMP10")]
    assert [line.partition("\t")[0] for line in offered[1]] == [f"MEM101,{c}" for c in of_autocast]
    assert [line.partition("\t")[0] for line in offered[2]] == [f"--select=MEM101,{c}" for c in of_autocast]
    assert [line.partition("\t")[0] for line in offered[3]] == ["explain"]
    assert offered[4] == ["bin/torchvet"]


def test_zsh_completes_what_is_typed(environment: dict[str, str], tmp_path: Path) -> None:
    need("zsh")
    (tmp_path / ".zshrc").write_text(ZSHRC.format(line=documented("zsh")))
    typed = {
        "torchvet expl": "torchvet explain ",
        "torchvet explain mem101": "torchvet explain MEM101 ",
        "torchvet explain graph-reta": "torchvet explain graph-retained ",
        "torchvet check --select MEM101,amp101": "torchvet check --select MEM101,AMP101 ",
        "torchvet check --select=MEM101,amp101": "torchvet check --select=MEM101,AMP101 ",
        "torchvet fix bin/tor": "torchvet fix bin/torchvet ",
    }
    assert in_zsh(list(typed), environment, tmp_path) == list(typed.values())


def in_zsh(lines: list[str], environment: dict[str, str], folder: Path) -> list[str]:
    """What a terminal's zsh makes of each line after Tab."""
    import pty

    child, terminal = pty.fork()
    if not child:
        os.chdir(folder)
        os.execve(need("zsh"), ["zsh", "-d", "-i"], environment)
    try:
        wait_for(folder / "ready", 1, terminal)
        for number, line in enumerate(lines, 1):
            os.write(terminal, f"{line}\t\x18\x17".encode())
            wait_for(folder / "typed", number, terminal)
        os.write(terminal, b"exit\n")
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
    return (folder / "typed").read_text().split("\n")[:-1]


def wait_for(file: Path, lines: int, terminal: int) -> None:
    """Read what the terminal shows until a file has so many lines."""
    shown = b""
    while not file.exists() or file.read_text().count("\n") < lines:
        assert select.select([terminal], [], [], LONGEST)[0], f"the shell is silent; it has shown {shown!r}"
        shown += os.read(terminal, 65_536)
