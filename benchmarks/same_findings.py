"""Do two checkouts of torchvet say the same about the same inputs? For changes that must not change any finding.

    python benchmarks/same_findings.py BEFORE AFTER [--files FOLDER]... [--recordings FOLDER]... [--keep FOLDER]

Each checkout's `src` checks the files below each FOLDER (`check --diff --unsafe-fixes`; nothing is written), and
diagnoses again what the folders of recordings hold: `NAME.vet` (`inspect` and `whatif`), snapshots `NAME.pickle`,
traces `NAME.json.gz`, and `NAME.ranks`, a folder with the files of one program's ranks. Recordings name the programs'
source files, which must still be where they were.

Findings are compared field by field, and so is the rest of each report. Prose (`PROSE`, and facts that are sentences)
may differ: it is listed as reworded and does not change the exit status. Exit status: 0 the same, 1 a difference, 2
nothing to compare. `--keep` writes the reports to before.json and after.json; such a file can take the place of a
checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROSE = ("message", "cause", "summary", "check", "reason", "stderr")
"""Fields that hold sentences for people."""
CHECK = ("check", "--no-cache", "--jobs", "1", "--diff", "--unsafe-fixes")
VERBS = {"*.vet": ("inspect", "whatif"), "*.pickle": ("inspect",), "*.json.gz": ("inspect",), "*.ranks": ("inspect",)}
"""What is asked about a recording, by its name."""
LIMIT = ("--memory-limit", "24GiB")
"""Forecasts must not depend on this machine's memory."""
PATIENCE = 600
"""Seconds after which one command is ended."""
KINDS = ("missing", "new", "changed", "reworded, other numbers", "reworded")
"""What can become of a finding, the gravest first."""
GRAVE = KINDS[:3]

Report = dict[str, Any]
"""A report as its JSON, with `exit_status`, `stderr` and the printed `diff` by file."""
Item = dict[str, Any]
"""A finding, a gap, or the rest of a report: its leaves by their dotted paths. `code` says which of them it is."""


@dataclass(frozen=True)
class Difference:
    """What became of one item. `fields` are those that differ, each with its values before and after."""

    kind: str
    code: str
    where: str
    fields: tuple[tuple[str, Any, Any], ...]

    def key(self) -> tuple[int, str, str]:
        """Equal for differences of one sort; orders them by gravity."""
        names = sorted({re.sub(r"\.\d+\b", "", name) for name, _, _ in self.fields})
        return KINDS.index(self.kind), self.code, ", ".join(names[:4])

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.code} in {self.where}"]
        for name, before, after in self.fields[:6]:
            lines += [f"    {name}", f"      - {before!s:.400}", f"      + {after!s:.400}"]
        return "\n".join(lines)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a JSON value with their dotted paths; an empty list or object is a leaf."""
    if not value or not isinstance(value, (dict, list)):
        yield path, value
        return
    for name, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(part, f"{path}.{name}" if path else str(name))


def items(report: Report) -> list[Item]:
    """A report's findings, its gaps, and the rest as one more item."""
    findings = [dict(leaves(finding)) for finding in report.get("findings", [])]
    gaps = [{"code": "not-checked", **gap} for gap in report.get("not_checked", [])]
    rest = {name: part for name, part in report.items() if name not in ("schema", "version", "findings", "not_checked")}
    order = " ".join(f"{finding['code']}:{finding.get('location.line')}" for finding in findings)
    return [*findings, *gaps, {"code": "report", "order": order, **dict(leaves(rest))}]


def is_prose(name: str, value: Any) -> bool:
    """Whether a field holds words for people: one of `PROSE`, or a sentence in the facts."""
    sentence = name.startswith("facts.") and isinstance(value, str) and " " in value
    return sentence or name.rpartition(".")[2] in PROSE


def compare(before: Report, after: Report, where: str) -> list[Difference]:
    """What differs between two reports on one input. Items that are most alike are taken for the same."""
    old, new, found = items(before), items(after), []
    for key in (_whole, _without_prose, _line, _file):
        pairs, old, new = paired(old, new, key)
        found += [_difference(one, other, where) for one, other in pairs if one != other]
    found += [_difference(item, {}, where, "missing") for item in old]
    found += [_difference({}, item, where, "new") for item in new]
    return found


