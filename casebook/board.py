"""The scoreboard: RED, GREEN and REFACTOR by family, in a terminal and as ``docs/scoreboard.md``; README's table.

``python -m casebook --record`` runs the casebook, keeps the scores in ``casebook/scores.json`` and writes the page;
``python -m casebook.board`` writes it again from what is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from casebook import rows, tries
from casebook.other_tools import recorded
from casebook.other_tools.judging import NOT_RUN, VERDICTS
from casebook.other_tools.recorded import Recorded
from casebook.program import ROOT
from casebook.rows import Kept, Row
from casebook.table import lay_out

PAGE = ROOT / "docs" / "scoreboard.md"
README = ROOT / "README.md"
MARKS = ("<!-- unseen: written by `python -m casebook.board` -->", "<!-- end of unseen -->")
"""Where README's table of unseen faults begins and ends."""

HEADING = (
    "family", "cases", "found", "line right", "holder right", "bytes right", "false alarms", "silent where healthy",
    "symptom measured", "fixes proven", "variants found", "their line right", "false alarms in variants",
)  # fmt: skip

HEAD = """\
# Scoreboard

<!-- Written by `python -m casebook --record` from real runs; `python -m casebook.board` writes it again from
casebook/scores.json and casebook/other_tools/recorded.json. Not to be edited. -->

How torchvet does on the programs of `casebook/cases`: each a faulty program, the fixed one, and look-alikes that are
healthy. Made with {versions}.

- **RED**: the fault's symptom, measured without torchvet (`casebook/symptom.py`), and what other tools say of the
  faulty program, by one rule (`casebook/other_tools/__init__.py`).
- **GREEN**: torchvet names the fault, its line, what holds the memory and how much, and is silent on the fixed program
  and the look-alikes. Where it has an edit, `torchvet fix --verify --apply` fixes a copy; the fix counts as proven if
  the written program is then free of the fault and prints what it printed before (`casebook/fixing.py`).
- **REFACTOR**: variants made of the faulty program by machine, other names and other shapes (`casebook/variants`): is
  the fault found, and is anything said besides that is not true?
"""


def part(right: Iterable[bool | None]) -> str:
    """How many of those that were asked are right."""
    asked = [each for each in right if each is not None]
    return f"{sum(asked)} of {len(asked)}" if asked else "-"


def fixes(table: Iterable[Row]) -> str:
    """How many of the fixes that torchvet has are proven."""
    return part(row.fix == "proven" for row in table if row.fix not in ("", "no edit"))


def line(name: str, table: Sequence[Row]) -> list[str]:
    """The totals of some cases."""
    shapes = [shape for row in table for shape in row.variants.values()]
    return [
        name, str(len(table)), part(r.found for r in table), part(r.line for r in table),
        part(r.holder for r in table), part(r.bytes for r in table), str(sum(r.alarms for r in table)),
        f"{sum(r.silent for r in table)} of {sum(r.healthy for r in table)}",
        part(not r.symptom.startswith("not measured") for r in table if r.symptom), fixes(table),
        part(shape != "missed" for shape in shapes), part(shape == "right" for shape in shapes if shape != "missed"),
        str(sum(wrong)) if (wrong := [n for r in table if (n := r.alarms_in_variants) is not None]) else "-",
    ]  # fmt: skip


def families(table: Sequence[Row]) -> list[list[str]]:
    """A line for each family, and one for all."""
    names = sorted({row.family for row in table})
    return [
        list(HEADING),
        *(line(name, [row for row in table if row.family == name]) for name in names),
        line("all", table),
    ]


def other_tools(table: Sequence[Row], said: Recorded) -> list[list[str]]:
    """What each other tool did, counted over the cases that it was asked about."""
    lines = [["tool", "version", "cases asked", *VERDICTS]]
    for tool, version in sorted(said.tools.items(), key=lambda each: each[0].lower()):
        verdicts = [said.cases[r.case].verdicts.get(tool) for r in table if r.case in said.cases]
        counted = Counter(v.verdict for v in verdicts if v is not None)
        asked = f"{counted.total()} of {len(table)}"
        lines.append([tool, version, asked, *(str(counted[verdict]) for verdict in VERDICTS)])
    return lines


