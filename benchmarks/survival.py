"""Has torchvet meet signals, full disks and hostile recordings at random, and looks at what is left. By hand, on Linux:

    python benchmarks/survival.py [--kills 60] [--disks 30] [--fuzzed 300] [--seed 0] [--source DIR] [-v]

- *kills*: a small training under `torchvet run` in its own session. The program, torchvet or both get a signal at a
  random moment. Then nobody may be alive, the user's files must be as they were, and the next run must leave no
  temporary folder. A recording that was kept must be readable.
- *disks*: the same with room for a few bytes only, by `ulimit -f`, or a small tmpfs (as root) for temporary files, the
  recording or the report. The program must end as it would alone, and all that it printed must come.
- *hostile*: the recordings of tests/recording/hostile_recordings.py, and good ones with random values changed, read by
  every verb that reads recordings.

A fault is a traceback of torchvet's, a wrong exit status, output of the program that is lost, a process or a file that
is left, or a reader that takes too long. Prints a table. Exit status 1 where there were faults.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "recording"))

from hostile_recordings import HOSTILE, SECRET, mutated

HERE = Path(__file__).resolve().parents[1]
PROGRAM = """
import os, sys, time
import torch
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []
for step in range(int(sys.argv[1])):
    loss = model(torch.randn(32, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    kept.append(torch.randn(64, 64))
    print("step", step, flush=True)
    time.sleep(0.002)
"""
STEPS = 300
SIGNALS = ("SIGKILL", "SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGSEGV", "SIGQUIT")
VERBS = (
    ("report",), ("report", "--format", "json"), ("report", "--format", "sarif"), ("inspect",), ("whatif",),
    ("compare", "{good}"), ("fix",), ("report", "--memory-limit", "1GB"),
)  # fmt: skip
PATIENCE = 60.0
MOST_MB = 1500


@dataclass
class Trials:
    """What came of the trials, by kind."""

    source: Path
    verbose: bool
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "torchvet", *words]

    def environment(self, folder: Path) -> dict[str, str]:
        for name in ("tmp", "state"):
            (folder / name).mkdir(exist_ok=True)
        clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "COLUMNS")}
        own = {"TMPDIR": str(folder / "tmp"), "XDG_STATE_HOME": str(folder / "state"), "OMP_NUM_THREADS": "1"}
        return {**clean, **own, "PYTHONPATH": str(self.source), "SURVIVAL": str(folder)}

    def fault(self, kind: str, what: str, said: str = "") -> None:
        self.faults.append(f"{kind}: {what}")
        print(f"FAULT {kind}: {what}\n{said[-1500:]}", flush=True)

    def note(self, kind: str, what: str) -> None:
        self.counts[kind] += 1
        if self.verbose:
            print(f"{kind}: {what}", flush=True)


def ours(text: str) -> bool:
    """Whether a text has a traceback of torchvet's own: the program's has no frame of it."""
    return "bug in torchvet" in text or ("Traceback" in text and f"torchvet{os.sep}" in text)


def alive(folder: Path) -> list[str]:
    """The processes that were started for a trial and still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                mark = f"SURVIVAL={folder}".encode()
                if state != "Z" and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(entry.name)
    return found


def kill(trials: Trials, dice: random.Random, folder: Path) -> None:
    """One run, killed."""
    (folder / "program.py").write_text(PROGRAM)
    (folder / "theirs.txt").write_text("mine\n" * 100)
    (folder / "quick.py").write_text("pass")
    env = trials.environment(folder)
    kept = dice.random() < 0.5
    words = ["run", "-o", "report.json", *(["--record", "run.vet"] if kept else []), "program.py", str(STEPS)]
    target, name = dice.choice(("program", "torchvet", "both")), dice.choice(SIGNALS)
    after = dice.uniform(0.05, 6.0)
    kind = f"kill {target}"
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            trials.command(*words), cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True,
        )  # fmt: skip
        time.sleep(after)
        number = getattr(signal, name)
        for pid in victims(process.pid, target):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            trials.fault(kind, f"{name} after {after:.2f} s: torchvet did not end")
            os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
    time.sleep(0.3)
    said = (folder / "err").read_text("utf-8", "replace")
    what = f"{name} after {after:.2f} s{', recorded' if kept else ''}: status {status}"
    trials.note(kind, what)
    if ours(said):
        trials.fault(kind, f"{what}: traceback", said)
    if status not in (0, 1, 3, -number):
        trials.fault(kind, f"{what}: neither the signal's status nor the program's", said)
    if left := alive(folder):
        trials.fault(kind, f"{what}: still alive: {left}")
    look_after(trials, kind, what, folder, env)


def victims(first: int, target: str) -> list[int]:
    """torchvet itself, the process that it started, or both."""
    children = Path(f"/proc/{first}/task/{first}/children")
    started: list[int] = []
    with suppress(OSError):
        started = [int(word) for word in children.read_text().split()]
    return {"program": started, "torchvet": [first], "both": [*started, first]}[target]


def look_after(trials: Trials, kind: str, what: str, folder: Path, env: dict[str, str]) -> None:
    """The user's files, what is left in temporary folders, and the recording."""
    if (folder / "theirs.txt").read_text() != "mine\n" * 100 or (folder / "program.py").read_text() != PROGRAM:
        trials.fault(kind, f"{what}: a file of the user's was changed")
    names = {p.name for p in folder.iterdir()}
    if litter := names - {
        "program.py",
        "quick.py",
        "theirs.txt",
        "out",
        "err",
        "tmp",
        "state",
        "report.json",
        "run.vet",
    }:
        trials.fault(kind, f"{what}: left beside the program: {sorted(litter)}")
    quick = subprocess.run(
        trials.command("run", "-q", "--exit-zero", "quick.py"), cwd=folder, env=env, capture_output=True, text=True
    )
    if quick.returncode:
        trials.fault(kind, f"{what}: the next run ends with {quick.returncode}", quick.stderr)
    if litter := {p.name for p in (folder / "tmp").iterdir() if p.name.startswith("torchvet")}:
        trials.fault(kind, f"{what}: left among the temporary files: {sorted(litter)}")
    if (folder / "run.vet" / "manifest.json").exists():
        read = subprocess.run(trials.command("report", "run.vet"), cwd=folder, env=env, capture_output=True, text=True)
        if read.returncode not in (0, 1, 3) or ours(read.stderr):
            trials.fault(kind, f"{what}: the recording cannot be read: {read.returncode}", read.stderr)


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[bool]:
    """A tmpfs of so many bytes; whether one could be mounted."""
    place.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True)
    try:
        yield not done.returncode
    finally:
        if not done.returncode:
            subprocess.run(["umount", "-l", str(place)], check=True)


