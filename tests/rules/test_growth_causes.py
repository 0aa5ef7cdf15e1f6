"""What a rule says of why a name grows, by how many tensors it was seen to take in."""

from __future__ import annotations

import pytest
from handmade import census, holding, outcome, program, rank, steps

from torchvet.recording.growth import growth_of
from torchvet.rules import rule

EVERY = "takes in tensors at every step and nothing takes them out"
RARELY = "takes in tensors at one step in 20 and nothing takes them out"
LARGER = "is replaced by a larger tensor again and again"


@pytest.mark.parametrize(("tensors", "cause"), [(1, EVERY), (0.05, RARELY), (0, LARGER)])
def test_the_cause_goes_by_the_tensors_that_came(tensors: float, cause: str) -> None:
    ticks = (20, 40, 80, 160, 240)
    looks = [census(t, holding("kept", direct=1000 * t, tensors=1 + int(tensors * t))) for t in ticks]
    (growth,) = growth_of(rank(program(), steps(250), looks, outcome(250))).growths
    assert rule("MEM102").cause(growth, None) == f"kept {cause}"  # type: ignore[attr-defined]
