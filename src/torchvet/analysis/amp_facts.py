"""The comparison of precisions as plain JSON, and its verdict in one line."""

from __future__ import annotations

from typing import Any

from torchvet.analysis.amp import MODES, AmpResult, Side
from torchvet.formatting import percent, picked
from torchvet.recording.records.amp import AmpMode

NOISE = 0.05
"""Differences in time below this are none: the trials of one mode differ by as much."""
APART = 0.1
"""A final loss that differs from float32's by more than this is worth a word."""


def amp_facts(result: AmpResult) -> dict[str, Any]:
    """Plain JSON values: seconds and bytes; ratios are to float32."""
    return {
        "summary": summary(result),
        **picked(result, "device", "how", "steps", "trials", "clock"),
        "program_asks_for": result.wanted,
        "weight_copies": result.copies,
        "modes": [_row(result, mode) for mode in MODES],
        "unaligned": [{"name": u.name, "shape": list(u.shape)} for u in result.unaligned],
        "unaligned_count": len(result.unaligned),
    }


def _row(result: AmpResult, mode: AmpMode) -> dict[str, Any]:
    side = result.sides[mode]
    own = picked(side, "seconds", "final_loss", "not_finite", "skipped", "scale", "native", "error")
    own |= {"mode": mode, "spread": list(side.spread), "peak_bytes": side.peak, "activation_bytes": side.activations}
    ratios = {"time_ratio": result.ratio(mode), "memory_ratio": result.memory(mode)}
    return {**own, **ratios, "loss_difference": result.loss_difference(mode)}


def summary(result: AmpResult) -> str:
    """One line: what each half precision costs and saves here, and what that says of other devices."""
    where = "this CPU" if result.device == "cpu" else "this GPU"
    parts = [f"{mode} {_told(result, mode)}" for mode in MODES[1:]]
    text = f"On {where} " + "; ".join(parts)
    # A CPU without native half precision is slower in it, where a GPU is faster.
    if result.device == "cpu":
        text += ". These times say nothing about a GPU; sizes do"
    return text


def _told(result: AmpResult, mode: AmpMode) -> str:
    side: Side = result.sides[mode]
    time, memory = result.ratio(mode), result.memory(mode)
    if time is None:
        return f"could not be measured ({side.error or 'no float32 run to compare with'})"
    speed = f"is {time:.1f}x slower" if time > 1 else f"is {1 / time:.1f}x faster"
    speed = "is as fast as float32" if abs(time - 1) <= NOISE else speed
    text = speed + (f" and {_saves(memory)}" if memory is not None else "")
    difference = result.loss_difference(mode)
    if side.not_finite:
        text += f", but its loss is not finite in {side.not_finite} steps"
    elif difference is not None and abs(difference) > APART:
        text += f", but its loss ends {percent(abs(difference))} {'above' if difference > 0 else 'below'} float32's"
    return text


def _saves(memory: float) -> str:
    if abs(memory - 1) < 0.01:
        return "saves no memory"
    return f"saves {percent(1 - memory)} of the peak" if memory < 1 else f"takes {percent(memory - 1)} more at the peak"
