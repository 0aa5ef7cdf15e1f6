"""What a trial does beyond its files is noted: it cannot be undone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from torchvet.undo.effects import Effects, noted

ACTS = """
import os, socket, subprocess, sys
from pathlib import Path
from torchvet.undo.audit_hook import Hearing
from torchvet.undo.effects import Effects
from torchvet.undo.journal import Notes
folder = Path(sys.argv[1])
(folder / "log.jsonl").touch()
Hearing(Notes(folder, (), (os.getcwd(),)), Effects(folder, lambda: sys.argv[2] == "meant")).install()
for _ in range(2):
    subprocess.run(["/bin/true", "--a", b"\\xff"])
os.system("true")
if os.fork() == 0:
    os.system("exit 3")
    os._exit(0)
os.wait()
for kind, address in ((socket.AF_INET, ("127.0.0.1", 1)), (socket.AF_UNIX, "nowhere")):
    try:
        socket.socket(kind).connect(address)
    except OSError:
        pass
"""


def acted(folder: Path, how: str) -> list[str]:
    subprocess.run([sys.executable, "-c", ACTS, str(folder), how], check=True)
    return noted(folder)


def test_programs_and_addresses_are_noted_once_in_their_order(tmp_path: Path) -> None:
    assert acted(tmp_path, "meant") == [
        "started `/bin/true --a \udcff`", "started `true`", "started `exit 3`", "connected to 127.0.0.1:1",
    ]  # fmt: skip


def test_what_torch_does_is_not_the_programs(tmp_path: Path) -> None:
    assert acted(tmp_path, "not meant") == []


def test_there_is_an_end_to_it(tmp_path: Path) -> None:
    effects = Effects(tmp_path, lambda: True)
    for number in range(1000):
        effects.table["os.system"]((f"{number} {'x' * 10_000}",))
    assert 10 < len(noted(tmp_path)) < 100 and max(map(len, noted(tmp_path))) < 300


def test_without_any_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert noted(tmp_path) == []
    (tmp_path / "effects.jsonl").write_bytes(b'"one"\n\xff\n{"torn')
    assert noted(tmp_path) == ["one"]
