"""What a report says besides its findings: steps, phases, peak, growth, overhead. Sums over one rank's records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from torchvet.analysis.forecast import forecast_of
from torchvet.analysis.forecast_facts import forecast_facts
from torchvet.analysis.growth import GrowthSummary, ended_by_itself
from torchvet.analysis.memory_limit import Limit, limit_of
from torchvet.analysis.steps import current_steps, evaluated_before, steps_between
from torchvet.analysis.time_facts import time_facts
from torchvet.formatting import picked
from torchvet.recording.reader import RankRecording
from torchvet.recording.records.base import Step, Window
from torchvet.recording.records.crossing import Crossing
from torchvet.recording.records.memory import DevicePeak
from torchvet.recording.records.nonfinite import NonFiniteTotals
from torchvet.recording.records.training import CollectorUse, Host, Outcome, Overhead


def facts_of(rank: RankRecording, growth: GrowthSummary) -> dict[str, Any]:
    """Plain JSON values, as finding.Report.facts documents them."""
    facts: dict[str, Any] = {}
    program, outcome = rank.program, rank.last(Outcome)
    if program is not None:
        # Without a limit the facts say so by its source.
        limit = limit_of(rank) or Limit(program.memory_limit, program.memory_limit_source)
        facts |= picked(program, "device", "torch", "python") | {"program": program.path}
        facts["memory_limit"] = {"bytes": limit.bytes, "source": limit.source}
        if program.simulated is not None:
            facts["simulated_gpu"] = program.simulated
            facts["simulated_by"] = program.simulated_by
    if outcome is not None:
        facts["outcome"] = outcome_facts(outcome)
        facts["seconds"] = outcome.seconds
    facts.update(_steps(rank))
    facts.update(time_facts(rank))
    peak = _peak(rank)
    if peak is not None:
        facts["peak"] = peak
    facts.update(_on_device(rank))
    if growth.measured or growth.growths:
        facts["growth"] = {
            "bytes_per_step": growth.measured,
            "explained_share": min(1.0, growth.explained / growth.measured) if growth.measured else None,
            "unexplained_bytes_per_step": growth.unexplained,
        }
    facts.update(_host(rank))
    forecast = forecast_of(rank)
    if forecast is not None:
        facts["precision_forecast"] = forecast_facts(forecast)
    return facts


def outcome_facts(outcome: Outcome) -> dict[str, Any]:
    """How the program ended, and where in its own code if that was by an error."""
    found = picked(outcome, "how", "status", "error")
    if outcome.place is not None:
        found["place"] = picked(outcome.place, "path", "line", "function")
    return found


def _kinds(rank: RankRecording, steps: Iterable[Step]) -> dict[str, int]:
    """The number of steps of each kind."""
    kinds: dict[str, int] = defaultdict(int)
    for step in steps:
        kinds[step.kind] += step.count
    if before := evaluated_before(rank):
        kinds["evaluation"] += before
    totals = rank.last(NonFiniteTotals)
    # Forward passes without a backward look like evaluation; that their loss was not finite says why.
    if totals is not None and 2 * totals.skipping > kinds["evaluation"] > 0:
        kinds["skipped"] = kinds.pop("evaluation")  # the program left their losses out
    return kinds


def _steps(rank: RankRecording) -> dict[str, Any]:
    steps = current_steps(rank)
    kinds = _kinds(rank, steps)
    phases = _phases(_plain(rank, steps))
    total = sum(phases.values())
    # The strongest signal first: `watch.step()` is the program's own word.
    main = next((k for k in ("manual", "training", "backward", "evaluation", "forward") if kinds.get(k)), None)
    # As in `steps_between`: weights updated by hand have no optimizer step.
    by_hand = kinds["backward"] if main == "training" and "backward" in kinds else 0
    found: dict[str, Any] = {"steps": kinds[main] + by_hand if main else 0, "step_kinds": dict(kinds)}
    if total:
        # What is neither data, backward nor optimizer is the forward pass and the program's own Python.
        named = {"forward and other" if k == "other" else k: v / total for k, v in phases.items()}
        found["phases"] = named
    return found


def _plain(rank: RankRecording, steps: list[Step]) -> list[Step]:
    """Those in which no operator was noted, which takes longer where operators are many and small; all if there are no
    others."""
    windows = [(w.first, w.last) for w in rank.since_restart(Window)]
    plain = [s for s in steps if not any(s.n >= first and s.n - s.count < last for first, last in windows)]
    return plain or steps


def _phases(steps: list[Step]) -> dict[str, float]:
    """Seconds by phase."""
    phases: dict[str, float] = defaultdict(float)
    for step in steps:
        for name, seconds in step.phases.items():
            phases[name] += seconds
    return phases


def _peak(rank: RankRecording) -> dict[str, Any] | None:
    windows = rank.all(Window)
    if not windows:
        return None
    # The peak and its parts of one window: peaks of several would not add up.
    highest = max(windows, key=lambda w: w.peak)
    return {"bytes": highest.peak, "categories": highest.categories, "sampled_steps": [highest.first, highest.last]}


def _on_device(rank: RankRecording) -> dict[str, Any]:
    """The peak of the device's allocator, of the device that has held most; and the lines that wait for the device."""
    facts: dict[str, Any] = {}
    highest = max(rank.latest(DevicePeak, "device"), key=lambda p: p.bytes, default=None)
    if highest is not None and highest.bytes:
        facts["device_peak"] = picked(highest, "device", "bytes", "exact")
    waits = [c for c in rank.latest(Crossing, "place", "kind", "what") if c.kind != "to device" and c.waits]
    if waits:
        facts["waits"] = [
            picked(c.place, "path", "line", "function") | picked(c, "what", "waits", "steps", "sampled") for c in waits
        ]
    return facts


def _host(rank: RankRecording) -> dict[str, Any]:
    # Ticks of another series of steps mean other steps. The last look of a program that came to its end finds main()'s
    # variables gone.
    hosts = rank.since_restart(Host)
    if len(hosts) > 3 and ended_by_itself(rank):
        hosts = hosts[:-1]
    facts: dict[str, Any] = {}
    # From the second on: at the first one caches were still filling.
    if len(hosts) > 2 and hosts[-1].tick > hosts[1].tick:
        _, count = steps_between(rank, hosts[1].tick, hosts[-1].tick)
        pairs = (("resident_per_step", "resident"), ("heap_per_step", "heap"))
        facts["host"] = {
            name: (getattr(hosts[-1], field) - getattr(hosts[1], field)) / max(1, count)
            for name, field in pairs
            if getattr(hosts[-1], field) is not None and getattr(hosts[1], field) is not None
        }
    collector = rank.last(CollectorUse)
    if collector is not None:
        facts["collector"] = {"collections": collector.collections, "seconds": collector.seconds}
    return facts


def overhead_of(rank: RankRecording) -> dict[str, Any]:
    """torchvet's own cost as measured in the run: seconds, and the ratio of elapsed time with to without, of the whole
    run and of its steps alone, which is what a longer run comes down to."""
    record = rank.last(Overhead)
    if record is None or not record.elapsed:
        return {}
    own = sum(record.seconds.values())
    # Never 0: it is divided by below.
    rest = max(record.elapsed - own, 1e-9)
    facts = {
        "seconds": own,
        "ratio": record.elapsed / rest,
        "by_probe": record.seconds,
        "sampled_steps": record.sampled_steps,
    }
    # Equal where no step was measured.
    if record.stepping > record.while_stepping:
        facts["steps_ratio"] = record.stepping / (record.stepping - record.while_stepping)
    return facts
