"""What `torchvet inspect` costs, beside a bare `pickle.load` with the collector off.

    python benchmarks/inspect_snapshots.py [FILE...] [--events 500000] [--rounds 5] [--rival 'mosaic {}']

Without files it makes one of so many events, with a leak, by the model of the allocator. Each command is a process of
its own; they take turns. Wall seconds, and the most memory that any of a command's processes had resident.
Nothing is asserted: read the table.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BARE = "import gc, pickle, sys; gc.disable(); pickle.load(open(sys.argv[1], 'rb'))"
RESIDENT = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
RESIDENT += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"


def planted(folder: Path, events: int) -> Path:
    """A training of so many events whose every step leaks 123,456 bytes."""
    sys.path.insert(0, str(ROOT / "tests" / "snapshots"))
    from making_snapshots import Recorder, Training

    training = Training(Recorder())
    while len(training.recorder.events) < events:
        training.step(leak=123_456)
    return training.recorder.write(folder / f"planted_{events}.pickle")


def measured(command: list[str]) -> tuple[float, float]:
    """Wall seconds of a command, and megabytes resident in the largest of its processes."""
    started = time.perf_counter()
    ran = subprocess.run([sys.executable, "-c", RESIDENT, *command], capture_output=True, text=True, check=True)
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return time.perf_counter() - started, int(ran.stdout) / unit


def compare(path: Path, rounds: int, rivals: list[str]) -> None:
    """One table for one file."""
    commands = {
        "pickle.load, collector off": [sys.executable, "-c", BARE, str(path)],
        "torchvet inspect": [sys.executable, "-m", "torchvet", "inspect", "--exit-zero", str(path)],
        **{rival: shlex.split(rival.replace("{}", shlex.quote(str(path)))) for rival in rivals},
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            taken[name].append(measured(command))
    print(f"\n{path.name}, {path.stat().st_size / 1e6:.1f} MB\n")
    print("| command | wall seconds: median | min | max | MB |\n|---|---|---|---|---|")
    for name, found in taken.items():
        seconds = [s for s, _ in found]
        most = max(m for _, m in found)
        print(f"| {name} | {statistics.median(seconds):.2f} | {min(seconds):.2f} | {max(seconds):.2f} | {most:.0f} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rival", action="append", default=[], metavar="COMMAND", help="{} stands for the file")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        for path in options.files or [planted(Path(folder), options.events)]:
            compare(path, options.rounds, options.rival)


if __name__ == "__main__":
    main()
