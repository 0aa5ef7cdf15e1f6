"""From censuses to what grows: leaks are named with their rate, everything that is bounded stays silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from handmade import FILE, GIB, MAIN, census, holding, outcome, program, rank, site, steps, survivors, window
from hypothesis import given
from hypothesis import strategies as st

from torchvet.analysis import growth_of
from torchvet.analysis.growth import Growth, GrowthSummary, growth_by_pass, known_rate, outlives_evaluation
from torchvet.recording.records.base import Census, Holding, Place, Record, Source, StepKind, Survivors
from torchvet.recording.records.training import CollectorUse

bug = pytest.mark.xfail
TICKS = (5, 6, 9, 14, 21, 32, 48)
"""When a schedule takes censuses, about."""

Amount = Callable[[int], int]


def run(*held: Callable[[int], Holding], ticks: tuple[int, ...] = TICKS, kind: StepKind = "training",
        extra: list[Record] | None = None) -> GrowthSummary:  # fmt: skip
    """A run of 50 steps in which these names held what they say at each census."""
    looks = [census(t, *(make(t) for make in held)) for t in ticks]
    return growth_of(rank(program(), steps(50, kind), looks, outcome(50), extra or []))


def list_of(amount: Amount, name: str = "losses", **more: Any) -> Callable[[int], Holding]:
    return lambda tick: holding(name, direct=amount(tick), **more)


def only(summary: GrowthSummary) -> Growth:
    (growth,) = summary.growths
    return growth


# What grows ----------------------------------------------------------------------------------------------------------


def test_a_leak_is_named_with_its_rate() -> None:
    growth = only(run(list_of(lambda t: 100 * t)))
    assert growth.holding.name == "losses"
    assert (growth.bytes_per_step, growth.direct_per_step, growth.tensors_per_step) == (100, 100, 10)
    assert (growth.last_tick, growth.bytes, growth.kind) == (48, 4800, "training")


def test_a_leak_of_graphs_is_told_from_one_of_tensors() -> None:
    growth = only(run(lambda t: holding("losses", direct=4 * t, graph=1000 * t)))
    assert (growth.bytes_per_step, growth.graph_per_step, growth.nodes_per_step) == (1004, 1000, 100)


def test_graphs_that_the_searches_did_not_come_to_the_end_of_are_a_lower_bound() -> None:
    def held(tick: int) -> Holding:
        return holding("kept", graph=100 * tick, length=tick)

    assert not only(run(held)).partial
    cut = [census(tick, held(tick), complete=False) for tick in TICKS]
    assert only(growth_of(rank(program(), steps(50), cut, outcome(50)))).partial


def test_a_leak_that_starts_late_is_measured_from_there() -> None:
    growth = only(run(list_of(lambda t: 500 + 100 * max(0, t - 14))))
    assert growth.bytes_per_step == pytest.approx(100)
    assert growth.first_tick >= 9


def test_growth_by_nodes_alone_is_growth() -> None:
    """Losses kept after backward: no tensor memory to speak of."""
    growth = only(run(lambda t: holding("losses", nodes=3 * t)))
    assert growth.nodes_per_step == 3 and growth.bytes_per_step == 0
    assert growth.exhausted_at is None


def test_carried_state_says_through_which_operators() -> None:
    ops = ["AddmmBackward0", "TanhBackward0"]
    growth = only(run(lambda t: holding("h", graph=300 * t, container="Tensor", carried=True, carrier_ops=ops)))
    assert growth.carrier_ops == tuple(ops) and growth.graph_per_step == 300


def test_a_graph_that_another_name_is_credited_with_has_not_grown() -> None:
    """Two names lead to one graph, which `retain_graph=True` keeps: at the last look the other one came first."""

    def look(tick: int, prediction: tuple[int, int], loss: tuple[int, int]) -> Census:
        (saved, nodes), (rest, fewer) = prediction, loss
        return census(tick, holding("prediction", direct=2048, graph=saved, nodes=nodes, tensors=1),
                      holding("loss", direct=4, graph=rest, nodes=fewer, tensors=1))  # fmt: skip

    shared, own = (786_432, 22), (8, 27)
    looks = [look(24, shared, own), look(25, shared, own), look(50, (0, 0), (786_440, 49))]
    assert growth_of(rank(program(), steps(60), looks, outcome(60))).growths == []
    grown = [*looks[:2], look(50, shared, (786_440, 49))]
    assert only(growth_of(rank(program(), steps(60), grown, outcome(60)))).holding.name == "loss"


def test_a_tensor_that_is_replaced_by_a_larger_one_is_growth_once_it_goes_on() -> None:
    """`x = torch.cat([x, new])`: one tensor under one name."""

    def history(t: int) -> Holding:
        return holding("history", direct=40 * t, container="Tensor", tensors=1)

    growth = only(run(history))
    assert (growth.bytes_per_step, growth.tensors_per_step) == (40, 0)
    assert run(history, ticks=(5, 6, 9)).growths == [], "a longer batch now and then looks so too"


def test_a_sawtooth_whose_peaks_grow_is_growth() -> None:
    """Cleared in part: every third look finds half of it gone, and still each height is passed."""
    heights = dict(zip(TICKS, (100, 300, 150, 900, 600, 1800, 4000), strict=True))
    growth = only(run(list_of(heights.__getitem__)))
    assert growth.bytes_per_step > 0


def test_growth_in_evaluation_alone_goes_by_its_batches() -> None:
    growth = only(run(list_of(lambda t: 100 * t), kind="evaluation"))
    assert (growth.kind, growth.bytes_per_step) == ("evaluation", 100)


def test_growth_in_evaluation_between_training_goes_by_training_steps() -> None:
    mixed = [*steps(25), *steps(25, "evaluation", start=26), *steps(25, start=51), *steps(25, "evaluation", start=76)]
    looks = [census(t, holding("outputs", direct=100 * t)) for t in (20, 45, 70, 95)]
    growth = only(growth_of(rank(program(), mixed, looks, outcome(100))))
    assert growth.kind == "training" and growth.steps == 25, "the first look is left out"
    assert growth.bytes_per_step == pytest.approx(100 * 50 / 25)


def test_growth_in_bursts_is_spread_over_the_run() -> None:
    """Five batches are stored after every eighth step: between the looks lie more bursts than their steps' share."""
    run_of: list[Record] = []
    for epoch in range(10):
        run_of += [*steps(8, start=1 + 13 * epoch), *steps(5, "evaluation", start=9 + 13 * epoch)]
    stored = {t: 5 * (t // 13) for t in range(131)}
    looks = [census(t, holding("outputs", direct=1000 * stored[t])) for t in (3, 14, 17, 21, 33, 40, 92)]
    growth = only(growth_of(rank(program(), run_of, looks, outcome(130))))
    assert growth.kind == "training"
    assert growth.bytes_per_step == pytest.approx(1000 * 5 / 8)


# What does not -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", [
    lambda t: 1000,
    lambda t: 100 * min(t, 10),
    lambda t: 100 * (t % 5),
    lambda t: 1000 - 10 * t,
    lambda t: 0,
    lambda t: 5000 + (200 if t > 5 else 0),
], ids=["constant", "cache that fills", "cleared", "shrinking", "empty", "one store more"])  # fmt: skip
def test_what_is_bounded_is_silent(amount: Amount) -> None:
    assert run(list_of(amount)).growths == []


