"""What `torchvet check` costs, beside bare `ast.parse` and the rival tools that are given.

    python benchmarks/check.py DIR... [--rival 'torch-preflight check {}'] [--rival 'torchfix {}']

CPU seconds of parsing all the files and of checking them, in one process on one core, interleaved; then wall seconds of
whole command lines: cold, warm, all cores, a single small file, and each rival. Nothing is asserted: read the table.
"""

from __future__ import annotations

import argparse
import ast
import gc
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from torchvet.checking.engine import check_text, source_rules
from torchvet.rules import all_rules

SMALL = "import torch\n\nmodel = torch.nn.Linear(2, 2)\nfor x in range(3):\n    print(model(torch.ones(2)).sum())\n"


def texts(folders: list[Path]) -> list[tuple[str, str]]:
    """The Python files below the folders that can be read as UTF-8, with their text."""
    found = []
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            try:
                found.append((str(path), path.read_text("utf-8")))
            except (OSError, UnicodeDecodeError):
                continue
    return found


def parse(files: list[tuple[str, str]]) -> None:
    """Bare parsing, each tree let go at once."""
    for _, text in files:
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue


def cpu(work: Callable[[], None]) -> float:
    """CPU seconds of this process."""
    gc.collect()
    started = time.process_time()
    work()
    return time.process_time() - started


def wall(command: list[str], limit: float) -> float:
    """Wall seconds of a command, whatever it says; infinite where it was cut off."""
    started = time.perf_counter()
    try:
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return float("inf")
    return time.perf_counter() - started


def in_process(folders: list[Path], rounds: int) -> None:
    """The ratio of checking to parsing, by CPU time."""
    files = texts(folders)
    rules = source_rules(all_rules())
    pairs = []
    for _ in range(rounds):
        bare = cpu(lambda: parse(files))
        checked = cpu(lambda: [check_text(path, text, rules) for path, text in files] and None)
        pairs.append((bare, checked))
    size = sum(len(text) for _, text in files) / 1e6
    ratios = [checked / bare for bare, checked in pairs]
    bare = statistics.median(b for b, _ in pairs)
    print(
        f"{len(files)} files, {size:.1f} MB, {len(rules)} rules; ast.parse {bare:.2f} s of CPU ({size / bare:.1f} MB/s)"
    )
    print(f"check / ast.parse: median {statistics.median(ratios):.2f} (min {min(ratios):.2f}, max {max(ratios):.2f})")


def whole(folders: list[Path], rounds: int, rivals: list[str], limit: float) -> None:
    """Wall time of command lines."""
    names = [str(f) for f in folders]
    with tempfile.TemporaryDirectory() as scratch:
        small, cache = Path(scratch, "small.py"), Path(scratch, "cache")
        small.write_text(SMALL)
        base = [sys.executable, "-m", "torchvet", "check", "--exit-zero"]
        commands = {
            "one core, no cache": [*base, "--no-cache", "--jobs", "1", *names],
            "all cores, no cache": [*base, "--no-cache", *names],
            "warm cache": [*base, "--cache-dir", str(cache), *names],
            "one small file": [*base, "--no-cache", str(small)],
            **{rival: shlex.split(rival.replace("{}", " ".join(map(shlex.quote, names)))) for rival in rivals},
        }
        wall(commands["warm cache"], limit)
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                if float("inf") not in taken[name]:
                    taken[name].append(wall(command, limit))
        print("\n| command | wall seconds: median | min | max |\n|---|---|---|---|")
        for name, seconds in taken.items():
            print(f"| {name} | {statistics.median(seconds):.2f} | {min(seconds):.2f} | {max(seconds):.2f} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rival", action="append", default=[], metavar="COMMAND", help="{} stands for the folders")
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a command is cut off (300)")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    in_process(options.folders, options.rounds)
    whole(options.folders, options.rounds, options.rival, options.limit)


if __name__ == "__main__":
    main()
