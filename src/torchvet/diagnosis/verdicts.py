"""What a run is evidence of: a clean verdict is a claim, and this module says what backs it or what is missing.

The headline, the exit status and `facts["verdict"]` all derive from `Judged`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from torchvet.diagnosis import observed
from torchvet.diagnosis.ranks import failed_first, recorded
from torchvet.finding import Finding, NotChecked, Verdict
from torchvet.formatting import count, picked
from torchvet.recording import RankRecording, Recording
from torchvet.recording.reader import ENOUGH
from torchvet.recording.records.base import Census, Window
from torchvet.recording.records.dry import DrySize
from torchvet.recording.records.training import Outcome, Unchecked
from torchvet.rules.shared.witnesses import State, Witness, witnesses


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a clean verdict rests on: a witness of growth, or a condition that lets witnesses see.

    `measured` is per step, in the interval from `low` to `high`; it counts as flat up to `threshold`. `reason` and
    `fix` are filled in where the state is not `flat`. `check` names it among what was not checked, unless a probe does.
    """

    witness: str
    state: State
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    threshold: float | None = None
    unit: Literal["bytes", "nodes"] | None = None
    reason: str = ""
    fix: str = ""
    check: str = ""
    rank: int | None = None


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict and what it rests on. `earned` says that finding no fault means that there is none of the kinds that
    a run shows; `reason` and `fix` are the first thing that is missing for that."""

    verdict: Verdict
    earned: bool
    reason: str = ""
    fix: str = ""
    evidence: list[Evidence] = []

    @property
    def gaps(self) -> list[NotChecked]:
        """What was not seen well enough, as entries of a report."""
        unseen = (e for e in self.evidence if e.state == "not seen" and e.check)
        return [NotChecked(check=e.check, reason="; ".join(filter(None, (e.reason, e.fix)))) for e in unseen]

    def facts(self) -> dict[str, Any]:
        """Plain JSON values for `facts["verdict"]`."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        del plain["verdict"]
        return plain


def judge(recording: Recording, findings: Sequence[Finding], growth: bool = True) -> Judged:
    """Judge a run by its findings and its evidence; without `growth` no rule about growing memory was asked."""
    # A launcher takes no step and would leave every verdict open.
    ranks = [rank for rank in recording.ranks if not observed.only_starts(recording, rank)]
    evidence = [e for rank in ranks for e in _evidence(rank, recording, growth)] or [_NOTHING]
    if any(f.severity != "info" and (f.measured.bytes_per_step or 0) > 0 for f in findings):
        # A leak makes every other series rise or vary: "not seen well enough" would be said of its own
        # effect.
        evidence = [_beside_a_leak(e) for e in evidence]
    evidence = [*_failure(recording), *evidence, *_unobserved(observed.open_questions(recording))]
    # Ranks that are not here come first: what is here says nothing of them.
    evidence = [*_not_here(recording, findings, evidence), *evidence]
    first = _missing(evidence)
    # Never clean by default: it takes evidence and no gap.
    verdict: Verdict = "findings" if findings else "clean" if first is None else "undetermined"
    if first is None:
        return Judged(verdict=verdict, earned=True, evidence=evidence)
    return Judged(verdict=verdict, earned=False, reason=first.reason, fix=first.fix, evidence=evidence)


def _missing(evidence: Sequence[Evidence]) -> Evidence | None:
    """The first thing that a run lacks to be clean. What blinds the witnesses comes before what they say."""
    unseen = next((e for e in evidence if e.state == "not seen"), None)
    # Without a unit it is a condition and no measure: with it missing no measure counts.
    if unseen is not None and unseen.unit is None:
        return unseen
    return next((e for e in evidence if e.state == "grows"), unseen)


def _beside_a_leak(one: Evidence) -> Evidence:
    """A measure that varies too much says nothing that a reader needs before the leak is fixed."""
    return msgspec.structs.replace(one, check="") if one.unit is not None and one.measured is not None else one


_NOTHING = Evidence(witness="program", state="not seen", reason="nothing was recorded", check="everything")


def _failure(recording: Recording) -> list[Evidence]:
    """The program did not come to its end: what was seen until then is no evidence of a healthy one."""
    # With what started the ranks, which is none of them.
    ranks = recording.members
    own = [*ranks, *(one for one in recording.ranks if not one.child and (one.member is None or not ranks))]
    first = failed_first([rank for rank in own if _has_failed(rank)])
    ended = first.last(Outcome) if first is not None else None
    if first is None or ended is None:
        return []
    who = f"rank {first.rank}" if first.member is not None and len(own) > 1 else "the program"
    status = f"ended with exit status {ended.status}"
    why = {"exit": status, "os-exit": status, "out-of-memory": "ran out of memory"}.get(ended.how)
    error = textwrap.shorten(ended.error or "an exception", _LONGEST, placeholder=" …")
    reason = f"{who} {why or f'failed: {error}'}"
    return [Evidence(witness="end", state="not seen", reason=reason, check="what was to follow")]


