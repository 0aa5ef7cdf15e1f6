"""Which changes may make a program's steps quicker, and what the runs that tried them add up to."""

from __future__ import annotations

import math
import os
import shutil
import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from torchvet.recording.records.attempt import Attempt
from torchvet.recording.records.base import Window
from torchvet.recording.records.timing import AnomalyMode

if TYPE_CHECKING:
    from torchvet.recording import RankRecording

WARM_UP = 0.2
"""The share of the steps at first that counts for nothing: workers start, caches fill."""
ENOUGH = 8
"""Steps below which nothing is timed."""
_NOISE = 0.05
"""Differences below this are none."""
_SECONDS = 4.0
_MOST_STEPS = 300
_WORTH = 0.05
"""The share of a phase in a step from which on it is worth a try to make it quicker."""
_BATCH = 2
_MOST_OF_IT = 0.5
"""The share of the forward and backward pass in a step from which on arithmetic may be what it takes."""
_PRODUCTS = ("mm", "convolution", "linear")
"""In the names of operators that autocast has in half precision."""
_COMPILERS = ("c++", "g++", "clang++", "cl")
"""One of which torch.compile needs."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One run: what its watcher wrote, or how it failed."""

    change: str
    run: Attempt | None = None
    error: str | None = None


class Change(NamedTuple):
    """A change, and how it is written in the program."""

    name: str
    told: str
    larger: float = 1.0
    """How many times as many samples a step has."""


def candidates(rank: RankRecording, facts: dict[str, Any], text: str, cores: int) -> list[Change]:
    """The changes that are worth a run, by what was seen of the run; of threads by the program's text, too."""
    phases = facts.get("phases") or {}
    found: list[Change] = []
    if phases.get("data", 0.0) >= _WORTH:
        numbers = [n for n in (1, 2, 4, 8) if n <= max(2, cores)]
        found += [Change(f"workers={n}", f"DataLoader(num_workers={n}, persistent_workers=True)") for n in numbers]
    if rank.last(AnomalyMode) is not None:
        found.append(Change("no-anomaly", "anomaly detection off"))
    if phases.get("optimizer", 0.0) >= _WORTH:
        found += [Change(name, f"the optimizer with {name}=True") for name in ("fused", "foreach")]
    # Only where somebody may have set it to less.
    if "set_num_threads" in text or os.environ.get("OMP_NUM_THREADS", str(cores)) != str(cores):
        found.append(Change(f"threads={cores}", f"torch.set_num_threads({cores})"))
    # channels_last changes nothing but convolutions and what lies between them.
    if _runs(rank, ("convolution",)):
        found.append(Change("channels-last", "model and images in channels_last"))
    # Only a loader's batch size can be doubled from outside.
    if "data" in phases:
        found.append(Change(f"batch={_BATCH}", "twice the batch size, per sample", _BATCH))
    # In the order of what a try takes: the time for tries may run out.
    return [*found, *_of_models(rank, facts, text)]


def _of_models(rank: RankRecording, facts: dict[str, Any], text: str) -> Iterator[Change]:
    """What changes the arithmetic of models. Compiling takes longest: it comes last."""
    phases = facts.get("phases") or {}
    if phases.get("forward", 0.0) + phases.get("backward", 0.0) < _MOST_OF_IT:
        return
    if "autocast" not in text and _runs(rank, _PRODUCTS):
        yield Change("bfloat16", "models under torch.autocast(dtype=torch.bfloat16)")
    if "compile" not in text and any(map(shutil.which, _COMPILERS)):
        yield Change("compile", "models compiled by torch.compile")


def _runs(rank: RankRecording, parts: tuple[str, ...]) -> bool:
    """Whether an operator made storages whose name has one of these."""
    ops = (one.site.op for window in rank.all(Window) for one in window.sites)
    return any(part in op for op in ops for part in parts)


def steps_of(seconds_per_step: float, steps: int) -> int:
    """How many steps a run is to have, of a program that has had so many."""
    wanted = _SECONDS / seconds_per_step if seconds_per_step > 0 else _MOST_STEPS
    # Never more steps than the program has: it would end, and its trial with it.
    return max(min(int(wanted), _MOST_STEPS, steps), min(steps, 2 * ENOUGH))


def settled(seconds: list[float]) -> float | None:
    """Seconds of a steady step: the mean, as workers hand their batches over in bunches; the slowest twentieth, which
    other programs have interrupted, left out."""
    # Cut before sorting: the first ones in time, not the quickest.
    steady = sorted(seconds[max(3, int(len(seconds) * WARM_UP)) :])
    if len(steady) < ENOUGH:
        return None
    return statistics.fmean(steady[: len(steady) - len(steady) // 20])


def attempt_facts(changes: list[Change], trials: list[Trial], untried: list[str]) -> dict[str, Any] | None:
    """Plain JSON: the seconds of a step as it is, and a row for each change that there was room for. Differences below
    `noise` are none. None where no step of the program as it is was timed."""
    plain = _of(trials, "none")
    seconds = _settled(plain)
    if not seconds:
        return None
    rows = [_row(c, [t for t in trials if t.change == c.name], min(seconds), plain[0].losses) for c in changes]
    return {
        "seconds_per_step": min(seconds),
        # What two runs of the same program differ by is the least that can be told.
        "noise": max(_NOISE, max(seconds) / min(seconds) - 1),
        "rows": sorted((row for row in rows if row is not None), key=lambda row: -(row["gain"] or 0.0)),
        "untried": untried,
    }


def _row(change: Change, trials: list[Trial], plain: float, losses: list[float]) -> dict[str, Any] | None:
    """What came of a change; None where it was not tried, or there was nothing to change."""
    runs = _of(trials, change.name)
    error = next((t.error for t in trials if t.error), None)
    # `fused` without an optimizer that has it, for example.
    if not error and not any(r.applied for r in runs):
        return None
    # What else the machine does makes runs slower and none quicker.
    seconds = min(_settled(runs), default=None)
    place = next((r.place for r in runs if r.place is not None), None)
    return {
        "change": change.name,
        "told": change.told,
        "path": place and place.path,
        "line": place and place.line,
        "seconds_per_step": seconds,
        # Per sample: a step with twice the batch may take up to twice as long.
        "gain": plain * change.larger / seconds if seconds and not error else None,
        # Other batches have other losses.
        "same_losses": same(losses, runs[0].losses) if runs and change.larger == 1.0 else None,
        "error": error,
    }


def same(before: list[float], after: list[float]) -> bool | None:
    """Whether the losses are the same but for rounding; None where there are none to compare."""
    pairs = list(zip(before, after, strict=False))
    return all(math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-6) for a, b in pairs) if pairs else None


def _of(trials: list[Trial], change: str) -> list[Attempt]:
    return [t.run for t in trials if t.change == change and t.run is not None]


def _settled(runs: list[Attempt]) -> list[float]:
    return [seconds for seconds in (settled(r.seconds) for r in runs) if seconds]
