"""MEM118: growth without a name says what grows, where, what was ruled out; it keeps quiet beside what explains it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from handmade import FILE, census, evidence, heap, holding, outcome, program, recording, site, steps, survivors, window

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording.records.base import Place, Record, Site, SiteBytes, StepKind, Stranger, Window
from torchvet.recording.records.memory import ObjectLine, ObjectLines
from torchvet.recording.records.training import CollectorUse, HostSamples
from torchvet.renderers.verdict import verdict

TICKS = (5, 6, 9, 14, 21, 32)


def found(*records: Record | Iterable[Record], count: int = 80, **changes: Any) -> list[Finding]:
    limit = {"memory_limit": 24 << 30}
    report = diagnose(recording(program(**(limit | changes)), steps(count), *records, outcome(count)))
    return [f for f in report.findings if f.code == "MEM118"]


def windows() -> list[Record]:
    return [window(1, 2, 3), window(2, 5, 6)]


def kept(amount: int) -> list[Record]:
    """Storages of that many bytes a step live on, made in line 7."""
    one = [msgspec.structs.replace(survivors(n, 8 * n, 2 * amount), sites=[site(size=2 * amount)]) for n in (1, 2, 3)]
    return [*one, *(census(t, other=amount * t) for t in TICKS)]


def test_storages_that_no_name_holds_are_said_with_their_line() -> None:
    (one,) = found(windows(), kept(50_000), heap(80, grows=50_000))
    assert one.severity == "error" and one.location is not None and (one.location.path, one.location.line) == (FILE, 7)
    assert one.message == "storages of 50.0 kB per step live on and no name leads to them"
    assert (
        one.measured.exhausted_at_step
        and one.measured.bytes_per_step == 50_000
        and [r.role for r in one.related] == ["allocated"]
    )
    assert "Ruled out: parameters, gradients, optimizer state; " in one.cause


@pytest.mark.parametrize(("kind", "says"), [("native", "owned by C++"), ("cycle", "reference cycles")])
def test_the_kind_of_holder_is_said_where_the_search_came_upon_it(kind: Any, says: str) -> None:
    seen = census(33, other=50_000 * 33, strangers=[Stranger(kind=kind, owner="")])
    (one,) = found(windows(), kept(50_000), seen, heap(80, grows=50_000))
    assert says in one.cause


def test_the_outermost_object_that_leads_there_is_named_with_its_line() -> None:
    who = Stranger(kind="native", owner="release", path=FILE, line=12)
    seen = census(33, other=50_000 * 33, unreached=6 * 50_000, strangers=[who])
    (one,) = found(windows(), kept(50_000), seen, heap(80, grows=50_000))
    assert one.holder is not None and one.holder.name == "release" and "out of Python's sight" in one.cause
    assert (one.related[0].role, one.related[0].line) == ("leads to it", 12)


def test_a_hook_that_keeps_them_is_a_cycle_and_reported_once() -> None:
    hook = Stranger(kind="native", owner="saved_tensors_hooks", attribute="TanhBackward0")
    seen = census(33, other=50_000 * 33, unreached=6 * 50_000, strangers=[hook])
    records = windows(), kept(50_000), seen, heap(80, grows=50_000)
    report = diagnose(recording(program(memory_limit=24 << 30), steps(80), *records, outcome(80)))
    (one,) = report.findings
    assert (one.code, one.severity, one.measured.bytes_per_step) == ("MEM105", "error", 50_000)
    assert one.holder is not None and one.holder.name == "saved_tensors_hooks.TanhBackward0"


def test_a_search_that_was_cut_short_has_not_shown_that_there_is_no_name() -> None:
    looks = [census(t, other=50_000 * t, complete=t == 33, seconds=0.5) for t in (33, 40, 60)]
    (one,) = found(windows(), kept(50_000)[:3], looks, heap(80, grows=50_000))
    assert one.severity == "warning" and "no name leads" not in one.message
    assert "the search for names ended early" in one.message and "may have missed their holder" in one.cause


def test_little_that_no_allocator_shows_is_a_note() -> None:
    """Buckets that a library makes once may fall into each sampled stretch."""
    stretches = [window(n, 6 * n, 6 * n + 1) for n in (1, 2, 3)]
    (one,) = found(stretches, kept(1_000))
    assert one.severity == "info"
    (other,) = found(stretches, kept(1_000), heap(80, grows=9_000))
    assert other.severity == "info", "the heap grows by something else"
    (large,) = found(stretches, kept(200_000))
    assert large.severity == "error"


def test_measures_that_disagree_are_said_and_are_a_note() -> None:
    (one,) = found(evidence(80), kept(50_000))
    assert one.severity == "info" and "the heap grows by at most" in one.message and "disagree" in one.message


def test_before_names_were_searched_nothing_is_without_one() -> None:
    early = [survivors(n, 8 * n, 2000) for n in (1, 2)]
    assert not found(windows(), early, heap(80, grows=1000))


def test_a_heap_that_grows_while_no_tensor_does() -> None:
    (one,) = found(windows(), heap(80, grows=60_000))
    assert one.severity == "error" and one.location is None and one.measured.exhausted_at_step
    assert one.message.startswith("the heap grows by 60.0 kB per step (between 60.0 kB and 60.0 kB) beyond the")


@pytest.mark.parametrize(
    ("rounds", "within", "severity"), [(3, 0, "info"), (3, 60_000, "error"), (8, 0, "error")], ids=str
)
def test_a_heap_that_grows_from_round_to_round_only_takes_some_rounds(rounds: int, within: int, severity: str) -> None:
    """A round is a training of 4 steps and an evaluation of 36, each step of which leaves something behind."""
    kinds: list[StepKind] = [*["training"] * 4, *["evaluation"] * 36]
    every = [step for n in range(rounds) for m in range(40) for step in steps(1, kinds[m], 40 * n + m + 1)]
    ticks = list(range(1, 40 * rounds + 1))
    left = 60_000 - within
    sizes = [100_000_000 + within * n + left * (36 * (n // 40) + max(0, n % 40 - 4)) for n in ticks]
    samples = HostSamples(ticks=ticks, heap=sizes)
    known = program(memory_limit=24 << 30)
    report = diagnose(recording(known, every, windows(), samples, outcome(40 * rounds)))
    assert [f.severity for f in report.findings if f.code == "MEM118"] == [severity]


def test_steps_without_samples_count_for_how_long_the_heap_rises() -> None:
    """While Python's objects are traced nothing is sampled, and samples of a slow heap are few: 72 is the last."""
    ticks = [*range(11, 41), 54, 55, 62, 72]
    samples = HostSamples(ticks=ticks, heap=[100_000_000 + 60_000 * n for n in ticks])
    (one,) = found(windows(), samples)
    assert one.severity == "error"


