"""A forecast's facts: the verdict in one line, tables that renderers show, cards where there is no accelerator."""

from __future__ import annotations

from typing import Any

import msgspec
from handmade import program, rank

from torchvet.analysis import growth_of
from torchvet.analysis.facts import facts_of
from torchvet.analysis.forecast import forecast_of, low_exponent, subnormal, underflow
from torchvet.analysis.half_precision_devices import CARDS
from torchvet.finding import Report
from torchvet.recording import Recording
from torchvet.recording.records.base import Place, Record
from torchvet.recording.records.forecast import ForecastGradient, ForecastRun, ForecastSite, Hardware
from torchvet.renderers import renderer_for
from torchvet.rules import rule

CPU = Hardware(name="x86_64", kind="cpu", bf16=True, note="AMX")
CARD = Hardware(name="NVIDIA T4", kind="cuda", capability="7.5", fp16=True)
AT = Place("/project/train.py", 7, "forward")


def run(*devices: Hardware, **more: object) -> ForecastRun:
    return ForecastRun(first=1, last=90, sampled=20, half=40, devices=list(devices), **more)  # type: ignore[arg-type]


def site(module: str, largest: float, overflows: int = 0, **more: object) -> ForecastSite:
    facts = {"operator": "addmm", "place": AT, "calls": 20, "first": 1.0, "last": largest, **more}
    return ForecastSite(module=module, largest=largest, overflows=overflows, **facts)  # type: ignore[arg-type]


def gradient(name: str, exponents: dict[int, int], shape: tuple[int, ...] = (4, 4)) -> ForecastGradient:
    return ForecastGradient(
        kind="parameter", name=name, largest=2.0 ** max(exponents), exponents=exponents, shape=shape
    )


def said(*records: Record) -> list[tuple[str, str]]:
    found = rule("NUM102").in_recording(Recording([rank(program(), *records)]))
    return [(f.severity, f.message) for f in found]


def test_the_last_word_of_each_site_counts() -> None:
    forecast = forecast_of(rank(run(CPU), site("Net.a", 5.0), site("Net.a", 7.0), run(CPU)))
    assert forecast is not None and [s.largest for s in forecast.sites] == [7.0]
    assert forecast_of(rank(program())) is None


def test_shares_by_scale() -> None:
    one = gradient("w", {-40: 1, -26: 1, -20: 1, 0: 1})
    assert [underflow([one], s) for s in (0, 1, 2, 16, 30)] == [0.5, 0.5, 0.25, 0.0, 0.0]
    assert [subnormal([one], s) for s in (0, 16, 40)] == [0.25, 0.25, 0.0]


def test_one_island_is_named_and_many_are_too_many() -> None:
    sound = [site(f"Net.{i}", 3.0) for i in range(9)]
    one = forecast_of(rank(run(CPU), *sound, site("Net.deep", 1e5, 3)))
    assert one is not None and one.verdict == "float16 with islands"
    many = forecast_of(rank(run(CPU), *sound, *(site(f"Net.deep{i}", 1e5, 3) for i in range(9))))
    assert many is not None and many.verdict == "bfloat16"


def test_an_overflow_warns_and_what_is_near_informs() -> None:
    found = said(run(CPU), site("Net.deep", 1e5, 3), site("Net.near", 40_000.0), site("Net.far", 4.0))
    assert [severity for severity, _ in found] == ["warning", "info"]
    assert "Net.deep (addmm) would overflow float16: its result reaches 100,000" in found[0][1]
    assert "Net.near (addmm) comes within 0.7 bits" in found[1][1]


def test_layers_that_share_a_line_are_one_finding() -> None:
    found = said(run(CPU), *(site(f"Net.layers.{i}.fc", 1e5 + i, 3) for i in range(12)))
    assert len(found) == 1 and "and 9 more would overflow" in found[0][1]


def test_biases_are_never_said_to_vanish() -> None:
    loud, noise = gradient("query.weight", {-3: 9}), {-60: 9}
    assert said(run(CPU), loud, gradient("key.bias", noise, (4,)))[0][0] == "info"
    assert said(run(CPU), loud, gradient("key.weight", noise))[0] == (
        "warning", "the gradient of key.weight would mostly be zero in float16, scaled or not",
    )  # fmt: skip


