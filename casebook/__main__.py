"""Score torchvet on the casebook: ``python -m casebook [-k SUBSTRING] [-j JOBS] [--json FILE]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from casebook import agent, run, table
from casebook.case import CASES, Case, load_all
from casebook.count import count
from casebook.program import Program
from casebook.score import Observation, Score, score


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="casebook", description=__doc__)
    parser.add_argument("-k", dest="substring", default="", help="only cases whose name contains this")
    parser.add_argument("-j", dest="jobs", type=int, default=2, help="programs run at once (default 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the scores here too")
    parser.add_argument("--cases", type=Path, default=CASES, metavar="FOLDER", help="take the cases from here")
    parser.add_argument("--tool", default="", metavar="COMMAND", help="put this in the place of 'python -m torchvet'")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th case only (CI runs every eighth)")
    parser.add_argument("--count", action="store_true", help="only print the independent count of every program")
    return parser.parse_args(argv)


def observe(case: Case, program: Program, tool: str) -> Observation:
    """Run one program bare and under the tool, and count it where the case asks for that."""
    argv = case.expect.argv
    counted = count(program, argv).bytes_per_step if case.expect.count and program == case.faulty else None
    vetted = run.vetted(program, argv, tool, case.expect.command)
    return Observation(program.name, run.bare(program, argv, case.expect.command), vetted, counted)


def examine(cases: Sequence[Case], pool: Executor, tool: str) -> list[Score]:
    """Observe all programs of all cases and score them."""
    watched: list[tuple[Case, list[Future[Observation]]]] = [
        (case, [pool.submit(observe, case, program, tool) for program in case.programs]) for case in cases
    ]
    scores = []
    for case, futures in watched:
        faulty, mended, *lookalikes = (future.result() for future in futures)
        scores.append(score(case, faulty, mended, lookalikes))
        print(case.name, "is right" if scores[-1].perfect else "is off", file=sys.stderr, flush=True)
    return scores


def count_all(cases: Sequence[Case], pool: Executor) -> str:
    """Count every program."""
    pairs = [(case, program) for case in cases for program in case.programs]
    counted = pool.map(lambda pair: count(pair[1], pair[0].expect.argv), pairs)
    return table.counts((case.name, program.name, c) for (case, program), c in zip(pairs, counted, strict=True))


def main(argv: Sequence[str] | None = None) -> int:
    """Print the scoreboard; 0 if nothing is off."""
    if any(one.split("=")[0] == "--agent" for one in (sys.argv[1:] if argv is None else argv)):
        return agent.main(argv)
    options = arguments(argv)
    cases = list(load_all(options.substring, options.cases))[:: max(1, options.every)]
    if not cases:
        print(f"no case is called anything like {options.substring!r}", file=sys.stderr)
        return 2
    with ThreadPoolExecutor(options.jobs) as pool:
        if options.count:
            print(count_all(cases, pool))
            return 0
        scores = examine(cases, pool, options.tool)
    print(table.scoreboard(scores))
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(scores)))
    return 0 if all(each.perfect for each in scores) else 1


if __name__ == "__main__":
    raise SystemExit(main())