def _has_failed(rank: RankRecording) -> bool:
    """Whether a process ended by an error of its own, and not by a signal from outside."""
    ended = rank.last(Outcome)
    if ended is None:
        return False
    return ended.how in ("exception", "out-of-memory") or (ended.how in ("exit", "os-exit") and ended.status != 0)


_LONGEST = 160
"""Characters of an error's text."""


def _unobserved(gaps: Sequence[NotChecked]) -> list[Evidence]:
    """Something trained, or may have, that nobody observed."""
    reasons = [f"{gap.check} went unobserved: {gap.reason}" for gap in gaps]
    return [Evidence(witness="processes", state="not seen", reason=reason) for reason in reasons]


def _not_here(recording: Recording, findings: Sequence[Finding], evidence: Sequence[Evidence]) -> list[Evidence]:
    """Ranks that the recording does not have. Where nothing else is missing, what is known of the others is said."""
    here, world = recorded(recording)
    judged = _missing(evidence) is None and all(f.severity == "info" for f in findings)
    known = f"no fault was found on {count(here)} of {count(world)} ranks, and " if judged else ""
    reasons = [f"{known}nothing is known of {gap.check}: {gap.reason}" for gap in observed.absent_ranks(recording)]
    return [Evidence(witness="ranks", state="not seen", reason=reason) for reason in reasons]


def _evidence(rank: RankRecording, recording: Recording, growth: bool) -> Iterator[Evidence]:
    number = rank.rank if len(recording.ranks) > 1 else None
    for one in _of_rank(rank, recording, growth):
        yield msgspec.structs.replace(one, rank=number)


def _of_rank(rank: RankRecording, recording: Recording, growth: bool) -> Iterator[Evidence]:
    program = rank.program
    # Nothing readable came first, so nothing after it can be placed.
    if program is None and rank.damaged:
        yield Evidence(witness="recording", state="not seen", reason=rank.unreadable, check="everything")
        return
    if program is None or not program.torch:
        reason = "the program did not import torch, or ended before it had"
        yield Evidence(witness="program", state="not seen", reason=reason, check="everything")
        return
    if rank.last(DrySize) is not None:
        yield Evidence(witness="dry run", state="flat")  # it sizes steps and says nothing of growth
        return
    if rank.damaged:
        yield Evidence(witness="recording", state="not seen", reason=rank.unreadable)
    yield _steps(rank)
    yield _probes(rank)
    # With `--ignore MEM1` nobody asked whether memory grows, so nothing can be missing for that.
    if growth:
        seen = witnesses(rank, recording)
        # Names before witnesses: `_missing` takes the first, and a search that was cut explains what they
        # say.
        yield _names(rank, all(w.state == "flat" for w in seen))
        yield from map(_of_witness, seen)


def _steps(rank: RankRecording) -> Evidence:
    """Enough steps, some of which were sampled."""
    ended = rank.last(Outcome)
    count = rank.ticks
    base = Evidence(witness="steps", state="not seen", measured=count, threshold=ENOUGH, check=_FROM_STEP_TO_STEP)
    if count == 0 and ended is not None:
        reason = "no optimizer step, backward call, loader batch or forward pass was seen"
        return msgspec.structs.replace(base, reason=reason, fix="call `watch.step()` where a step ends")
    if count < ENOUGH:
        reason = f"{count} steps are too few to tell growth from warming up"
        return msgspec.structs.replace(base, reason=reason, fix="run 30 or more")
    if not rank.all(Window) and not rank.all(Census):
        return msgspec.structs.replace(base, reason="no step was sampled", check="storages of sampled steps")
    return msgspec.structs.replace(base, state="flat", check="")


_FROM_STEP_TO_STEP = "growth from step to step"


def _probes(rank: RankRecording) -> Evidence:
    """Every probe alive: none has failed, or could not look where a leak may hide."""
    # Which lines take the time says nothing of a leak.
    void = next((u for u in rank.all(Unchecked) if u.voids or u.failed not in (None, "lines")), None)
    if void is None:
        return Evidence(witness="probes", state="flat")
    reason = f"a probe could not look ({void.check}: {void.reason})"
    return Evidence(witness="probes", state="not seen", reason=reason)


def _names(rank: RankRecording, nothing_grows: bool) -> Evidence:
    """Searches for names that came to their end; where nothing grows there was nothing to search for."""
    cut = [c for c in rank.all(Census) if not c.complete]
    if not cut or nothing_grows:
        return Evidence(witness="names", state="flat")
    reason = f"the search for holders was ended after {cut[-1].seconds:.1f} s"
    return Evidence(witness="names", state="not seen", reason=reason, check="some names")


def _of_witness(one: Witness) -> Evidence:
    """What falls again and again is measured by its ceiling."""
    measured, high = (one.measured, one.high) if one.ceiling is None else (one.ceiling, one.ceiling)
    said = picked(one, "state", "low", "threshold", "unit", "reason", "fix")
    return Evidence(witness=one.name, measured=measured, high=high, check=f"growth of {_THE[one.name]}", **said)


_THE = {
    "live storages": "live storages",
    "device memory": "the device's memory",
    "heap": "the heap",
    "resident set": "the resident set",
    "graph nodes": "autograd graphs",
}
