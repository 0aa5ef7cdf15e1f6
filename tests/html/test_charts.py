"""Series that are too long to be drawn keep their lowest and highest values, and say so."""

from __future__ import annotations

import pytest
from drawn_by_hand import broken, drawn, leaking, long, ranks
from handmade import census, holding, outcome, program, rank
from hypothesis import given
from hypothesis import strategies as st

from torchvet.charts import MOST_POINTS, Chart, Drawing, kept
from torchvet.recording import Recording
from torchvet.recording.records.base import Step
from torchvet.recording.records.nonfinite import NumberSamples


def chart(drawing: Drawing, name: str) -> Chart:
    return next(c for c in drawing.charts if c.id == name)


@given(st.lists(st.none() | st.floats(-1e9, 1e9), max_size=400), st.integers(8, 60))
def test_the_lowest_and_the_highest_of_each_stretch_are_kept(values: list[float | None], most: int) -> None:
    places, width = kept(values, most)
    assert places == sorted(set(places)) and len(places) <= max(most, len(values) if width == 1 else 0)
    known = [v for v in values if v is not None]
    shown = [values[p] for p in places if values[p] is not None]
    assert (min(shown), max(shown)) == (min(known), max(known)) if known else not shown
    if width > 1:
        assert {0, len(values) - 1} <= set(places)
        for first in range(0, len(values), width):
            stretch = [v for v in values[first : first + width] if v is not None]
            inside = [values[p] for p in places if first <= p < first + width]
            assert not stretch or {min(stretch), max(stretch)} <= set(inside)


def test_a_hundred_thousand_steps_are_thinned_and_said() -> None:
    _, drawing = drawn(long(100_000))
    time = chart(drawing, "time")
    series = time.series[0]
    assert len(series.x) == len(series.y) <= MOST_POINTS
    # The one step that took three seconds more is still there.
    assert max(y for y in series.y if y is not None) > 3.0
    assert (
        f"99,999 records of steps shown as {len(series.x):,} points (the lowest and the highest of each 101)"
        in time.notes
    )


def test_a_short_run_is_drawn_whole_and_nothing_is_said() -> None:
    _, drawing = drawn(leaking())
    time = chart(drawing, "time")
    assert len(time.series[0].x) == 59 and not [n for n in time.notes if "shown as" in n]
    assert [s.name for s in time.series] == ["data", "backward", "optimizer", "forward and other"]
    assert sum(s.y[10] or 0 for s in time.series) == pytest.approx(0.1)


def test_steps_that_were_written_down_together_are_their_mean() -> None:
    records = [program(), Step(n=10, kind="training", t=1.0), Step(n=30, kind="training", t=3.0, count=20), outcome(30)]
    _, drawing = drawn(Recording([rank(records)]))
    time = chart(drawing, "time")
    assert time.series[0].y == [0.1]
    assert "where steps were written down together (up to 20) a point is their mean" in time.notes


def test_a_bar_is_as_wide_as_the_steps_it_stands_for() -> None:
    together = Step(n=30, kind="training", t=3.0, count=20, phases={"data": 2.0})
    records = [program(), Step(n=10, kind="training", t=1.0), together, outcome(30)]
    _, drawing = drawn(Recording([rank(records)]))
    bar = chart(drawing, "time").series[0]
    assert (bar.x, bar.y, bar.widths) == ([20.5], [0.1], [18.0])


def test_most_of_the_steps_have_a_view_where_one_is_slow() -> None:
    _, drawing = drawn(long(100))
    everything, most = chart(drawing, "time").views
    assert everything.y is not None and everything.y[1] > 3.0 and most.y is not None and most.y[1] < 0.3
    assert chart(drawn(leaking())[1], "time").views == []


def test_the_areas_of_memory_add_up_to_what_names_reach() -> None:
    recording = leaking()
    _, drawing = drawn(recording)
    memory = chart(drawing, "memory")
    areas = [s for s in memory.series if s.style == "area"]
    assert [s.name for s in areas] == ["parameters", "history", "other names"]
    sums = [sum(s.y[i] or 0 for s in areas) for i in range(4)]
    totals = [c.total for c in recording.ranks[0].all(type(census(1)))]
    assert sums == totals
    assert [m.label for m in memory.marks if m.finding is not None] == ["MEM101: history grows"]


