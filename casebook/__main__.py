"""Score torchvet on the casebook: ``python -m casebook [-k SUBSTRING] [-j JOBS] [--json FILE] [--record]``.

For each case: RED, the symptom of its faulty program, measured without torchvet; GREEN, torchvet names the fault, is
silent where there is none, and its fix is proven; REFACTOR, the fault is found in other shapes of the program.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec

from casebook import agent, board, fixing, rows, run, shapes, symptom, table
from casebook.case import CASES, Case, load_all
from casebook.count import count
from casebook.other_tools import recorded
from casebook.program import Program
from casebook.run import Means
from casebook.score import Observation, Score, score
from casebook.warm import interpreters

PARTS = ("symptoms", "fixes", "variants")
"""What can be left out."""


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="casebook", description=__doc__)
    parser.add_argument("-k", dest="substring", default="", help="only cases whose name contains this")
    parser.add_argument("-j", dest="jobs", type=int, default=2, help="cases examined at once (default 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the scores here too")
    parser.add_argument("--cases", type=Path, default=CASES, metavar="FOLDER", help="take the cases from here")
    parser.add_argument("--tool", default="", metavar="COMMAND", help="put this in the place of 'python -m torchvet'")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th case only (CI runs every eighth)")
    parser.add_argument("--count", action="store_true", help="only print the independent count of every program")
    parser.add_argument("--without", action="append", default=[], choices=PARTS, help="leave this out; repeatable")
    parser.add_argument("--cold", action="store_true", help="start every program in an interpreter of its own")
    parser.add_argument("--record", action="store_true", help="keep the scores and write docs/scoreboard.md")
    options = parser.parse_args(argv)
    if options.record and (options.substring or options.every > 1 or options.without or options.tool):
        parser.error("--record keeps a whole run of torchvet: leave -k, --every, --without and --tool out")
    return options


def observe(case: Case, program: Program, means: Means) -> Observation:
    """Run one program bare and under the tool, and count it where the case asks for that."""
    argv, command = case.expect.argv, case.expect.command
    judged = case.expect.count and program == case.faulty
    counted = count(program, argv, means.interpreter).bytes_per_step if judged else None
    vetted = run.vetted(program, argv, means.tool, command)
    return Observation(program.name, run.bare(program, argv, command, means.interpreter), vetted, counted)


def examine(case: Case, means: Means, without: Sequence[str] = ()) -> Score:
    """Observe all programs of a case, see to its fix and its variants, and score it."""
    faulty, fixed, *lookalikes = (observe(case, program, means) for program in case.programs)
    result = replace(
        score(case, faulty, fixed, lookalikes),
        symptom="" if "symptoms" in without else symptom.symptom(case, faulty, fixed, means),
        fix=None if "fixes" in without else fixing.fix(case, faulty, means),
        variants=[] if "variants" in without else shapes.variants(case, means),
    )
    print(case.name, "is right" if result.perfect else "is off", file=sys.stderr, flush=True)
    return result


def count_all(cases: Sequence[Case], pool: Executor, means: Means) -> str:
    """Count every program."""
    pairs = [(case, program) for case in cases for program in case.programs]
    counted = pool.map(lambda pair: count(pair[1], pair[0].expect.argv, means.interpreter), pairs)
    return table.counts((case.name, program.name, c) for (case, program), c in zip(pairs, counted, strict=True))


def minutes(seconds: float) -> str:
    """Seconds as minutes."""
    return f"{seconds / 60:.1f} minutes"


def busy() -> str:
    """What all programs have taken of a processor, those that the server of interpreters has forked included."""
    spent = os.times()
    return minutes(spent.children_user + spent.children_system)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the scoreboard; 0 if nothing is off."""
    if any(one.split("=")[0] == "--agent" for one in (sys.argv[1:] if argv is None else argv)):
        return agent.main(argv)
    options = arguments(argv)
    cases = list(load_all(options.substring, options.cases))[:: max(1, options.every)]
    if not cases:
        print(f"no case is called anything like {options.substring!r}", file=sys.stderr)
        return 2
    started = time.monotonic()
    with interpreters(not options.cold) as warm, ThreadPoolExecutor(options.jobs) as pool:
        means = Means(warm.interpreter, options.tool or shlex.join(warm.torchvet)) if warm else Means(tool=options.tool)
        if options.count:
            print(count_all(cases, pool, means))
            return 0
        scores = list(pool.map(lambda case: examine(case, means, options.without), cases))
    print(f"{len(cases)} cases in {minutes(time.monotonic() - started)}, {busy()} of a processor", file=sys.stderr)
    kept = [rows.row(case, each) for case, each in zip(cases, scores, strict=True)]
    print(table.scoreboard(scores), board.in_terminal(kept, recorded.read()), sep="\n\n")
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(scores)))
    if options.record:
        rows.write(rows.KEPT, kept, rows.versions())
        board.write(rows.read(), recorded.read())
    return 0 if all(each.perfect for each in scores) else 1


if __name__ == "__main__":
    raise SystemExit(main())