def traced(amount: float, storages: float = 0.0) -> ObjectLines:
    """Python's objects, traced for six steps: those of one line live on."""
    line = ObjectLine(place=Place(FILE, 9, ""), bytes=amount)
    return ObjectLines(first=42, last=48, bytes=amount, storages=storages, lines=[line])


def test_lines_whose_objects_live_on_are_named_where_they_account_for_the_heap() -> None:
    (one,) = found(windows(), heap(80, grows=60_000), traced(50_000))
    assert one.severity == "error" and one.location is not None and one.location.line == 9
    assert "50.0 kB per step of Python objects that these lines make live on, or wait for the cyclic" in one.cause
    sure = msgspec.structs.replace(traced(50_000), collected=True)
    (one,) = found(windows(), heap(80, grows=60_000), sure)
    assert "make live on. " in one.cause
    (tensors,) = found(windows(), heap(80, grows=60_000), traced(900, storages=55_000))
    assert "tensors with 55.0 kB per step live on" in tensors.cause
    (native,) = found(windows(), heap(80, grows=60_000), traced(900))
    assert "something that is no tensor" in native.cause and native.related[0].line == 9 and native.location is None


def test_a_heap_that_grows_by_far_more_than_storages_do_is_what_counts() -> None:
    """A writer that keeps its keys, which are tensors, and its rows, which are NumPy arrays."""
    (rows,) = found(windows(), kept(3_000), heap(80, grows=150_000), traced(145_000))
    assert rows.measured.bytes_per_step == 150_000 and rows.location is not None and rows.location.line == 9
    assert [r.line for r in rows.related] == [9, 7]
    (native,) = found(windows(), kept(3_000), heap(80, grows=150_000))
    assert native.location is not None and native.location.line == 7, "the storages are a part of it"
    (tensors,) = found(windows(), kept(50_000), heap(80, grows=150_000))
    assert tensors.measured.bytes_per_step == 50_000


