"""What torchvet promises on every torch that it supports, tried on the one that is installed here.

    python tests/compatibility/contract.py [--json FILE]

Prints a line for each promise and exits with status 1 if one is not kept. `make test-torch` runs it in an environment
of its own; docs/compatibility.md is written from the files of several such runs (`table.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from casebook import run  # noqa: E402
from casebook.__main__ import observe  # noqa: E402
from casebook.case import Case, load_all  # noqa: E402
from casebook.program import environment  # noqa: E402
from casebook.run import Means  # noqa: E402
from casebook.score import score  # noqa: E402
from casebook.warm import interpreters  # noqa: E402

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE = 500
"""Seconds for one program: machines of CI are busy."""
FAMILIES = {
    "MEM": ("mem101_trainer_stats", "mem107_ctx_attributes"),
    "AMP": ("amp101_clipped_classes", "amp205_half_inside"),
    "NUM": ("num101_entropy_of_counts", "num105_minus_a_billion"),
    "TRN": ("trn101_moons", "trn109_schedule_at_the_top"),
    "OPS": ("ops204_predictions_joined", "ops207_shadow_weights"),
    "DST": ("dst105_reduced_four_times", "dst107_same_order_each_epoch"),
    "DEV": ("dev106_all_cards_at_once", "dev109_head_for_each_language"),
}
SIMULATED = ("dev101_loss_mask", "mem301_bank_between_batches")


@dataclass
class Kept:
    """Whether one promise is kept; `refused` where torchvet says itself that it cannot be had here."""

    promise: str
    state: str
    detail: str = ""
    seconds: float = 0.0


class Broken(Exception):
    """A promise is not kept."""


class Refused(Exception):
    """Torchvet says that it cannot do this here, and does nothing else."""


def need(kept: object, detail: str) -> None:
    """Say what is wrong."""
    if not kept:
        raise Broken(detail)


def torchvet(means: Means, *words: str, folder: Path = ROOT) -> tuple[int, dict[str, Any], str]:
    """Run a verb: exit status, report, what the program printed."""
    with tempfile.TemporaryDirectory() as out:
        path = Path(out, "report.json")
        verb, *rest = words
        command = [*shlex.split(means.tool), verb, "-o", str(path), "--quiet", *rest]
        done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
        if not path.exists():
            last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
            raise Broken(f"no report, exit status {done.returncode}: {last}")
        return done.returncode, json.loads(path.read_text()), done.stdout


def checks(means: Means) -> str:
    """Every probe finds what it must find, at the start."""
    code = (
        "import json, torch; from torchvet.probes.internals import private; "
        "from torchvet.probes.session import observer, self_checks; "
        "print(json.dumps([[r.check + ': ' + r.reason for _, r in self_checks.failures()], private.missing]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=PATIENCE
    )
    need(done.returncode == 0, done.stderr[-300:])
    failed, missing = json.loads(done.stdout)
    need(not failed, "; ".join(failed))
    return f"this torch lacks {', '.join(missing)}" if missing else ""


def demo(means: Means) -> str:
    """The leak of `make demo`: its holder, its line, its rate."""
    status, report, _ = torchvet(means, "run", "examples/leaky.py")
    found = {f["code"]: f for f in report["findings"]}
    need(status == 1 and "MEM101" in found, f"exit status {status}, found {sorted(found)}")
    leak = found["MEM101"]
    need(leak["holder"]["name"] == "trainer.stats.losses", f"held by {leak['holder']['name']}")
    need(leak["location"]["line"] == 42, f"in line {leak['location']['line']}")
    rate = leak["measured"]["bytes_per_step"] / 4.1e6
    need(0.9 < rate < 1.1, f"{rate:.0%} of the rate")
    need(found.get("MEM104", {}).get("severity") == "warning", "the evaluation's graphs count as harmless")
    return gaps(report)


def gaps(report: dict[str, Any]) -> str:
    """What was not checked, in a word."""
    return "; ".join(gap["check"] for gap in report["not_checked"])


def watched(means: Means) -> str:
    """The same leak under `torchvet.watch()`."""
    out = output(PROGRAMS / "watched.py")
    need("('MEM101', 'history')" in out, out.strip()[-300:])
    return ""


def output(program: Path) -> str:
    """What a program prints."""
    done = subprocess.run(
        [sys.executable, str(program)], env=environment(), capture_output=True, text=True, timeout=PATIENCE
    )
    need(done.returncode == 0, done.stderr[-300:])
    return done.stdout


def checkpointed(means: Means) -> str:
    """Checkpointed layers: nothing is recomputed for torchvet, and no digit changes; a leak beside them is found."""
    alone = output(PROGRAMS / "checkpointed.py")
    _, report, under = torchvet(means, "run", str(PROGRAMS / "checkpointed.py"))
    need(alone == under, "the program does something else under torchvet")
    holders = [f["holder"]["name"] for f in report["findings"] if f["holder"]]
    need("kept" in holders, f"the leak was not found; holders: {holders}")
    return gaps(report)


def compiled(means: Means) -> str:
    """A compiled model: compiled as often, and no digit changes."""
    alone = output(PROGRAMS / "compiled.py")
    _, report, under = torchvet(means, "run", str(PROGRAMS / "compiled.py"))
    need(alone == under, f"alone {alone.strip().splitlines()[-1]}, under torchvet {under.strip().splitlines()[-1:]}")
    return gaps(report)


def amp(means: Means) -> str:
    """`torchvet amp` compares three precisions."""
    program = case("trn101_moons").fixed
    _, report, _ = torchvet(means, "amp", "--trials", "1", "--steps", "10", *program.target, folder=program.folder)
    need("precisions" in json.dumps(report["facts"]) or report["facts"].get("amp"), f"facts: {list(report['facts'])}")
    return ""


def whatif(means: Means) -> str:
    """`torchvet whatif` says what shortcuts would do."""
    _, report, _ = torchvet(means, "whatif", "--steps", "30", str(PROGRAMS / "leaking.py"))
    need(report["facts"].get("whatif"), f"facts: {list(report['facts'])}")
    return ""


def fix(means: Means) -> str:
    """`torchvet fix --verify` proves the fix of a leak."""
    _, report, _ = torchvet(means, "fix", "--verify", "--steps", "40", str(PROGRAMS / "leaking.py"), "MEM101")
    text = json.dumps(report)
    need('"helps"' in text or '"proven"' in text, text[-400:])
    return ""


def case(name: str) -> Case:
    """A case of the casebook."""
    (found,) = [one for one in load_all(name) if one.name == name]
    return found


def of_casebook(name: str) -> Callable[[Means], str]:
    """A case: the fault is found on its line with its holder, the program without it is passed, neither changes."""

    def examine(means: Means) -> str:
        one = case(name)
        result = score(one, *(observe(one, program, means) for program in (one.faulty, one.fixed)), [])
        found = result.found
        need(found is not None, f"not found; said: {result.said}; {result.notes}")
        need(found.severity and found.line and found.holder is not False, f"found otherwise: {found}; {result.said}")
        need(result.fixed_silent and not result.false_alarms, f"an alarm where no fault is: {result.notes}")
        need(result.undisturbed, "the program does something else under torchvet")
        return "" if found.bytes is not False else "its rate is off by more than a tenth"

    return examine


def simulated(name: str) -> Callable[[Means], str]:
    """A case on a GPU that is not there; refusing it in a clear word is allowed."""

    def examine(means: Means) -> str:
        one = case(name)
        vetted = run.vetted(one.faulty, one.expect.argv, means.tool, one.expect.command)
        said = vetted.complaint
        if vetted.report is None and ("simulating a GPU takes" in said or "simulated GPU" in said):
            raise Refused(said)
        return of_casebook(name)(means)

    return examine


def promises() -> Iterator[tuple[str, Callable[[Means], str]]]:
    """All of them, the slowest first."""
    yield "`fix --verify` proves a fix", fix
    yield "`amp` compares precisions", amp
    yield "`whatif` measures half a batch", whatif
    yield "compiled programs: same results", compiled
    yield "checkpointed programs: same results, nothing recomputed", checkpointed
    yield "the leak of `make demo`: holder, line, rate", demo
    yield "the same under `watch()`", watched
    yield "every probe proves itself at the start", checks
    for family, names in FAMILIES.items():
        for name in names:
            yield f"{family}: {name}", of_casebook(name)
    for name in SIMULATED:
        yield f"simulated GPU: {name}", simulated(name)


def tried(promise: str, attempt: Callable[[Means], str], means: Means) -> Kept:
    """Whether a promise is kept."""
    began, state = time.monotonic(), "yes"
    try:
        detail = attempt(means)
    except Refused as refused:
        state, detail = "refused", str(refused)
    except subprocess.TimeoutExpired as error:
        state, detail = "late", f"no answer in {error.timeout:.0f} s"
    except Exception as error:
        state, detail = "no", f"{type(error).__name__}: {error}" if not isinstance(error, Broken) else str(error)
    kept = Kept(promise, state, detail, round(time.monotonic() - began, 1))
    print(f"{kept.state:8}{kept.promise} ({kept.seconds:.0f} s){': ' + kept.detail if kept.detail else ''}", flush=True)
    return kept


def summed(results: Sequence[Kept]) -> str:
    """How many are kept. What is refused or has no answer is not."""
    others = {"refused": "refused", "late": "without an answer", "no": "not kept"}
    counts = [(sum(one.state == state for one in results), word) for state, word in others.items()]
    kept = f"{sum(one.state == 'yes' for one in results)} of {len(results)} kept"
    return ", ".join([kept, *(f"{number} {word}" for number, word in counts if number)])


def merged(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """A run of all with what a run of some says now."""
    fresh = {one["promise"]: one for one in now["promises"]}
    known = {one["promise"]: one for one in before["promises"]} | fresh
    return {**before, "promises": [known[name] for name, _ in promises() if name in known]}


def main(argv: Sequence[str] | None = None) -> int:
    """Try all; 0 if none is broken."""
    parser = argparse.ArgumentParser(prog="contract", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here, too")
    parser.add_argument("-k", dest="word", default="", help="only promises that contain this")
    parser.add_argument("-j", dest="jobs", type=int, default=2, help="promises tried at once (default 2)")
    options = parser.parse_args(argv)
    began = time.monotonic()
    with interpreters(True) as warm, ThreadPoolExecutor(options.jobs) as pool:
        means = (
            Means(warm.interpreter, shlex.join(warm.torchvet)) if warm else Means(tool=f"{sys.executable} -m torchvet")
        )
        wanted = [(name, attempt) for name, attempt in promises() if options.word in name]
        results = list(pool.map(lambda one: tried(*one, means), wanted))
    import torch

    if options.json:
        about = {
            "torch": torch.__version__, "python": platform.python_version(), "seconds": round(time.monotonic() - began),
            "promises": [asdict(one) for one in results],
        }  # fmt: skip
        if options.word and options.json.exists():
            about = merged(json.loads(options.json.read_text()), about)
        options.json.write_text(json.dumps(about, indent=1) + "\n")
    print(f"torch {torch.__version__}, Python {platform.python_version()}: {summed(results)}")
    return 1 if any(one.state == "no" for one in results) else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    raise SystemExit(main())