def test_a_gradient_beyond_the_range_unscaled() -> None:
    assert said(run(CPU), gradient("w", {20: 3}))[0][0] == "warning"
    assert said(run(CPU), gradient("w", {10: 3})) == []


def test_a_run_in_float16_is_no_ground_for_a_forecast() -> None:
    assert said(run(CPU, own="float16"), site("Net.deep", 1e5, 3)) == []


def test_cards_are_for_machines_without_an_accelerator() -> None:
    on_cpu, on_card = (facts_of(r, growth_of(r))["precision_forecast"] for r in (rank(run(CPU)), rank(run(CARD))))
    assert len(on_cpu["cards"]["rows"]) == len(CARDS) and "cards" not in on_card
    assert on_card["hardware"][0]["bf16"] is False


def test_cards_follow_their_capability() -> None:
    for card in CARDS:
        if card.capability[:1].isdigit():
            assert card.float16 == (float(card.capability) >= 7.0), card
            assert card.bfloat16 == (float(card.capability) >= 8.0), card


def flowing(module: str | None, exponents: dict[int, int]) -> ForecastGradient:
    """Gradients of what the operators of a module read."""
    return ForecastGradient(
        kind="activation", name=f"{module}: addmm", module=module, largest=2.0 ** max(exponents), exponents=exponents
    )


def test_a_module_is_held_against_both_ends_of_both_formats() -> None:
    rows = forecast_facts_of(
        *(site("Net.a", 2.0**10), site("Net.a", 1.0, operator="relu"), site("Net.b", 2.0**12), site("Net.c", 0.0)),
        *(flowing("Net.a", {-20: 1, -12: 99}), flowing(None, {-3: 1})),
    )["modules"]
    assert [row["module"] for row in rows] == ["Net.b", "Net.a", None, "Net.c"], "the nearest to the limit first"
    (b, a, outside, c) = rows
    assert (a["largest"], a["gradient_largest"], a["gradient_low_exponent"]) == (1024.0, 2.0**-12, -13)
    half, brain = a["bits"]["float16"], a["bits"]["bfloat16"]
    assert half == {"to_largest": 6.0, "gradients_to_largest": 28.0, "gradients_to_smallest_normal": 1}
    assert brain == {"to_largest": 118.0, "gradients_to_largest": 140.0, "gradients_to_smallest_normal": 113}
    assert b["gradient_low_exponent"] is None and set(c["bits"]["float16"].values()) == {None}
    assert outside["bits"]["float16"]["gradients_to_smallest_normal"] == 10


def forecast_facts_of(*records: Record) -> dict[str, Any]:
    one = rank(program(), run(CPU), *records)
    found: dict[str, Any] = facts_of(one, growth_of(one))["precision_forecast"]
    return found


def test_a_hundredth_of_the_gradients_may_be_smaller_than_the_smallest() -> None:
    assert low_exponent([gradient("w", {-30: 1, -5: 99})]) == -6
    assert low_exponent([gradient("w", {-30: 2, -5: 98})]) == -31
    assert low_exponent([]) is None


def test_every_renderer_shows_it() -> None:
    one = rank(program(), run(CPU), site("Net.deep", 1e5, 3), gradient("w", {-3: 9}))
    report = Report(subject={"kind": "run"}, verdict="clean", facts=facts_of(one, growth_of(one)))
    text, markdown = (renderer_for(f).render(report) for f in ("text", "markdown"))
    assert "Net.deep addmm" in text and "overflows in 3 of 20 calls" in text and "bfloat16 natively (AMX)" in text
    assert "### Precision forecast" in markdown and "| Net.deep | addmm | 1e+05 | overflows |" in markdown
    plain = msgspec.json.decode(renderer_for("json").render(report))["facts"]["precision_forecast"]
    assert plain["operators"][0]["overflows"] == 3 and plain["verdict"] == "float16 with islands"