def in_terminal(table: Sequence[Row], said: Recorded) -> str:
    """The scoreboard as text."""
    named = [t[:4] for t in other_tools(table, said)]
    return "\n\n".join([lay_out(families(table)), *([lay_out(named)] if len(named) > 1 else [])])


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first line is the heading."""
    head, *body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in each) + " |" for each in lines]
    return "\n".join([head, "|" + "---|" * len(lines[0]), *body])


def page(kept: Kept, said: Recorded) -> str:
    """The whole of ``docs/scoreboard.md``."""
    made_with = ", ".join(f"{name} {version}" for name, version in kept.versions.items())
    table = kept.rows
    others = sorted(said.tools, key=str.lower)
    red = [["case", "symptom", *others]]
    green = [["case", "found", "line", "holder", "bytes", "silent where healthy", "fix", "variants"]]
    marks = {True: "yes", False: "**no**", None: ""}
    for row in table:
        entry = said.cases.get(row.case)
        verdicts = entry.verdicts if entry else {}
        red.append([row.case, row.symptom, *(verdicts[o].verdict if o in verdicts else "" for o in others)])
        lost = [name for name, shape in row.variants.items() if shape == "missed"]
        shapes = part(shape != "missed" for shape in row.variants.values()) if row.variants else ""
        wrong = [f"not {', '.join(lost)}"] if lost else []
        wrong += [f"**{row.alarms_in_variants} false alarms**"] if row.alarms_in_variants else []
        green.append([
            row.case, marks[row.found], marks[row.line], marks[row.holder], marks[row.bytes],
            f"{row.silent} of {row.healthy}", f"{row.fix}: {row.reason}" if row.reason else row.fix,
            ", ".join([shapes, *wrong]),
        ])  # fmt: skip
    return "\n\n".join([
        HEAD.format(versions=made_with).rstrip(),
        "## First try on unseen programs", UNSEEN, markdown(tries.totals()), markdown(tries.table()),
        "## All", markdown(families(table)),
        "## Other tools", RULE, markdown(other_tools(table, said)), *not_run(table, said),
        "## RED, case by case", markdown(red),
        "## GREEN and REFACTOR, case by case", markdown(green),
    ]) + "\n"  # fmt: skip


UNSEEN = """\
Faults from public threads and commits, rebuilt by somebody who had not read the rules, with healthy twins and a truth
that was measured without torchvet; and healthy programs that others published (`casebook/unseen.py` says what counts).
Of files and repositories that others made, every figure is worked out again, and findings are read beside the code.
The cases below are written by those who write the rules: they guard what works, and measure nothing."""

RULE = """\
*named*: a remark on the fault's subject, at an accepted line or where the fixed program gets none; *line*: some other
remark at an accepted line; *elsewhere*: something else; *silent*: nothing at warning or above; *not run*: could not be
run on the program here. A tool that takes minutes for each program was asked about a part of them only."""


def not_run(table: Sequence[Row], said: Recorded) -> list[str]:
    """Why tools could not be run, with how often."""
    reasons = Counter(
        f"{tool}: {verdict.detail}"
        for row in table
        if row.case in said.cases
        for tool, verdict in said.cases[row.case].verdicts.items()
        if verdict.verdict == NOT_RUN
    )
    lines = [f"- {reason} ({number})" for reason, number in sorted(reasons.items())]
    return ["Could not be run here:\n\n" + "\n".join(lines)] if lines else []


def readme(text: str) -> str:
    """README with its table of unseen faults written anew. Raises ValueError where the marks are missing."""
    before, begun, rest = text.partition(MARKS[0])
    _, ended, after = rest.partition(MARKS[1])
    if not (begun and ended):
        raise ValueError(f"README.md: no line {MARKS[0]!r} followed by {MARKS[1]!r}")
    return f"{before}{begun}\n{markdown(tries.totals())}\n{ended}{after}"


def write(kept: Kept, said: Recorded) -> None:
    """Write the page and README's table."""
    PAGE.write_text(page(kept, said), "utf-8")
    README.write_text(readme(README.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    write(rows.read(), recorded.read())
