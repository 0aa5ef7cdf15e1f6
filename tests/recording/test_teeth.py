"""Carried graphs that are freed after many steps."""

from __future__ import annotations

from handmade import holding

from torchvet.analysis.growth_series import Key, Points
from torchvet.analysis.sawtooth import carried_for_long, longest_tooth, piles_of, refilled, teeth_of
from torchvet.recording.records.base import Holding

NAME: Key = ("m", "local: state")


def carried(graph: int, name: str = "state", **more: object) -> Holding:
    return holding(name, graph=graph, carried=True, carrier_ops=["StackBackward0"], container="Tensor", **more)


def sawtooth(*looks: tuple[int, int]) -> Points:
    return [(tick, carried(graph)) for tick, graph in looks]


LONG = ((8, 800), (12, 1200), (20, 2000), (40, 4000), (60, 6000), (90, 3000))


def test_a_long_rise_that_ended_is_a_tooth() -> None:
    tooth = teeth_of({NAME: sawtooth(*LONG)}, [])[NAME]
    assert [tick for tick, _ in tooth.run] == [8, 12, 20, 40, 60]
    assert tooth.ended == 90 and tooth.ops == ("StackBackward0",)


def test_short_teeth_are_truncated_backpropagation() -> None:
    assert not longest_tooth(sawtooth((2, 200), (4, 400), (6, 600), (8, 800), (10, 200)))
    assert not longest_tooth(sawtooth((8, 800), (20, 400), (28, 1200), (44, 400), (60, 800), (90, 300)))


def test_a_graph_goes_back_further_than_the_first_look() -> None:
    """On a slow machine looks are dearer, and fewer: none came between the 27th step and the end of the tooth."""
    seldom = sawtooth((8, 800), (12, 1200), (18, 1800), (27, 2700), (67, 1800), (100, 200))
    assert [tick for tick, _ in longest_tooth(seldom)] == [8, 12, 18, 27]
    late = sawtooth((108, 80), (112, 480), (118, 1080), (127, 1980), (167, 180))
    assert not longest_tooth(late), "twenty steps, however late in the run"


def test_a_graph_that_is_carried_for_long_is_seen_at_three_looks() -> None:
    seen = ((12, 1200), (20, 2000), (30, 3000), (60, 1000))
    assert carried_for_long({NAME: sawtooth(*seen)})
    assert not carried_for_long({NAME: sawtooth((12, 1200), (25, 1000), (40, 1300), (43, 1400))}), "cut in between"
    assert not carried_for_long({NAME: sawtooth((20, 500), (40, 700), (60, 1400))}), "each in another tooth"
    assert not carried_for_long({NAME: [(tick, holding("kept", graph=graph)) for tick, graph in seen]})
    assert not carried_for_long({NAME: sawtooth((30, 3000))}) and not carried_for_long({})


def test_a_rise_to_the_end_is_growth_and_no_tooth() -> None:
    assert not longest_tooth(sawtooth(*LONG[:5]))


def test_what_is_not_carried_makes_no_tooth() -> None:
    assert not longest_tooth([(tick, holding("losses", graph=graph)) for tick, graph in LONG])


def test_items_of_a_tuple_are_one_name() -> None:
    item: Key = (*NAME, "[0]")
    points = sawtooth(*LONG)
    whole = [(tick, holding("state", graph=2 * held.graph, container="tuple")) for tick, held in points]
    assert set(teeth_of({item: points, NAME: whole}, [])) == {NAME}
    assert not teeth_of({item: points, NAME: whole}, [NAME]), "it grows all the same"


# Stores that are emptied ----------------------------------------------------------------------------------------------

STORE: Key = ("m", "local: self", ".scores")


def stored(*looks: tuple[int, int], share: float = 1.0) -> Points:
    """A list with so many bytes at each look, of which graphs saved a share."""
    return [
        (tick, holding("self .scores", int(size * (1 - share)), int(size * share), length=size // 100))
        for tick, size in looks
    ]


RISES = ((12, 1200), (18, 1800), (27, 2700), (90, 9000))
TICKS = [8, 12, 18, 27, 90, 136, 204]


def test_a_store_of_graphs_that_is_emptied_is_a_tooth() -> None:
    tooth = piles_of({STORE: stored(*RISES, (136, 1600), (204, 8400))}, [], TICKS)[STORE]
    assert [tick for tick, _ in tooth.run] == [12, 18, 27, 90] and tooth.ended == 136
    gone = piles_of({STORE: stored(*RISES)}, [], TICKS)[STORE]
    assert gone.ended == 136, "an empty store is at no look"


def test_only_graphs_that_were_kept_for_long_make_a_tooth() -> None:
    assert not piles_of({STORE: stored(*RISES, share=0.2)}, [], TICKS), "collected on purpose"
    assert not piles_of({STORE: stored(*RISES)}, [], TICKS[:5]), "to the last look: it grows"
    assert not piles_of({STORE: stored(*RISES[:3])}, [], TICKS), "three looks"
    assert not piles_of({STORE: stored((8, 800), (12, 1200), (18, 1800), (24, 2400))}, [], TICKS), "24 steps"
    assert not piles_of({STORE: stored(*RISES)}, [STORE[:2]], TICKS), "its holder grows all the same"
    assert not piles_of({NAME: sawtooth(*LONG)}, [], TICKS), "carried on"


def test_the_innermost_name_is_the_store() -> None:
    whole = [(tick, holding("self", graph=held.graph + 50, container="Net")) for tick, held in stored(*RISES)]
    assert set(piles_of({STORE: stored(*RISES), STORE[:2]: whole}, [], TICKS)) == {STORE}


def test_what_is_filled_again_after_it_was_emptied() -> None:
    again = stored(*RISES, (136, 1600), (204, 8400), share=0.0)
    assert [tick for tick, _ in refilled({STORE: again}, [], 204)[STORE]] == [136, 204]
    assert set(refilled({STORE: again, STORE[:2]: again}, [], 204)) == {STORE[:2]}, "once"
    assert not refilled({STORE: again}, [STORE], 204) and not refilled({STORE: again}, [STORE[:2]], 204)
    assert not refilled({STORE: stored(*RISES)}, [], 90), "it was never emptied"
    assert not refilled({STORE: stored(*RISES, (136, 8000), (204, 8400))}, [], 204), "hardly emptied"
    batch = [(tick, holding("x", size, tensors=2)) for tick, size in ((12, 900), (90, 100), (204, 800))]
    assert not refilled({NAME: batch}, [], 204), "batches of other lengths"
