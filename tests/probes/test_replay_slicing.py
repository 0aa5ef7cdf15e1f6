"""Which statements run again: those that a value comes from, and no other."""

from __future__ import annotations

import ast
import textwrap

import pytest

from torchvet.probes.replay.building import Refused, build
from torchvet.probes.replay.effects import effects_of
from torchvet.probes.replay.slicing import Slice, State, slice_of, way_to


def sliced(text: str, states: dict[str, State], *, batch: bool = True, running: bool = True) -> Slice:
    """The slice for the line that is marked `# HERE`; names that are not in `states` are fine."""
    text = textwrap.dedent(text)
    line = next(n for n, one in enumerate(text.splitlines(), 1) if "# HERE" in one)
    way = way_to(ast.parse(text), line, line, None)
    assert way is not None
    return slice_of(way, lambda n: states.get(n, "fine"), running=running, overwritten=set(), batch=batch)


def lines(found: Slice) -> list[str]:
    """The chosen statements, as text."""
    return [ast.unparse(found.items[i].node).splitlines()[0] for i in sorted(found.chosen)]


def test_only_what_the_loss_comes_from_is_done_again() -> None:
    found = sliced(
        """
        for x, y in loader:
            optimizer.zero_grad()
            out = model(x)
            print(out.mean())
            penalty = out.square().mean()
            loss = criterion(out, y)
            loss.backward()  # HERE
            optimizer.step()
        """,
        {"loss": "made", "out": "made"},
    )
    assert lines(found) == ["out = model(x)", "loss = criterion(out, y)", "loss.backward()"]
    assert not found.missing


def test_inputs_that_are_finite_are_taken_as_they_are() -> None:
    found = sliced("out = model(x)\nloss = f(out)\nloss.backward()  # HERE", {"loss": "made"})
    assert lines(found) == ["loss = f(out)", "loss.backward()"]


def test_what_overwrites_its_own_input_is_not_done_twice() -> None:
    found = sliced(
        "for x in loader:\n    x = x.to(device)\n    loss = model(x)\n    loss.backward()  # HERE", {"loss": "made"}
    )
    assert lines(found) == ["loss = model(x)", "loss.backward()"]


def test_a_batch_that_was_overwritten_is_handed_out_again() -> None:
    text = "for i, (x, y) in enumerate(loader):\n    x = x / x.std()\n    loss = f(x, y)\n    loss.backward()  # HERE"
    found = sliced(text, {"loss": "made", "x": "bad"})
    assert lines(found)[:2] == ["x, y = __torchvet_batch__", "x = x / x.std()"] and not found.missing
    assert sliced(text, {"loss": "made", "x": "bad"}, batch=False).missing == {"x": "overwritten"}


def test_a_state_that_is_carried_is_missing() -> None:
    found = sliced(
        "h = start()\nfor x in loader:\n    out, h = model(x, h)\n    out.backward()  # HERE",
        {"out": "made", "h": "made"},
    )
    assert found.missing == {"h": "overwritten"}


def test_definitions_before_the_loop_are_found() -> None:
    found = sliced("w = torch.log(freq)\nfor x in data:\n    loss = f(x, w)\n    loss.backward()  # HERE",
                   {"loss": "made", "w": "bad"})  # fmt: skip
    assert lines(found)[0] == "w = torch.log(freq)" and not found.missing


def test_attributes_may_be_bound_by_methods() -> None:
    found = sliced("self.log()\nself.opt.zero_grad()\nself.loss = g(self.x)\nself.loss.backward()  # HERE",
                   {"self.loss": "made", "self.x": "made"})  # fmt: skip
    assert lines(found) == ["self.log()", "self.loss = g(self.x)", "self.loss.backward()"]


def test_a_parameter_that_is_bad_is_left_to_the_caller() -> None:
    assert sliced("def backward(self, loss):\n    loss.backward()  # HERE", {"loss": "made"}).missing == {
        "loss": "made"
    }


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("a = b", {"b"}, {"a"}),
        ("a += b", {"a", "b"}, {"a"}),
        ("a.x = b.y", {"a", "b", "b.y"}, {"a.x"}),
        ("d['k'] = v", {"d", "v"}, {"d"}),
        ("x.add_(y)", {"x", "x.add_", "y"}, {"x"}),
        ("items.append(z)", {"items", "items.append", "z"}, {"items"}),
        ("for t in ts:\n    h = f(t, h)", {"ts", "f", "h"}, {"t", "h"}),
        ("if c:\n    a = 1\nb = a", {"c", "a"}, {"a", "b"}),
        ("q = [i * k for i in r]", {"r", "k"}, {"q"}),
        ("def f(u):\n    return u + v", {"v"}, {"f"}),
        ("with m() as n:\n    o = n", {"m"}, {"n", "o"}),
    ],
)
def test_what_a_statement_reads_and_writes(text: str, reads: set[str], writes: set[str]) -> None:
    found = effects_of(*ast.parse(text).body)
    assert (found.reads, found.writes) == (reads, writes)


def test_built_code_keeps_lines_and_runs_in_other_names() -> None:
    text = (
        "class A:\n    def f(self):\n        self.__n = 2\n        if self.__n:\n            return self.g(1)  # HERE\n"
    )
    way = way_to(ast.parse(text), 5, 5, None)
    assert way is not None
    found = slice_of(way, lambda _: "fine", running=True, overwritten=set(), batch=False)
    like = compile(text, "a.py", "exec").co_consts[0].co_consts[1]  # type: ignore[attr-defined]
    code = build(found, like, "A", set())
    seen = []

    class Stop(BaseException):
        pass

    class Fake:
        _A__n = 1

        def g(self, n: int) -> None:
            seen.append(n)

    with pytest.raises(Stop):
        exec(code, {"self": Fake(), "__torchvet_end__": Stop})
    assert seen == [1] and (code.co_filename, code.co_name) == ("a.py", "f")
    assert {line for *_, line in code.co_lines() if line} == {5}


def test_generators_are_refused() -> None:
    text = "def f():\n    x = yield 1\n    x.backward()  # HERE\n"
    way = way_to(ast.parse(text), 3, 3, None)
    assert way is not None
    found = slice_of(way, lambda n: "bad" if n == "x" else "fine", running=True, overwritten=set(), batch=False)
    with pytest.raises(Refused, match="yield"):
        build(found, compile(text, "a.py", "exec").co_consts[0], None, set())  # type: ignore[arg-type]