def test_the_growth_and_its_forecast_meet_at_the_last_search() -> None:
    report, drawing = drawn(leaking())
    growth = chart(drawing, "growth")
    forecast, held = growth.series
    assert held.y[-1] == forecast.y[1] == 4000 * 56
    end = report.findings[0].measured.exhausted_at_step
    assert end is not None and forecast.x[-1] == end == growth.marks[0].x
    assert [view.label for view in growth.views] == ["measured", "until memory ends"]
    slope = ((forecast.y[2] or 0) - (forecast.y[1] or 0)) / (forecast.x[2] - forecast.x[1])
    assert slope == pytest.approx(report.findings[0].measured.bytes_per_step)


def test_boxes_hold_what_their_parts_hold() -> None:
    for recording in (leaking(), ranks()):
        _, drawing = drawn(recording)
        nodes = chart(drawing, "holders").nodes if any(c.id == "holders" for c in drawing.charts) else []
        for at, node in enumerate(nodes):
            inside = sum(n.value for n in nodes if n.parent == at)
            assert inside <= node.value * (1 + 1e-9)


def test_losses_norms_and_scales_are_drawn_and_gaps_are_said() -> None:
    _, drawing = drawn(leaking())
    assert [s.name for s in chart(drawing, "numbers").series] == ["loss", "gradient norm"]
    _, drawing = drawn(broken())
    numbers = chart(drawing, "numbers")
    assert numbers.series[0].y[28] == 1.0 and numbers.series[0].y[29] is None
    assert "a gap is a value that was NaN or infinite" in numbers.notes
    assert [(m.x, m.label) for m in numbers.marks] == [(30.0, "first loss that is not finite")]


def test_scales_are_drawn_with_the_losses_that_went_through_them() -> None:
    samples = NumberSamples(loss_steps=[2, 4, 6], losses=[3.0, None, 1.0], scales=[None, 1024.0, 2048.0])
    _, drawing = drawn(Recording([rank(program(), samples, Step(n=6, kind="training", t=1.0), outcome(6))]))
    numbers = chart(drawing, "numbers")
    loss, scale = numbers.series
    assert (loss.x, loss.y) == ([2.0, 4.0, 6.0], [3.0, None, 1.0])
    assert (scale.x, scale.y, scale.right) == ([4.0, 6.0], [1024.0, 2048.0], True)
    assert numbers.caption == "Loss: 3 at step 2, 1 at step 6; loss scale: 1,024 at step 4, 2,048 at step 6."


def test_ranks_have_charts_of_their_own_and_a_map() -> None:
    _, drawing = drawn(ranks())
    assert [c.rank for c in drawing.charts if c.id == "time"] == [0, 1, 2, 3]
    over = chart(drawing, "ranks")
    assert over.labels == ["rank 0", "rank 1", "rank 2", "rank 3"] and len(over.grid) == 4
    assert over.grid[3][5] == pytest.approx(0.2) and over.grid[0][5] == pytest.approx(0.1)
    assert "rank 3 takes longest" in over.caption


def test_what_was_not_recorded_is_not_drawn_and_said() -> None:
    report, drawing = drawn(Recording([rank(program(), outcome(0))]))
    assert drawing.charts == [] and report.verdict == "undetermined"
    assert any(text.startswith("memory over the steps: nothing") for text in drawing.missing)
    assert any(text.startswith("loss, gradient norm") for text in drawing.missing)
    _, drawing = drawn(Recording([]))
    assert drawing.charts == []


def test_recordings_of_earlier_versions_are_drawn() -> None:
    """Without phases, categories, heap samples and losses."""
    old = [Step(n=n, kind="training", t=0.1 * n) for n in range(1, 30)]
    searched = [census(at, holding("history", graph=400 * at)) for at in (8, 16, 28)]
    _, drawing = drawn(Recording([rank(program(), old, *searched, outcome(29))]))
    assert {c.id for c in drawing.charts} >= {"memory", "growth", "time"}
    assert [s.name for s in chart(drawing, "time").series] == ["a step"]


def test_a_rank_that_has_begun_its_steps_anew_is_drawn_from_there() -> None:
    weak = [Step(n=n, kind="forward", t=0.1 * n) for n in range(1, 9)]
    again = [Step(n=n, kind="training", t=1.0 + 0.1 * n) for n in range(1, 20)]
    _, drawing = drawn(Recording([rank(program(), weak, again, outcome(19))]))
    assert chart(drawing, "time").series[0].x == [float(n) for n in range(2, 20)]
