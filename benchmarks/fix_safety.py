"""Whether `torchvet check --fix` leaves real source whole: every edit on every file, on copies.

    python benchmarks/fix_safety.py FOLDER... [--show 60 --seed 0] [--select CODES]

The Python files below the folders that speak of torch and compile are copied and mended by the command line, once with
the safe edits alone and once with all. Of each it is asked: does `--diff` write nothing, and does `patch` make of
its output what `--fix` writes? Does every file still parse, and compile? Does a second run change nothing? Is every
comment still there, and every byte that no edit covers? `--show` prints single edits drawn at random, each rule's in
turn, for reading.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import random
import shutil
import subprocess
import sys
import tempfile
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from torchvet.checking.decoding import decode
from torchvet.finding import Finding
from torchvet.fixing.edits import apply
from torchvet.patches import made

CHECK = (sys.executable, "-m", "torchvet", "check", "--no-cache", "--jobs", "1", "--exit-zero")


def compiles(data: bytes) -> bool:
    """Whether Python takes a file's content."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(data, "file", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError):
            return False
    return True


def copied(folders: Sequence[Path], into: Path) -> list[Path]:
    """Copy the files that speak of torch and compile. Gives the copies; folders' own settings stay behind."""
    copies = []
    for number, folder in enumerate(folders):
        for path in sorted(folder.rglob("*.py")):
            data = path.read_bytes() if path.is_file() else b""
            if b"torch" in data and compiles(data):
                copy = into / f"{number:02}_{folder.name}" / path.relative_to(folder)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(data)
                copies.append(copy)
    return copies


def check(folder: Path, *options: str) -> tuple[str, dict[str, Any]]:
    """What the command prints about a folder, and its report. Raises where it did not work."""
    with tempfile.TemporaryDirectory() as beside:
        report = Path(beside, "report.json")
        done = subprocess.run([*CHECK, "-o", str(report), *options, "."], cwd=folder, capture_output=True)
        if done.returncode != 0:
            raise SystemExit(f"torchvet check {' '.join(options)} ended with {done.returncode}: {done.stderr.decode()}")
        return done.stdout.decode(), json.loads(report.read_bytes())


def contents(files: Sequence[Path]) -> dict[Path, bytes]:
    """The files as they are now."""
    return {path: path.read_bytes() for path in files}


def comments(data: bytes) -> Counter[str]:
    """A file's comments."""
    try:
        tokens = list(tokenize.tokenize(io.BytesIO(data).readline))
    except (tokenize.TokenError, SyntaxError):
        return Counter()
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


def outside(before: str, after: str, findings: Sequence[Finding]) -> bool:
    """Whether what no edit covers of a text stands in the mended one, in its order. For edits of one round."""
    made = sorted({(e.start, e.end) for f in findings for e in f.remedy.edits})
    lines = before.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    place = at = 0
    for (row, column), (last, end) in made:
        first, stop = starts[row - 1] + column - 1, starts[last - 1] + end - 1
        found = after.find(before[place:first], at) if first > place else at
        if found < 0:
            return False
        at, place = found + max(0, first - place), max(place, stop)
    return after.endswith(before[place:])


class Outcome:
    """What mending all files with one kind of edits did."""

    def __init__(self, edits: str) -> None:
        self.edits = edits
        self.files = 0
        self.fixed: Counter[str] = Counter()
        self.wrong: list[str] = []

    def row(self) -> str:
        """As a line of the table."""
        return f"{self.edits:<10}{self.files:>8}{self.fixed.total():>8}{len(self.wrong):>8}"


def fix(folder: Path, files: Sequence[Path], options: Sequence[str], findings: dict[str, list[Finding]]) -> Outcome:
    """Mend a folder's files and look at what came of them."""
    outcome = Outcome("all" if "--unsafe-fixes" in options else "safe")
    before = contents(files)
    shown, _ = check(folder, "--diff", *options)
    if contents(files) != before:
        outcome.wrong.append("--diff wrote")
    _, report = check(folder, "--fix", *options)
    after = contents(files)
    outcome.fixed.update(report["facts"].get("fixed", {}))
    outcome.files = sum(after[path] != data for path, data in before.items())
    for path, data in before.items():
        name = str(path.relative_to(folder))
        outcome.wrong += [f"{name}: {what}" for what in _wrong(data, after[path], findings.get(name, []), options)]
    check(folder, "--fix", *options)
    changed = [path for path, data in contents(files).items() if data != after[path]]
    outcome.wrong += [f"{path.relative_to(folder)}: changed again" for path in changed]
    outcome.wrong += [f"not made: {reason}" for reason in report["facts"].get("not_fixed", [])]
    outcome.wrong += _patched(folder, before, after, shown)
    return outcome


