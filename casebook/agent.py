"""Put agents in torchvet's place: ``python -m casebook --agent "COMMAND {prompt_file} {workdir}"``.

Each case's faulty program is given to the agent in a fresh folder, with a message of a user in one of five moods, and
what it leaves behind is graded by measurements. ``--agent builtin`` only runs ``torchvet fix --verify --apply``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from casebook import run
from casebook.agent_gauge import gauge
from casebook.agent_grade import Grade, Seen, grade
from casebook.agent_messages import MESSAGES, message, symptom
from casebook.agent_run import BUILTIN, run_agent, sources, workplace
from casebook.case import CASES, Case, load_all
from casebook.count import CountError, count
from casebook.program import Program
from casebook.table import lay_out


@dataclass(frozen=True)
class Result:
    """One attempt of an agent, graded."""

    case: str
    message: str
    guided: bool
    grade: Grade
    folder: str


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="casebook --agent", description=__doc__)
    parser.add_argument(
        "--agent", required=True, metavar="COMMAND", help="{prompt_file} and {workdir} are put in; or `builtin`"
    )
    parser.add_argument("--skill", type=Path, metavar="FOLDER", help="run again with a copy of this beside the program")
    parser.add_argument("--messages", default=",".join(MESSAGES), metavar="MOODS", help=f"of {', '.join(MESSAGES)}")
    parser.add_argument(
        "--limit", type=float, default=900.0, metavar="SECONDS", help="time for each attempt (default 900)"
    )
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="where programs and output are kept (default: a new one)"
    )
    parser.add_argument("-k", dest="substring", default="", help="only cases whose name contains this")
    parser.add_argument("-j", dest="jobs", type=int, default=2, help="attempts at once (default 2)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th case only")
    parser.add_argument("--cases", type=Path, default=CASES, metavar="FOLDER", help="take the cases from here")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the grades here too")
    given = parser.parse_args(argv)
    given.messages = given.messages.split(",")
    unknown = [one for one in given.messages if one not in MESSAGES]
    if unknown:
        parser.error(f"no message is called {', '.join(unknown)}: there are {', '.join(MESSAGES)}")
    if given.skill is not None and not (given.skill / "SKILL.md").is_file():
        parser.error(f"{given.skill}: has no SKILL.md")
    return given


def measured(case: Case, program: Program, asked: bool) -> Seen:
    """Run and measure a program; torchvet is asked about it only where that is wanted. One that does not come to an
    end, or is not there any more, is not looked at further."""
    expect = case.expect
    try:
        bare = run.bare(program, expect.argv, expect.command)
        if bare.status == -1:
            return Seen(bare, None)
        vetted = run.vetted(program, expect.argv, command=expect.command) if asked else None
        counted = _counted(program, expect.argv) if expect.command == ["run"] else None
        work = gauge(program, expect.argv, expect.command)
    except (OSError, ValueError) as error:
        return Seen(run.Run(-1, "", None, f"it cannot be run: {error}"), None)
    report = vetted.report if vetted is not None else None
    return Seen(bare, work, counted, report.findings if report is not None else None)


def _counted(program: Program, argv: Sequence[str]) -> float | None:
    try:
        return count(program, argv).bytes_per_step
    except CountError:
        return None


def attempt(
    case: Case, known: Future[tuple[Seen, Seen]], mood: str, skill: Path | None, given: argparse.Namespace
) -> Result:
    """Have the agent try one case, and grade it."""
    before, fixed = known.result()
    folder = given.keep / f"{case.name}-{mood}{'-guided' if skill is not None else ''}"
    program = workplace(case, folder / "work", skill)
    before = replace(before, sources=sources(program.folder))
    how = " ".join(["python", *program.target, *case.expect.argv])
    prompt = folder / "prompt.txt"
    seen = symptom(case, before.bare, before.bytes_per_step)
    prompt.write_text(message(mood, case, seen, how, skill.name if skill is not None else ""), "utf-8")
    template = BUILTIN if given.agent == "builtin" else given.agent
    done = run_agent(template, prompt.resolve(), program, folder / "agent.txt", given.limit)
    after = replace(measured(case, program, asked=True), sources=sources(program.folder))
    result = Result(case.name, mood, skill is not None, grade(case, before, fixed, after, done.trouble), str(folder))
    print(
        case.name,
        mood,
        *["guided"] * result.guided,
        "passed" if result.grade.passed else "failed",
        file=sys.stderr,
        flush=True,
    )
    return result


def both(case: Case) -> tuple[Seen, Seen]:
    """The program as it is, and as the case fixes it."""
    return measured(case, case.faulty, asked=False), measured(case, case.fixed, asked=False)


def attempts(cases: Sequence[Case], given: argparse.Namespace, pool: Executor) -> list[Result]:
    """All attempts: each case with each message, without the skill and with it."""
    skills = [None, given.skill.resolve()] if given.skill is not None else [None]
    # All programs first: an attempt that waited for its own would keep others from running.
    known = [pool.submit(both, case) for case in cases]
    futures = [
        pool.submit(attempt, case, programs, mood, skill, given)
        for case, programs in zip(cases, known, strict=True)
        for mood in given.messages
        for skill in skills
    ]
    return [future.result() for future in futures]


def scoreboard(results: Sequence[Result]) -> str:
    """A line for each message and guide, then what was wrong with each attempt that failed."""
    rows: list[Sequence[str]] = [
        ("message", "skill", "attempts", "passed", "symptom gone", "curve kept", "no shortcut")
    ]
    for mood, guided in dict.fromkeys((r.message, r.guided) for r in results):
        some = [r.grade for r in results if (r.message, r.guided) == (mood, guided)]
        whole = [g for g in some if not g.trouble]
        good = ([g for g in some if g.passed], [g for g in whole if not g.symptom], [g for g in whole if not g.curve],
                [g for g in whole if not g.shortcuts])  # fmt: skip
        rows.append((mood, "with" if guided else "without", str(len(some)), *(str(len(g)) for g in good)))
    failed = [f"{r.case} {r.message}{' guided' if r.guided else ''}: {'; '.join(_wrong(r.grade))}\n  {r.folder}"
              for r in results if not r.grade.passed]  # fmt: skip
    return "\n\n".join(filter(None, [lay_out(rows), "\n".join(failed)]))


def _wrong(grade: Grade) -> list[str]:
    return [*([grade.trouble] if grade.trouble else []), *grade.symptom, *grade.curve, *grade.shortcuts]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the agents' scoreboard; 0 if every attempt passed, 2 if there was nothing to try."""
    given = arguments(argv)
    cases = [c for c in load_all(given.substring, given.cases) if c.expect.command[0] == "run"][:: max(1, given.every)]
    if not cases:
        print(f"no case that can be run is called anything like {given.substring!r}", file=sys.stderr)
        return 2
    if given.keep is not None and given.keep.exists():
        print(f"{given.keep}: is there already; results are kept in a new folder", file=sys.stderr)
        return 2
    given.keep = Path(given.keep or tempfile.mkdtemp(prefix="casebook-agents-")).resolve()
    with ThreadPoolExecutor(given.jobs) as pool:
        results = attempts(cases, given, pool)
    print(scoreboard(results))
    print(f"\nprograms and output: {given.keep}")
    if given.json:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode([asdict(r) for r in results])))
    return 0 if all(r.grade.passed for r in results) else 1
