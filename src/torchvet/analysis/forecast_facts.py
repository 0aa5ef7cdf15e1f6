"""The facts of a precision forecast as plain JSON: verdict, operators by headroom, gradients by scale, hardware."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from torchvet.analysis.forecast import (
    FORMATS,
    INITIAL,
    Forecast,
    Format,
    headroom,
    low_exponent,
    subnormal,
    underflow,
)
from torchvet.analysis.half_precision_devices import CARDS, SOURCE
from torchvet.formatting import picked
from torchvet.recording.records.forecast import ForecastGradient, ForecastSite

# For readers of JSON: a large model has thousands of each.
_OPERATORS, _PARAMETERS, _MODULES = 200, 200, 200
POLICY = (
    "an emulation of CUDA's autocast: the lists of PyTorch's documentation (CUDA Op-Specific Behavior), applied to the "
    "values of this run"
)


def forecast_facts(forecast: Forecast) -> dict[str, Any]:
    """Plain JSON values. Magnitudes are absolute values, shares are of elements other than zero, from 0 to 1."""
    run = forecast.run
    facts: dict[str, Any] = {
        "verdict": forecast.verdict,
        "summary": summary(forecast),
        "policy": POLICY,
        "sampled": {"steps": run.sampled, "first": run.first, "last": run.last, "seconds": run.seconds},
        "calls": {"float16": run.half, "float32": run.float32, "autocast switched off": run.off},
        "operators": [_operator(s) for s in sorted(forecast.sites, key=_size, reverse=True)[:_OPERATORS]],
        "gradients": _gradients(forecast),
        "modules": _modules(forecast),
        "hardware": [msgspec.to_builtins(d) for d in run.devices],
    }
    # With a GPU at hand it says itself what it computes natively.
    if all(d.kind == "cpu" for d in run.devices):
        facts["cards"] = {"source": SOURCE, "rows": [msgspec.to_builtins(c) for c in CARDS]}
    return facts


def summary(forecast: Forecast) -> str:
    """The verdict in one line."""
    if forecast.verdict == "bfloat16":
        reason = f"{len(forecast.overflowing)} of {len(forecast.sites)} operators leave float16's range"
        if forecast.vanishing:
            reason = f"the gradients of {len(forecast.vanishing)} weights vanish in float16 under any one scale"
        return f"bfloat16: {reason}; its range is float32's"
    if forecast.overflowing:
        names = list(dict.fromkeys(label(s) for s in forecast.overflowing))
        return f"float16 with float32 islands ({', '.join(names)}), or bfloat16 as it is"
    largest = max((s.largest for s in forecast.sites), default=0.0)
    room = f", {headroom(largest):.1f} bits below the limit at the nearest" if largest else ""
    scaled = f"; a GradScaler would settle at about {power(forecast.scale)}" if forecast.scale is not None else ""
    return f"float16 fits{room}{scaled}"


def label(site: ForecastSite) -> str:
    """How a site is named: its module and operator."""
    return f"{site.module} ({site.operator})" if site.module else f"{site.operator} outside modules"


def power(exponent: int | None) -> str:
    """A loss scale as it is written: `2**16 = 65,536`."""
    if exponent is None:
        return "an unknown scale"
    return f"2**{exponent} = {2**exponent:,}" if 0 <= exponent <= 30 else f"2**{exponent}"


def _size(site: ForecastSite) -> float:
    # Either may overflow: the operand as it is cast, the result as it is computed.
    return max(site.largest, site.operand)


def _operator(site: ForecastSite) -> dict[str, Any]:
    room = headroom(_size(site))
    return {
        **picked(site, "module", "operator", "largest", "operand", "first", "last", "calls"),
        **picked(site.place or site.inner, "path", "line"),
        "step": site.tick,
        "headroom_bits": None if math.isinf(room) else round(room, 1),
        # A cast that overflows counts as well: autocast makes it.
        "overflows": site.overflows + site.casts,
    }


def _modules(forecast: Forecast) -> list[dict[str, Any]]:
    """A row for each module, the one nearest to float16's largest number first; None stands for what is outside."""
    sizes: dict[str | None, float] = {}
    for site in forecast.sites:
        sizes[site.module] = max(_size(site), sizes.get(site.module, 0.0))
    gradients: dict[str | None, list[ForecastGradient]] = {module: [] for module in sizes}
    for one in forecast.gradients:
        if one.kind == "activation":
            gradients.setdefault(one.module, []).append(one)
    rows = [_module(module, sizes.get(module, 0.0), found) for module, found in gradients.items()]
    return sorted(rows, key=lambda row: -max(row["largest"], row["gradient_largest"] or 0.0))[:_MODULES]


def _module(module: str | None, size: float, gradients: list[ForecastGradient]) -> dict[str, Any]:
    most, low = max((g.largest for g in gradients), default=0.0), low_exponent(gradients)
    return {
        "module": module,
        "largest": size,
        "gradient_largest": most or None,
        "gradient_low_exponent": low,
        # Powers of two between what was measured and what the format holds.
        "bits": {
            name: {
                "to_largest": _bits(size, kind),
                "gradients_to_largest": _bits(most, kind),
                "gradients_to_smallest_normal": None if low is None else low - kind.smallest_normal,
            }
            for name, kind in FORMATS.items()
        },
    }


def _bits(magnitude: float, kind: Format) -> float | None:
    return round(math.log2(kind.largest / magnitude), 1) if 0 < magnitude < math.inf else None


def _gradients(forecast: Forecast) -> dict[str, Any]:
    bound, best = forecast.largest_gradient, forecast.scale
    parameters = [g for g in forecast.gradients if g.kind == "parameter"]
    activations = [g for g in forecast.gradients if g.kind == "activation"]
    kinds = (("parameters", parameters), ("activations", activations))
    return {
        "scale_exponent": best,
        "largest": bound.largest if bound else None,
        "bound_by": bound.name if bound else None,
        **{name: _shares(kind, best) for name, kind in kinds},
        "by_parameter": [
            {"name": g.name, "largest": g.largest, **_shares([g], best)}
            # The smallest first: those are the ones that vanish.
            for g in sorted(parameters, key=lambda g: g.largest)[:_PARAMETERS]
        ],
    }


def _shares(gradients: list[ForecastGradient], best: int | None) -> dict[str, float | None]:
    return {
        "underflow_unscaled": underflow(gradients, 0),
        "subnormal_unscaled": subnormal(gradients, 0),
        "underflow_at_65536": underflow(gradients, INITIAL),
        "subnormal_at_65536": subnormal(gradients, INITIAL),
        "underflow_at_scale": None if best is None else underflow(gradients, best),
    }