def _wrong(data: bytes, fixed: bytes, findings: Sequence[Finding], options: Sequence[str]) -> Iterator[str]:
    if fixed == data:
        return
    try:
        ast.parse(fixed)
    except SyntaxError as error:
        yield f"does not parse: {error}"
        return
    if not compiles(fixed):
        yield "does not compile"
    lost = comments(data) - comments(fixed)
    if lost:
        yield f"comments lost: {', '.join(lost)}"
    if data[:3] == b"\xef\xbb\xbf" and fixed[:3] != data[:3]:
        yield "byte order mark lost"
    if (b"\r" in data) != (b"\r" in fixed) or (data[-1:] == b"\n") != (fixed[-1:] == b"\n"):
        yield "line ends changed"
    made = [f for f in findings if f.remedy.safe or "--unsafe-fixes" in options]
    if len(_applied(data, made)) == len(made) and not outside(decode(data).text, decode(fixed).text, made):
        yield "bytes outside the edits changed"


def _applied(data: bytes, findings: Sequence[Finding]) -> list[Finding]:
    """The findings whose edits do not touch one another; where all are such, one round of edits makes the file."""
    path = next((edit.path for finding in findings for edit in finding.remedy.edits), "")
    return apply({path: decode(data).text}, findings)[1]


def _patched(folder: Path, before: dict[Path, bytes], after: dict[Path, bytes], shown: str) -> list[str]:
    """What `patch` makes of the originals and the printed differences, where it is not what was written."""
    if shutil.which("patch") is None:
        return ["no `patch` here: the printed differences were not tried"]
    with tempfile.TemporaryDirectory() as other:
        for path, data in before.items():
            copy = Path(other, path.relative_to(folder))
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data)
        command = ["patch", "-p0", "-s", "--binary"]
        done = subprocess.run(command, cwd=other, input=shown.encode(), capture_output=True)
        said = [f"patch: {done.stdout.decode()}"] if done.returncode else []
        names = [path.relative_to(folder) for path in before]
        return said + [f"{n}: the difference is not what is written" for n in names
                       if Path(other, n).read_bytes() != after[folder / n]]  # fmt: skip


def single(findings: dict[str, list[Finding]], folder: Path, number: int, seed: int) -> Iterator[str]:
    """Single edits drawn at random, each rule's in turn, as differences."""
    draw = random.Random(seed)
    by_code: dict[str, list[tuple[str, Finding]]] = {}
    for name, found in findings.items():
        for finding in found:
            by_code.setdefault(finding.code, []).append((name, finding))
    for pairs in by_code.values():
        draw.shuffle(pairs)
    drawn: list[tuple[str, Finding]] = []
    while len(drawn) < number and any(by_code.values()):
        drawn += [pairs.pop() for _, pairs in sorted(by_code.items()) if pairs]
    for name, finding in drawn[:number]:
        text = decode((folder / name).read_bytes()).text
        path = finding.remedy.edits[0].path
        after = apply({path: text}, [finding])[0][path]
        kind = "safe" if finding.remedy.safe else "unsafe"
        yield f"### {finding.code} ({kind}, {finding.severity}) {finding.message}\n" + "".join(made(text, after, name))


def main() -> int:
    """Print the table; 0 where nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--select", help="only rules whose code starts so")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print N single edits")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    selected = ["--select", given.select] if given.select else []
    outcomes = []
    for unsafe in ([], ["--unsafe-fixes"]):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            files = copied([f.resolve() for f in given.folders], folder)
            report = check(folder, *selected)[1]
            findings: dict[str, list[Finding]] = {}
            for one in msgspec.convert(report["findings"], list[Finding]):
                if one.remedy.edits and one.location is not None:
                    findings.setdefault(one.location.path, []).append(one)
            if not unsafe:
                print("\n".join(single(findings, folder, given.show, given.seed)))
            outcomes.append(fix(folder, files, [*selected, *unsafe], findings))
    print(f"{len(files)} files\n{'edits':<10}{'changed':>8}{'edits':>8}{'wrong':>8}")
    for outcome in outcomes:
        print(outcome.row())
        print("  " + ", ".join(f"{code} {n}" for code, n in sorted(outcome.fixed.items())))
        print("\n".join(outcome.wrong))
    return 1 if any(outcome.wrong for outcome in outcomes) else 0


if __name__ == "__main__":
    raise SystemExit(main())
