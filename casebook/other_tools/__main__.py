"""Run other tools on the casebook's faulty programs: ``python -m casebook.other_tools --python BIN [-k SUBSTRING]``.

BIN is an interpreter that has what `requirements.txt` beside this file names; make one by

    python -m venv other-tools && other-tools/bin/pip install -r casebook/other_tools/requirements.txt

What each tool is said to have done is written to `recorded.json` beside this file, which the scoreboard reads: a
verdict stands until the faulty program or its case changes. ``--again`` asks once more where there is a verdict.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from casebook.case import Case, load_all
from casebook.other_tools.judging import classify
from casebook.other_tools.recorded import RECORDED, Recorded, Verdict, fingerprint, read, write
from casebook.other_tools.tools import OTHER_TOOLS, Bin, NotRun, OtherTool, reason_not_to
from casebook.program import environment
from casebook.warm import interpreters

VERSIONS = "import sys, importlib.metadata as m; print('\\n'.join(m.version(name) for name in sys.argv[1:]))"


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="casebook.other_tools", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", required=True, metavar="BIN", help="the interpreter that has the tools")
    parser.add_argument("-k", dest="substring", default="", help="only cases whose name contains this")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th case only: scalene takes minutes")
    parser.add_argument("-j", dest="jobs", type=int, default=2, help="programs run at once (default 2)")
    parser.add_argument(
        "--tool", action="append", choices=[r.name for r in OTHER_TOOLS], help="only this tool; repeatable"
    )
    parser.add_argument("--json", type=Path, default=RECORDED, metavar="FILE", help="keep the verdicts here instead")
    parser.add_argument("--again", action="store_true", help="ask again where there is a verdict")
    return parser.parse_args(argv)


def ask(other: OtherTool, tools: Bin, case: Case) -> Verdict:
    """Have a tool look at a case's faulty program, and at the fixed one if it reads source."""
    why = reason_not_to(other, case)
    if why:
        return Verdict("not run", why)
    try:
        faulty = other.ask(tools, case.faulty, case.expect.argv)
        fixed = other.ask(tools, case.fixed, case.expect.argv) if other.reads else None
    except NotRun as error:
        return Verdict("not run", str(error))
    return Verdict(classify(case, faulty, fixed), ", ".join(sorted({r.code for r in faulty})))


def versions(python: str) -> dict[str, str]:
    """The versions of the tools, by their names."""
    command = [python, "-c", VERSIONS, *(r.distribution for r in OTHER_TOOLS)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    return {r.name: version for r, version in zip(OTHER_TOOLS, done.stdout.split(), strict=True)}


def main(argv: Sequence[str] | None = None) -> int:
    """Ask what has not been asked yet, and write the verdicts down."""
    options = arguments(argv)
    asked = [r for r in OTHER_TOOLS if not options.tool or r.name in options.tool]
    before = read(options.json)
    known = Recorded(versions(options.python), before.cases)
    stale = {name for name, version in before.tools.items() if known.tools.get(name) != version}
    with interpreters(python=options.python) as warm, ThreadPoolExecutor(options.jobs) as pool:
        tools = Bin(Path(options.python).absolute().parent, warm.interpreter if warm else options.python)
        for case in list(load_all(options.substring))[:: max(1, options.every)]:
            entry = known.entry(case.name, fingerprint(case))
            wanted = [r for r in asked if options.again or r.name in stale or r.name not in entry.verdicts]
            entry.verdicts.update(zip([r.name for r in wanted],
                                      pool.map(lambda r: ask(r, tools, case), wanted), strict=True))  # noqa: B023  # fmt: skip
            if wanted:
                write(options.json, known)
                print(case.name, *(f"{r.name} {entry.verdicts[r.name].verdict};" for r in wanted), file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