def paired(
    before: list[Item], after: list[Item], key: Callable[[Item], str]
) -> tuple[list[tuple[Item, Item]], list[Item], list[Item]]:
    """Pairs of items with an equal key, each item in one pair at most, and those left over on each side."""
    waiting: dict[str, list[Item]] = defaultdict(list)
    for item in after:
        waiting[key(item)].append(item)
    pairs, left = [], []
    for item in before:
        same = waiting[key(item)]
        if same:
            pairs.append((item, same.pop(0)))
        else:
            left.append(item)
    return pairs, left, [item for group in waiting.values() for item in group]


def _whole(item: Item) -> str:
    return json.dumps(item, sort_keys=True)


def _without_prose(item: Item) -> str:
    return _whole({name: value for name, value in item.items() if not is_prose(name, value)})


def _line(item: Item) -> str:
    return f"{_file(item)} {item.get('location.line')}"


def _file(item: Item) -> str:
    return f"{item['code']} {item.get('location.path')}"


def _difference(before: Item, after: Item, where: str, kind: str = "") -> Difference:
    """What differs between two items, one of which may be empty."""
    fields = [(name, before.get(name), after.get(name)) for name in {**before, **after}]
    fields = [(name, old, new) for name, old, new in fields if old != new]
    known = before or after
    if kind:
        fields = [field for field in fields if field[0] in ("message", "check")]
    elif not all(is_prose(name, old) and is_prose(name, new) for name, old, new in fields):
        kind = "changed"
    else:
        same_numbers = all(_numbers(old) == _numbers(new) for _, old, new in fields)
        kind = "reworded" if same_numbers else "reworded, other numbers"
    place = f", {known['location.path']}:{known.get('location.line')}" if known.get("location.path") else ""
    return Difference(kind, known["code"], where + place, tuple(fields))


def _numbers(text: Any) -> list[str]:
    return sorted(re.findall(r"\d+(?:\.\d+)?", str(text).replace(",", "")))


def commands(files: Sequence[Path], recordings: Sequence[Path]) -> dict[str, list[str]]:
    """The command lines to be compared, by their names. Each entry of a folder of files is checked on its own."""
    found = {}
    for folder in map(Path.absolute, files):
        for entry in sorted(folder.iterdir()):
            found[f"check {folder.name}/{entry.name}"] = [*CHECK, str(entry)]
    for folder in map(Path.absolute, recordings):
        paths = [(path, verb) for pattern, verbs in VERBS.items() for path in folder.rglob(pattern) for verb in verbs]
        for path, verb in sorted(paths):
            if path.parent.suffix not in (".vet", ".ranks"):  # those belong to the recording that they lie in
                found[f"{verb} {path.relative_to(folder)}"] = [verb, "--quiet", *LIMIT, str(path)]
    return found