def test_a_window_of_fixed_length_is_silent() -> None:
    assert run(list_of(lambda t: 10 * min(t, 20), container="deque", capacity=20, length=20)).growths == []


def test_a_name_that_has_gone_is_silent() -> None:
    looks = [census(t, holding("losses", direct=100 * t)) for t in (5, 9, 14)]
    summary = growth_of(rank(program(), steps(50), looks, census(32), census(48), outcome(50)))
    assert summary.growths == []


def test_two_neighbouring_looks_are_not_enough() -> None:
    assert run(list_of(lambda t: 100 * t), ticks=(5, 6)).growths == []


def test_one_store_more_between_two_looks_is_not_enough() -> None:
    """A loader's iterator has one batch more ready than the last time."""
    looks = [census(t, holding("batches", direct=16384 * n, tensors=n)) for t, n in ((12, 1), (13, 1), (19, 2))]
    assert growth_of(rank(program(), steps(50), looks, outcome(50))).growths == []


@pytest.mark.parametrize(("after", "growing"), [(400, False), (1300, True), (2000, True)])
def test_two_looks_are_judged_by_what_is_left_at_the_end_as_well(after: int, growing: bool) -> None:
    others = holding("gone", direct=5000)
    looks = [census(t, others, holding("losses", direct=100 * t)) for t in (5, 6, 13)]
    last = census(50, holding("losses", direct=after), final=True)
    assert bool(growth_of(rank(program(), steps(50), looks, last, outcome(50))).growths) is growing