def disk(trials: Trials, dice: random.Random, folder: Path) -> None:
    """One run with little room."""
    (folder / "program.py").write_text(PROGRAM)
    env = trials.environment(folder)
    way = dice.choice(("ulimit", "tmp", "record", "report"))
    pages = dice.choice((0, 1, 2, 4, 8, 16, 32))
    words = ["run", "--exit-zero"]
    prepare: Callable[[], None] | None = None
    if way == "ulimit":
        limit = dice.choice((0, 1, 100, 1000, 5000, 20_000, 100_000))
        prepare = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # noqa: E731
        what = f"ulimit -f of {limit} bytes"
    else:
        what = f"a {'report' if way == 'report' else way} folder with {pages} pages"
    place = folder / ("tmp" if way == "tmp" else "small")
    if way == "record" or (way == "ulimit" and dice.random() < 0.5):
        words += ["--record", "small/run.vet"]
    if way == "report":
        words += ["-o", "small/report.json"]
    place.mkdir(exist_ok=True)
    with small_disk(place, 4096 * (pages + 2)) if way != "ulimit" else nullcontext():
        if way != "ulimit" and os.path.ismount(place):
            with suppress(OSError):
                # The folder itself takes a page; what is left is for torchvet.
                (place / "filler").write_bytes(bytes(4096 * max(0, 1 - pages)))
        done = subprocess.run(
            trials.command(*words, "program.py", "40"), cwd=folder, env=env, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, preexec_fn=prepare, timeout=PATIENCE,
        )  # fmt: skip
        kind = f"disk {way}"
        trials.note(kind, f"{what}: status {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1][:150]}")
        if wrong := wrong_with(done, way):
            trials.fault(kind, f"{what}: {wrong}", done.stdout + done.stderr)
    if left := alive(folder):
        trials.fault(kind, f"{what}: still alive: {left}")


def wrong_with(done: subprocess.CompletedProcess[str], way: str) -> str:
    """What is wrong with a run that had little room; empty where nothing is."""
    steps = [line for line in done.stdout.splitlines() if line.startswith("step ")]
    if ours(done.stderr):
        return "traceback"
    if done.returncode == 2 and not steps and "torchvet:" in done.stderr:
        return ""  # nothing could be recorded at all: the program was not started
    if len(steps) != 40:
        return f"{len(steps)} of 40 lines of the program's"
    if done.returncode not in ((0, 2) if way == "report" else (0,)):
        return f"status {done.returncode} although the program ran"
    if not any(words in done.stdout for words in ("`kept` keeps", "Could not judge")):
        return "neither the leak nor what was not seen is said"
    return ""


