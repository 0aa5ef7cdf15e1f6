"""What it costs to run a program under torchvet, beside memray, scalene and pyinstrument where they are installed.

Each round runs every tool once on every program, in turns, so that a machine that slows down slows all of them; a
ratio is a tool's seconds per step over those of the bare run of the same round. `run` is the ratio of whole runs, the
start and the diagnosis included. A second table (`turns.py`) is of steady steps of many kinds with all of torchvet's
watchers on, bare ones and watched ones in turns within one process. Nothing is asserted: read the tables, on a quiet
machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from turns import CASES

PROGRAMS = Path(__file__).parent / "programs"
NAMES = ("mlp", "cnn", "transformer", *(f"lengths-{ms}" for ms in ("0.5", "2", "10", "50", "200")))
"""Programs; behind a hyphen stands an argument."""
TIMED = re.compile(r"^seconds_per_step=([0-9.]+)$", re.MULTILINE)
TOOLS = {
    "bare": ["{python}"],
    "torchvet": ["{python}", "-m", "torchvet", "run"],
    "memray": ["{python}", "-m", "memray", "run", "--force", "--output", "{out}/memray.bin"],
    "scalene": ["{python}", "-m", "scalene", "run", "--outfile", "{out}/scalene.json"],
    "scalene-cpu": ["{python}", "-m", "scalene", "run", "--cpu-only", "--outfile", "{out}/scalene.json"],
    "pyinstrument": ["{python}", "-m", "pyinstrument", "--outfile", "{out}/pyinstrument.txt"],
}
"""Every tool with its default options, before the program; where it writes is all that is set. Scalene's default, which
also profiles memory, did not end on a training loop of 8 s in 150 s (2.4.0, torch 2.13.0): it has a lighter form beside
it."""


class Sample(NamedTuple):
    """One run: seconds per step after warm-up, seconds of the whole process; infinite when it was cut off or broke."""

    step: float
    run: float


class Trial(NamedTuple):
    """What is run: a tool on a program, for at most `limit` seconds, with its own files below `out`."""

    tool: str
    name: str
    out: str
    limit: float


def installed() -> list[str]:
    """The tools that this interpreter can run, the bare program first."""
    return [name for name in TOOLS if name == "bare" or find_spec(name.partition("-")[0]) is not None]


def measure(trial: Trial) -> Sample:
    """Run a program under a tool once; one that breaks the program counts as cut off.

    Raises RuntimeError with the end of the output when the bare program gives no timing.
    """
    name, _, argument = trial.name.partition("-")
    program = PROGRAMS / f"{name}.py"
    command = [part.format(python=sys.executable, out=trial.out) for part in TOOLS[trial.tool]]
    command += [str(program), *filter(None, [argument])]
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=trial.out, env=environment, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=trial.limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Sample(math.inf, math.inf)
    took = time.perf_counter() - started
    timing = TIMED.search(output)
    if timing is None:
        story = f"{trial.tool} on {program.name}: exit status {process.returncode}\n{output[-2000:]}"
        if trial.tool == "bare":
            raise RuntimeError(story)
        print(story, file=sys.stderr)
        return Sample(math.inf, math.inf)
    return Sample(float(timing.group(1)), took)


Samples = dict[tuple[str, str], list[Sample]]


def sample(names: list[str], tools: list[str], rounds: int, limit: float) -> Samples:
    """All runs in turns, by program and tool; every other round goes backwards, so that no tool is always first."""
    found: Samples = {(n, t): [] for n in names for t in tools}
    with tempfile.TemporaryDirectory() as out:
        for number in range(rounds):
            for name in names:
                for tool in tools if number % 2 == 0 else reversed(tools):
                    result = measure(Trial(tool, name, out, limit))
                    found[name, tool].append(result)
                    print(f"round {number + 1}/{rounds} {name} {tool}: {result.step * 1e3:.3f} ms", file=sys.stderr)
    return found


def table(found: Samples) -> str:
    """The ratios to the bare run of the same round, as Markdown; `inf` where runs were cut off or broke."""
    lines = ["| program | bare step | tool | step: median | min | max | run: median |", "|---|---|---|---|---|---|---|"]
    for (name, tool), samples in found.items():
        if tool == "bare":
            continue
        bare = found[name, "bare"]
        step = sorted(s.step / b.step for s, b in zip(samples, bare, strict=True))
        run = statistics.median(s.run / b.run for s, b in zip(samples, bare, strict=True))
        alone = statistics.median(b.step for b in bare) * 1e3
        ratios = f"{statistics.median(step):.2f} | {step[0]:.2f} | {step[-1]:.2f} | {run:.2f}"
        lines.append(f"| {name} | {alone:.1f} ms | {tool} | {ratios} |")
    return "\n".join(lines)


def turns(cases: list[str], steps: int) -> str:
    """Bare and watched steps in turns, each case in a process of its own, as Markdown."""
    lines = [
        "| model | step | bare | ratio | torchvet adds | CPU ratio | CPU adds |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    for case in cases:
        command = [sys.executable, str(Path(__file__).parent / "turns.py"), case, "--steps", str(steps)]
        done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, check=True)
        lines.append(done.stdout.strip())
        print(lines[-1], file=sys.stderr)
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table, and keep every sample with `--json`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--programs", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--tools", nargs="+", choices=installed(), default=installed(), help="those installed here")
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a run is cut off (300)")
    parser.add_argument("--cases", nargs="*", default=list(CASES), help="steady steps in turns; none: leave them out")
    parser.add_argument("--steps", type=int, default=240, help="steps of each of those")
    parser.add_argument("--json", type=Path, help="a file for all samples, in seconds")
    options = parser.parse_args()
    print(f"\n{turns(options.cases, options.steps)}\n")
    if not options.rounds:
        return
    tools = ["bare", *(t for t in options.tools if t != "bare")]
    found = sample(options.programs, tools, options.rounds, options.limit)
    print(f"\nPython {platform.python_version()}, {os.cpu_count()} cores, {options.rounds} rounds\n\n{table(found)}")
    if options.json:
        rows = [{"program": n, "tool": t, "samples": [s._asdict() for s in ss]} for (n, t), ss in found.items()]
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