@pytest.mark.parametrize("ticks", [(), (5,)])
def test_nothing_to_compare_is_no_growth(ticks: tuple[int, ...]) -> None:
    assert run(list_of(lambda t: 100 * t), ticks=ticks) == GrowthSummary()


# Where it grows ------------------------------------------------------------------------------------------------------


def nested(*amounts: tuple[str, str, Amount]) -> list[Callable[[int], Holding]]:
    return [
        lambda t, n=name, c=container, a=amount: holding(n, direct=a(t), container=c)
        for name, container, amount in amounts
    ]


def test_growth_is_followed_down_to_the_list() -> None:
    summary = run(*nested(
        ("trainer", "Trainer", lambda t: 9000 + 100 * t),
        ("trainer .stats", "Stats", lambda t: 100 * t + 50),
        ("trainer .stats .losses", "list", lambda t: 100 * t),
    ))  # fmt: skip
    assert only(summary).holding.name == "trainer.stats.losses"


def test_a_list_in_a_dictionary_is_named_and_not_the_dictionary() -> None:
    summary = run(*nested(
        ("metrics", "dict", lambda t: 100 * t + 80),
        ("metrics ['loss']", "list", lambda t: 100 * t),
        ("metrics ['names']", "list", lambda t: 80),
    ))  # fmt: skip
    assert only(summary).holding.name == "metrics['loss']"


def test_a_list_of_tensors_is_named_and_not_its_item() -> None:
    summary = run(*nested(
        ("state", "list", lambda t: 100 * t),
        ("state [0]", "Tensor", lambda t: 100 * t),
    ))  # fmt: skip
    assert only(summary).holding.name == "state"


def test_a_dictionary_that_grows_in_all_its_lists_is_named_as_one() -> None:
    summary = run(*nested(
        ("metrics", "dict", lambda t: 200 * t),
        ("metrics ['loss']", "list", lambda t: 100 * t),
        ("metrics ['accuracy']", "list", lambda t: 100 * t),
    ))  # fmt: skip
    assert only(summary).holding.name == "metrics" and only(summary).bytes_per_step == 200


def test_two_leaks_in_one_object_are_told_apart() -> None:
    summary = run(*nested(
        ("trainer", "Trainer", lambda t: 400 * t),
        ("trainer .losses", "list", lambda t: 100 * t),
        ("trainer .outputs", "list", lambda t: 300 * t),
        ("trainer .config", "dict", lambda t: 500),
    ))  # fmt: skip
    assert [(g.holding.name, g.bytes_per_step) for g in summary.growths] == [
        ("trainer.outputs", 300), ("trainer.losses", 100),
    ]  # fmt: skip
    assert summary.explained == summary.measured == 400


def test_equal_names_in_two_functions_are_two_names() -> None:
    summary = run(list_of(lambda t: 100 * t), list_of(lambda t: 50 * t, scope="__main__.evaluate"))
    assert {(g.holding.scope, g.bytes_per_step) for g in summary.growths} == {(MAIN, 100), ("__main__.evaluate", 50)}


# Which looks count ---------------------------------------------------------------------------------------------------


def final(tick: int, *held: Holding, **more: Any) -> Census:
    return census(tick, *held, final=True, **more)


def test_a_last_look_after_main_has_returned_does_not_undo_the_growth() -> None:
    looks = [census(t, holding("losses", direct=100 * t), holding("model", 7, scope="m")) for t in TICKS]
    summary = growth_of(rank(program(), steps(50), looks, final(50, holding("model", 7, scope="m")), outcome(50)))
    assert only(summary).holding.name == "losses"


def test_a_last_look_at_a_result_of_what_grew_does_not_count() -> None:
    """Long after the look before it, what is left may be more than there was then: another name has it."""
    looks = [census(t, holding("losses", graph=100 * t)) for t in TICKS]
    summary = growth_of(rank(program(), steps(80), looks, final(80, holding("mean", graph=8000)), outcome(80)))
    assert only(summary).holding.name == "losses" and summary.explained == 100


def test_a_last_look_that_lacks_a_batch_counts() -> None:
    looks = [census(t, holding("losses", direct=100 * t), holding("batch", direct=50)) for t in TICKS]
    summary = growth_of(rank(program(), steps(80), looks, final(80, holding("losses", direct=4900)), outcome(80)))
    assert not summary.growths  # it has stopped


