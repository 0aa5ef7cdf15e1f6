"""What other tools say of a reported failure, classified by one rule.

The rule, for a run of the faulty program with the tool watching (`wrapped.py`):

- *silent*: the tool neither stopped the program nor warned;
- *names the line*: an accepted line is the innermost frame of the program in one of the printed tracebacks (anomaly
  mode prints two, of the forward call and of backward);
- *names the cause*: it names the line, and what is printed besides the tracebacks and the program's own output has one
  of the words that ``case.toml`` gives as the reason;
- *raises elsewhere*: it stopped or warned, and the line is not named.

Lightning's ``Trainer(detect_anomaly=True)`` sets the same switch as the anomaly mode around its loop (2.6.6,
``trainer.py``: ``with torch.autograd.set_detect_anomaly(self._detect_anomaly)``), so it has no column of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from casebook.field.known import Failure
from casebook.program import environment
from casebook.run import PATIENCE

WRAPPER = Path(__file__).with_name("wrapped.py")

OTHER_TOOLS = {
    "anomaly": "Error detected in|returned nan values",
    "debugger": "DebugUnderflowOverflow: inf/nan detected",
}
"""How each tool's warning or error is recognised."""

FRAME = re.compile(r'^ +File "([^"]+)", line (\d+), in ', re.MULTILINE)


def printed_under(other: str, failure: Failure, interpreter: str) -> str:
    """What the faulty program and the tool print together."""
    command = [interpreter, str(WRAPPER), other, *failure.faulty.target, *failure.known.argv]
    done = subprocess.run(
        command, cwd=failure.faulty.folder, env=environment(), capture_output=True, text=True, timeout=PATIENCE
    )
    return done.stdout + done.stderr


def classify(other: str, printed: str, bare: str, failure: Failure) -> str:
    """Apply the module's rule to what was printed under the tool, given what the program prints by itself."""
    if re.search("No module named '?transformers", printed):
        return "not installed"
    if re.search(OTHER_TOOLS[other], printed) is None:
        return "silent"
    accepted = {(Path(failure.known.file), number) for number in failure.line_numbers()}
    if accepted & set(innermost(printed, failure.faulty.folder)):
        own = {*bare.splitlines()}
        said = "\n".join(line for line in printed.splitlines() if not line.startswith("  ") and line not in own)
        return "names the cause" if failure.explains(said) else "names the line"
    return "raises elsewhere"


def innermost(printed: str, folder: Path) -> Iterator[tuple[Path, int]]:
    """The innermost frame within the folder of each traceback, as (path relative to it, line)."""
    for traceback in re.split(r"^(?! )", printed, flags=re.MULTILINE):
        inside = [(Path(path), int(line)) for path, line in FRAME.findall(traceback)]
        own = [(path, line) for path, line in inside if (folder / path).resolve().is_relative_to(folder)]
        if own:
            yield (folder / own[-1][0]).resolve().relative_to(folder), own[-1][1]


def ask(other: str, failure: Failure, bare: str, interpreter: str = sys.executable) -> str:
    """Run another tool and classify what it said."""
    return classify(other, printed_under(other, failure, interpreter), bare, failure)
