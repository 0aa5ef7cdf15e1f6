"""What other tools say of the same files: ``python benchmarks/rivals.py --tools BIN [--json FILE] [DIR...]``.

BIN holds `torchfix`, `torch-preflight` and `mldoctor` (of mldoct), with the `python` that runs them. Each folder is
given to each tool whole, up to `--limit` seconds, and what it says is counted by severity; `--sample N` prints N
remarks of each tool, drawn with a fixed seed, to be judged by eye.

The planted programs (`casebook/planted` and the rules' own examples) come first. A fault counts as found where the tool
says something of the same subject (`SUBJECTS`) more often of the faulty program than of its healthy twin: lines are not
compared, since not every tool gives them. A healthy program counts as alarmed where anything at warning or above is
said of it, of whatever subject.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from casebook.source import pairs

SUBJECTS = {
    "MEM101": {"TG001", "oom_leak"}, "MEM102": {"TG001", "oom_leak"}, "MEM103": {"TG001"}, "MEM104": {"TG002"},
    "MEM106": {"TG001"}, "MEM112": {"TG001", "oom_leak"}, "OPS101": {"TG007"}, "OPS102": {"TG013"},
    "OPS103": {"TG013"}, "OPS104": {"TG004", "TG013", "TOR401", "cpu_bottleneck"}, "DEV108": {"TOR102"},
    "AMP209": {"TG006"}, "AMP210": {"TOR001", "TOR101", "TOR103"}, "NUM110": {"TOR106", "TOR107"},
    "DST107": {"TG012"}, "TRN101": {"TG003", "missing_zero_grad"}, "TRN102": {"TG003"},
    "TRN103": {"TG011", "missing_eval"}, "TRN107": {"TG014"}, "TRN108": {"TG005", "double_softmax"},
}  # fmt: skip
"""Which of the other tools' codes speak of the subject of a rule."""
LINTED = """\
import json, sys
from mldoctor.linter import lint_script
for path in sys.stdin.read().splitlines():
    try:
        found = lint_script(path)[0]
    except (RecursionError, UnicodeDecodeError, ValueError):
        continue
    for one in found:
        print(json.dumps([path, one["line"], one["type"], one["severity"], one["message"]]))
"""
"""mldoctor's command takes one file and prints no lines; this asks the function that the command asks."""


@dataclass(frozen=True)
class Remark:
    """One thing that a tool says. `line` is 0 where the tool does not say it."""

    path: str
    line: int
    code: str
    severity: str
    message: str

    @property
    def loud(self) -> bool:
        """Whether it is at warning or above."""
        return self.severity in ("error", "warning")


@dataclass(frozen=True)
class Tool:
    """A tool: its name, its command for a folder, and how its output is read."""

    name: str
    command: Callable[[Path, Path], list[str]]
    read: Callable[[str], list[Remark]]


def of_torchvet(out: str) -> list[Remark]:
    """torchvet's JSON report."""
    found = [f for f in json.loads(out)["findings"] if f["location"]]
    return [Remark(f["location"]["path"], f["location"]["line"], f["code"], f["severity"], f["message"]) for f in found]


def of_torchfix(out: str) -> list[Remark]:
    """`path:line:column: CODE [*] message`; it knows no severities, so that all count as warnings."""
    lines = (re.match(r"(.+?):(\d+):\d+: (TOR\d+) (.*)", line) for line in out.splitlines())
    return [Remark(m[1], int(m[2]), m[3], "warning", m[4]) for m in lines if m]


def of_preflight(out: str) -> list[Remark]:
    """torch-preflight's JSON."""
    found = json.loads(out)["diagnostics"]
    return [Remark(f["path"], f["line"], f["code"], f["severity"], f["message"]) for f in found]


def of_mldoctor(out: str) -> list[Remark]:
    """What `LINTED` prints; CRITICAL is an error."""
    known = {"CRITICAL": "error", "ERROR": "error", "WARNING": "warning", "INFO": "info"}
    found = [json.loads(line) for line in out.splitlines() if line.startswith("[")]
    return [Remark(path, line or 0, code, known[severity], said) for path, line, code, severity, said in found]