@pytest.mark.parametrize("how", ["exception", "out-of-memory", "interrupt"])
def test_a_last_look_at_a_program_that_died_counts(how: str) -> None:
    """Its frames live in the traceback; what was let go by then is no leak."""
    looks = [census(t, holding("losses", direct=100 * t)) for t in (9, 14)]
    assert growth_of(rank(program(), steps(50), looks, final(40, holding("x", 1)), outcome(50, how))).growths == []


def test_a_last_look_in_the_same_step_does_not_replace_the_look_before() -> None:
    looks = [census(t, holding("losses", direct=100 * t)) for t in (9, 14, 21)]
    summary = growth_of(rank(program(), steps(21), looks, final(21, holding("other", 5)), outcome(21)))
    assert only(summary).holding.name == "losses"


def test_looks_that_ran_out_of_time_do_not_count_beside_complete_ones() -> None:
    looks = [census(t, holding("losses", direct=1 if t == 32 else 100 * t), complete=t != 32) for t in TICKS]
    assert only(growth_of(rank(program(), steps(50), looks, outcome(50)))).bytes_per_step == 100


@pytest.mark.parametrize(
    ("more", "alive", "found"),
    [({}, 0, 0), ({"length": 3}, 0, 0), ({"carried": True}, 0, 1), ({"rising": True}, 0, 1), ({}, 2000, 1)],
    ids=["nothing else", "as long as before", "carried", "longer", "storages live on"],
)
def test_incomplete_looks_count_where_something_else_rises(more: dict[str, Any], alive: int, found: int) -> None:
    """How far a search came before its time was over differs from look to look: by itself that is no growth."""
    looks = []
    for t in TICKS:
        facts = {"length": t} if more.get("rising") else more
        looks.append(census(t, holding("losses", direct=100 * t, **facts), complete=False))
    lived = [survivors(n, 10 * n + 4, alive) for n in (1, 2, 3)]
    assert len(growth_of(rank(program(), steps(50), lived, looks, outcome(50))).growths) == found


def test_looks_from_before_a_restart_do_not_count() -> None:
    """Thirty micro-batches before the first optimizer step were thirty steps; then the count starts at one again."""
    before = [*steps(30, "backward"), *(census(t, holding("losses", direct=100 * t)) for t in (6, 7, 10, 15, 22))]
    after = [*steps(50), *(census(t, holding("losses", direct=3000 + 3200 * t)) for t in (5, 6, 9, 14, 21, 32))]
    growth = only(growth_of(rank(program(), before, after, outcome(50))))
    assert growth.bytes_per_step == pytest.approx(3200, rel=0.01)


@pytest.mark.parametrize(
    ("how", "alive", "found"),
    [("finished", 0, 0), ("exit", 0, 0), ("finished", 200, 1), ("interrupt", 0, 1), ("steps-reached", 0, 1)],
)
def test_what_is_collected_after_training_is_no_growth(how: str, alive: int, found: int) -> None:
    """Two looks, the second after the last line: predictions are gathered there, unless storages of steps live on."""
    looks = [census(9, holding("outputs", direct=300)), final(20, holding("outputs", direct=9000))]
    lived = [survivors(n, 10 + n, alive) for n in (1, 2)]
    assert len(growth_of(rank(program(), steps(20), lived, looks, outcome(20, how))).growths) == found


# Without a name ------------------------------------------------------------------------------------------------------


def test_storages_that_no_name_leads_to_are_a_rate_of_their_own() -> None:
    looks = [census(t, unreached=400 * (t > 5), unreached_sites=[site()]) for t in (5, 9, 14, 20)]
    alive = [survivors(1, 6, 200), survivors(2, 9, 200)]
    summary = growth_of(rank(program(), steps(20), alive, looks, outcome(20)))
    assert summary.growths == [] and summary.unreached == summary.measured == summary.unexplained == 100


def test_growth_that_no_name_explains_is_measured_by_survivors() -> None:
    looks = [census(t, holding("losses", direct=100 * t), other=900 * t) for t in TICKS]
    alive = [survivors(n, 10 * n + 4, 2000) for n in (1, 2, 3)]
    summary = growth_of(rank(program(), steps(50), alive, looks, outcome(50)))
    assert summary.explained == 100 and summary.measured == 1000 and summary.unexplained == 900


