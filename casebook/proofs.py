"""Measure again what rules claim in their section Proof: ``python -m casebook.proofs [CODE ...]`` (``make proofs``).

Two kinds of figures are measured without torchvet. A rule's ``proof.py`` prints each claim as the section words it. And
of a rule about growth the bytes that the faulty example gains per step are counted from the allocator's own events
(`casebook.count`). A claim that the section does not have is a fault, exit status 1.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from casebook.count import CountError, count
from casebook.program import Program, environment

RULES = Path(__file__).parents[1] / "src" / "torchvet" / "rules"
GROWTH = "memory/mem1*"
"""Rules about bytes per step."""
_EXAMPLE = re.compile(r"(?:[Tt]he|in the) example (?:keeps|grows by) ([\d,]+) bytes per")


def proof_of(folder: Path) -> str:
    """The section Proof of a rule, in one line."""
    section = re.search(r"^## Proof$(.*?)(?=^## |\Z)", (folder / "details.md").read_text("utf-8"), re.M | re.S)
    return " ".join(section[1].split()) if section else ""


def claims_missing(proof: str, printed: str) -> list[str]:
    """The printed claims that the section does not have."""
    return [claim for line in printed.splitlines() if (claim := " ".join(line.split())) and claim not in proof]


def measured_again(folder: Path) -> Iterator[str]:
    """What of a rule's Proof was measured again; a line that begins with ``DIFFERS`` is a fault."""
    proof = proof_of(folder)
    script = folder / "proof.py"
    if script.is_file():
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment())
        if done.returncode:
            yield f"DIFFERS: proof.py failed: {done.stderr.strip().splitlines()[-1]}"
        missing = claims_missing(proof, done.stdout)
        yield from (f"DIFFERS: measured {claim!r}, which the section does not say" for claim in missing)
        yield f"{len(done.stdout.splitlines()) - len(missing)} claims of proof.py"
    # Where a script measures what the example keeps, it is not kept by torch's allocator.
    stated = _EXAMPLE.search(proof) if folder.match(f"*/{GROWTH}") and not script.is_file() else None
    if stated is not None:
        yield _growth(folder, int(stated[1].replace(",", "")))


def _growth(folder: Path, stated: int) -> str:
    try:
        rate = count(Program(folder, "bad"), ()).bytes_per_step
    except CountError as error:
        return f"DIFFERS: the example could not be counted: {error}"
    # A step more or less in the window moves the median slope of a program that grows in jumps.
    same = abs(rate - stated) <= 0.01 * stated
    return f"{'' if same else 'DIFFERS: '}{rate:,.0f} bytes per step, stated {stated:,}"


def main(argv: list[str] | None = None) -> int:
    """Measure the rules that are named, or all."""
    parser = argparse.ArgumentParser(prog="casebook.proofs", description=__doc__)
    parser.add_argument("codes", nargs="*", metavar="CODE", help="only these rules")
    wanted = {code.lower() for code in parser.parse_args(argv).codes}
    folders = sorted(page.parent for page in RULES.glob("*/*/details.md"))
    differing, silent = 0, []
    for folder in folders:
        code = folder.name.partition("_")[0]
        if wanted and code not in wanted:
            continue
        found = list(measured_again(folder))
        silent += [] if found else [code.upper()]
        differing += any(line.startswith("DIFFERS") for line in found)
        for line in found:
            print(f"{code.upper()}: {line}")
    print(f"{differing} rules claim what was not measured; not measured again: {' '.join(silent) or 'none'}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
