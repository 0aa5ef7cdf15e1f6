"""A precision forecast as text: the verdict, the operators nearest to float16's limit, gradients, hardware."""

from __future__ import annotations

from typing import Any

from torchvet.renderers.markdown_text import code_span, escaped
from torchvet.renderers.page import LABEL, Page, padded
from torchvet.renderers.wording import count, percent, seconds

OPERATORS, MARKDOWN_OPERATORS = 6, 20
"""Rows shown on a page, and in Markdown."""
_NAME = 44
_NATIVE = {
    (True, True): "float16 and bfloat16",
    (True, False): "float16 only",
    (False, True): "bfloat16 only",
    (False, False): "neither",
}
"""By what a device computes natively: float16, bfloat16."""


def add_forecast(page: Page, facts: dict[str, Any]) -> None:
    """The section's lines."""
    page.labelled("float16", facts["summary"], 3)
    for row in facts["operators"][:OPERATORS]:
        page.verbatim(operator_row(row), indent=LABEL)
    if gradients := gradient_text(facts["gradients"]):
        page.labelled("gradients", gradients, 4)
    page.labelled("forecast by", f"{facts['policy']}; {sampled_text(facts)}", 4)
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
    fits = f"so that a scale of 2**{gradients['scale_exponent']} fits"
    parts = [f"largest {gradients['largest']:.3g} ({gradients['bound_by']}), {fits}"]
    for kind in ("parameters", "activations"):
        shares = gradients[kind]
        parts.append(
            f"of {kind}' {percent(shares['underflow_unscaled'])} would vanish unscaled, "
            f"{percent(shares['underflow_at_65536'])} at 65,536, {percent(shares['underflow_at_scale'])} at that scale"
        )
    return "; ".join(parts)


def sampled_text(facts: dict[str, Any]) -> str:
    """How many steps and results the forecast rests on."""
    sampled, calls = facts["sampled"], facts["calls"]
    steps = f"{count(sampled['steps'], 'sampled step')} up to step {count(sampled['last'])}"
    off = calls["autocast switched off"]
    without = f", {count(off, 'call')} with autocast switched off" if off else ""
    return f"{steps} in {seconds(sampled['seconds'])}, {count(calls['float16'])} results in float16{without}"


def hardware_text(device: dict[str, Any]) -> str:
    """What a device computes natively."""
    native = [kind for kind, field in (("float16", "fp16"), ("bfloat16", "bf16")) if device[field]]
    capability = f" ({device['capability']})" if device["capability"] else ""
    note = f" ({device['note']})" if device["note"] else ""
    return f"{device['name']}{capability}: {' and '.join(native) or 'no half precision'} natively{note}"


def cards_texts(cards: dict[str, Any]) -> list[str]:
    """Common devices by what they compute natively; a line for each kind."""
    names: dict[str, list[str]] = {title: [] for title in _NATIVE.values()}
    for card in cards.get("rows") or ():
        names[_NATIVE[card["float16"], card["bfloat16"]]].append(card["name"])
    return [f"{title}: {', '.join(cards)}" for title, cards in names.items() if cards]


def forecast_section(facts: dict[str, Any]) -> str:
    """The forecast as a section of Markdown: the summary and a table of operators."""
    rows = ["| module | operator | largest | bits to the limit | line |", "|---|---|---|---|---|"]
    for row in facts["operators"][:MARKDOWN_OPERATORS]:
        module, operator = escaped(row["module"] or "outside modules"), escaped(row["operator"])
        room = "overflows" if row["overflows"] else row["headroom_bits"]
        line = code_span(f"{row['path']}:{row['line']}") if row["path"] else ""
        rows.append(f"| {module} | {operator} | {max(row['largest'], row['operand']):.3g} | {room} | {line} |")
    lines = [gradient_text(facts["gradients"]), f"{facts['policy']}; {sampled_text(facts)}"]
    lines += [hardware_text(d) for d in facts["hardware"]] + cards_texts(facts.get("cards") or {})
    items = "\n".join(f"- {escaped(line)}" for line in lines if line)
    return f"### Precision forecast\n\n{escaped(facts['summary'])}\n\n" + "\n".join(rows) + f"\n\n{items}"