def test_survivors_are_growth_even_where_nobody_looked_for_names() -> None:
    alive = [survivors(n, 10 * n + 4, 2000) for n in (1, 2, 3)]
    summary = growth_of(rank(program(), steps(50), alive, census(9), outcome(50)))
    assert summary.measured == summary.unexplained == 1000


def test_survivors_that_stopped_are_no_growth() -> None:
    looks = [census(t, other=5000) for t in TICKS]
    alive = [survivors(1, 6, 2000), survivors(2, 12, 2000), survivors(3, 24, 0)]
    assert growth_of(rank(program(), steps(50), alive, looks, outcome(50))).measured == 0


# The forecast --------------------------------------------------------------------------------------------------------


def test_the_forecast_is_the_step_at_which_the_limit_is_reached() -> None:
    growth = only(run(list_of(lambda t: 1_000_000 * t), extra=[window(1, 1, 2, peak=100_000_000)]))
    left = GIB - 100_000_000 - 48_000_000  # what a step comes to, and what has grown before it
    assert growth.exhausted_at == pytest.approx(48 + left / 1_000_000, abs=1)


@pytest.mark.parametrize(
    ("blocks", "segment"),
    [([], 20), ([2 << 20], 20), ([1 << 19], 2), ([31 << 20], 32), ([1 << 19] * 200 + [1 << 21], 2), ([3, 5 << 20], 20)],
)
def test_of_a_device_the_drivers_part_and_half_a_segment_are_not_to_be_had(blocks: list[int], segment: int) -> None:
    ran = program(device="cuda", memory_outside=500 << 20)
    looks = [census(t, holding("losses", direct=1_000_000 * t)) for t in TICKS]
    kept = [site(size=size) for size in blocks]
    alive = Survivors(window=1, tick=12, steps=6, bytes=6_000_000, storages=len(kept), sites=kept)
    growth = only(growth_of(rank(ran, steps(50), alive, looks, outcome(50))))
    assert growth.exhausted_at == pytest.approx(GIB / 1_000_000 - (500 + segment / 2) * 1.048576, abs=1)


def test_without_a_limit_there_is_no_forecast() -> None:
    looks = [census(t, holding("losses", direct=100 * t)) for t in TICKS]
    assert only(growth_of(rank(program(memory_limit=0), steps(50), looks, outcome(50)))).exhausted_at is None


def test_a_limit_that_is_passed_already_is_reached_now() -> None:
    looks = [census(t, holding("losses", direct=100 * t)) for t in TICKS]
    assert only(growth_of(rank(program(memory_limit=10), steps(50), looks, outcome(50)))).exhausted_at == 48


# Always --------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 200), st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 50)),
                max_size=10), st.booleans())  # fmt: skip
