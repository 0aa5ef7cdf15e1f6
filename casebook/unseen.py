"""What torchvet says of programs that its authors have not seen: pairs of a faulty program and its healthy twin.

    python -m casebook.unseen FOLDER [-k SUBSTRING] [--fix] [--json FILE] [--keep TITLE --try first] [--tool COMMAND]

A set is a folder with ``truth.json`` and, for each NAME in it, ``NAME_bad.py`` and ``NAME_ok.py``; or a folder with
``index.json``, which lists healthy programs only. A program of several files has others as ``NAME_bad_*.py``, or is a
folder ``NAME_bad`` that begins with its ``main.py``. Whoever writes a set has not read the rules and measures its truth
without torchvet.

A finding counts at warning or above (at ``info`` where the truth says ``soft``), with an accepted code or, where none
is named, on a true line. Its line is right within one line of a true one, places that it relates to included; its
holder, if a true word is in the holder's name or path; its bytes per step, within 25 %. A report *reassures* if it says
"No fault found" or "harmless" over a fault. A finding at warning or above on a healthy program is a false alarm.
``--keep`` adds the rates to those that ``docs/scoreboard.md`` shows (`casebook.tries`).
``--fix`` lets ``torchvet fix --verify --apply --unsafe-fixes`` change a copy of each faulty program that was found; it
is fixed if a new run shows none of the codes that were found.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from casebook import tries
from casebook.program import environment, python
from casebook.report import at_least

TOLERANCE = 0.25
"""Share by which bytes per step may differ from the independent count."""
PATIENCE = 240
"""Seconds after which a run is given up."""


class Truth(msgspec.Struct):
    """What is known of one faulty program, as ``truth.json`` has it."""

    source: str = ""
    accept: list[str] = []
    lines: list[int] = []
    where: list[str] = []
    """True lines of a program of several files, in their place: ``NAME_bad_lib.py:36``, ``NAME_bad/layers.py:36``."""
    holder: list[str] = []
    bytes_per_step: float | None = None
    soft: bool = False
    args: list[str] = []

    def places(self, name: str) -> list[tuple[str, int]]:
        """The files and lines of the fault; `name` is the file of a program that has one."""
        several = [(Path(file).name, int(line)) for file, _, line in (place.rpartition(":") for place in self.where)]
        return several or [(name, line) for line in self.lines]


class Healthy(msgspec.Struct):
    """One program of ``index.json``."""

    script: str
    cwd: str = "."
    source: str = ""
    args: list[str] = []
    known_fault: str | None = None


@dataclass(frozen=True)
class Told:
    """What one run of torchvet came to."""

    status: int
    headline: str
    report: dict[str, Any]

    @property
    def findings(self) -> list[dict[str, Any]]:
        """All findings of the report."""
        return list(self.report.get("findings", []))

    @property
    def loud(self) -> list[dict[str, Any]]:
        """The findings at warning or above."""
        return [f for f in self.findings if at_least(f["severity"], "warning")]


@dataclass
class Row:
    """How one program came out."""

    name: str
    found: bool = False
    line: bool = False
    holder: bool | None = None
    bytes: bool | None = None
    reassured: bool = False
    alarms: list[str] = field(default_factory=list)
    """Findings at warning or above on the healthy twin."""
    twin: str = ""
    """The twin's verdict."""
    twin_headline: str = ""
    fixed: bool | None = None
    said: str = ""
    """The headline, for whoever reads the table."""


def entry(folder: Path, stem: str) -> Path:
    """The file with which a program begins."""
    single = folder / f"{stem}.py"
    return single if single.exists() else folder / stem / "main.py"


