"""A precision forecast as Markdown: the verdict and a table of the operators nearest to float16's limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchvet.renderers.text_forecast import cards_texts, gradient_text, hardware_text, looked

OPERATORS = 20


def forecast_section(facts: dict[str, Any], escaped: Callable[[str], str], code: Callable[[str], str]) -> str:
    """The section; `escaped` keeps foreign text text, `code` makes a cell's code."""
    rows = ["| module | operator | largest | bits to the limit | line |", "|---|---|---|---|---|"]
    for row in facts["operators"][:OPERATORS]:
        line = code(f"{row['path']}:{row['line']}") if row["path"] else ""
        room = "overflows" if row["overflows"] else row["headroom_bits"]
        cells = (
            escaped(row["module"] or "outside modules"), escaped(row["operator"]),
            f"{max(row['largest'], row['operand']):.3g}", str(room), line,
        )  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    lines = [gradient_text(facts["gradients"]), f"{facts['policy']}; {looked(facts)}"]
    lines += [hardware_text(d) for d in facts["hardware"]] + cards_texts(facts.get("cards") or {})
    items = "\n".join(f"- {escaped(line)}" for line in lines if line)
    return f"### Precision forecast\n\n{escaped(facts['summary'])}\n\n" + "\n".join(rows) + f"\n\n{items}"
