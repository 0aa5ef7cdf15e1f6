"""Does `torchvet inspect` find what was planted, to the byte, however long the recording?

    python benchmarks/planted_snapshots.py [--events 10000 50000 500000 2000000] [--keep DIR]

For each number of events it makes three snapshots of a training with AdamW, whose forward stacks come from a real
recording and whose addresses, segments and failures come from the allocator's model: one that leaks, one that is
fragmented at its peak, one that ends in an out-of-memory error; then one with all three. The table has the code that
was expected, the bytes that were said and that were planted, the line, and what it cost (a process with its start; the
memory of all its processes together). Exit status 1 where anything is not found, or not to the byte.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import run

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "snapshots"))
from making_snapshots import KEEPING, MB, OutOfMemory, Recorder, Training, forward_stacks, fragmented, frame

PINNING = [frame("train.py", 70, "remember"), *KEEPING[1:]]
LEAK = 123_457
FAILING = 1_536 * MB + 4096


@dataclass(frozen=True)
class Planted:
    """A fault that must be found: the code, amounts of `measured` by their name, and the line."""

    code: str
    amounts: dict[str, float]
    line: str


def trained(events: int, leak: int = 0) -> tuple[Training, int]:
    """A training that has made so many events, and its number of steps."""
    training, steps = Training(Recorder()), 0
    while len(training.recorder.events) < events:
        training.step(leak)
        steps += 1
    return training, steps


def leaking(events: int) -> tuple[Recorder, list[Planted]]:
    """Every step leaves so many bytes behind; what the first two set up is not counted."""
    training, steps = trained(events, LEAK)
    return training.recorder, [_leak(steps)]


def scattered(events: int) -> tuple[Recorder, list[Planted]]:
    """Pinned segments, and then the largest tensors of the program, which fit into none of their holes."""
    training, _ = trained(events)
    return training.recorder, [_scatter(training)]


def failing(events: int) -> tuple[Recorder, list[Planted]]:
    """One request more than the card has."""
    training, _ = trained(events)
    return training.recorder, [_fail(training.recorder, FAILING)]


def everything(events: int) -> tuple[Recorder, list[Planted]]:
    """A leak, pinned segments, and a request that would have fitted into what is free, were it in one piece."""
    training, steps = trained(events, LEAK)
    scatter = _scatter(training)
    failure = _fail(training.recorder, training.recorder.allocator.split_free() // 2)
    pieces = training.recorder.allocator.split_free()  # after what could be given back before the error
    return training.recorder, [_leak(steps), Planted("MEM301", {"bytes": pieces}, scatter.line), failure]


def _leak(steps: int) -> Planted:
    return Planted("MEM102", {"bytes_per_step": LEAK, "bytes": LEAK * (steps - 2)}, _line(KEEPING))


def _scatter(training: Training) -> Planted:
    recorder = training.recorder
    pins = 24 + recorder.allocator.reserved // (10 * MB)
    fragmented(recorder, pins, frames=PINNING)
    recorder.alloc(pins * 20 * MB, forward_stacks()[1])
    return Planted("MEM301", {"bytes": recorder.allocator.split_free()}, _line(PINNING))


def _fail(recorder: Recorder, size: int) -> Planted:
    recorder.allocator.capacity = recorder.allocator.reserved + 4 * MB
    try:
        recorder.alloc(size, forward_stacks()[0])
    except OutOfMemory:
        used = recorder.allocator.requested
        return Planted("MEM304", {"bytes": size, "peak_bytes": used}, _user_line(forward_stacks()[0]))
    raise AssertionError("the request was met")


def _line(frames: list[dict[str, Any]]) -> str:
    return f"{_file(frames[0]['filename'])}:{frames[0]['line']}"


def _file(path: str) -> str:
    """A file's name, whatever system the recording was made on."""
    return re.split(r"[/\\]", path)[-1]


def _user_line(frames: list[dict[str, Any]]) -> str:
    """The innermost line that is no library's."""
    return _line([f for f in frames if f["filename"].endswith(".py") and "site-packages" not in f["filename"]])


def found(report: dict[str, Any], planted: Planted) -> tuple[str, str, bool]:
    """The amounts said, the line said, and whether all is right."""
    finding = next((f for f in report["findings"] if f["code"] == planted.code), None)
    if finding is None:
        return "-", "-", False
    said = {name: finding["measured"][name] for name in planted.amounts}
    at = finding["location"] or {"path": "?", "line": 0}
    line = f"{_file(at['path'])}:{at['line']}"
    return _amounts(said), line, said == planted.amounts and line == planted.line


def _amounts(amounts: dict[str, float]) -> str:
    return ", ".join(f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}" for value in amounts.values())


def written(
    make: Callable[[int], tuple[Recorder, list[Planted]]], events: int, path: Path
) -> tuple[int, list[Planted]]:
    """Make a snapshot and write it; the number of its events, and what is in it. Its objects are gone afterwards."""
    gc.disable()
    recorder, planted = make(events)
    recorder.write(path)
    gc.enable()
    return len(recorder.events), planted


def main() -> int:
    """Make, ask, and print a line for every fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=[10_000, 50_000, 500_000, 2_000_000])
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the snapshots there")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    missed = 0
    print("| events | file MB | planted | code | bytes planted | bytes said | line said | right | seconds | peak MB |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        for make in (leaking, scattered, failing, everything):
            for wanted in options.events:
                path = folder / f"{make.__name__}_{wanted}.pickle"
                events, planted = written(make, wanted, path)
                ran = run([sys.executable, "-m", "torchvet", "inspect", "--format", "json", str(path)])
                if ran.status not in (0, 1):
                    raise SystemExit(f"{path}: status {ran.status}: {ran.said}")
                report = json.loads(ran.out)
                for fault in planted:
                    said, line, right = found(report, fault)
                    missed += not right
                    cells = (
                        f"{events:,}", f"{path.stat().st_size / 1e6:.1f}", make.__name__, fault.code,
                        _amounts(fault.amounts), said, line, "yes" if right else "NO", f"{ran.seconds:.2f}",
                        f"{ran.megabytes:.0f}",
                    )  # fmt: skip
                    print(f"| {' | '.join(cells)} |", flush=True)
                if options.keep is None:
                    path.unlink()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
