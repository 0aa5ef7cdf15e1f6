"""A window's storages are followed: who is alive two, four, eight steps later."""

from __future__ import annotations

from torchvet.probes.base.ledger import Birth
from torchvet.probes.memory.cohorts import Cohort, Cohorts


def births(*sizes: int) -> list[Birth]:
    found = []
    for key, size in enumerate(sizes):
        birth = Birth(key, size, 1, 0)
        birth.op, birth.tensor = "aten.add", ((1,), "float32", "cpu")
        found.append(birth)
    return found


def nobody() -> dict[int, object]:
    return {}


def test_a_cohort_is_checked_at_growing_ages() -> None:
    cohorts = Cohorts()
    cohorts.add(Cohort(1, 10, 2, births(100)))
    ages = []
    for tick in range(11, 60):
        if cohorts.due(tick):
            cohorts.check(tick, nobody)
            ages.append(tick - 10)
    assert ages == [2, 4, 8, 16, 32]


def test_what_died_is_not_counted() -> None:
    cohorts, made = Cohorts(), births(100, 20)
    cohorts.add(Cohort(3, 10, 2, made))
    made[0].died = 5
    (record,) = cohorts.check(12, nobody)
    assert (record.window, record.tick, record.steps, record.bytes, record.storages) == (3, 12, 2, 20, 1)


def test_what_became_known_memory_is_dropped() -> None:
    """Optimizer state is born in the first step and lives for ever, by right."""
    cohorts = Cohorts()
    cohorts.add(Cohort(1, 10, 2, births(100, 20)))
    (record,) = cohorts.check(12, lambda: {0: "optimizer state"})
    assert record.bytes == 20


def test_one_window_with_survivors_is_no_suspicion_two_are() -> None:
    cohorts = Cohorts()
    cohorts.add(Cohort(1, 2, 2, births(100)))
    cohorts.check(4, nobody)
    assert not cohorts.suspicious(), "buffers that are made once live on from the first window"
    cohorts.add(Cohort(2, 5, 2, births(100)))
    cohorts.check(7, nobody)
    assert cohorts.suspicious()


def test_suspicion_goes_when_the_survivors_do() -> None:
    cohorts, one, two = Cohorts(), births(100), births(100)
    cohorts.add(Cohort(1, 2, 2, one))
    cohorts.add(Cohort(2, 4, 2, two))
    cohorts.check(6, nobody)
    assert cohorts.suspicious()
    one[0].died = two[0].died = 3
    cohorts.check(20, nobody)
    assert not cohorts.suspicious()


def test_the_last_check_takes_all_that_are_old_enough() -> None:
    cohorts = Cohorts()
    cohorts.add(Cohort(1, 2, 2, births(100)))
    cohorts.check(4, nobody)
    cohorts.add(Cohort(2, 4, 2, births(50)))
    assert [r.window for r in cohorts.check(5, nobody, everything=True)] == [1], "the second is one step old"
    assert [r.window for r in cohorts.check(6, nobody, everything=True)] == [1, 2]


def test_known_memory_is_asked_for_only_when_it_is_needed() -> None:
    cohorts = Cohorts()
    cohorts.add(Cohort(1, 10, 2, births(100)))

    def asked() -> dict[int, object]:
        raise AssertionError("nothing is due")

    assert cohorts.check(11, asked) == []


def test_forgetting() -> None:
    cohorts = Cohorts()
    cohorts.add(Cohort(1, 1, 2, births(100)))
    cohorts.forget()
    assert not cohorts.due(100) and cohorts.check(100, nobody) == []
