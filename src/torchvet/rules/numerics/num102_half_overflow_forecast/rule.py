"""NUM102: values would overflow, or gradients vanish, were this run done in float16."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchvet.analysis.forecast import INITIAL, LARGEST, forecast_of, headroom, underflow
from torchvet.analysis.forecast_facts import label, power
from torchvet.rules.kit import Finding, Iterator, RankRecording, Recording, Severity, percent, records
from torchvet.rules.numerics._runs import NumberRule

if TYPE_CHECKING:
    from torchvet.analysis.forecast import Forecast

_NAMED = 3
_WORTH_A_SCALER = 0.01


class HalfOverflowForecast(NumberRule):
    """Values would overflow, or gradients vanish, were this run done in float16."""

    severity = "warning"
    fix_changes_results = True
    found_with = ("run", "--precision-forecast")

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """One finding for each line at which values leave the range, one for all that come near, one for gradients."""
        forecast = forecast_of(rank)
        # A program that is in float16 already is no ground for a forecast: it lost what was too large.
        if forecast is not None and forecast.run.own != "float16":
            yield from self._overflows(rank, forecast)
            yield from self._near(rank, forecast)
            yield from self._gradients(rank, forecast)

    def _overflows(self, rank: RankRecording, forecast: Forecast) -> Iterator[Finding]:
        lines: dict[object, list[records.forecast.ForecastSite]] = {}
        for site in forecast.overflowing:
            lines.setdefault(site.place or site.inner or label(site), []).append(site)
        for worst, *others in lines.values():
            subject = _listed(list(dict.fromkeys(label(site) for site in (worst, *others))))
            message = f"{subject} would overflow float16: {_what(worst)}"
            severity: Severity = "info" if worst.operator == "where" else "warning"
            place = worst.place or worst.inner
            yield self.at(rank, place, message, _cause(worst), _advice(worst, forecast), severity)

    def _near(self, rank: RankRecording, forecast: Forecast) -> Iterator[Finding]:
        if not forecast.near:
            return
        nearest, count = forecast.near[0], len(forecast.near)
        others = f"; {count - 1} more within two bits" if count > 1 else ""
        bits, largest = f"{headroom(nearest.largest):.1f} bits", _number(nearest.largest)
        message = f"{label(nearest)} comes within {bits} of float16's limit: {largest}{others}"
        cause = f"it was {_number(nearest.first)} in the first sampled step and {_number(nearest.last)} in the last"
        advice = "watch it as training goes on, or use bfloat16, whose range is float32's"
        yield self.at(rank, nearest.place or nearest.inner, message, cause, advice, "info")

    def _gradients(self, rank: RankRecording, forecast: Forecast) -> Iterator[Finding]:
        bound, scale = forecast.largest_gradient, power(forecast.scale)
        if forecast.vanishing:
            names = _listed([gradient.name for gradient in forecast.vanishing])
            message = f"the gradient of {names} would mostly be zero in float16, scaled or not"
            other = bound.name if bound else "another"
            cause = f"a scale above {scale} makes the gradient of {other} infinite, and under it these are below 3e-8"
            advice = "use bfloat16, or bring the layers' gradients closer together (normalisation, initialisation)"
            yield self.at(rank, None, message, cause, advice, "warning")
        if bound is not None and bound.largest >= LARGEST and not forecast.overflowing:
            message = (
                f"the gradient of {bound.name} reaches {_number(bound.largest)}: infinite in float16 even unscaled"
            )
            cause = f"GradScaler starts at 65,536 and would skip steps until its scale is {scale}"
            yield self.at(rank, None, message, cause, "use bfloat16, or average the loss, not sum it", "warning")
        parameters = [gradient for gradient in forecast.gradients if gradient.kind == "parameter"]
        lost = underflow(parameters, 0)
        if lost >= _WORTH_A_SCALER:
            scaled = percent(underflow(parameters, INITIAL))
            message = f"{percent(lost)} of the gradients' elements would be zero in float16 without loss scaling"
            cause = f"with a scale of 65,536 it is {scaled}; a GradScaler would settle at about {scale}"
            advice = "train in float16 with a GradScaler only; bfloat16 needs none"
            yield self.at(rank, None, message, cause, advice, "info")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _number(value: float) -> str:
    return f"{value:,.0f}" if 100 <= value < 1e7 else f"{value:.3g}"


def _what(site: records.forecast.ForecastSite) -> str:
    """What is too large: the result, or what goes in."""
    if site.casts and not site.overflows:
        return f"what goes in reaches {_number(site.operand)} and is cast to float16, which ends at {LARGEST:,.0f}"
    return f"its result reaches {_number(site.largest)}, float16 ends at {LARGEST:,.0f}"


def _cause(site: records.forecast.ForecastSite) -> str:
    if site.fills:
        return f"`{site.operator}` writes a constant that float16 does not have: PyTorch refuses it with an error"
    if site.overflows:
        grown = f"; it was {_number(site.first)} in the first sampled step, {_number(site.last)} in the last"
        return f"autocast leaves this result in float16, in {site.overflows} of {site.calls} sampled calls{grown}"
    return "autocast casts the operands of matrix products and convolutions to float16 before it computes"


def _advice(site: records.forecast.ForecastSite, forecast: Forecast) -> str:
    if site.fills:
        return "write `torch.finfo(x.dtype).min` instead of the constant"
    if site.casts and not site.overflows:
        return "normalise what goes in, or use bfloat16, whose range is float32's"
    if forecast.verdict == "bfloat16":
        return "use bfloat16, whose range is float32's: too much here is too large for islands in float32"
    return (
        "compute this in float32 (`with torch.autocast(device, enabled=False)` around it, its input `.float()`), or "
        "use bfloat16, whose range is float32's"
    )