def test_only_what_was_counted_twice_is_ruled_out() -> None:
    (never,) = found(windows(), heap(80, grows=60_000))
    assert "Ruled out: storages of 2 sampled stretches that died" in never.cause
    same = [census(t, categories={"parameters": 9_000}) for t in TICKS]
    (steady,) = found(windows(), heap(80, grows=60_000), same)
    assert "Ruled out: parameters, gradients, optimizer state; " in steady.cause
    more = [census(t, categories={"parameters": 9_000 + 50_000 * t}) for t in TICKS]
    (grown,) = found(windows(), heap(80, grows=60_000), more)
    assert grown.cause.startswith("parameters, gradients and optimizer state grow by 50.0 kB per step")
    assert "Ruled out: 0 names" in grown.cause


def test_a_profiler_that_is_on_is_a_cause_where_nothing_else_grows() -> None:
    on = msgspec.structs.replace(traced(900), profiler=Place(FILE, 3, ""))
    (one,) = found(windows(), heap(80, grows=60_000), on)
    assert one.location is not None and one.location.line == 3 and one.holder is not None
    assert one.cause.startswith("a profiler of torch's") and "schedule" in str(one) and not one.related
    (python,) = found(windows(), heap(80, grows=60_000), msgspec.structs.replace(on, bytes=55_000.0))
    assert python.location is not None and python.location.line == 9


def test_traced_lines_do_not_make_a_few_kilobytes_a_leak() -> None:
    """The items of an `itertools.tee` are kept 57 at a time, which is longer than objects are traced."""
    (one,) = found(windows(), heap(80, grows=8_500), traced(8_000))
    assert one.severity == "info" and one.location is not None


def test_a_heap_that_grows_by_kilobytes_is_a_note_and_leaves_the_verdict_open() -> None:
    """An `itertools.tee` whose sides are both read frees its items 57 at a time: until then it looks like a leak."""
    slow = diagnose(recording(program(memory_limit=24 << 30), steps(80), windows(), heap(80, grows=8_500), outcome(80)))
    assert [(f.code, f.severity) for f in slow.findings] == [("MEM118", "info")]
    assert not slow.earned and verdict(slow).startswith("Could not judge: the heap grows by 8.5 kB per step")


def test_a_heap_that_grows_by_less_is_nobodys_trouble() -> None:
    assert not found(windows(), heap(80, grows=1_000))


def test_a_device_that_grows_while_no_tensor_does() -> None:
    grows = [msgspec.structs.replace(s, allocated=10**9 + s.n * 10**5) for s in steps(80)]  # type: ignore[call-arg,attr-defined]
    report = diagnose(recording(program(device="cuda", memory_limit=24 << 30), grows, evidence(80), outcome(80)))
    assert [f.message[:36] for f in report.findings] == ["the device memory grows by 100.0 kB "]


