"""Write the variants of the cases down, or check them: ``python -m casebook.variants FOLDER [-k SUBSTRING] [--check]``.

Checked is that each prints, when run by itself, what the program prints that it is made of.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from casebook import run
from casebook.case import CASES, Case, load_all
from casebook.program import Program
from casebook.variants import KINDS, Variant, variants


def main() -> int:
    """Write, and print what is amiss; 0 if nothing is."""
    parser = argparse.ArgumentParser(prog="casebook.variants", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the variants are written")
    parser.add_argument("-k", dest="substring", default="", help="only cases whose name contains this")
    parser.add_argument("-j", dest="jobs", type=int, default=2, help="programs run at once (default 2)")
    parser.add_argument("--cases", type=Path, default=CASES, metavar="FOLDER", help="take the cases from here")
    parser.add_argument("--check", action="store_true", help="run them and compare what they print")
    options = parser.parse_args()
    cases = list(load_all(options.substring, options.cases))
    made = {case.name: variants(case, options.folder / case.name) for case in cases}
    for name, each in made.items():
        missing = set(KINDS) - {variant.name for variant in each}
        if missing:
            print(f"{name}: has no variant {', '.join(sorted(missing))}")
    if not options.check:
        return 0
    with ThreadPoolExecutor(options.jobs) as pool:
        futures = [
            (case, {name: pool.submit(_bare, case, program) for name, program in _programs(case, made).items()})
            for case in cases
        ]
        differing = [
            f"{case.name}/{name}"
            for case, runs in futures
            for name, future in runs.items()
            if future.result() != runs["faulty"].result()
        ]
    print(*(f"{each}: prints something else" for each in differing), sep="\n")
    print(f"{sum(map(len, made.values()))} variants of {len(cases)} cases, {len(differing)} print something else")
    return 1 if differing else 0


def _programs(case: Case, made: dict[str, list[Variant]]) -> dict[str, Program]:
    return {"faulty": case.faulty, **{variant.name: variant.program for variant in made[case.name]}}


def _bare(case: Case, program: Program) -> tuple[int, str]:
    done = run.bare(program, case.expect.argv, case.expect.command)
    return done.status, done.stdout


if __name__ == "__main__":
    sys.exit(main())
