"""Damages real and made files at random, for as long as it is told, and has `torchvet inspect` read them. By hand:

    python benchmarks/fuzz_inspect.py snapshots|traces [--seconds 600] [--seed 0] [--keep DIR]

What may come of a file is a report, which every renderer and every export can write and in which the parts of the peak
add up to the peak, or a `BadInput` that names the file; within so many seconds and so much memory. Anything else is
printed, and its file kept in DIR. Snapshots are mostly damaged as objects and judged in this process; one in ten is
damaged as bytes and read as the verb reads it, in a process with limits. Exit status 1 where anything was found.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import pickle
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "snapshots"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "traces"))

from making_snapshots import MB, OutOfMemory, Recorder, Settings, Training, forward_stacks, fragmented
from trace_building import FORMATS, Program, step

from torchvet.errors import BadInput
from torchvet.exporting import Exports
from torchvet.finding import Report, Verdict
from torchvet.inspecting import inspect_paths
from torchvet.inspecting.snapshot_facts import facts_of
from torchvet.readers.conversion import snapshot_of
from torchvet.renderers import RENDERERS
from torchvet.rules import rules_with
from torchvet.snapshots.memory import SnapshotMemory

HERE = Path(__file__).resolve().parents[1] / "tests"
SLOW, MOST_MB = 20, 2000
HOSTILE: list[Any] = [
    None, True, -1, 0, 1, 512, 2**31, 2**40, 2**62, 2**63, -(2**63), 2**70, 0.5, float("nan"), float("inf"), "", "x",
    "\ud800", "a\nb\x1b[31m", "stream 7", "1e400", "oom", "alloc", "free_completed", "snapshot", "END", b"x", [], {},
    (), [[]], [{}], {"a": 1}, "Optimizer.step#A", "ProfilerStep#3", "[memory]", "kernel", "X", "é" * 300,
]  # fmt: skip
EXPORTS = ("e.csv", "e.jsonl", "e.perfetto.json", "e.speedscope.json")


class TooSlow(BaseException):
    """A file took longer than it may."""


def snapshots(dice: random.Random, folder: Path) -> Iterator[Any]:
    """Damaged snapshots: objects, or bytes."""
    whole = list(_snapshots())
    real = [p.read_bytes() for p in sorted((HERE / "data").glob("*.pickle"))]
    while True:
        if dice.random() < 0.1:
            yield _bytes(dice, dice.choice([*real, pickle.dumps(dice.choice(whole), dice.choice((2, 4, 5)))]))
        else:
            yield _object(dice, copy.deepcopy(dice.choice(whole)))


def _snapshots() -> Iterator[dict[str, Any]]:
    """Small ones of every kind: a leak, fragments, a failure, expandable segments, a ring buffer, several devices."""
    for settings in (Settings(), Settings(expandable_segments=True)):
        training = Training(Recorder(settings=settings), layers=2, activations=4)
        for n in range(12):
            training.step(leak=1000, scale=1 + n / 10)
        yield training.recorder.snapshot()
        fragmented(training.recorder, 12)
        training.recorder.empty_cache()
        yield copy.deepcopy(training.recorder.snapshot())
        training.recorder.allocator.capacity = training.recorder.allocator.reserved + MB
        try:
            training.recorder.alloc(900 * MB, forward_stacks()[0])
        except OutOfMemory:
            pass
        failed = training.recorder.snapshot()
        yield copy.deepcopy(failed)
        late = copy.deepcopy(failed)
        del late["device_traces"][0][:200]
        late["device_traces"][1] = copy.deepcopy(late["device_traces"][0][:50])
        yield late
        for event in late["device_traces"][0]:
            event.pop("time_us", None)
        yield late


def _object(dice: random.Random, value: Any) -> Any:
    """The object with some of its parts changed."""
    for _ in range(dice.choice((1, 1, 2, 5, 20, 100))):
        above, at = _part(dice, value)
        _damage(dice, above, at)
    return value


def _part(dice: random.Random, value: Any) -> tuple[Any, Any]:
    """A container within the object, and one of its keys."""
    while True:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = keys[dice.randrange(len(keys))]
        below = value[key]
        if not isinstance(below, (dict, list)) or not below or dice.random() < 0.15:
            return value, key
        value = below


def _damage(dice: random.Random, above: Any, at: Any) -> None:
    kind = dice.choice((0, 1, 1, 2, 2, 3, 4, 4, 4, 4, 4, 5))
    if kind == 0:
        del above[at]
    elif kind == 1 and isinstance(above, list):
        other = dice.randrange(len(above))
        above[at], above[other] = above[other], above[at]
    elif kind == 2 and isinstance(above, list):
        above[at:at] = copy.deepcopy(above[at : at + dice.randrange(1, 4)])
    elif kind == 3 and isinstance(above, list) and dice.random() < 0.2:
        del above[at : at + dice.randrange(1, len(above) + 1)]
    elif isinstance(above[at], int) and kind < 5:
        above[at] += dice.choice((-1, 1, 512, -512, 1 << 20, dice.randrange(1 << 40)))
    else:
        above[at] = copy.deepcopy(dice.choice(HOSTILE))
    if not above:  # `_part` needs something to go down to
        above.update(x=1) if isinstance(above, dict) else above.append(0)


def _bytes(dice: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(dice.choice((1, 2, 8))):
        at = dice.randrange(len(found))
        length = dice.choice((1, 1, 4, 64, 4096))
        kind = dice.randrange(5)
        if kind == 0:
            del found[at : at + length]
        elif kind == 1:
            found[at:at] = dice.randbytes(length)
        elif kind == 2:
            found[at:at] = found[dice.randrange(len(found)) :][:length]
        elif kind == 3:
            found = found[: max(at, 16)]
        else:
            found[at : at + length] = dice.randbytes(length)
        found = found or bytearray(b"{")
    return bytes(found)


def traces(dice: random.Random, folder: Path) -> Iterator[bytes]:
    """Damaged traces, some of them gzipped, before or after the damage."""
    made = [Program().train(3, lambda p: step(p, ops=6)).json(version).encode() for version in FORMATS]
    real = [gzip.decompress(p.read_bytes()) for p in sorted((HERE / "data" / "traces").glob("*.gz"))]
    while True:
        data = dice.choice([*made, *made, *real])
        kind = dice.randrange(10)
        if kind < 5 and data in made:
            value = json.loads(data)
            data = json.dumps(_object(dice, value), default=str).encode("utf-8", "surrogatepass")
        elif kind == 5:
            data = data + dice.choice([*made, *real])
        elif kind > 7:
            yield _bytes(dice, gzip.compress(data, 1))
            continue
        yield gzip.compress(data, 1) if kind == 6 else _bytes(dice, data)


def judged(given: Any, folder: Path) -> str:
    """Whether it was read or refused. Raises what is wrong."""
    path = folder / "damaged"
    if not isinstance(given, bytes):
        return _judged_here(given)
    path.write_bytes(given)
    try:
        with Exports([folder / e for e in EXPORTS], []) as writing:
            report = inspect_paths([path], observer=writing)
            writing.finish(report)
    except BadInput as error:
        assert str(path) in str(error), f"the message does not name the file: {error}"
        return "refused"
    _shown(report)
    return "read"


def _judged_here(given: Any) -> str:
    try:
        memory = SnapshotMemory(snapshot_of(given, "damaged.pickle", 10**7, times=True))
    except BadInput:
        return "refused"
    findings = [f for rule in rules_with("in_snapshot") for f in rule.in_snapshot(memory)]
    for device in memory.devices:
        for moment in (device.peak, device.end):
            assert sum(moment.by_category.values()) == moment.bytes, "categories do not add up"
            assert sum(row.bytes for row in moment.lines) == moment.bytes, "lines do not add up"
            assert min(moment.by_category.values(), default=0) >= 0, "a category is negative"
    facts = {"snapshots": [facts_of(d) for d in memory.devices]}
    subject = {"kind": "snapshot", "paths": ["damaged.pickle"]}
    verdict: Verdict = "findings" if findings else "clean"
    _shown(Report(subject=subject, verdict=verdict, findings=findings, facts=facts))
    return "read"


def _shown(report: Report) -> None:
    for renderer in RENDERERS:
        text = renderer.render(report)
        text.encode("utf-8")
        if renderer.format in ("json", "sarif"):
            json.loads(text, parse_constant=_no_number)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} in JSON")


def _too_slow(*_: object) -> None:
    raise TooSlow


def main() -> int:
    """Damage and judge until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("snapshots", "traces"))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzzed"), metavar="DIR")
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MB << 20, MOST_MB << 20))
    signal.signal(signal.SIGALRM, _too_slow)
    counts, faults, slowest, started = Counter[str](), set[str](), 0.0, time.monotonic()
    files = (snapshots if options.kind == "snapshots" else traces)(random.Random(options.seed), options.keep)
    while time.monotonic() - started < options.seconds:
        given = next(files)
        kept = given if isinstance(given, bytes) else _pickled(given)
        begun = time.monotonic()
        signal.alarm(SLOW)
        try:
            counts[judged(given, options.keep)] += 1
        except (Exception, TooSlow) as error:
            counts["WRONG"] += 1
            where = traceback.extract_tb(error.__traceback__)[-1]
            fault = f"{type(error).__name__} at {where.filename}:{where.lineno}"
            if fault not in faults:
                faults.add(fault)
                (options.keep / f"fault{len(faults)}").write_bytes(kept)
                traceback.print_exc()
        finally:
            signal.alarm(0)
        slowest = max(slowest, time.monotonic() - begun)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"{options.kind}: {dict(counts)}, slowest {slowest:.1f} s, {most:.0f} MB at most, seed {options.seed}")
    return 1 if faults else 0


def _pickled(given: Any) -> bytes:
    try:
        return pickle.dumps(given)
    except (RecursionError, ValueError):
        return b""


if __name__ == "__main__":
    sys.exit(main())
