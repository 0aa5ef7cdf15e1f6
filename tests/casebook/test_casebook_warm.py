"""A program in a warm interpreter has what one of its own would have given it, and ends as it would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from casebook.program import environment
from casebook.warm import Warm

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="warm interpreters need pidfd_open")

TELLS = """
import json, os, sys
names = sorted(vars(sys.modules["__main__"]))
print(json.dumps([sys.argv, sys.path[0], __name__, __file__, os.getcwd(), os.environ.get("GIVEN"), sys.orig_argv[1:],
                  [n for n in names if not n.startswith("__")], [m for m in sys.modules if "casebook" in m]]))
"""

ENDINGS = {
    "finished": "print('out')",
    "exit": "import sys; sys.exit(7)",
    "exit with a message": "import sys; sys.exit('no')",
    "exception": "print('before'); raise ValueError('it broke')",
    "hard": "import os; os._exit(5)",
    "handler": "import atexit; atexit.register(print, 'handled')",
    "thread": "import threading; threading.Timer(0.05, print, ['joined']).start()",
    "signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "interrupt": "raise KeyboardInterrupt",
    "syntax": "print('never'",
    "missing import": "import nothing_of_this_name",
}


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    server = Warm()
    yield server
    server.close()


def run(python: str, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run it with an interpreter."""
    environ = {**environment(), "GIVEN": "this"}
    return subprocess.run([python, *words], cwd=folder, env=environ, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("words", [["told.py", "--steps", "3"], ["sub/told.py"]])
def test_a_script_finds_what_it_would_find(warm: Warm, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / words[0]).write_text(TELLS)
    told, expected = (json.loads(run(p, words, tmp_path).stdout) for p in (warm.interpreter, sys.executable))
    assert told == expected


def test_a_module_finds_what_it_would_find(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    (tmp_path / "pack" / "__main__.py").write_text(TELLS + "from . import __name__ as parent; print(parent)\n")
    words = ["-m", "pack", "--steps", "3"]
    assert run(warm.interpreter, words, tmp_path).stdout == run(sys.executable, words, tmp_path).stdout


@pytest.mark.parametrize("ending", ENDINGS)
def test_it_ends_as_it_would(warm: Warm, tmp_path: Path, ending: str) -> None:
    (tmp_path / "program.py").write_text(ENDINGS[ending])
    mine, own = (run(p, ["program.py"], tmp_path) for p in (warm.interpreter, sys.executable))
    assert (mine.stdout, mine.returncode) == (own.stdout, own.returncode)
    assert mine.stderr.splitlines()[-1:] == own.stderr.splitlines()[-1:]


def test_torch_is_there_and_standard_input_too(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys; print('torch._dynamo' in sys.modules, input())")
    done = subprocess.run([warm.interpreter, "program.py"], cwd=tmp_path, env=environment(), input="a line\n",
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.stdout == "True a line\n"


def test_other_command_lines_are_the_real_interpreter(warm: Warm, tmp_path: Path) -> None:
    code = "import sys; print('torch' in sys.modules, sys.flags.dont_write_bytecode)"
    assert run(warm.interpreter, ["-B", "-c", code], tmp_path).stdout == "False 1\n"


def test_a_program_dies_with_who_asked_for_it(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    client = subprocess.Popen(
        [warm.interpreter, "program.py"], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    )
    assert client.stdout is not None
    pid = int(client.stdout.readline())
    client.send_signal(signal.SIGKILL)
    client.wait()
    client.stdout.close()
    for _ in range(600):
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.05)
    raise AssertionError(f"{pid} lives on")


def test_torchvet_says_the_same_of_a_program_in_a_warm_interpreter(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import torch\nmodel = torch.nn.Linear(64, 64)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "kept = []\nfor _ in range(40):\n    loss = model(torch.ones(64, 64)).exp().mean()\n    loss.backward()\n"
        "    optimizer.step()\n    optimizer.zero_grad()\n    kept.append(loss)\nprint(len(kept))\n"
    )
    said = []
    for name, tool in (("warm", warm.torchvet), ("own", [sys.executable, "-m", "torchvet"])):
        command = [*tool, "run", "--quiet", "--memory-limit", "24GiB", "-o", f"{name}.json", "program.py"]
        done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120)
        report = json.loads((tmp_path / f"{name}.json").read_text())
        found = [(f["code"], f["severity"], f["location"]) for f in report["findings"]]
        said.append((done.stdout, done.returncode, found))
    assert said[0] == said[1]
    assert said[0][2]