def test_kernels_for_ever_new_shapes_are_a_note() -> None:
    def looked(number: int, length: int, batch: int = 8) -> Window:
        row = SiteBytes(site=Site(op="aten.convolution", shape=(batch, length), dtype="float32", device="cpu"), bytes=9)
        return msgspec.structs.replace(window(number, 4 * number, 4 * number + 1), sites=[row])

    (one,) = found([looked(n, 100 + n) for n in (1, 2, 3)], heap(80, grows=60_000))
    assert one.severity == "info" and "compiled kernel for each new" in one.cause
    (twice_one,) = found([looked(n, 100 + n // 3) for n in (1, 2, 3)], heap(80, grows=60_000))
    assert twice_one.severity == "info", "another length is no last batch of an epoch"
    (last_batch,) = found([looked(n, 100, 8 - n // 3) for n in (1, 2, 3)], heap(80, grows=60_000))
    assert last_batch.severity == "error"


@pytest.mark.parametrize("grows", [52_000, 120_000])
def test_what_names_explain_for_the_most_part_is_theirs(grows: int) -> None:
    rows = [census(t, holding("rows", direct=50_000 * t, tensors=t)) for t in TICKS]
    assert not found(windows(), rows, heap(80, grows=grows))


def test_a_cycle_that_is_reported_is_not_said_again() -> None:
    cycle = [Stranger(kind="cycle", owner="Node", attribute="parent")]
    looks = [census(t, unreached=400_000, unreached_sites=[site()], strangers=cycle) for t in (5, 9, 14, 20)]
    lived = [survivors(n, 4 * n, 400_000) for n in (1, 2, 3)]
    assert not found(windows(), lived, looks, heap(80, grows=50_000))


@pytest.mark.parametrize(("last", "severity"), [(60, "warning"), (7, "info")])
def test_garbage_is_graded_by_the_oldest_that_was_seen_to_live(last: int, severity: str) -> None:
    """A collection that freed one step's garbage at once says nothing of the rest, which lives to the end."""
    who = Stranger(kind="cycle", owner="Problem", attribute="rhs", path=FILE)
    looks = [census(t, unreached=200_000, strangers=[who]) for t in (7, 30, 60)]
    alive = [survivors(n, last, 100_000) for n in (1, 2)]
    use = CollectorUse(collections=9, seconds=0.1, freed=50_000, sampled=12, steps=1, longest=1)
    records = [window(n, 3 * n, 3 * n + 1, peak=10_000_000) for n in (1, 2)], looks, alive, use, heap(80)
    (one,) = [
        f for f in diagnose(recording(program(), steps(80), *records, outcome(80))).findings if f.code == "MEM105"
    ]
    assert one.severity == severity


def test_the_heap_shows_how_late_the_collector_comes_without_sampled_steps() -> None:
    """Garbage of the looks themselves made it come after one step there; it comes after 25 else."""
    use = CollectorUse(collections=9, seconds=0.1, freed=1_440_000, sampled=12, steps=12, longest=1)
    ticks = list(range(1, 81))
    saw = HostSamples(ticks=ticks, heap=[100_000_000 + 120_000 * (n % 26) for n in ticks])
    looks = [census(t, unreached=0) for t in (7, 30, 60)]

    def cycle(samples: HostSamples) -> Finding:
        records = windows(), looks, use, samples
        report = diagnose(recording(program(), steps(80), *records, outcome(80)))
        (one,) = [f for f in report.findings if f.code == "MEM105"]
        return one

    assert "up to 25 steps late" in cycle(saw).message and "3.0 MB" in cycle(saw).message
    assert "up to 1 step late" in cycle(heap(80)).message


@pytest.mark.parametrize(("full", "full_at", "said"), [(0, 0, False), (1, 12, False), (3, 15, True)])
def test_garbage_is_ruled_out_only_by_a_collection_of_all_that_it_outlived(full: int, full_at: int, said: bool) -> None:
    """Young collections leave old garbage alone, and the last window's storages are made in steps 11 and 12."""
    use = CollectorUse(collections=357, seconds=0.1, full=full, full_at=full_at)
    late = [window(3, 11, 12), msgspec.structs.replace(survivors(3, 24, 100_000), sites=[site(size=100_000)])]
    looks = [census(t, other=50_000 * t) for t in TICKS]
    (one,) = found(windows(), late, survivors(1, 2, 100_000), looks, heap(80, grows=50_000), use)
    assert ("garbage that the cyclic collector frees (3 full collections)" in one.cause) is said
    assert "357" not in one.cause


def test_a_cycle_without_a_name_is_no_graph() -> None:
    looks = [census(t, unreached=400_000, strangers=[Stranger(kind="cycle")]) for t in (5, 9, 14, 20)]
    lived = [survivors(n, 4 * n, 400_000) for n in (1, 2, 3)]
    records = windows(), lived, looks, heap(80, grows=50_000)
    report = diagnose(recording(program(), steps(80), *records, outcome(80)))
    (one,) = [f for f in report.findings if f.code in ("MEM105", "MEM118")]
    assert one.code == "MEM105" and one.message.startswith("a reference cycle keeps ")
