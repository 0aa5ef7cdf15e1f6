"""On what occasion a removal comes, beside the store."""

from __future__ import annotations

import pytest
from programs import MAIN, program

LOOP = """
kept = []
def main(n=500):
    for epoch in range(9):
        for i, x in enumerate(loader):
            kept.append(net(x))
            {inner}
        {outer}
main()
"""


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        ("if i % 500 == 0: kept.clear()", "pass", (None, 500, False)),
        ("if i and i % n == 0: kept.clear()", "pass", (None, 500, False)),
        ("if len(kept) > 30: kept.pop(0)", "pass", (30, None, False)),
        ("if i == len(loader) - 1: kept.clear()", "pass", (None, None, True)),
        ("pass", "kept.clear()", (None, None, True)),
        ("pass", "if config.reset: kept.clear()", None),
        ("if flag: kept.clear()", "pass", None),
        ("kept.remove(x)", "pass", None),
        ("kept[:] = kept[-30:]", "pass", (30, None, False)),
        ("del kept[:-n]", "pass", (500, None, False)),
        ("del kept[30:]", "pass", (30, None, False)),
        ("kept[:] = kept[1:]", "pass", None),
        ("del kept[:1]", "pass", None),
    ],
)
def test_an_occasion(inner: str, outer: str, expected: tuple[int | None, int | None, bool] | None) -> None:
    found = program(LOOP.format(inner=inner, outer=outer)).index().limits("kept", "__main__", MAIN)
    told = [(o.items, o.turns, o.outer) for limit in found for o in [limit.occasion]]
    assert (told[0] if told else None) == expected


METRIC = """
class Metric:
    def __init__(self, names):
        for name in names:
            self.kept = []

    def update(self, x):
        self.kept.append(x)

    def reset(self):
        self.kept = []

metric = Metric(["a"])
for epoch in range(3):
    {call}
    for i in range(30):
        metric.update(net(i))
"""


def test_a_reset_that_nobody_calls_is_no_limit_and_one_that_is_called_has_the_length_of_the_loop() -> None:
    assert program(METRIC.format(call="pass")).index().limits("metric.kept", "__main__", MAIN) == []
    (limit,) = program(METRIC.format(call="metric.reset()")).index().limits("metric.kept", "__main__", MAIN)
    assert limit.occasion.outer and limit.turns == 30
