"""What a rule says of why a name grows, by how many tensors it was seen to take in."""

from __future__ import annotations

import pytest
from handmade import FILE, census, holding, outcome, program, rank, steps

from torchvet.analysis import growth_of
from torchvet.rules import rule
from torchvet.source.stores import SourceIndex

EVERY = "takes in tensors at every step, and in this run they are not taken out again"
RARELY = "takes in tensors at one step in 20, and in this run they are not taken out again"
LARGER = "is replaced by a larger tensor again and again"


@pytest.mark.parametrize(("tensors", "cause"), [(1, EVERY), (0.05, RARELY), (0, LARGER)])
def test_the_cause_goes_by_the_tensors_that_came(tensors: float, cause: str) -> None:
    ticks = (20, 40, 80, 160, 240)
    looks = [census(t, holding("kept", direct=1000 * t, tensors=1 + int(tensors * t))) for t in ticks]
    (growth,) = growth_of(rank(program(), steps(250), looks, outcome(250))).growths
    assert rule("MEM102").cause(growth, None) == f"kept {cause}"  # type: ignore[attr-defined]


ITEMS = [
    ("rows", "list", None, "rows.append(x)", "tuple", "put numbers or detached tensors in"),
    ("rows", "list", None, "rows.append(x + 1)", "Tensor", "`(x + 1).item()`"),
    ("rows", "list", None, "rows.append((x, y))", None, "put numbers or detached tensors in"),
    ("rows", "dict", None, "rows[k] = x, y", "tuple", "put numbers or detached tensors in"),
    ("rows", "dict", "Tensor", "rows[k].append(x)", "list", "`x.item()`"),
    ("rows", "dict", "Tensor", "rows.setdefault(k, []).append(x)", "list", "`x.item()`"),
    ("rows", "dict", "tuple", "rows[k].append(x)", "list", "put numbers or detached tensors in"),
    ("rows", "dict", "Tensor", 'rows["a"]["b"].append(x)', "dict", "`x.item()`"),
    ("rows", "list", "float", "rows.append(x)", "list", "put numbers or detached tensors in"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "container", "inner", "line", "item", "advice"), ITEMS)
def test_advice_fits_what_is_put_in(
    name: str, container: str, inner: str | None, line: str, item: str | None, advice: str
) -> None:
    ticks = (20, 40, 80, 160, 240)
    kept = {"container": container, "item_type": item, "inner_types": [inner] if inner else []}
    looks = [census(t, holding(name, graph=1000 * t, tensors=t, **kept)) for t in ticks]
    (growth,) = growth_of(rank(program(), steps(250), looks, outcome(250))).growths
    index = SourceIndex({FILE: f"rows = make()\nfor x in xs:\n    {line}\n"})
    (store, *_) = index.stores(name, "__main__", FILE)
    assert advice in rule("MEM101").advice(growth, store)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("size", "advice"), [(4, "`(x + 1).item()`"), (400, "`(x + 1).detach()`")])
def test_only_numbers_are_taken_out_as_numbers(size: int, advice: str) -> None:
    looks = [census(t, holding("rows", direct=size * t, tensors=t, nodes=500 * t)) for t in (20, 40, 80, 160, 240)]
    (growth,) = growth_of(rank(program(), steps(250), looks, outcome(250))).growths
    (store,) = SourceIndex({FILE: "for x in xs:\n    rows.append(x + 1)\n"}).stores("rows", "__main__", FILE)
    assert advice in rule("MEM112").advice(growth, store)  # type: ignore[attr-defined]
