"""Which variables a frame has bound above the line that it is at."""

from __future__ import annotations

import sys

from torchvet.probes.objects.bound_names import bound_above


def test_names_by_where_they_are_bound() -> None:
    before = carried = [0]
    for target in range(2):
        first, second = before, carried
        with open(__file__) as opened:
            found = bound_above(sys._getframe())
        carried, after = [target], 1
        print(same := 1, above := bound_above(sys._getframe()), same_line := 2)
        [*rest] = second
    assert found == {"before", "target", "first", "second", "opened"}
    assert {"same", "found"} < above and not {"above", "same_line", "rest"} & above and same < same_line
    assert (after, rest, first) == (1, [0], [0]) and opened.closed


def test_code_that_binds_nothing() -> None:
    assert eval("bound_above(sys._getframe())") == set()