def read_all(
    trials: Trials, kind: str, folder: Path, good: Path, env: dict[str, str], verbs: tuple[tuple[str, ...], ...]
) -> None:
    """Have the verbs read one recording."""
    before = {str(p): p.lstat().st_mtime_ns for p in sorted(folder.rglob("*"))}
    for verb in verbs:
        words = [word.replace("{good}", str(good)) for word in verb]
        at = 1 if words[0] != "compare" else 2
        command = trials.command(*words[:at], str(folder), *words[at:])
        began = time.monotonic()
        try:
            done = subprocess.run(
                command, cwd=folder.parent, env=env, capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MOST_MB << 20, MOST_MB << 20)),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            trials.fault(kind, f"{' '.join(verb)}: more than {PATIENCE:.0f} s")
            continue
        text = (done.stdout + done.stderr).decode("utf-8", "replace")
        trials.note(kind, f"{' '.join(verb)}: status {done.returncode}, {time.monotonic() - began:.1f} s")
        if "Traceback" in text or "bug in torchvet" in text:
            trials.fault(kind, f"{' '.join(verb)}: traceback", text)
        elif done.returncode not in (0, 1, 2, 3):
            trials.fault(kind, f"{' '.join(verb)}: status {done.returncode}", text)
        if SECRET in text:
            trials.fault(kind, f"{' '.join(verb)}: quotes a file of the reader's")
        if "json" not in verb and any(c in text for c in "\x1b\x07\u202e\u2066"):
            trials.fault(kind, f"{' '.join(verb)}: control characters come through")
    if before != {str(p): p.lstat().st_mtime_ns for p in sorted(folder.rglob("*"))}:
        trials.fault(kind, "the recording was changed")


def recorded(trials: Trials, folder: Path) -> Path:
    """A good recording."""
    (folder / "program.py").write_text(PROGRAM)
    words = ("run", "-q", "--exit-zero", "--record", "good.vet", "program.py", "40")
    subprocess.run(
        trials.command(*words), cwd=folder, env=trials.environment(folder), check=True, stdout=subprocess.DEVNULL
    )
    return folder / "good.vet"


def hostile(trials: Trials, dice: random.Random, folder: Path, fuzzed: int) -> None:
    """All hostile recordings, and good ones with values changed."""
    good, env = recorded(trials, folder), trials.environment(folder)
    for name, make in HOSTILE.items():
        with fresh(folder / "trial", good) as one:
            make(one)
            read_all(trials, f"hostile {name}", one, good, env, VERBS)
    for number in range(fuzzed):
        with fresh(folder / "trial", good) as one:
            mutated(one, dice)
            read_all(trials, "hostile fuzzed", one, good, env, (VERBS[number % len(VERBS)],))


@contextmanager
def fresh(folder: Path, good: Path) -> Iterator[Path]:
    """A copy of a recording in a folder of its own, which is removed."""
    folder.mkdir()
    try:
        yield Path(shutil.copytree(good, folder / "theirs.vet"))
    finally:
        shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--disks", type=int, default=30)
    parser.add_argument(
        "--fuzzed", type=int, default=300, help="recordings with random values; -1: no recordings at all"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--source", type=Path, default=HERE / "src", help="the torchvet that is tried")
    parser.add_argument("-v", "--verbose", action="store_true")
    asked = parser.parse_args()
    trials, dice = Trials(asked.source.resolve(), asked.verbose), random.Random(asked.seed)
    for trial, number in ((kill, asked.kills), (disk, asked.disks)):
        for _ in range(number):
            with tempfile.TemporaryDirectory(prefix="survival-") as folder:
                trial(trials, random.Random(dice.random()), Path(folder))
    if asked.fuzzed >= 0:
        with tempfile.TemporaryDirectory(prefix="survival-") as folder:
            hostile(trials, dice, Path(folder), asked.fuzzed)
    wrong = Counter(fault.partition(":")[0] for fault in trials.faults)
    print(f"\n{'trial':42} {'number':>6} {'faults':>6}")
    for kind, number in sorted(trials.counts.items()):
        print(f"{kind:42} {number:6} {wrong[kind]:6}")
    print(f"{'all':42} {trials.counts.total():6} {len(trials.faults):6}")
    return 1 if trials.faults else 0


if __name__ == "__main__":
    sys.exit(main())