def test_whatever_was_seen_the_figures_are_finite_and_positive(
    points: list[tuple[int, int, int, int]], last: bool
) -> None:
    looks: list[Census] = []
    for i, (tick, direct, graph, unreached) in enumerate(points):
        looks.append(census(tick, holding("a", direct, graph), holding("a .b", direct // 2, graph),
                            unreached=unreached, final=last and i == len(points) - 1))  # fmt: skip
    summary = growth_of(rank(program(), steps(20), looks, CollectorUse(collections=1, seconds=0.0)))
    assert summary.measured >= 0 and summary.unexplained >= 0 and summary.unreached >= 0
    for growth in summary.growths:
        assert growth.bytes_per_step >= 0 and growth.steps >= 1
        assert growth.bytes_per_step > 0 or growth.nodes_per_step > 0, "nothing grows that does not"
        assert growth.exhausted_at is None or growth.exhausted_at >= 0


@given(st.integers(1, 10**9), st.integers(3, 20))
def test_the_rate_of_a_steady_leak_is_exact(rate: int, count: int) -> None:
    ticks = sorted({5 + round(1.3**i) for i in range(count)})
    looks = [census(t, holding("x", direct=rate * 10 * t)) for t in ticks]
    summary = growth_of(rank(program(), steps(ticks[-1]), looks, outcome(ticks[-1])))
    if len(ticks) > 3:
        assert only(summary).bytes_per_step == pytest.approx(rate * 10)


# The middle of an evaluation ---------------------------------------------------------------------------------------


def amid(number: int, passes: int, *held: Holding) -> Census:
    return census(10, *held, kind="evaluation", amid=number, passes=passes)


def test_what_grows_in_one_evaluation_is_named_with_its_rate_by_pass() -> None:
    looks = [amid(1, n, holding("total", graph=700 * (n - 1)), holding("output", graph=700)) for n in (3, 5)]
    (growth,) = growth_by_pass(rank(program(), steps(50), looks, outcome(50)))
    assert growth.holding.name == "total" and growth.kind == "evaluation"
    assert growth.graph_per_step == 700 and growth.last_step == 5


def test_two_evaluations_are_not_compared() -> None:
    looks = [amid(n, passes, holding("total", graph=700 * passes)) for n, passes in ((1, 3), (2, 5))]
    assert growth_by_pass(rank(program(), steps(50), looks, outcome(50))) == []


def test_looks_amid_evaluations_are_no_looks_at_boundaries() -> None:
    looks = [amid(t, 3, holding("total", graph=700 * t)) for t in TICKS]
    assert growth_of(rank(program(), steps(50), looks, outcome(50))).growths == []


def test_what_outlives_the_evaluation_is_growth_from_step_to_step() -> None:
    looks = [amid(1, n, holding("outputs", graph=700 * n)) for n in (3, 5)]
    lasting = [census(t, holding("outputs", graph=100 * t)) for t in TICKS]
    assert growth_by_pass(rank(program(), steps(50), *looks, *lasting, outcome(50))) == []


@pytest.mark.parametrize(("later", "lives_on"), [(700 * 8, True), (700 * 3, False)])
def test_what_one_evaluation_left_may_be_there_in_the_next(later: int, lives_on: bool) -> None:
    looks = [amid(n, p, holding("outputs", graph=g)) for n, p, g in ((1, 3, 2100), (1, 5, 3500), (2, 3, later))]
    one = rank(program(), steps(50), looks, outcome(50))
    (growth,) = growth_by_pass(one)
    assert outlives_evaluation(one, growth) is lives_on


def test_batches_that_get_longer_are_no_growth() -> None:
    """One tensor, larger at each census: whether it was joined to itself or is another one is in the source alone."""

    def growths(line: str) -> list[str]:
        text = f"x = torch.zeros(0)\nfor n in sizes:\n    x = {line}\n"
        looks = [census(t, holding("x", direct=1000 + 100 * t, tensors=1)) for t in TICKS]
        kept = [Source(path=FILE, text=text)]
        return [g.holding.name for g in growth_of(rank(program(), kept, steps(50), looks, outcome(50))).growths]

    assert growths("torch.cat([x, torch.randn(n)])") == ["x"]
    assert growths("torch.randn(n)") == []


@pytest.mark.parametrize(
    ("line", "alive", "more", "growing"),
    [
        ("rnn(torch.randn(n))", 0, {}, 0),
        ("rnn(x)", 0, {}, 0),
        ("rnn(x)", None, {}, 1),
        ("rnn(torch.randn(n))", None, {}, 0),
        ("rnn(x)", 200, {}, 1),
        ("rnn(torch.randn(n))", 200, {}, 1),
        ("rnn(torch.randn(n))", 0, {"carried": True}, 1),
    ],
    ids=[
        "sequences that get longer",
        "made of itself, until it begins anew",
        "made of itself",
        "not sampled",
        "made of itself, storages live on",
        "storages live on",
        "carried",
    ],
)
def test_graphs_of_longer_sequences_are_no_growth(
    line: str, alive: int | None, more: dict[str, Any], growing: int
) -> None:
    """One tensor with a longer graph at each census, which is made anew in every step or leaves nothing behind."""
    text = f"x = torch.zeros(0)\nfor n in sizes:\n    x, _ = {line}\n"
    looks = [census(t, holding("x", direct=1000, graph=100 * t, nodes=10 * t, tensors=1, **more)) for t in TICKS]
    lived = [survivors(n, 10 * n + 4, alive) for n in (1, 2, 3)] if alive is not None else []
    kept = [Source(path=FILE, text=text)]
    assert len(growth_of(rank(program(), kept, steps(50), lived, looks, outcome(50))).growths) == growing


@pytest.mark.parametrize(("before", "growing"), [(900, 0), (500, 1)])
def test_a_graph_that_was_longer_before_goes_up_and_down_with_the_batches(before: int, growing: int) -> None:
    """Two looks that compare and one before them: results of a loop over batches of different lengths."""
    sizes = [(24, before), (25, 800), (48, 1200)]
    looks = [census(t, holding("logits", direct=100 * n, nodes=n, tensors=1)) for t, n in sizes]
    assert len(growth_of(rank(program(), steps(50), looks, outcome(50))).growths) == growing


@pytest.mark.parametrize(("path", "growing"), [("/usr/lib/python3.11/queue.py", 0), (FILE, 1)])
def test_what_waits_in_a_librarys_function_is_no_growth(path: str, growing: int) -> None:
    """A thread that waits in `Queue.put` has its item in a local there, in whose file no source is kept."""
    items = [holding("item", direct=1000 + 100 * t, tensors=1, place=Place(path, 1, "put")) for t in TICKS]
    looks = [census(t, item) for t, item in zip(TICKS, items, strict=True)]
    kept = [Source(path=FILE, text="print(1)")]
    assert len(growth_of(rank(program(), kept, steps(50), looks, outcome(50))).growths) == growing


# Emptied in between --------------------------------------------------------------------------------------------------


def looked(*sizes: int, other: int = 1000, ticks: tuple[int, ...] = (25, 50, 100, 200, 300, 390)) -> GrowthSummary:
    """A run of 400 steps, in which a list has so many bytes at each look; with none it has no name."""
    looks = [
        census(t, *([holding("found", size)] if size else []), other=other)
        for t, size in zip(ticks, sizes, strict=False)
    ]
    return growth_of(rank(program(), steps(400), looks, outcome(400)))


def test_the_list_of_each_evaluation_is_no_growth() -> None:
    """A look in an evaluation, one between, and one later in another evaluation."""
    assert not looked(0, 40_000, 0, 84_000).growths
    assert not looked(0, 20_000, 0, 0, 84_000).growths
    assert looked(0, 40_000, 60_000, 84_000).growths


def test_a_name_that_is_gone_while_memory_stays_may_grow_under_another() -> None:
    ticks, sizes = (25, 50, 100, 200), (0, 40_000, 0, 84_000)
    looks = [
        census(t, *([holding("found", size)] if size else [holding("other", 42_000)]))
        for t, size in zip(ticks, sizes, strict=True)
    ]
    assert only(growth_of(rank(program(), steps(400), looks, outcome(400)))).holding.name == "found"


def test_what_rises_again_over_several_looks_grows() -> None:
    assert only(looked(5, 8_000, 0, 20_000, 40_000, 60_000)).bytes == 60_000


# Models that are not trained any more ---------------------------------------------------------------------------------


def models(*idle: int, made: tuple[int, ...] = (), also: int = 0) -> GrowthSummary:
    """A run of 400 steps: what `pool` kept of models that are done with at each look, and when the newest was made."""
    ticks, made = (25, 50, 100, 200, 300, 390)[-len(idle) :], made or tuple(idle)
    looks = []
    for tick, size, newest in zip(ticks, idle, made, strict=True):
        held = [holding("pool", direct=size + also, idle=size, tensors=size)] if size + also else []
        looks.append(census(tick, *held, renewed=newest))
    return growth_of(rank(program(), steps(400), looks, outcome(400)))


def test_models_that_pile_up_grow_by_the_step_at_which_they_are_made() -> None:
    """One of 8,000 bytes every 80 steps, whenever the looks come; at the first two there was none."""
    growth = only(models(0, 0, 8_000, 16_000, 24_000, 32_000, made=(0, 0, 80, 160, 240, 320)))
    assert growth.bytes_per_step == growth.idle_per_step == 100
    assert (growth.first_tick, growth.last_tick, growth.steps) == (50, 390, 320)


def test_a_model_that_is_kept_is_no_growth() -> None:
    """The average of weights, the first of two stages; a third that comes is one too many to be chance."""
    assert not models(0, 8_000, 8_000, 8_000, 8_000).growths
    assert not models(0, 0, 0, 8_000).growths
    assert not models(500, 500, 500, 8_500, also=1).growths, "held by what was there before"
    assert not models(0, 8_000, 16_000, 16_000, 16_000, 16_000).growths, "they have stopped coming"
    assert models(0, 0, 8_000, 16_000).growths


def test_known_memory_that_was_counted_once_is_not_known_to_stand_still() -> None:
    looks = [census(t, categories={"parameters": 10 * t, "gradients": 1000}) for t in (20, 40, 90)]
    assert known_rate(rank(program(), steps(100), looks, outcome(100))) == 10
    assert known_rate(rank(program(), steps(100), looks[:1], outcome(100))) is None
