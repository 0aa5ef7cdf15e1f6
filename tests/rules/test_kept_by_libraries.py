"""MEM102 on what a library keeps in an attribute of its own that the program never names."""

from __future__ import annotations

from typing import Any

import pytest
from handmade import FILE, census, holding, outcome, program, recording, site, steps

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording.records.base import Source
from torchvet.source.stores import SourceIndex

TICKS = (20, 40, 80, 160, 240)
SOURCE = """\
from library import Runner
from torch.utils.data import DataLoader


def main():
    runner = Runner()
    model = runner.prepare(make())
    for epoch in range(20):
        loader = runner.prepare(DataLoader(draw(epoch), batch_size=8))
        for x, y in loader:
            runner.backward(model(x, y))
            runner.clip(model.parameters(), 1.0)
"""


def found(text: str = SOURCE) -> Finding:
    """The finding about an attribute that takes in 10 kB at every twentieth step."""
    looks = []
    for tick in TICKS:
        count = tick // 20
        facts: dict[str, Any] = {"direct": 10_000 * count, "tensors": count, "length": count, "items": count}
        looks.append(census(tick, holding("runner ._dataloaders", scope="__main__.main", sites=[site()], **facts)))
    records = [program(), Source(path=FILE, text=text), *steps(250), *looks, outcome(250)]
    (one,) = [f for f in diagnose(recording(*records)).findings if f.code == "MEM102"]
    return one


@pytest.mark.parametrize(
    "call",
    [
        "runner.prepare(DataLoader(draw(epoch), batch_size=8))",
        "runner.wrap(torch.utils.data.DataLoader(draw(epoch)), True)",
    ],
)
def test_the_line_is_the_call_that_hands_over_what_the_attribute_is_named_after(call: str) -> None:
    one = found(SOURCE.replace("runner.prepare(DataLoader(draw(epoch), batch_size=8))", call))
    assert one.location is not None and one.location.line == 9
    assert "once, before the loop" in str(one.remedy)


def test_a_variable_is_known_by_what_made_it() -> None:
    text = SOURCE.replace(
        "        loader = runner.prepare(DataLoader(draw(epoch), batch_size=8))",
        "        rows = DataLoader(draw(epoch))\n        loader = runner.prepare(rows)",
    )
    one = found(text)
    assert one.location is not None and one.location.line == 10


def test_a_bound_counts_by_its_share_only_where_nobody_collects_on_purpose() -> None:
    assert found().severity == "warning" and "20 turns" in found().message
    # The program reads it.
    assert found(SOURCE + "    print(len(runner._dataloaders))\n").severity == "info"


@pytest.mark.parametrize(("name", "lines"), [("runner._models", []), ("_dataloaders", []), ("other._dataloaders", [])])
def test_other_names_are_not_handed_over_there(name: str, lines: list[int]) -> None:
    index = SourceIndex({FILE: SOURCE})
    assert [s.line for s in index.stores(name, "__main__.main", FILE) if "DataLoader" in s.text] == lines
