"""What torchvet and other tools say of failures that people have reported.

    python -m casebook.field [-k SUBSTRING] [-j JOBS] [--other-tools-python PYTHON] [--no-other-tools] [--tool COMMAND]

Every program is first run by itself: the faulty one must show the symptom, the fixed one must not. Then torchvet runs
both. Of the faulty program it says

- *named*: a code that is true of the fault, at an accepted line, at the expected severity or above (*with the reason*
  where message or cause has one of the words that ``case.toml`` gives);
- *partly*: such a code elsewhere or more mildly, or another warning at an accepted line;
- *missed*: neither.

Of the fixed program it must say nothing at warning or above. ``--other-tools-python`` has torch and,
for one column, Transformers; see `other_tools` for how they are judged. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from casebook.field import other_tools
from casebook.field.known import Failure, load_all
from casebook.program import Program, environment, python
from casebook.report import Finding, at_least
from casebook.run import PATIENCE, Run, vetted
from casebook.score import points_at


@dataclass(frozen=True)
class Row:
    """How all tools did on one failure."""

    name: str
    symptom: str
    """``shown``, or what is wrong with the programs themselves."""
    verdict: str
    fixed: str
    other_tools: dict[str, str]
    notes: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """Whether torchvet named the fault and was silent on the fixed program."""
        return self.symptom == "shown" and self.verdict.startswith("named") and self.fixed == "silent"


def printed(program: Program, argv: Sequence[str]) -> str:
    """What a program prints by itself on both streams."""
    command = python(*program.target, *argv)
    done = subprocess.run(
        command, cwd=program.folder, env=environment(), capture_output=True, text=True, timeout=PATIENCE
    )
    return done.stdout + done.stderr


def symptom(failure: Failure, faulty: str, fixed: str) -> str:
    """Whether the programs behave as the folder says."""
    if not failure.shows(faulty):
        return "NOT SHOWN"
    return "shown" if failure.is_healthy(fixed) else "MENDED IS NOT HEALTHY"


def verdict(failure: Failure, findings: Sequence[Finding]) -> str:
    """Apply the module's rule to what torchvet said of the faulty program."""
    known, lines = failure.known, failure.line_numbers()
    here = [f for f in findings if points_at(f, known.file, lines)]
    named = [f for f in here if f.code in known.codes and at_least(f.severity, known.severity)]
    if named:
        explained = any(failure.explains(f"{f.message} {f.cause}") for f in named)
        return "named, with the reason" if explained else "named"
    partly = any(f.code in known.codes for f in findings) or any(f.loud for f in here)
    return "partly" if partly else "missed"


def loud(run: Run, expected: Sequence[str] = ()) -> list[Finding]:
    """The warnings and errors of a run, less those of the expected codes."""
    return [f for f in (run.report.findings if run.report else []) if f.loud and f.code not in expected]


def examine(failure: Failure, asked: Sequence[str], interpreter: str, tool: str) -> Row:
    """Run everything on one failure."""
    known = failure.known
    faulty = printed(failure.faulty, known.argv)
    bare = symptom(failure, faulty, printed(failure.fixed, known.argv))
    sick, well = vetted(failure.faulty, known.argv, tool), vetted(failure.fixed, known.argv, tool)
    alarms, others = loud(well), loud(sick, [*known.codes, *known.also])
    said = sick.report.findings if sick.report else []
    notes = [
        *(f"{run} has no report: {r.complaint}" for run, r in (("faulty", sick), ("fixed", well)) if r.report is None),
        *(f"fixed: {alarm}: {alarm.message}" for alarm in alarms),
        *(f"faulty, besides: {other}: {other.message}" for other in others),
    ]
    result = verdict(failure, said)
    if not result.startswith("named"):
        notes += [f"said {finding}: {finding.message}" for finding in said if finding not in others]
    quiet = "silent" if well.report is not None and not alarms else "ALARMS"
    theirs = {other: other_tools.ask(other, failure, faulty, interpreter) for other in asked}
    print(failure.name, bare, result, quiet, file=sys.stderr, flush=True)
    return Row(failure.name, bare, result, quiet, theirs, notes)


def table(rows: Sequence[Row], asked: Sequence[str]) -> str:
    """The table in Markdown, what was said besides, and the totals."""
    heading = ["failure", "symptom", "torchvet", "fixed", *asked]
    body = [
        [row.name, row.symptom, row.verdict, row.fixed, *(row.other_tools[other] for other in asked)] for row in rows
    ]
    lines = ["| " + " | ".join(cells) + " |" for cells in [heading, ["---"] * len(heading), *body]]
    notes = [f"- {row.name}: {note}" for row in rows for note in row.notes]
    return "\n".join([*lines, "", *notes, *([""] if notes else []), totals(rows, asked)])


def totals(rows: Sequence[Row], asked: Sequence[str]) -> str:
    """Each tool in one line."""
    counts = {kind: sum(row.verdict.startswith(kind) for row in rows) for kind in ("named", "partly", "missed")}
    quiet = sum(row.fixed == "silent" for row in rows)
    parts = [f"{number} {kind}" for kind, number in counts.items()]
    lines = [f"torchvet: {', '.join(parts)} of {len(rows)}; silent on {quiet} of {len(rows)} fixed programs."]
    for other in asked:
        said = [row.other_tools[other] for row in rows]
        lines.append(f"{other}: " + ", ".join(f"{said.count(kind)} {kind}" for kind in sorted({*said})) + ".")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 0 if torchvet is right everywhere."""
    parser = argparse.ArgumentParser(prog="casebook.field", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("-k", dest="substring", default="", help="only failures whose name contains this")
    parser.add_argument("-j", dest="jobs", type=int, default=2, help="failures examined at once (default 2)")
    parser.add_argument("--other-tools-python", default=sys.executable, metavar="PYTHON", help="what the tools run in")
    parser.add_argument("--no-other-tools", action="store_true", help="torchvet only")
    parser.add_argument("--tool", default="", metavar="COMMAND", help="put this in the place of 'python -m torchvet'")
    options = parser.parse_args(argv)
    failures = list(load_all(options.substring))
    if not failures:
        print(f"no failure is called anything like {options.substring!r}", file=sys.stderr)
        return 2
    asked = [] if options.no_other_tools else list(other_tools.OTHER_TOOLS)
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda f: examine(f, asked, options.other_tools_python, options.tool), failures))
    print(table(rows, asked))
    return 0 if all(row.right for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
