"""Amounts are compared, not sets of names; totals gate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torchvet.comparing import Side, Table, compare

AMOUNTS = st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 1e12))


def side(*tables: Table, path: str = "x") -> Side:
    return Side(kind="recording", path=path, tables=list(tables))


def table(total: float | None = None, gates: bool = False, title: str = "peak by line", **rows: float) -> Table:
    return Table(title=title, unit="bytes", rows=rows, total=total, gates=gates)


def test_a_leak_on_a_line_that_was_there_is_a_rise_of_its_bytes() -> None:
    (found,) = compare(side(table(line=100, other=5)), side(table(line=300, other=5))).differences
    assert [(r.name, r.before, r.after, r.by) for r in found.rows] == [("line", 100, 300, 200)]


def test_what_came_and_what_went_count_from_nothing() -> None:
    (found,) = compare(side(table(gone=10)), side(table(new=40))).differences
    assert [(r.name, r.by) for r in found.rows] == [("new", 40), ("gone", -10)]


def test_gates_go_by_totals_that_gate() -> None:
    before = side(table(100, True, "peak"), table(100, False, "time"), table(0, True, "growth"))
    after = side(table(101, True, "peak"), table(900, False, "time"), table(5, True, "growth"))
    compared = compare(before, after)
    assert [d.title for d in compared.over(0.01)] == ["growth"]
    assert [d.title for d in compared.over(0.009)] == ["peak", "growth"]
    assert compare(after, before).over(0.0) == []


def test_a_table_that_only_one_side_has_is_told() -> None:
    (found,) = compare(side(), side(table(7, True, a=7))).differences
    assert (found.before, found.after, found.growth) == (None, 7, None)
    assert not found.same


@given(AMOUNTS)
def test_a_side_is_the_same_as_itself(rows: dict[str, float]) -> None:
    one = side(table(sum(rows.values()), True, **rows))
    assert compare(one, one).same and not compare(one, one).over(0.0)


@given(AMOUNTS, AMOUNTS)
def test_there_and_back_is_nothing(ours: dict[str, float], theirs: dict[str, float]) -> None:
    one, other = side(table(**ours)), side(table(**theirs))
    there, back = compare(one, other).differences[0].rows, compare(other, one).differences[0].rows
    assert {r.name: r.by for r in there} == {r.name: -r.by for r in back}
