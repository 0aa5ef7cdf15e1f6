"""What rules say of several ranks that a run has recorded, and of what resembles a fault."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from handmade import FILE, GIB, census, evidence, heap, holding, outcome, program, rank, site, steps, window

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Census, Place, Record, Source, Step
from torchvet.recording.records.ranks import (
    DistributedModule,
    Member,
    SampledEpochs,
    SynchronizedPasses,
    UnfinishedReduction,
)
from torchvet.recording.records.training import HostSamples

MB = 1_000_000
WRAPPED, RUNS, BACKWARD, SAMPLER = (Place(FILE, line, "main") for line in (3, 8, 9, 5))


def member(number: int, *records: Record | Iterable[Record], world: int = 2, **more: Any) -> RankRecording:
    one = rank(Member(rank=number, world_size=world, host="a", **more), *records)
    one.child = number + 1
    return one


def found(code: str, *ranks: RankRecording) -> list[Finding]:
    return [f for f in diagnose(Recording(list(ranks))).findings if f.code == code]


def run(*more: Record | Iterable[Record], count: int = 40, **facts: Any) -> list[Record]:
    """A healthy run of one rank, with more records."""
    lines: list[Record] = [program(**facts), *steps(count), *evidence(count)]
    for one in more:
        lines.extend([one] if isinstance(one, Record) else one)
    return [*lines, outcome(count)]


# DST101 -------------------------------------------------------------------------------------------------------------


def growing(*rates: float) -> list[RankRecording]:
    """Ranks whose heaps grow by so much per step, and nothing else."""
    every = [[program(), *steps(80), window(1, 2, 3), window(2, 5, 6), heap(80, r), outcome(80)] for r in rates]
    return [member(n, lines, world=len(rates)) for n, lines in enumerate(every)]


def test_a_heap_that_grows_on_one_rank_is_told_with_the_others() -> None:
    (finding,) = found("DST101", *growing(0, 50_000, 0, 0))
    assert (finding.rank, finding.severity) == (1, "info"), "MEM118 tells the same growth, and how grave it is"
    assert "heap of rank 1 grows by 50.0 kB per step" in finding.message
    assert "3 of 3 other ranks do not: 0 bytes at most" in finding.message


def test_what_grows_on_one_rank_is_not_graded_twice() -> None:
    report = diagnose(Recording(growing(0, 50_000)))
    grave = [f for f in report.findings if f.severity != "info"]
    assert [(f.code, f.rank) for f in grave] == [("MEM118", 1)]
    assert grave[0].cause.endswith("of 2 ranks only rank 1 does")


def test_the_hosts_heap_of_a_rank_on_a_gpu_has_no_other_finding() -> None:
    def on_gpu(number: int, rate: float) -> RankRecording:
        lines = [Step(n=n, kind="training", t=n * 0.1, allocated=5000) for n in range(1, 81)]
        windows = [window(1, 2, 3), window(2, 5, 6)]
        return member(number, [program(device="cuda"), *lines, *windows, heap(80, rate), outcome(80)])

    (finding,) = found("DST101", on_gpu(0, 200_000), on_gpu(1, 0))
    assert (finding.rank, finding.severity) == (0, "warning")
    assert not found("DST101", on_gpu(0, 0), on_gpu(1, 0))


def test_growth_of_all_ranks_is_not_of_some() -> None:
    assert not found("DST101", *growing(50_000, 50_000))
    assert not found("DST101", *growing(0, 0))


def test_of_a_rank_that_was_not_seen_well_enough_nothing_is_said() -> None:
    grows, short = growing(50_000, 0)[0], member(1, [program(), *steps(9), outcome(9)])
    assert not found("DST101", grows, short)


def test_a_name_that_grows_on_one_rank_is_one_finding_that_says_so() -> None:
    ticks = (5, 6, 9, 14, 21, 32)
    held = [census(t, holding("losses", direct=1000 * t, sites=[site()])) for t in ticks]
    leaky = [program(), *steps(40), window(1, 2, 3), *held, outcome(40)]
    report = diagnose(Recording([member(0, run(), world=3), member(1, leaky, world=3), member(2, run(), world=3)]))
    (finding,) = [f for f in report.findings if f.code.startswith("MEM1")]
    assert finding.cause.endswith("of 3 ranks only rank 1 does")
    assert "DST101" not in {f.code for f in report.findings}


def test_a_name_that_grows_on_all_ranks_is_nobodys_alone() -> None:
    held = [census(t, holding("losses", direct=1000 * t, sites=[site()])) for t in (5, 6, 9, 14, 21, 32)]
    leaky = [program(), *steps(40), window(1, 2, 3), *held, outcome(40)]
    findings = diagnose(Recording([member(n, leaky) for n in (0, 1)])).findings
    assert not [f for f in findings if "only rank" in f.cause]


# DST102 -------------------------------------------------------------------------------------------------------------

TEXT = "import torch\ndef main():\n    held_out = torch.ones(60_000, 512)\n    while True:\n        pass\n"


def needing(
    size: int, *names: tuple[str, int], parameters: int = 100, peak: int = 5000, text: str = TEXT
) -> list[Record]:
    """A rank whose heap has so many bytes; some of them have names."""
    sampled = HostSamples(ticks=list(range(1, 41)), heap=[size] * 40)
    held = census(9, holding("model", 100), *(holding(name, direct=amount) for name, amount in names))
    highest = msgspec.structs.replace(window(1, 2, 3, peak), categories={"parameters": parameters}, sites=[site()])
    return [program(), *steps(40), highest, window(2, 5, 6), sampled, held, Source(path=FILE, text=text), outcome(40)]


def imbalance(*ranks: list[Record]) -> list[Finding]:
    return found("DST102", *(member(n, lines, world=len(ranks)) for n, lines in enumerate(ranks)))


def test_what_one_rank_holds_beyond_the_others_is_named_with_its_line() -> None:
    heavy = needing(350 * MB, ("held_out", 120 * MB))
    (finding,) = imbalance(heavy, needing(230 * MB), needing(231 * MB))
    assert (finding.rank, finding.severity, finding.measured.bytes) == (0, "warning", 350 * MB - 230_500_000)
    assert finding.cause == "120.0 MB of the difference are `held_out`"
    assert finding.location is not None and finding.location.line == 3


def test_a_tensor_is_named_where_it_is_made_and_not_where_it_is_written_to() -> None:
    text = TEXT.replace("    held_out", "    held_out = None\n    held_out").replace("pass", "held_out[0] += 1")
    heavy = needing(350 * MB, ("held_out", 120 * MB), text=text)
    held = heavy[-3]
    assert isinstance(held, Census)
    heavy[-3] = msgspec.structs.replace(
        held, holdings=[msgspec.structs.replace(one, container="Tensor") for one in held.holdings]
    )
    (finding,) = imbalance(heavy, needing(230 * MB, text=text), needing(231 * MB, text=text))
    assert finding.location is not None and finding.location.line == 4


def test_what_no_tensor_holds_is_said_to_be_none() -> None:
    (finding,) = imbalance(needing(230 * MB), needing(400 * MB, ("x", 30 * MB)))
    assert finding.rank == 1 and finding.location is None
    assert finding.cause.startswith("140.0 MB of the difference are no tensors that a name holds")


def test_what_a_step_makes_counts_with_its_line() -> None:
    def stepping(peak: int) -> list[Record]:
        lines = needing(200 * MB, peak=peak)
        lines[41] = msgspec.structs.replace(lines[41], categories={"parameters": 100, "activations": peak - 100})  # type: ignore[type-var]
        return lines

    (finding,) = imbalance(stepping(300 * MB), stepping(50 * MB))
    assert finding.severity == "warning" and "activations" in finding.cause
    assert finding.location is not None and finding.location.line == 7


def test_a_difference_of_some_per_cent_is_none() -> None:
    assert not imbalance(needing(245 * MB), needing(230 * MB))
    assert not imbalance(needing(2300 * MB), needing(2200 * MB))


def test_stages_of_a_pipeline_differ_by_design() -> None:
    (finding,) = imbalance(needing(500 * MB, parameters=200 * MB), needing(230 * MB, parameters=80 * MB))
    assert finding.severity == "info"
    assert finding.cause.endswith("as those of pipeline stages do")


def test_a_leak_of_one_rank_is_no_imbalance() -> None:
    leaky = needing(230 * MB)
    leaky[43] = HostSamples(ticks=list(range(1, 41)), heap=[230 * MB + 8 * MB * n for n in range(40)])
    assert not imbalance(leaky, needing(230 * MB))


def test_on_a_gpu_its_allocator_counts() -> None:
    def on_gpu(size: int) -> list[Record]:
        lines = [Step(n=n, kind="training", t=n * 0.1, allocated=size) for n in range(1, 41)]
        highest = msgspec.structs.replace(window(1, 2, 3), categories={"parameters": 100})
        return [program(device="cuda", memory_limit=24 * GIB), *lines, highest, outcome(40)]

    (finding,) = imbalance(on_gpu(300 * MB), on_gpu(900 * MB), on_gpu(300 * MB))
    assert (finding.rank, finding.device, finding.severity) == (1, "cuda", "warning")
    assert "keep on the host" in finding.remedy.summary


# DST104 -------------------------------------------------------------------------------------------------------------


def module(**more: Any) -> DistributedModule:
    facts = {"id": 0, "name": "Net", "place": WRAPPED, "gradient_bytes": 40 * MB, "bucket_bytes": 40 * MB}
    return DistributedModule(**{**facts, "parameters": 6, "looked": 10, **more})


def searching(**more: Any) -> DistributedModule:
    return module(find_unused_parameters=True, traversals=10, traversal_seconds=0.02, **more)


def test_a_search_for_unused_parameters_that_finds_none_is_a_note_with_its_cost() -> None:
    (finding,) = found("DST104", *(member(n, run(searching())) for n in (0, 1)))
    assert (finding.severity, finding.ranks, finding.location and finding.location.line) == ("info", [0, 1], 3)
    assert "each of 10 passes looked at; the search takes 2.0 ms a pass, 2 % of a step" in finding.message


def test_a_search_that_takes_a_part_of_the_step_is_a_warning() -> None:
    slow = msgspec.structs.replace(searching(), traversal_seconds=0.2)
    (finding,) = found("DST104", member(0, run(slow)), member(1, run(slow)))
    assert (finding.severity, finding.measured.share) == ("warning", pytest.approx(0.2))


def test_a_search_that_any_rank_needs_is_not_in_vain() -> None:
    assert not found("DST104", member(0, run(searching())), member(1, run(searching(unused_passes=1))))
    assert not found("DST104", member(0, run(searching(looked=1))))
    assert not found("DST104", member(0, run(searching(static_graph=True))))
    assert not found("DST104", member(0, run(module())))


def test_an_average_that_never_ended_is_explained_by_its_parameters() -> None:
    failed = UnfinishedReduction(
        place=RUNS, message="Expected to have finished. More.", module="Net", made=WRAPPED, names=["spare.w"], count=3
    )
    ended = outcome(1, "exception", error="RuntimeError: Expected", place=RUNS)
    (finding,) = found("DST104", member(0, [program(), *steps(1), failed, ended]), member(1, run()))
    assert (finding.severity, finding.rank, finding.location and finding.location.line) == ("error", 0, 8)
    assert "3 parameters of Net (`spare.w`, …)" in finding.message
    assert [(r.role, r.line) for r in finding.related] == [("raised", 8), ("wrapped", 3)]
    assert "find_unused_parameters=True" in finding.remedy.summary


BRANCHED = """\
class Net(Module):
    def forward(self, x):
        first = self.spare(x)
        if self.more:
            x = self.spare(x) + first
        return x
