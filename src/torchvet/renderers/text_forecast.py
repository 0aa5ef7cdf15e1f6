"""A precision forecast as text: the verdict, the operators nearest to float16's limit, gradients, hardware."""

from __future__ import annotations

from typing import Any

from torchvet.renderers.page import LABEL, Page, padded
from torchvet.renderers.wording import count, percent, seconds

OPERATORS = 6
_NAME = 44


def add_forecast(page: Page, facts: dict[str, Any]) -> None:
    """The section's lines."""
    page.labelled("float16", facts["summary"], 3)
    for row in facts["operators"][:OPERATORS]:
        page.verbatim(operator_row(row), indent=LABEL)
    if gradients := gradient_text(facts["gradients"]):
        page.labelled("gradients", gradients, 4)
    page.labelled("forecast by", f"{facts['policy']}; {looked(facts)}", 4)
    for device in facts["hardware"]:
        page.labelled("here", hardware_text(device), 2)
    for text in cards_texts(facts.get("cards") or {}):
        page.labelled("elsewhere", text, 3)


def operator_row(row: dict[str, Any]) -> str:
    """One operator: where, how large, how many bits below the limit."""
    name = f"{row['module'] or 'outside modules'} {row['operator']}"
    size = max(row["largest"], row["operand"])
    if row["overflows"]:
        room = f"overflows in {row['overflows']} of {count(row['calls'], 'call')}"
    else:
        room = f"{row['headroom_bits']} bits to spare" if row["headroom_bits"] is not None else "zero"
    return f"{padded(name, _NAME)}  {size:>9.3g}  {room}"


def gradient_text(gradients: dict[str, Any]) -> str:
    """What bounds the scale, and what vanishes under which."""
    if gradients.get("largest") is None:
        return ""
    bound = f"largest {gradients['largest']:.3g} ({gradients['bound_by']}), so that a scale of "
    bound += f"2**{gradients['scale_exponent']} fits"
    parts = [bound]
    for kind in ("parameters", "activations"):
        shares = gradients[kind]
        parts.append(
            f"of {kind}' {percent(shares['underflow_unscaled'])} would vanish unscaled, "
            f"{percent(shares['underflow_at_65536'])} at 65,536, {percent(shares['underflow_at_scale'])} at that scale"
        )
    return "; ".join(parts)


def looked(facts: dict[str, Any]) -> str:
    """How much was looked at."""
    sampled, calls = facts["sampled"], facts["calls"]
    text = f"{count(sampled['steps'], 'sampled step')} up to step {count(sampled['last'])} in "
    text += f"{seconds(sampled['seconds'])}, {count(calls['float16'])} results in float16"
    off = calls["autocast switched off"]
    return text + (f", {count(off, 'call')} where autocast is switched off" if off else "")


def hardware_text(device: dict[str, Any]) -> str:
    """What a device computes natively."""
    native = [kind for kind, field in (("float16", "fp16"), ("bfloat16", "bf16")) if device[field]]
    capability = f" ({device['capability']})" if device["capability"] else ""
    note = f" ({device['note']})" if device["note"] else ""
    return f"{device['name']}{capability}: {' and '.join(native) or 'no half precision'} natively{note}"


def cards_texts(cards: dict[str, Any]) -> list[str]:
    """Common devices by what they compute natively; a line a kind."""
    found = []
    for title, kinds in (
        ("float16 and bfloat16", (True, True)), ("float16 only", (True, False)), ("bfloat16 only", (False, True)),
        ("neither", (False, False)),
    ):  # fmt: skip
        names = [c["name"] for c in cards.get("rows") or () if (c["float16"], c["bfloat16"]) == kinds]
        if names:
            found.append(f"{title}: {', '.join(names)}")
    return found
