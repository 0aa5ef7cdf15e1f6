"""Writes docs/compatibility.md from the results of `contract.py` that are kept in results/.

python tests/compatibility/table.py [--check]
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "compatibility.md"
CELLS = {"yes": "yes", "refused": "refused", "late": "no answer", "no": "**no**"}

HEAD = """# Which torch, which Python

Torchvet supports torch 2.6 and newer on Python 3.10 and newer. This page is written from runs of the contract suite
(`make test-torch TORCH=2.6.0 PYTHON=python3.10`), one column for each run. *yes*: the promise is kept. *refused*:
torchvet says that it cannot do this on that torch, and exits with status 2. **no**: it is not kept; the reason stands
below the table. *no answer*: the machine was too busy to end the run in its time. *not run*: no run of it is kept. CI
runs the suite on the oldest promised torch.
"""

LIMITS = """
## What older versions cannot show

The report names each of these under *Not checked* in a run that meets it, but for the last two.

- **torch 2.6 to 2.9: what saved-tensor hooks packed away** (activation checkpointing, `save_on_cpu`). These versions
  show a saved tensor only by unpacking it, which would call the hook. Torchvet does not do that: it counts the graph's
  nodes, not the packed bytes.
- **torch 2.6 to 2.10: storages of steps after `torch.compile` was called.** A mode that notes storages would change
  what these versions compile. Names and graphs are still followed.
- **A private name of torch that a version lacks.** The probe that needs it is switched off alone. At the start of every
  run each probe also proves itself on tensors of a few bytes; one that fails is switched off and named.
- **torch 2.6 to 2.12: the simulated GPU** (`--simulate-gpu`). It needs interfaces that came with 2.13. The program is
  not run; torchvet exits with status 2.
- **torch 2.6 to 2.9: a saved tensor that was changed in place since.** Torch does not unpack it, so its bytes are not
  credited to the graph that keeps it.
- **Python 3.10: the expression that failed.** Its tracebacks name lines only. Reports on crashes name the line and the
  operator, and in fewer cases the variable.
"""


def results() -> list[dict[str, Any]]:
    """The kept results, the oldest torch first."""
    found = [json.loads(path.read_text("utf-8")) for path in (HERE / "results").glob("*.json")]
    return sorted(found, key=lambda one: (version(one["torch"]), version(one["python"])))


def version(text: str) -> tuple[int, ...]:
    """2.13.0+cpu as (2, 13, 0)."""
    return tuple(int(part) for part in text.partition("+")[0].split(".") if part.isdigit())


def page() -> str:
    """The text of the page."""
    runs = results()
    names = list(dict.fromkeys(one["promise"] for run in runs for one in run["promises"]))
    heads = [f"torch {run['torch'].partition('+')[0]}, Python {'.'.join(run['python'].split('.')[:2])}" for run in runs]
    lines = [HEAD, f"| promise | {' | '.join(heads)} |", f"|---|{'---|' * len(runs)}"]
    states = [{one["promise"]: one for one in run["promises"]} for run in runs]
    for name in names:
        cells = [CELLS[state[name]["state"]] if name in state else "not run" for state in states]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines.append(LIMITS)
    reasons = [f"- {head}: {text}" for head, run in zip(heads, runs, strict=True) for text in reasons_of(run)]
    if reasons:
        lines += ["## What was refused, not kept or not answered", "", *reasons, ""]
    return "\n".join(lines)


def reasons_of(run: dict[str, Any]) -> list[str]:
    """Why promises are not kept: each reason once, with all promises that it is given for."""
    promises: dict[str, list[str]] = {}
    for one in run["promises"]:
        if one["state"] != "yes":
            reason = re.sub(r"\S*/casebook-\w+/python", "this Python", " ".join(one["detail"].split()))
            promises.setdefault(reason[:300], []).append(one["promise"])
    return [f"{', '.join(names)}: {reason}" for reason, names in promises.items()]


def main() -> int:
    """Write the page, or say whether it is stale."""
    text = page()
    if "--check" in sys.argv:
        return 0 if PAGE.is_file() and PAGE.read_text("utf-8") == text else 1
    PAGE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
