"""What `torchvet inspect --engine` does with thousands of files: same results, flat memory, nothing lost, how fast.

    python benchmarks/fleet.py [--snapshots 1000] [--traces 256] [--workers 2] [--sample 96] [--rounds 3]

Makes synthetic files in a temporary folder. All of them are read by a local Ray cluster, of which one worker is killed
in the middle, and by processes without Ray; the two reports must be equal. Then one process, several, and Ray take
turns on a sample. At last ten thousand digests are merged. Without Ray the rows about it are missing.
"""

from __future__ import annotations

import argparse
import os
import pickle
import resource
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("snapshots", "traces")]

from torchvet.finding import Report  # noqa: E402
from torchvet.fleet.digest import Asked, Digest, digest_of  # noqa: E402
from torchvet.fleet.engines import Engine  # noqa: E402
from torchvet.fleet.local_engine import LocalEngine  # noqa: E402
from torchvet.fleet.merge import merged  # noqa: E402
from torchvet.fleet.paths import files_of  # noqa: E402
from torchvet.renderers.json import JsonRenderer  # noqa: E402

MODELS = 20
"""Different snapshots; the others are copies of them."""
MANY = 10_000


def made(folder: Path, snapshots: int, traces: int) -> list[str]:
    """Snapshots of ranks, of which some leak, and traces of ranks, of which one is late."""
    from making_snapshots import MB, Recorder, Training
    from trace_building import ranks

    models = []
    for number in range(min(MODELS, snapshots)):
        training = Training(Recorder(), layers=4, activations=16)
        for _ in range(20 + number):
            training.step(leak=number * MB // 4 if number % 3 else 0)
        models.append(training.recorder.write(folder / f"rank{number}.pickle"))
    for number in range(len(models), snapshots):
        shutil.copy(models[number % len(models)], folder / f"rank{number}.pickle")
    for number, program in enumerate(ranks(traces, 6, late=traces // 2, by=20_000) if traces else ()):
        program.write(folder / f"rank{number}.json.gz")
    return files_of([str(folder)])


def watched(path: str, notes: Path, victim: str | None) -> Digest:
    """A digest; what the worker had resident at most meanwhile is noted. The worker of `victim` dies, once."""
    mark = notes / "killed"
    if path == victim and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    digest = digest_of(path, Asked())
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0])
    with (notes / f"{os.getpid()}.rss").open("a") as file:
        file.write(f"{peak} {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}\n")
    return digest


def whole(name: str, engine: Engine, paths: list[str], notes: Path, victim: str | None) -> tuple[Report, list[Digest]]:
    """All files by one engine, with a line on each worker's memory."""
    notes.mkdir()
    started = time.perf_counter()
    digests = list(engine.digests(paths, partial(watched, notes=notes, victim=victim)))
    seconds = time.perf_counter() - started
    report = merged(digests, len(paths))
    read, size = report.facts["fleet"]["read"], sum(d.bytes for d in digests) / 1e6
    print(f"\n{name}: {read} of {len(paths)} files, {size:.1f} MB in {seconds:.1f} s ({size / seconds:.2f} MB/s)")
    if victim is not None:
        print(f"  a worker was killed: {(notes / 'killed').exists()}; files lost: {len(paths) - read}")
    for file in sorted(notes.glob("*.rss")):
        rows = [tuple(map(int, line.split())) for line in file.read_text().splitlines()]
        if (part := len(rows) // 4) > 2:
            first, last = ([row[0] / 1e3 for row in side] for side in (rows[:part], rows[-part:]))
            print(
                f"  worker {file.stem}: {len(rows)} files; peak resident, median (most) of the first quarter "
                f"{statistics.median(first):.1f} ({max(first):.1f}) MB, of the last {statistics.median(last):.1f} "
                f"({max(last):.1f}) MB; the process that unpickles {rows[-1][1] / 1e3:.1f} MB"
            )
    return report, digests


def rates(engines: dict[str, Callable[[], Engine]], paths: list[str], rounds: int) -> None:
    """Megabytes a second, the engines taking turns."""
    found: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(rounds):
        for name, engine in engines.items():
            started = time.perf_counter()
            size = sum(d.bytes for d in engine().digests(paths, partial(digest_of, asked=Asked())))
            found[name].append(size / 1e6 / (time.perf_counter() - started))
    print(f"\n{len(paths)} files, {rounds} rounds in turns, a load of {os.getloadavg()[0]:.1f}\n")
    print("| engine | MB/s: median | min | max | times the first in the same round: median |\n|---|---|---|---|---|")
    (first, *_) = found.values()
    for name, values in found.items():
        gain = statistics.median(value / base for value, base in zip(values, first, strict=True))
        print(f"| {name} | {statistics.median(values):.2f} | {min(values):.2f} | {max(values):.2f} | {gain:.2f} |")


def many(digests: list[Digest]) -> None:
    """The merging of ten thousand digests, each an object of its own."""
    sizes = [len(pickle.dumps(d)) for d in digests]
    print(f"\na digest: {statistics.median(sizes) / 1e3:.1f} kB (median), {max(sizes) / 1e3:.1f} kB (most)")
    before = resident()
    copies = [pickle.loads(pickle.dumps(digests[n % len(digests)])) for n in range(MANY)]
    copies = [msgspec.structs.replace(d, path=f"/{n}/{Path(d.path).name}") for n, d in enumerate(copies)]
    held = resident() - before
    started = time.perf_counter()
    report = merged(copies, MANY)
    text = JsonRenderer().render(report)
    seconds = time.perf_counter() - started
    print(
        f"{MANY} digests: {held:.0f} MB resident, merged and written in {seconds:.1f} s, {len(text) / 1e6:.1f} MB of "
        f"JSON, {len(report.findings)} findings"
    )


def resident() -> float:
    """Megabytes that this process has resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("snapshots", 1000), ("traces", 256), ("workers", 2), ("sample", 96), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    workers = options.workers
    with tempfile.TemporaryDirectory() as folder:
        data, notes = Path(folder, "data"), Path(folder, "notes")
        data.mkdir(), notes.mkdir()
        paths = made(data, options.snapshots, options.traces)
        sizes = [Path(path).stat().st_size for path in paths]
        print(f"{len(paths)} files, {statistics.median(sizes) / 1e3:.0f} kB (median), {max(sizes) / 1e3:.0f} kB (most)")
        one, digests = whole(f"local, {workers} processes", LocalEngine(workers), paths, notes / "local", None)
        engines: dict[str, Callable[[], Engine]] = {
            "one process": lambda: LocalEngine(1),
            f"local, {workers} processes": lambda: LocalEngine(workers),
        }
        try:
            import ray
        except ImportError:
            print("\nRay is not installed")
        else:
            from torchvet.fleet.ray_engine import RayEngine

            started = time.perf_counter()
            RayEngine(workers)._start()
            print(f"\nRay {ray.__version__}: a local cluster starts in {time.perf_counter() - started:.1f} s")
            victim = paths[len(paths) // 2]
            other, _ = whole(f"Ray, {workers} workers", RayEngine(workers), paths, notes / "ray", victim)
            same = JsonRenderer().render(one) == JsonRenderer().render(other)
            print(f"  its report is that of the local engine, byte for byte: {same}")
            engines[f"Ray, {workers} workers"] = lambda: RayEngine(workers)
        rates(engines, paths[:: max(1, len(paths) // options.sample)], options.rounds)
        many(digests)


if __name__ == "__main__":
    main()
