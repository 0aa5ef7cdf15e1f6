"""DST110 and DST111: what ranks should have in common, held side by side when the program has ended."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from handmade import FILE, outcome, program, rank, steps

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.probes.ranks.digests import digest
from torchvet.probes.ranks.replicas import is_due
from torchvet.recording import RankRecording, Recording
from torchvet.recording.records.base import Place, Source
from torchvet.recording.records.ranks import (
    ActKind,
    Batch,
    Called,
    CalledIn,
    DistributedModule,
    EvaluatedBuffers,
    Member,
    OwnAct,
    Replica,
    Replicas,
    SynchronizedPasses,
    UnfinishedReduction,
)

STEP, SETS = Place(FILE, 17, "main"), Place(FILE, 22, "main")
LOOKS = (1, 2, 3, 5, 8)


def one(number: int, *records: Any) -> RankRecording:
    return rank(Member(rank=number, world_size=2, host="a"), program(), steps(20), *records, outcome(20), number=number)


def looks(rank: int, apart: tuple[str, ...] = ("w", "b"), since: int = 1, **more: Any) -> list[Replicas]:
    """Parameters w and b after each look; those that are `apart` have a value of the rank's own since a step."""
    facts = {"rates": [0.1], "wrapped": False, "sharded": (), "own_gradients": apart, "before": (), "until": 99,
             "clips": False, "unclipped": None, "passed": None, "late": False,
             "copied": False, **more}  # fmt: skip

    def of(name: str, step: int) -> Replica:
        own = name in apart and since <= step < facts["until"]
        return Replica(
            name=name, shape=(2,), wrapped=facts["wrapped"], sharded=name in facts["sharded"],
            before=(rank if name in facts["before"] else 7) if step == 1 else None,
            gradient=rank if name in facts["own_gradients"] else 5, after=100 * step + rank * own,
            unclipped=facts["unclipped"] if facts["clips"] else None,
            passed=facts["passed"], late=facts["late"], copied=facts["copied"],
        )  # fmt: skip

    return [
        Replicas(
            optimizer=0,
            step=n,
            parameters=[of("w", n), of("b", n)],
            rates=facts["rates"],
            place=STEP,
            clipped=SETS if facts["clips"] else None,
        )
        for n in LOOKS
    ]


def found(first: list[Any], second: list[Any], code: str = "DST110") -> list[Finding]:
    return [f for f in diagnose(Recording([one(0, *first), one(1, *second)])).findings if f.code == code]


def test_copies_that_began_unlike_are_shards_and_those_that_began_alike_are_replicas() -> None:
    """What a library steps on in place of a model's parameters: a part for each rank, or the whole."""
    shards = {"copied": True, "before": ("w", "b")}
    assert found(looks(0, **shards), looks(1, **shards)) == []
    wholes = {"copied": True, "own_gradients": ()}
    assert len(found(looks(0, since=3, **wholes), looks(1, since=3, **wholes))) == 1


def test_equal_replicas_are_healthy() -> None:
    assert found(looks(0, ()), looks(1, ())) == []


@pytest.mark.parametrize(
    ("more", "severity", "words"),
    [
        ({}, "warning", "they were not averaged, or were changed afterwards"),
        ({"wrapped": True}, "error", "no pass of its own has led to them"),
        ({"apart": ("b",)}, "error", "1 of 2 parameters differ between the ranks after step 1: `b`"),
        ({"before": ("w", "b"), "own_gradients": ()}, "error", "before the first step"),
        ({"own_gradients": ()}, "error", "the same gradients in this step"),
        ({"since": 5}, "warning", "after step 5"),
    ],
)
def test_each_cause_is_told(more: dict[str, Any], severity: str, words: str) -> None:
    (finding,) = found(looks(0, **more), looks(1, **more))
    assert finding.severity == severity and words in f"{finding.message}; {finding.cause}"


def test_gradients_that_were_averaged_and_differ_are_not_blamed_on_a_missing_pass() -> None:
    averaged = SynchronizedPasses(id=0, place=SETS, steps=4, passes=4)
    (finding,) = found([averaged, *looks(0, wrapped=True)], [averaged, *looks(1, wrapped=True)])
    assert "has averaged gradients" in finding.cause and "communication hook" in finding.cause