TOOLS = (
    Tool("torchvet", lambda _, at: [sys.executable, "-m", "torchvet", "check", str(at), "--no-cache", "--exit-zero",
                                    "--jobs", "1", "--format", "json"], of_torchvet),
    Tool("TorchFix", lambda tools, at: [str(tools / "torchfix"), str(at), "--jobs", "1"], of_torchfix),
    Tool("torch-preflight", lambda tools, at: [str(tools / "torch-preflight"), "check", str(at), "--format", "json",
                                               "--jobs", "1"], of_preflight),
    Tool("mldoct", lambda tools, _: [str(tools / "python"), "-c", LINTED], of_mldoctor),
)  # fmt: skip


def ask(tool: Tool, tools: Path, folder: Path, limit: float) -> list[Remark] | None:
    """What a tool says of a folder's Python files; None where it ran past the limit or broke."""
    files = "\n".join(str(p) for p in sorted(folder.rglob("*.py")))
    try:
        done = subprocess.run(
            tool.command(tools, folder), input=files, capture_output=True, text=True, timeout=limit, check=False
        )
        return tool.read(done.stdout)
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return None


def planted(tool: Tool, tools: Path, limit: float) -> tuple[int, int, int, int]:
    """Faults found, faults planted, healthy programs alarmed, healthy programs."""
    cases = list(pairs())
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(cases):
            Path(folder, f"{number}_bad.py").write_text(case.bad, "utf-8")
            Path(folder, f"{number}_good.py").write_text(case.good, "utf-8")
        remarks = ask(tool, tools, Path(folder), limit) or []
    found, loud = 0, set()
    for number, case in enumerate(cases):
        subject = SUBJECTS.get(case.code, set()) | {case.code}
        said = Counter(Path(r.path).name for r in remarks if r.code in subject)
        found += said[f"{number}_bad.py"] > said[f"{number}_good.py"]
        if any(r.loud and Path(r.path).name == f"{number}_good.py" for r in remarks):
            loud.add(case.good)
    return found, len(cases), len(loud), len({c.good for c in cases})


def main() -> None:
    """Print a table of the planted programs, one of the folders, and the samples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR")
    parser.add_argument("--tools", type=Path, required=True, metavar="BIN", help="the folder of the tools' commands")
    parser.add_argument("--limit", type=float, default=300, metavar="SECONDS", help="for a tool and a folder [300]")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="print N loud remarks of each tool")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all remarks here too")
    options = parser.parse_args()
    print(f"{'planted programs':40}{'found':>14}{'alarmed':>14}")
    for tool in TOOLS:
        found, faults, loud, healthy = planted(tool, options.tools, options.limit)
        print(f"{tool.name:40}{f'{found} of {faults}':>14}{f'{loud} of {healthy}':>14}", flush=True)
    print(f"\n{'folder':40}{'tool':>16}{'error':>8}{'warning':>8}{'other':>8}{'seconds':>9}")
    remarks: dict[str, list[Remark]] = {tool.name: [] for tool in TOOLS}
    for folder in options.folders:
        for tool in TOOLS:
            started = time.monotonic()
            said = ask(tool, options.tools, folder, options.limit)
            took = time.monotonic() - started
            remarks[tool.name] += said or []
            by = Counter(r.severity for r in said or ())
            counts = [by["error"], by["warning"], sum(by.values()) - by["error"] - by["warning"]]
            told = "".join(f"{n:8}" for n in counts) if said is not None else f"{'no result':>24}"
            print(f"{folder.name[:39]:40}{tool.name:>16}{told}{took:9.1f}", flush=True)
    for name, said in remarks.items():
        chosen = [r for r in said if r.loud]
        for one in random.Random(0).sample(chosen, min(options.sample, len(chosen))):
            print(f"{name} {one.path}:{one.line} {one.code} {one.message[:150]}")
    if options.json:
        options.json.write_text(json.dumps({name: [vars(r) for r in said] for name, said in remarks.items()}, indent=1))


if __name__ == "__main__":
    main()