def told(script: Path, argv: Sequence[str], tool: Sequence[str], folder: Path | None = None) -> Told:
    """Run one program under torchvet, from its folder."""
    with tempfile.TemporaryDirectory() as out:
        report = Path(out, "report.json")
        command = [*tool, "run", "-o", str(report), script.name, *argv]
        try:
            done = subprocess.run(
                command, cwd=folder or script.parent, env=environment(), capture_output=True, text=True,
                timeout=PATIENCE, stdin=subprocess.DEVNULL, errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Told(-1, f"given up after {PATIENCE} s", {})
        content = msgspec.json.decode(report.read_bytes()) if report.exists() else {}
    return Told(done.returncode, headline(done.stdout), content)


_HEADLINE = re.compile(
    r"(\d+ (leak|fault|warning|error)s?\b.*|No fault found.*|Undetermined.*|Could not.*|.*judged?\b.*)"
)


def headline(output: str) -> str:
    """The report's first line, which comes after all that the program printed."""
    lines = output.partition("\nWhat was seen")[0].splitlines()
    return next((line for line in reversed(lines) if _HEADLINE.fullmatch(line)), lines[-1] if lines else "")


def counts(finding: dict[str, Any], truth: Truth, name: str) -> bool:
    """Whether a finding is about the fault, and grave enough."""
    grave = at_least(finding["severity"], "info" if truth.soft else "warning")
    return grave and (finding["code"] in truth.accept if truth.accept else points_at(finding, truth.places(name)))


def points_at(finding: dict[str, Any], true: Sequence[tuple[str, int]]) -> bool:
    """Whether a finding, or a place that it relates to, is within one line of a true one."""
    places = [p for p in (finding.get("location"), *finding.get("related", [])) if p and p.get("line")]
    here = [(Path(p["path"] or "").name, p["line"]) for p in places]
    return any(file == name and abs(line - at) <= 1 for file, line in here for name, at in true)


def _holds(finding: dict[str, Any], words: Sequence[str]) -> bool:
    holder = finding.get("holder") or {}
    return any(word in f"{holder.get('name', '')} {' '.join(holder.get('path', []))}" for word in words)


def _amounts(finding: dict[str, Any], true: float) -> bool:
    rate = (finding.get("measured") or {}).get("bytes_per_step")
    return rate is not None and abs(rate - true) <= TOLERANCE * true


def judge(name: str, truth: Truth, faulty: Told, twin: Told) -> Row:
    """Hold what was said of a pair against what is true of it."""
    script = f"{name}_bad.py"
    hits = [f for f in faulty.findings if counts(f, truth, script)]
    calm = [f for f in faulty.findings if f["code"] in truth.accept and "harmless" in f["message"]]
    return Row(
        name=name, found=bool(hits), line=any(points_at(f, truth.places(script)) for f in hits),
        holder=any(_holds(f, truth.holder) for f in hits) if truth.holder else None,
        bytes=any(_amounts(f, truth.bytes_per_step) for f in hits) if truth.bytes_per_step else None,
        reassured=not hits and (bool(calm) or faulty.headline.startswith("No fault found")),
        alarms=[f"{f['code']} {f['severity']}" for f in twin.loud], twin=twin.report.get("verdict", "no report"),
        twin_headline=twin.headline, said=faulty.headline,
    )  # fmt: skip


def fixed(script: Path, truth: Truth, said: Told, tool: Sequence[str]) -> bool:
    """Whether `fix --verify --apply` on a copy ends with a program of which the fault that was told is gone."""
    found = {f["code"] for f in said.loud}
    with tempfile.TemporaryDirectory() as folder:
        # With the other files of a program that has several.
        beside = "*.py" if script.name == "main.py" else f"{script.stem}*.py"
        for file in script.parent.glob(beside):
            shutil.copy(file, folder)
        copy = Path(folder, script.name)
        files = sorted(Path(folder).glob("*.py"))
        before = [file.read_bytes() for file in files]
        # What is wrong in the mathematics is fixed by other losses, which must be asked for.
        asked = ["--verify", "--apply", "--unsafe-fixes", "--quiet"]
        command = [*tool, "fix", copy.name, *asked, "--", *truth.args]
        try:
            subprocess.run(command, cwd=folder, env=environment(), capture_output=True, timeout=4 * PATIENCE)
        except subprocess.TimeoutExpired:
            return False
        if [file.read_bytes() for file in files] == before:
            return False
        after = told(copy, truth.args, tool)
        return bool(after.report) and not any(f["code"] in found for f in after.loud)


def pairs(folder: Path, only: str, tool: Sequence[str], fix: bool) -> list[Row]:
    """All pairs of a folder, one after the other."""
    truths = msgspec.json.decode((folder / "truth.json").read_bytes(), type=dict[str, Truth])
    rows = []
    for name, truth in truths.items():
        if only not in name:
            continue
        bad = entry(folder, f"{name}_bad")
        said = told(bad, truth.args, tool)
        row = judge(name, truth, said, told(entry(folder, f"{name}_ok"), truth.args, tool))
        if fix:
            row.fixed = row.found and fixed(bad, truth, said, tool)
        rows.append(row)
        print(f"{marks(row)}  {row.said[:110]}", file=sys.stderr, flush=True)
    return rows


def healthy(folder: Path, only: str, tool: Sequence[str]) -> list[Row]:
    """All programs of an index of healthy ones: `found` is False of each, and its alarms are what counts."""
    index = msgspec.json.decode((folder / "index.json").read_bytes(), type=dict[str, Healthy])
    rows = []
    for name, one in index.items():
        if only not in name or one.known_fault:
            continue
        seen = told(Path(one.script), one.args, tool, folder / one.cwd)
        alarms = [f"{f['code']} {f['severity']}" for f in seen.loud]
        verdict = seen.report.get("verdict", "no report")
        rows.append(Row(name, alarms=alarms, twin=verdict, twin_headline=seen.headline))
        print(f"{name:32} {rows[-1].twin:13} {alarms or ''} {seen.headline[:110]}", file=sys.stderr, flush=True)
    return rows


def marks(row: Row) -> str:
    """One line of a row for the terminal."""
    parts = {"found": row.found, "line": row.line, "holder": row.holder, "bytes": row.bytes, "fixed": row.fixed}
    shown = [f"{k}{'+' if v else '-'}" if v is not None else f"{k} " for k, v in parts.items()]
    calm = "REASSURED" if row.reassured else ""
    return f"{row.name:28} {' '.join(shown)} {calm:9} twin {row.twin} {','.join(row.alarms)}"


def rates(rows: Sequence[Row], of_pairs: bool, title: str, when: str) -> tries.Try:
    """A set's rates as a row of the scoreboard."""
    date, commit = tries.here()
    parts = {
        part: tries.rate([getattr(row, part) for row in rows if of_pairs])
        for part in ("found", "line", "holder", "bytes", "fixed", "reassured")
    }
    called = [row.twin_headline.startswith("No fault found") for row in rows]
    return tries.Try(
        date=date, commit=commit, set=title, when=when, programs=len(rows),
        alarms=tries.rate([bool(row.alarms) for row in rows]), clean=tries.rate(called), **parts,
    )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run one set and print its rates."""
    parser = argparse.ArgumentParser(prog="python -m casebook.unseen", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-k", dest="only", default="", help="only programs whose name has this in it")
    parser.add_argument("--fix", action="store_true", help="also let `fix --verify --apply` change a copy of each")
    parser.add_argument("--json", type=Path, help="write the rows here as well")
    parser.add_argument("--keep", metavar="TITLE", help="add the rates to the scoreboard's, under this name of the set")
    parser.add_argument("--kind", choices=("", *tries.KINDS), default="", help="in which line of the totals it counts")
    parser.add_argument("--try", dest="when", choices=("first", "after"), default="after")
    parser.add_argument("--tool", default="", help="the command in the place of `python -m torchvet`")
    asked = parser.parse_args(argv)
    tool = shlex.split(asked.tool) or python("-m", "torchvet")
    if (asked.folder / "truth.json").exists():
        rows, of_pairs = pairs(asked.folder, asked.only, tool, asked.fix), True
    else:
        rows, of_pairs = healthy(asked.folder, asked.only, tool), False
    found = rates(rows, of_pairs, asked.keep or asked.folder.name, asked.when)
    found.kind = asked.kind
    print(msgspec.json.encode(found).decode())
    if asked.keep:
        tries.keep(found)
    if asked.json is not None:
        asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