@pytest.mark.parametrize(
    ("passed", "words"),
    [
        ((5, 5), "a change on one rank has made them differ"),
        ((0, 1), "a communication hook, or what connects the ranks"),
    ],
)
def test_what_the_backward_pass_left_tells_the_link_from_a_later_change(passed: tuple[int, int], words: str) -> None:
    averaged = SynchronizedPasses(id=0, place=SETS, steps=4, passes=4)
    (finding,) = found(*[[averaged, *looks(n, wrapped=True, passed=passed[n])] for n in (0, 1)])
    assert words in finding.cause


@pytest.mark.parametrize(
    ("clips", "words"),
    [((True, False), "until only rank 0 clipped them"), ((True, True), "by a norm of its own")],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_clipping_that_made_gradients_differ_is_told_with_its_line(
    clips: tuple[bool, bool], words: str, wrapped: bool
) -> None:
    # The rank that does not clip has the gradient that the other had before it did.
    (finding,) = found(*[looks(n, clips=clips[n], unclipped=1, wrapped=wrapped) for n in (0, 1)])
    assert words in finding.cause and finding.location is not None and finding.location.line == SETS.line


def test_clipping_of_gradients_that_differed_before_is_not_the_cause() -> None:
    (finding,) = found(*[looks(n, clips=True, unclipped=n) for n in (0, 1)])
    assert "were not averaged" in finding.cause


def test_parameters_that_came_after_the_wrapping_are_told_where_they_were_converted() -> None:
    first, second = ([acted("converted", SETS), *looks(n, late=True)] for n in (0, 1))
    (finding,) = found(first, second)
    assert finding.severity == "error" and "after DistributedDataParallel had wrapped it" in finding.cause
    assert finding.location is not None and finding.location.line == SETS.line


def test_parameters_that_came_late_are_told_where_the_model_was_given_them() -> None:
    text = "class Net(Module):\n    def f(self):\n        self.w = 1\n\n"
    text += "model = DDP(Net())\nmodel.module.w = Parameter(x)\n"
    first, second = ([Source(path=FILE, text=text), *looks(n, ("w",), late=True)] for n in (0, 1))
    (finding,) = found(first, second)
    assert finding.location is not None and finding.location.line == 6


def test_an_average_that_never_ended_is_left_to_dst104() -> None:
    failed = UnfinishedReduction(place=STEP, message="Expected to have finished.", module="Net", made=SETS, names=["w"])

    def of(number: int, since: int) -> RankRecording:
        me, seen = Member(rank=number, world_size=2, host="a"), looks(number, since=since, wrapped=True)
        return rank(me, program(), steps(8), *seen, failed, outcome(8), number=number)

    def codes(since: int) -> set[str]:
        return {f.code for f in diagnose(Recording([of(0, since), of(1, since)])).findings}

    assert "DST110" not in codes(8) and "DST104" in codes(8)
    assert "DST110" in codes(3), "it had begun before"


def test_steps_of_ranks_that_have_uneven_inputs_are_not_compared() -> None:
    """From step 3 on one rank is some batches behind: what it answers for those counts as its collectives."""
    even, ahead = CalledIn(last=2, calls=3), CalledIn(last=3, calls=9)
    first = Called(step=0, total=0, stretches=[CalledIn(last=20, calls=3)])
    second = Called(step=0, total=0, stretches=[even, ahead, CalledIn(last=20, calls=3)])
    assert found([*looks(0, since=3), first], [*looks(1, since=3), second]) == []
    assert found([*looks(0, since=2), first], [*looks(1, since=2), second]), "it had begun before"


def test_parameters_that_are_wrapped_in_other_steps_only_are_told_where_they_are_wrapped() -> None:
    def of(rank: int) -> list[Any]:
        made = looks(rank)
        for look in made[1::2]:
            for parameter in look.parameters:
                parameter.wrapped = True
        return [*made, module]

    module = DistributedModule(id=0, name="Net", place=SETS, gradient_bytes=8)
    (finding,) = found(of(0), of(1))
    assert finding.severity == "error" and "in other steps only" in finding.cause
    assert finding.location is not None and finding.location.line == SETS.line


def test_learning_rates_that_differ_are_the_cause() -> None:
    (finding,) = found(looks(0, own_gradients=(), rates=[0.1]), looks(1, own_gradients=(), rates=[0.02]))
    assert "0.02, 0.1" in finding.cause


SEED, MAIN, OTHER = (Place(FILE, line, "main") for line in (21, 23, 24))


def acted(kind: ActKind, *places: Place, value: int | None = None, times: int = 1) -> OwnAct:
    return OwnAct(kind=kind, places=list(places), value=value, times=times)


@pytest.mark.parametrize(
    ("more", "first", "second", "line"),
    [
        ({"rates": 1}, [acted("schedule", SETS, times=9)], [acted("schedule", OTHER, times=9)] * 2, SETS),
        ({"wrapped": True}, [acted("unsynchronized", OTHER), acted("around", SETS)], [], SETS),
        ({"wrapped": True}, [acted("unsynchronized", OTHER)], [], OTHER),
        ({"apart": ("b",)}, [], [acted("added", SETS)], SETS),
        ({"apart": ("b",)}, [acted("around", SETS)], [], STEP),
    ],
)
def test_the_line_is_that_of_what_a_rank_did(
    more: dict[str, Any], first: list[OwnAct], second: list[OwnAct], line: Place
) -> None:
    rates = [[0.1], [0.1 * more["rates"] + 0.1]] if "rates" in more else [[0.1], [0.1]]
    (finding,) = found(
        [*first, *looks(0, **{**more, "rates": rates[0]})], [*second, *looks(1, **{**more, "rates": rates[1]})]
    )
    assert finding.location is not None and finding.location.line == line.line


def test_the_first_seed_that_differs_is_told_where_it_was_made() -> None:
    apart: dict[str, Any] = {"before": ("w", "b"), "own_gradients": ()}
    same = acted("seed", OTHER, value=1)
    # The first rank's own seed is by chance that of its caller as well.
    first = [same, acted("seed", SEED, SETS, MAIN, value=5), *looks(0, **apart)]
    second = [same, acted("seed", SEED, SETS, value=6), *looks(1, **apart)]
    (finding,) = found(first, second)
    assert finding.location is not None and finding.location.line == SETS.line


def test_a_state_that_one_rank_alone_has_loaded_is_told() -> None:
    apart: dict[str, Any] = {"before": ("w", "b"), "own_gradients": (), "wrapped": True}
    first = [acted("seed", OTHER, value=1), acted("loaded", SETS), *looks(0, rates=[0.3], **apart)]
    (finding,) = found(first, [acted("seed", OTHER, value=2), *looks(1, rates=[0.1], **apart)])
    assert finding.location is not None and finding.location.line == SETS.line
    assert "not all ranks have loaded" in finding.cause


def test_what_each_rank_began_with_of_its_own_is_its_part_of_the_model() -> None:
    """Tensor parallelism by hand: one weight is split, the other is the same on both ranks."""
    apart: dict[str, Any] = {"apart": ("w",), "before": ("w",)}
    assert found(looks(0, **apart), looks(1, **apart)) == []
    drifting: dict[str, Any] = {"before": ("w",)}
    (finding,) = found(looks(0, **drifting), looks(1, **drifting))
    assert "1 of 2 parameters differ between the ranks after step 1: `b`" in finding.message


def test_biases_that_all_begin_with_nothing_make_no_part_of_the_rest() -> None:
    def of(rank: int) -> list[Replicas]:
        every = looks(rank, before=("w",))
        for parameter in every[0].parameters:
            parameter.constant = parameter.name == "b"
        return every

    (finding,) = found(of(0), of(1))
    assert "`w`" in finding.message and "before the first step" in finding.message


def test_experts_of_ranks_that_exchange_tokens_are_a_note() -> None:
    exchanged, apart = acted("exchanged", SETS), ("w",)
    (finding,) = found([exchanged, *looks(0, apart)], [exchanged, *looks(1, apart)])
    assert finding.severity == "info" and "by design" in finding.cause


def evaluated(*digests: int) -> list[EvaluatedBuffers]:
    return [EvaluatedBuffers(id=0, number=n, digest=d, name="norm.mean", place=STEP) for n, d in enumerate(digests, 1)]


def test_buffers_that_differ_in_an_evaluation_are_told_once() -> None:
    wrapped = DistributedModule(id=0, name="Net", place=SETS)
    (finding,) = found([wrapped, *evaluated(1, 2, 3)], [wrapped, *evaluated(1, 7, 8)])
    assert finding.severity == "warning" and "`norm.mean`" in finding.message
    assert finding.location is not None and finding.location.line == SETS.line
    assert [one.line for one in finding.related] == [STEP.line]


@pytest.mark.parametrize("other", [(1, 2, 3), (1,), ()])
def test_buffers_that_are_the_same_or_of_one_rank_are_healthy(other: tuple[int, ...]) -> None:
    assert found(evaluated(1, 2, 3), evaluated(*other)) == []


def test_parameters_outside_a_sharded_model_are_told() -> None:
    text = Source(path=FILE, text="import torch\nmodel = Net()\nfully_shard(model.body)\n")
    more: dict[str, Any] = {"apart": ("b",), "sharded": ("w",)}
    (finding,) = found([text, *looks(0, **more)], looks(1, **more))
    assert "sharded" in finding.cause and finding.location is not None and finding.location.line == 3


def test_shards_differ_by_design() -> None:
    more: dict[str, Any] = {"sharded": ("w", "b")}
    assert found(looks(0, **more), looks(1, **more)) == []


def tensor_parallel(rank: int, **more: Any) -> list[Replicas]:
    """A norm, ones at first, that all ranks have, beside a weight of which each began with a slice of its own."""
    made = looks(rank, ("w",), before=("w",), **more)
    for look in made:
        look.parameters[1].constant = True
    return made


def test_slices_beside_a_norm_that_stays_the_same_differ_by_design() -> None:
    assert found(tensor_parallel(0), tensor_parallel(1)) == []


def test_averaged_gradients_do_not_excuse_weights_of_each_ranks_own() -> None:
    (finding,) = found(tensor_parallel(0, own_gradients=()), tensor_parallel(1, own_gradients=()))
    assert "before the first step" in finding.message and "`w`" in finding.message


def test_local_steps_between_averages_come_together_again() -> None:
    assert found(looks(0, until=5), looks(1, until=5)) == []


def test_parts_of_a_pipeline_have_other_parameters() -> None:
    other = [Replicas(optimizer=0, step=n, parameters=[Replica(name="v", shape=(9,), after=n)]) for n in LOOKS]
    assert found(looks(0), other) == []


def batches(*digests: int) -> list[Batch]:
    return [Batch(number=n, digest=d, place=STEP) for n, d in zip(LOOKS, digests, strict=False)]


def test_batches_that_all_ranks_share_are_told() -> None:
    same = batches(1, 2, 3, 4, 5)
    made = [msgspec.structs.replace(batch, made=SETS) for batch in same]
    (finding,) = found([*looks(0, ()), *made], [*looks(1, ()), *made], "DST111")
    assert finding.location is not None and finding.location.line == SETS.line
    (finding,) = found([*looks(0, ()), *same], [*looks(1, ()), *same], "DST111")
    assert "all 5" in finding.message and finding.location is not None and finding.location.line == 17


@pytest.mark.parametrize("other", [(1, 2, 3, 4, 6), (9, 8, 7, 6, 5)], ids=["one of its own", "all of its own"])
def test_batches_of_its_own_are_healthy(other: tuple[int, ...]) -> None:
    assert found(batches(1, 2, 3, 4, 5), batches(*other), "DST111") == []


def test_one_batch_that_is_always_the_same_says_nothing() -> None:
    assert found(batches(1, 1, 1, 1, 1), batches(1, 1, 1, 1, 1), "DST111") == []


def test_shards_share_batches_by_design() -> None:
    same, more = batches(1, 2, 3, 4, 5), {"sharded": ("w",)}
    assert found([*looks(0, (), **more), *same], [*looks(1, (), **more), *same], "DST111") == []


def test_slices_and_stages_share_batches_by_design() -> None:
    same = batches(1, 2, 3, 4, 5)
    assert found([*tensor_parallel(0), *same], [*tensor_parallel(1), *same], "DST111") == []
    other = [Replicas(optimizer=0, step=n, parameters=[Replica(name="v", shape=(9,), after=n)]) for n in LOOKS]
    assert found([*looks(0), *same], [*other, *same], "DST111") == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_a_digest_is_of_the_bits(dtype: torch.dtype) -> None:
    one = torch.randn(7, 5).to(dtype)
    other = one.clone()
    assert int(digest(one)) == int(digest(other)) == int(digest(one.t().contiguous().t()))
    other[3, 2] = torch.nextafter(other[3, 2], torch.tensor(9.0).to(dtype)) if not dtype.is_complex else 0
    assert int(digest(one)) != int(digest(other))


def test_looks_are_at_the_same_steps_on_all_ranks() -> None:
    assert [n for n in range(1, 700) if is_due(n)] == [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 200, 400, 600]
