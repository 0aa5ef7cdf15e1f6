"""A clean verdict rests on evidence; what is missing makes it undetermined and is the first thing said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from handmade import census, evidence, heap, holding, outcome, program, rank, recording, steps, survivors, window

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Report
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Record, Step
from torchvet.recording.records.dry import DrySize
from torchvet.recording.records.ranks import Member
from torchvet.recording.records.training import Host, HostSamples, Outcome, Unchecked
from torchvet.renderers import renderer_for
from torchvet.renderers.verdict import verdict

GIB = 1 << 30


def of(*records: Any, count: int = 80, **changes: Any) -> Report:
    """A run of eighty steps."""
    return diagnose(
        recording(program(**({"memory_limit": 24 * GIB} | changes)), steps(count), *records, outcome(count))
    )


def states(report: Report) -> dict[str, str]:
    return {e["witness"]: e["state"] for e in report.facts["verdict"]["evidence"]}


def windows() -> list[Record]:
    return [window(1, 2, 3), window(2, 5, 6)]


def test_a_recording_that_is_gone_is_not_a_program_without_torch() -> None:
    lost = rank(damaged=1)
    lost.damage = "no such recording"
    (gap,) = diagnose(Recording([lost])).not_checked[-1:]
    assert gap.check == "everything" and "no such recording" in gap.reason


def test_a_clean_report_says_what_it_rests_on() -> None:
    report = of(evidence(80))
    assert report.verdict == "clean" and report.earned and report.not_checked == []
    assert set(states(report).values()) == {"flat"}
    assert {"steps", "probes", "names", "live storages", "heap", "graph nodes"} == set(states(report))
    text = " ".join(renderer_for("text").render(report).split())
    assert text.startswith("No fault found")
    assert "Measured per step: live storages +0 bytes (flat up to" in text
    assert "heap +0 bytes (flat up to 2.6 kB)" in text
    assert "Measured per step" in renderer_for("markdown").render(report)
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


def two_teeth(count: int) -> HostSamples:
    """A heap that falls to where it began in the middle of a run."""
    ticks = list(range(1, count + 1))
    return HostSamples(ticks=ticks, heap=[100_000_000 + 60_000 * (n % (count // 2 + 1)) for n in ticks])


@pytest.mark.parametrize(("records", "count", "first"), [
    (evidence(5), 5, "5 steps are too few to tell growth from warming up; run 30 or more"),
    ([window(1, 2, 3), heap(80)], 80, "the storages of 1 sampled stretches were followed, which is too few"),
    (windows(), 80, "this system does not say how large the resident set is"),
    ([*windows(), heap(6)], 80, "the heap was sampled at 6 step boundaries, which is too few"),
    ([*windows(), heap(24, grows=60_000)], 24, "the heap rises (between 60.0 kB and 60.0 kB per step), for too few"),
    ([*windows(), two_teeth(199)], 199, "the heap rises (between 60.0 kB and 60.0 kB per step), but hardly above"),
    ([*windows(), heap(80, grows=6000)], 80, "the heap grows by 6.0 kB per step"),
    ([*evidence(80), Unchecked(check="storages", reason="TypeError: no", voids=True)], 80,
     "a probe could not look (storages: TypeError: no)"),
], ids=[
    "steps", "storages", "no heap", "few samples", "a short rise", "two teeth", "kilobytes a step", "a failed probe",
])  # fmt: skip
def test_what_is_missing_is_said_first(records: list[Record], count: int, first: str) -> None:
    report = of(*records, count=count, memory_limit=1 << 50)
    assert not report.earned and not [f for f in report.findings if f.severity != "info"]
    assert verdict(report).startswith(f"Could not judge: {first}")
    assert report.verdict == ("findings" if report.findings else "undetermined")


def test_a_run_of_many_steps_is_not_told_to_make_so_many() -> None:
    """A heap that rises from every other boundary to the next, by ever other amounts."""
    ticks = list(range(1, 73))
    varies = HostSamples(ticks=ticks, heap=[100_000_000 + 3000 * n + 90_000 * (n % 7) for n in ticks])
    said = {e["witness"]: e for e in of(*windows(), varies, count=72).facts["verdict"]["evidence"]}
    assert said["heap"]["state"] == "not seen" and said["heap"]["fix"] == "run longer"
    assert said["graph nodes"]["fix"] == "run longer"


def test_a_gap_that_hides_no_leak_leaves_the_verdict_clean() -> None:
    report = of(evidence(80), Unchecked(check="the GPU's own time", reason="it was simulated"))
    assert report.verdict == "clean" and [n.check for n in report.not_checked] == ["the GPU's own time"]


@pytest.mark.parametrize(("how", "status", "reason"), [
    ("exception", 1, "the program failed: ValueError: the batch is empty"),
    ("out-of-memory", 1, "the program ran out of memory"),
    ("exit", 3, "the program ended with exit status 3"),
    ("os-exit", 1, "the program ended with exit status 1"),
    ("exit", 0, ""),
    ("interrupt", -2, ""),
])  # fmt: skip
def test_a_program_that_failed_is_not_clean(how: Any, status: int, reason: str) -> None:
    ended = Outcome(how=how, status=status, ticks=80, seconds=8.0, error="ValueError: the\nbatch is empty")
    report = diagnose(recording(program(memory_limit=24 * GIB), steps(80), evidence(80), ended))
    assert report.verdict == ("undetermined" if reason else "clean") and report.earned != bool(reason)
    assert report.facts["verdict"]["reason"] == reason
    assert [gap.reason for gap in report.not_checked] == ([reason] if reason else [])


def test_a_rank_that_failed_leaves_the_report_of_all_undetermined() -> None:
    def one(number: int, **ended: Any) -> RankRecording:
        end = Outcome(**{"how": "finished", "status": 0, "ticks": 80, "seconds": 8.0} | ended)
        member = Member(rank=number, world_size=2, host="a")
        return rank(program(memory_limit=24 * GIB), member, steps(80), evidence(80), end, number=number)

    healthy = diagnose(Recording([one(0), one(1)]))
    failed = diagnose(Recording([one(0), one(1, how="exception", status=1, error="ValueError: no")]))
    assert (healthy.verdict, failed.verdict) == ("clean", "undetermined")
    parent = rank(program(memory_limit=24 * GIB), Outcome(how="exit", status=1, ticks=0, seconds=9.0), number=2)
    started = diagnose(Recording([one(0), one(1), parent]))
    assert started.facts["verdict"]["reason"] == "the program ended with exit status 1"
    assert failed.facts["verdict"]["reason"] == "rank 1 failed: ValueError: no"
    assert verdict(failed) == "No cause found in 80 steps, but rank 1 failed: ValueError: no"


def test_notes_do_not_make_a_run_evidence() -> None:
    """A name of 100 bytes a step is a note; the heap was not sampled."""
    looks = [census(t, holding("numbers", direct=100 * t)) for t in (5, 6, 9, 14, 21, 32)]
    noted, blind = of(looks, evidence(80)), of(looks, windows())
    assert [f.severity for f in (*noted.findings, *blind.findings)] == ["info", "info"]
    assert verdict(noted).startswith("No fault found") and verdict(noted).endswith("1 note below")
    assert verdict(blind).startswith("Could not judge: ") and verdict(blind).endswith("; 1 note below")


def test_a_name_that_only_its_source_bounds_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvet.rules.shared import bounds, witnesses

    for module in (bounds, witnesses):
        monkeypatch.setattr(module, "bound_of", lambda *_: bounds.Bound("the code empties it (line 20)"))
    looks = [census(t, holding("scores", direct=90_000 * t)) for t in (5, 6, 9, 14, 21, 32)]
    report = of(looks, windows(), heap(80, grows=90_000))
    assert [f.severity for f in report.findings] == ["info"]
    assert verdict(report).startswith("Could not judge: `scores` grows by 90.0 kB per step to the run's end")


def test_whoever_asks_for_no_rule_of_growth_needs_no_evidence_of_it() -> None:
    blind = recording(program(), steps(80), window(1, 2, 3), outcome(80))
    assert diagnose(blind).verdict == "undetermined"
    assert diagnose(blind, select=["AMP"]).verdict == "clean"


def test_a_dry_run_claims_nothing_of_growth() -> None:
    size = DrySize(
        steps=3,
        kind="training",
        allocated=1,
        reserved=1,
        total=2,
        context=0,
        ran_out=False,
        batch=1,
        arithmetic=1,
        seconds=1.0,
    )
    assert diagnose(recording(program(), steps(3), size, outcome(3))).verdict == "clean"


def test_a_device_has_its_own_witness() -> None:
    def on(device: list[Step]) -> dict[str, str]:
        gpu = program(device="cuda", memory_limit=24 * GIB)
        return states(diagnose(recording(gpu, device, evidence(80), outcome(80))))

    flat = [Step(n=n, kind="training", t=n * 0.1, allocated=10**9) for n in range(1, 81)]
    grows = [Step(n=n, kind="training", t=n * 0.1, allocated=10**9 + n * 10**5) for n in range(1, 81)]
    assert on(flat)["device memory"] == "flat" and on(grows)["device memory"] == "grows"
    assert on(grows)["heap"] == "flat"


def test_growth_that_a_name_explains_is_no_growth_of_the_heap() -> None:
    looks = [census(t, holding("rows", direct=50_000 * t, tensors=t)) for t in (5, 6, 9, 14, 21, 32)]
    report = of(looks, windows(), heap(80, grows=51_000))
    assert [f.code for f in report.findings] == ["MEM102"] and states(report)["heap"] == "flat"


def test_what_was_counted_after_the_end_says_nothing_of_variables() -> None:
    """After `main()` has returned nothing of a window lives: that it was followed is not known."""
    gone = [msgspec.structs.replace(survivors(n, 80, 0), final=True) for n in (1, 2)]
    assert states(of(gone, evidence(80)))["live storages"] == "not seen"


def test_recordings_of_earlier_versions_have_few_samples() -> None:
    old = [Host(tick=t, resident=None, heap=100_000_000) for t in range(2, 80, 4)]
    assert states(of(old, windows()))["heap"] == "flat"


def test_the_resident_set_speaks_where_nobody_counts_the_heap() -> None:
    ticks = list(range(1, 81))
    flat = HostSamples(ticks=ticks, resident=[300_000_000] * 80)
    assert states(of(flat, windows()))["resident set"] == "flat"


@pytest.mark.parametrize(("a_step", "state"), [(1, "flat"), (0, "grows")])
def test_torchs_ring_of_collectives_fills_and_is_no_growth(a_step: int, state: str) -> None:
    """Two kilobytes a step where the ring takes one more collective each; none where it is full."""
    ticks = list(range(1, 81))
    grows = HostSamples(ticks=ticks, heap=[100_000_000 + 4000 * n for n in ticks])
    grows.collectives = [a_step * n + 3 for n in ticks]
    assert states(of(windows(), grows))["heap"] == state


def test_a_heap_that_varies_is_not_spoken_of_beside_a_leak() -> None:
    rows = [census(t, holding("rows", direct=500_000 * t, tensors=t)) for t in (5, 6, 9, 14, 21, 32)]
    sizes = HostSamples(
        ticks=list(range(1, 81)),
        heap=[10**9 + t * 500_000 + t * 7919 % 97 * 10**5 for t in range(80)],
        resident=[10**9] * 80,
    )
    report = of(windows(), rows, sizes)
    assert report.worst() == "error" and states(report)["heap"] == "not seen" and report.not_checked == []
    wavering = msgspec.structs.replace(
        sizes, heap=[s - 500_000 * t for t, s in zip(sizes.ticks, sizes.heap, strict=True)]
    )
    assert "growth of the heap" in [n.check for n in of(windows(), wavering).not_checked]
