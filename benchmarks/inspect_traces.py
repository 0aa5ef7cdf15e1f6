"""What reading profiler traces costs, beside what only decoding them costs.

    python benchmarks/inspect_traces.py TRACE [--rounds 5] [--megabytes 275]

TRACE is a real trace of one rank (.json or .json.gz). Three jobs: it alone, eight of it, and a trace with stacks of the
given size, which is recorded on the CPU with torch and repeated. Each way runs in a process of its own, start included,
in turn with the others; the table has seconds and peak memory. `json` and `msgspec` only decode: the first
into dicts, the second into torchvet's types, both with the collector off, the whole file at once.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAYS = {
    "json": """
import gc, json, sys
gc.disable()
for path in sys.argv[1:]:
    events = json.loads(open(path, "rb").read())["traceEvents"]
""",
    "msgspec": """
import gc, sys
import msgspec
from torchvet.readers.kineto_events import Event
gc.disable()
class File(msgspec.Struct):
    traceEvents: list[Event]
for path in sys.argv[1:]:
    events = msgspec.json.decode(open(path, "rb").read(), type=File)
""",
    "torchvet": """
import sys
from pathlib import Path
from torchvet.renderers import renderer_for
from torchvet.traces import report_on
renderer_for("text").render(report_on([Path(p) for p in sys.argv[1:]]))
""",
}
PEAK = """
import os, resource
own, child = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
peak = own.ru_maxrss + child.ru_maxrss * len(os.sched_getaffinity(0))
print(peak / 1e3, own.ru_utime + own.ru_stime + child.ru_utime + child.ru_stime)
"""
"""Megabytes of this process, and as much for each worker as the largest one took; CPU seconds of all."""

RECORD = """
import sys
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
torch.set_num_threads(1)
layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
def step():
    optimizer.zero_grad()
    model(torch.randn(2, 8, 64)).sum().backward()
    optimizer.step()
keep = lambda prof: prof.export_chrome_trace(sys.argv[1])
plan = schedule(wait=1, warmup=1, active=4, repeat=1)
with profile(activities=[ProfilerActivity.CPU], with_stack=True, schedule=plan, on_trace_ready=keep) as prof:
    for _ in range(6):
        step()
        prof.step()
"""


def with_stacks(folder: Path, megabytes: float) -> Path:
    """A recorded trace, its steps repeated one after the other until the file has the size."""
    path = folder / "recorded.json"
    subprocess.run([sys.executable, "-c", RECORD, str(path)], check=True, stderr=subprocess.DEVNULL)
    whole = json.loads(path.read_text("utf-8"))
    events = [e for e in whole.pop("traceEvents") if e.get("ph") in ("X", "i", "s", "f")]
    timed = [e["ts"] for e in events if e.get("ph") == "X" and e.get("cat") != "Trace"]
    length = max(timed) - min(timed) + 1000
    large = folder / "stacks.json"
    with large.open("w", encoding="utf-8") as file:
        file.write(json.dumps(whole)[:-1] + ', "traceEvents": [\n')
        shift, number = 0.0, 0
        while file.tell() < megabytes * 1e6:
            for event in events:
                moved = {**event, "ts": round(event["ts"] + shift, 3)}
                if str(event["name"]).startswith("ProfilerStep#"):
                    moved["name"], number = f"ProfilerStep#{number}", number + 1
                file.write(json.dumps(moved) + ",\n")
            shift += length
        file.write(json.dumps(moved) + "\n]}")
    return large


def measured(way: str, paths: list[Path]) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and megabytes of a fresh process."""
    started = time.perf_counter()
    command = [sys.executable, "-c", WAYS[way] + PEAK, *map(str, paths)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    megabytes, cpu = map(float, ran.stdout.split()[-2:])
    return time.perf_counter() - started, cpu, megabytes


def compare(name: str, paths: list[Path], rounds: int) -> None:
    """The ways in turn, and a line of the table for each."""
    taken: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            taken[way].append(measured(way, paths))
    for way, results in taken.items():
        wall, cpu, memory = ([r[n] for r in results] for n in range(3))
        figures = f"{statistics.median(wall):.2f} | {min(wall):.2f} | {statistics.median(cpu):.2f} | {min(cpu):.2f}"
        print(f"| {name} | {way} | {figures} | {statistics.median(memory):,.0f} |", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=275)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        plain = folder / "trace.json"
        data = options.trace.read_bytes()
        plain.write_bytes(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)
        ranks = [folder / f"rank{n}.json" for n in range(8)]
        for rank in ranks:
            rank.symlink_to(plain)
        large = with_stacks(folder, options.megabytes)
        print(f"one: {plain.stat().st_size / 1e6:.1f} MB; stacks: {large.stat().st_size / 1e6:.1f} MB\n")
        print("| traces | way | seconds: median | min | CPU seconds: median | min | peak MB |")
        print("|---|---|---|---|---|---|---|")
        compare("one rank", [plain], options.rounds)
        compare("eight ranks", ranks, options.rounds)
        compare("with stacks", [large], options.rounds)


if __name__ == "__main__":
    main()