model = DistributedDataParallel(
    Net(),
    find_unused_parameters=True,
)
"""


def test_an_unused_module_is_shown_where_a_branch_uses_it() -> None:
    failed = UnfinishedReduction(place=RUNS, message="Expected.", module="Net", names=["spare.0.w"], count=1)
    source = Source(path=FILE, text=BRANCHED)
    (finding,) = found("DST104", member(0, run(source, failed)), member(1, run()))
    assert finding.location is not None and finding.location.line == 5
    assert [(r.role, r.line) for r in finding.related] == [("raised", 8)]


def test_an_option_is_shown_on_its_own_line() -> None:
    searched = msgspec.structs.replace(searching(), place=Place(FILE, 7, "<module>"))
    (finding,) = found("DST104", member(0, run(Source(path=FILE, text=BRANCHED), searched)), member(1, run(searched)))
    assert finding.location is not None and finding.location.line == 9


# DST105 -------------------------------------------------------------------------------------------------------------


def passes(count: int, steps: int = 6, several: int | None = None) -> SynchronizedPasses:
    several = steps if several is None and count > 1 else several or 0
    return SynchronizedPasses(id=0, place=BACKWARD, steps=steps, passes=count * steps, several=several)


def test_passes_that_synchronize_needlessly_are_graded_by_what_they_wait() -> None:
    for waits, severity in ((0.02, "warning"), (0.001, "info")):
        both = [member(n, run(module(communication_seconds=waits), passes(4))) for n in (0, 1)]
        (finding,) = found("DST105", *both)
        assert (finding.severity, finding.location and finding.location.line) == (severity, 9)
        assert "each of 4 backwards synchronizes" in finding.message
        assert "3 averages of 40.0 MB a step more than needed" in finding.message
        assert finding.measured.seconds_per_step == 3 * waits


def test_the_waiting_is_no_longer_than_the_needless_passes() -> None:
    (finding,) = found("DST105", *(member(n, run(module(communication_seconds=5.0), passes(4))) for n in (0, 1)))
    assert finding.measured.share == 0.75


def test_passes_without_a_measure_are_graded_as_in_source() -> None:
    (finding,) = found("DST105", member(0, run(module(), passes(4))), member(1, run()))
    assert (finding.severity, finding.measured.share) == ("warning", None)


def test_one_synchronizing_pass_a_step_is_as_it_should_be() -> None:
    assert not found("DST105", member(0, run(module(), passes(1))))
    # A scaler has skipped a step: its passes and those of the next one count together.
    assert not found("DST105", member(0, run(module(), passes(1, steps=6, several=1))))


# DST106 -------------------------------------------------------------------------------------------------------------


def doubled(gradients: int, peak: int, **more: Any) -> list[Finding]:
    highest = msgspec.structs.replace(window(3, 8, 9, peak), categories={"gradients": gradients})
    return found("DST106", *(member(n, run(module(**more), highest)) for n in (0, 1)))


def test_gradients_that_are_there_twice_at_the_peak() -> None:
    (finding,) = doubled(40 * MB, 160 * MB)
    assert (finding.severity, finding.measured.share, finding.location and finding.location.line) == ("warning", 0.2, 3)
    assert "saves up to 40.0 MB" in finding.remedy.summary
    assert [f.severity for f in doubled(40 * MB, 600 * MB)] == ["info"]


def test_gradients_that_are_views_or_not_at_the_peak_or_small_are_nobodys_trouble() -> None:
    assert not doubled(40 * MB, 160 * MB, gradient_as_bucket_view=True)
    assert not doubled(0, 160 * MB)
    assert not doubled(40 * MB, 160 * MB, gradient_bytes=80_000)
    assert not doubled(40 * MB, 4000 * MB)


# DST107, DST108 -----------------------------------------------------------------------------------------------------


def epochs(**more: Any) -> SampledEpochs:
    return SampledEpochs(**{"id": 0, "place": RUNS, "made": SAMPLER, "replicas": 2, "trained": 3, "epochs": 1, **more})


def test_a_sampler_that_stays_in_its_epoch() -> None:
    (finding,) = found("DST107", *(member(n, run(epochs())) for n in (0, 1)))
    assert (finding.severity, finding.ranks, finding.location and finding.location.line) == ("warning", [0, 1], 5)
    assert "the same order in 3 epochs" in finding.message
    assert [(r.role, r.line) for r in finding.related] == [("epochs", 8)]
    (finding,) = found("DST107", member(0, run(epochs(made=None))))
    assert finding.location is not None and finding.location.line == 8


def test_a_sampler_that_is_told_its_epoch_or_need_not_be() -> None:
    for one in (epochs(epochs=3), epochs(shuffle=False), epochs(trained=1), epochs(replicas=1)):
        assert not found("DST107", member(0, run(one)), member(1, run(one)))


def test_models_of_all_ranks_on_one_gpu() -> None:
    same = [member(n, run(module(device="cuda:0", devices=4), device="cuda")) for n in (0, 1)]
    (finding,) = found("DST108", *same)
    assert (finding.ranks, finding.device) == ([0, 1], "cuda:0")
    assert "all 2 ranks of this host" in finding.message and "set_device" in finding.remedy.summary


def test_ranks_with_a_gpu_each_or_that_see_but_one() -> None:
    for devices, names in ((4, ("cuda:0", "cuda:1")), (1, ("cuda:0", "cuda:0"))):
        ranks = [member(n, run(module(device=d, devices=devices), device="cuda")) for n, d in enumerate(names)]
        assert not found("DST108", *ranks)