def reports_of(side: Path, asked: dict[str, list[str]], python: str, jobs: int) -> dict[str, Report]:
    """What a checkout says to each command, or what was kept of it. Raises CalledProcessError where it cannot run."""
    if side.suffix == ".json":
        kept: dict[str, Report] = json.loads(side.read_text())
        return {name: kept[name] for name in asked}
    with tempfile.TemporaryDirectory() as folder:
        tasks = {str(Path(folder, str(number))): command for number, command in enumerate(asked.values())}
        environment = {**os.environ, "PYTHONPATH": str(side / "src"), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        command = [python, str(Path(__file__).absolute()), "--drive", str(side / "src"), str(jobs)]
        subprocess.run(command, input=json.dumps(tasks), text=True, env=environment, cwd=folder, check=True)
        return {name: read(base, side) for name, base in zip(asked, tasks, strict=True)}


def read(base: str, checkout: Path) -> Report:
    """What one command has left, without the checkout's own path. A command that failed has left no report."""
    texts = [Path(base + end).read_text("utf-8") for end in (".json", ".stdout", ".stderr", ".status")]
    report, stdout, stderr, status = (text.replace(str(checkout), "CHECKOUT").replace(base, "BASE") for text in texts)
    _, *patches = re.split(r"^--- (.*)\n", stdout, flags=re.MULTILINE)
    diff = dict(zip(patches[::2], patches[1::2], strict=True))
    return {**json.loads(report or "{}"), "diff": diff, "stderr": stderr, "exit_status": status}


def drive(source: str, jobs: int) -> None:
    """Run the commands on stdin in a process that finds one checkout's torchvet, each in a fork of its own."""
    import torchvet

    assert torchvet.__file__.startswith(source), f"{torchvet.__file__} is not in {source}"
    waiting = list(json.load(sys.stdin).items())
    for base, command in {command[0]: (base, command) for base, command in waiting if "--quiet" in command}.values():
        answer(base, command)  # here too, so that no fork has to import the rules
    running: dict[int, str] = {}
    while waiting or running:
        if waiting and len(running) < jobs:
            base, command = waiting.pop(0)
            running[os.fork() or run(base, command)] = base
        else:
            pid, status = os.wait()
            Path(running.pop(pid) + ".status").write_text(str(os.waitstatus_to_exitcode(status)))


def run(base: str, command: list[str]) -> int:
    """In a fork: answer one command, what it prints written to files. Does not return."""
    signal.alarm(PATIENCE)
    Path(base + ".json").write_text("")
    for descriptor, end in ((1, ".stdout"), (2, ".stderr")):
        os.dup2(os.open(base + end, os.O_WRONLY | os.O_CREAT), descriptor)
    status = answer(base, command)
    sys.stdout.flush()
    os._exit(status)


def answer(base: str, command: list[str]) -> int:
    """The exit status of `python -m torchvet COMMAND`, which writes its report to BASE.json."""
    sys.argv = ["torchvet", command[0], "-o", base + ".json", *command[1:]]
    sys.path.insert(0, "")  # torchvet takes the first entry, a script's folder, out again
    try:
        runpy.run_module("torchvet", run_name="__main__", alter_sys=True)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 1
    except Exception:
        traceback.print_exc()
        return 70
    return 0


def summary(asked: dict[str, list[str]], reports: dict[str, Report]) -> str:
    """How much a side has said, so that two empty sides are not taken for equal ones."""
    said = [reports[name] for name in asked]
    findings = sum(len(report.get("findings", [])) for report in said)
    return f"{findings} findings, {sum('facts' not in report for report in said)} without a report"


def main() -> int:
    """Ask both sides, compare, and print. 0 where nothing but prose differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sides", type=Path, nargs=2, help="BEFORE and AFTER: checkouts, or reports kept by --keep")
    parser.add_argument("--files", type=Path, nargs="+", default=[], metavar="FOLDER")
    parser.add_argument("--recordings", type=Path, nargs="+", default=[], metavar="FOLDER")
    parser.add_argument("--only", default="", metavar="TEXT", help="only commands whose name contains this")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the reports there")
    parser.add_argument("--python", default=sys.executable, metavar="EXE", help="has what torchvet depends on")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="commands at a time")
    parser.add_argument("--show", type=int, default=20, metavar="N", help="differences that are printed in full")
    options = parser.parse_args()
    asked = {name: line for name, line in commands(options.files, options.recordings).items() if options.only in name}
    if not asked:
        parser.error("there is nothing to compare: give --files, --recordings or both")
    sides = []
    for name, side in zip(("before", "after"), options.sides, strict=True):
        sides.append(reports_of(side.absolute(), asked, options.python, options.jobs))
        print(f"{name}: {len(asked)} commands, {summary(asked, sides[-1])}", flush=True)
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            (options.keep / f"{name}.json").write_text(json.dumps(sides[-1]))
    found = [one for name in asked for one in compare(sides[0][name], sides[1][name], name)]
    found.sort(key=Difference.key)
    for (kind, code, fields), number in sorted(Counter(map(Difference.key, found)).items()):
        print(f"{number:6} {KINDS[kind]}: {code} ({fields})")
    print(*found[: options.show], sep="\n")
    grave = sum(one.kind in GRAVE for one in found)
    print(f"{grave} differences, {len(found) - grave} reworded")
    return int(grave > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--drive"]:
        drive(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
