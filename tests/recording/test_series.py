"""One name's points: what counts as rising up to the end, and where the rise gathers."""

from __future__ import annotations

import pytest
from handmade import holding

from torchvet.analysis.growth_series import Points, grows, localise, misfit, rising_tail
from torchvet.analysis.memory_series import longest_climb


def points(*sizes: int, every: int = 5, **more: object) -> Points:
    return [((i + 1) * every, holding("x", direct=size, **more)) for i, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "length"),
    [
        ((1, 2, 3, 4), 4),
        ((5, 5, 6, 7), 3),
        ((9, 1, 2, 3), 1),
        ((9, 1, 8, 16), 3),
        ((1, 2, 100, 100), 1),
        ((7,), 1),
    ],
    ids=["all along", "from some point on", "emptied, below its height", "emptied, above it", "full", "seen once"],
)
def test_the_rising_tail(sizes: tuple[int, ...], length: int) -> None:
    assert len(rising_tail(points(*sizes))) == length


def test_a_name_that_is_gone_does_not_grow() -> None:
    rising = points(100, 200, 300)
    assert grows(rising, last=15) and not grows(rising, last=20)


def test_two_points_are_enough_only_where_that_is_said() -> None:
    two = points(1000, 9000)
    assert grows(two, last=10) and not grows(two, last=10, few=False)
    assert not grows(two, last=10, at_the_end=5000), "less is left of it after the end"
    assert not grows(points(1000, 9000, every=2), last=4), "two steps apart"


@pytest.mark.parametrize(
    ("ticks", "stores", "enough"), [(4, 2, True), (4, 1, False), (54, 2, False), (54, 4, False), (54, 9, True)]
)
def test_two_points_need_more_stores_than_a_batch_has_tensors(ticks: int, stores: int, enough: bool) -> None:
    """A loader's iterator holds one batch amid an evaluation and two in training, of two tensors each."""
    two = [(8, holding("x", direct=8192, tensors=2)), (8 + ticks, holding("x", direct=16384, tensors=2 + stores))]
    assert grows(two, last=8 + ticks) is enough


def test_the_rise_is_followed_to_the_container() -> None:
    def chain(size: int) -> list[tuple[tuple[str, ...], int]]:
        return [(("m", "global: t"), size + 50), (("m", "global: t", ".losses"), size), (("m", "other"), 3)]

    growing: dict[tuple[str, ...], Points] = {}
    for tick, size in ((5, 100), (9, 500), (14, 1000)):
        for key, held in chain(size):
            container = "list" if key[-1] == ".losses" else "Trainer"
            growing.setdefault(key, []).append((tick, holding("x", direct=held, container=container)))
    del growing[("m", "other")]
    assert localise(growing) == [("m", "global: t", ".losses")]


def test_misfit_is_the_share_that_a_line_leaves() -> None:
    assert misfit([1, 2, 3], [10, 20, 30]) == pytest.approx(0)
    assert misfit([1, 2, 3], [5, 5, 5]) == misfit([1, 1, 1], [1, 2, 3]) == 1.0
    assert 0 < misfit([1, 2, 3, 4], [10, 22, 29, 41]) < 0.05


@pytest.mark.parametrize(
    ("sizes", "climb"),
    [
        ((0, 10, 20, 30, 0, 10, 20, 5), (30, 3)),
        ((0, 10, 20, 0, 10, 20, 30, 40), (40, 4)),
        ((30, 20, 10, 0), (0, 0)),
        ((0, 1000, 2000, 0, 10, 20), (20, 2)),
        ((), (0, 0)),
    ],
    ids=["falls", "still rises", "only falls", "another's rise", "nothing"],
)
def test_the_longest_climb_at_a_rate(sizes: tuple[int, ...], climb: tuple[int, int]) -> None:
    assert longest_climb(tuple(enumerate(sizes)), 10) == climb
