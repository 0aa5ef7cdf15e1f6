"""What keeps a storage alive that no name leads to: a cycle, a ctx, or only C++."""

from __future__ import annotations

import atexit
import functools
import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from looking import key_of

from torchvet.probes.base.ledger import Birth
from torchvet.probes.memory.unreachable_storages import describe
from torchvet.recording.records.base import Stranger


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """The cycles are to be there when they are looked for."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()


def births(*keys: int) -> dict[int, Birth]:
    return {key: Birth(key, 8, 1, 0) for key in keys}


def found(*keys: int) -> list[Stranger]:
    return describe(births(*keys), set(), frozenset()).strangers


class Node:
    """A user's object that can point at others."""


def leave_cycle() -> int:
    parent, child = Node(), Node()
    parent.child, child.parent = child, parent  # type: ignore[attr-defined]
    child.activations = torch.zeros(2)  # type: ignore[attr-defined]
    return key_of(child.activations)  # type: ignore[attr-defined]


def test_the_attributes_that_close_a_cycle_are_named() -> None:
    who = found(leave_cycle())
    assert {(s.kind, s.owner, s.attribute) for s in who} == {("cycle", "Node", "child"), ("cycle", "Node", "parent")}
    assert {s.path for s in who} == {__file__}
    assert "activations" not in {s.attribute for s in who}, "the tensor's own attribute closes nothing"


def leave_closure() -> int:
    tensor = torch.zeros(2)

    def recurse(n: int) -> Any:
        return tensor if n == 0 else recurse(n - 1)

    return key_of(tensor)


def test_a_closure_that_refers_to_itself_is_named_with_its_line() -> None:
    (stranger,) = found(leave_closure())
    assert stranger.kind == "cycle" and stranger.owner.endswith("recurse")
    assert stranger.line == leave_closure.__code__.co_firstlineno + 3


class KeepsOutput(torch.autograd.Function):
    """Its ctx keeps its own output: a cycle through C++."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        out = x.exp()
        ctx.out = out
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * ctx.out


def test_a_tensor_on_its_own_ctx_is_named_by_the_function() -> None:
    out = KeepsOutput.apply(torch.ones(2, requires_grad=True))
    key = key_of(out)
    del out
    who = found(key)
    assert who and who[0].kind in ("ctx", "native")
    if who[0].kind == "ctx":
        assert (who[0].owner, who[0].attribute) == ("KeepsOutput", "out")


class KeepsState(torch.autograd.Function):
    """Its ctx keeps its own output in a tuple, and in another what nothing leads back from."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        gate = x.sigmoid()
        out = x * gate
        ctx.gates = (gate,)
        ctx.state = (gate, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * ctx.gates[0]


def leave_state() -> list[int]:
    out = KeepsState.apply(torch.ones(2, requires_grad=True))
    return [key_of(out), key_of(out.grad_fn.gates[0])]


def test_an_output_in_a_tuple_on_ctx_is_named_by_the_attribute_that_leads_back() -> None:
    who = found(*leave_state())
    assert [(s.kind, s.owner, s.attribute) for s in who] == [("ctx", "KeepsState", "state")]


def leave_list() -> int:
    items: list[Any] = [torch.zeros(2)]
    items.append(items)
    return key_of(items[0])


def test_garbage_that_no_attribute_closes_is_a_cycle_all_the_same() -> None:
    assert found(leave_list()) == [Stranger(kind="cycle")]


def test_what_only_a_graph_holds_is_native() -> None:
    x = torch.ones(2, requires_grad=True)
    hidden = x.exp()
    loss, key = hidden.sum(), key_of(hidden)
    del hidden
    assert found(key) == [Stranger(kind="native")]
    assert loss.requires_grad


class Strategy:
    """Keeps what it has computed, and is told when that is differentiated."""

    def __init__(self, weight: torch.Tensor) -> None:
        self.solved = weight.exp() * 2
        self.solved.grad_fn.register_hook(functools.partial(release, self))  # type: ignore[union-attr]

    def close(self) -> None:
        """Registered somewhere in C."""


def release(strategy: Strategy, grads: Any, outputs: Any) -> None:
    """A hook of the graph: the graph has it, it has the strategy, and that has the end of the graph."""


def test_a_hook_that_a_graph_keeps_names_its_function() -> None:
    key = key_of(Strategy(torch.ones(2, requires_grad=True)).solved)
    (who,) = found(key)
    assert (who.kind, who.owner, who.path) == ("native", "release", __file__)
    assert who.line == release.__code__.co_firstlineno


def test_a_method_in_a_registry_of_c_is_named() -> None:
    strategy = Strategy.__new__(Strategy)
    strategy.solved = torch.zeros(2)
    key = key_of(strategy.solved)
    atexit.register(strategy.close)
    del strategy
    try:
        assert [who.owner for who in found(key)] == ["Strategy.close"]
    finally:
        for one in [o for o in gc.get_objects() if type(o) is Strategy]:
            atexit.unregister(one.close)


def test_nothing_is_described_by_nothing() -> None:
    assert found() == []


def test_only_a_few_are_looked_at() -> None:
    keys = [leave_cycle() for _ in range(20)]
    assert len(describe(births(*keys), set(), frozenset(), most=2).strangers) <= 8


def test_looking_leaves_the_cycles_collectable() -> None:
    key = leave_cycle()
    found(key)
    gc.collect()
    assert not [o for o in gc.get_objects() if type(o) is Node]


class Tree:
    """A node that knows its children, and its parent."""

    def __init__(self) -> None:
        self.children: list[Tree] = []
        self.table = {"all": self.children}
        self.value = torch.zeros(2)
        self.settings: dict[str, Any] = {}


def leave_tree() -> int:
    root = Tree()
    for _ in range(3):
        child = Tree()
        child.parent = root  # type: ignore[attr-defined]
        child.settings["root"] = root
        child.settings.clear()
        root.children.append(child)
    return key_of(root.children[0].value)


def test_the_reference_back_is_named_first() -> None:
    who = found(leave_tree())
    assert (who[0].owner, who[0].attribute) == ("Tree", "parent")
    assert {s.attribute for s in who} <= {"parent", "children", "table"}, "what is no part of the cycle holds nothing"


def test_all_that_a_cycle_owns_is_counted() -> None:
    key = leave_tree()
    assert describe(births(key), set(), frozenset()).garbage == 4 * 8


def leave_model() -> set[int]:
    class Trainer:
        def __init__(self) -> None:
            self.model = torch.nn.Sequential(*[torch.nn.Linear(4, 4, bias=False) for _ in range(50)])
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            self.handlers = [(self.log, ())]

        def log(self) -> None:
            """Nothing."""

    trainer = Trainer()
    trainer.model(torch.zeros(1, 4)).sum().backward()
    return {id(p) for p in trainer.model.parameters()}


def test_a_whole_model_in_a_cycle_is_found_by_its_parameters() -> None:
    who, garbage = describe({}, set(), frozenset(), orphans=leave_model() | leave_model())
    assert (who[0].owner.rpartition(".")[2], who[0].attribute) == ("Trainer", "handlers")
    assert garbage == 2 * 2 * 50 * 4 * 4 * 4, "parameters and their gradients"


def test_one_model_that_waits_for_the_collector_is_no_habit() -> None:
    assert describe({}, set(), frozenset(), orphans=leave_model()) == ([], 0)


def leave_exception() -> int:
    def attempt() -> int:
        kept = torch.zeros(2)
        problem = None
        try:
            raise ValueError
        except ValueError as error:
            problem = error
        return key_of(kept) if problem else 0

    return attempt()


def test_a_variable_that_keeps_its_own_frame_is_named() -> None:
    who = found(leave_exception())
    assert (who[0].owner.rpartition(".")[2], who[0].attribute, who[0].variable) == ("attempt", "problem", True)


def test_what_a_hook_for_saved_tensors_gave_back_names_the_node() -> None:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        out = torch.ones(2, requires_grad=True).exp()
    key = key_of(out)
    del out
    (who,) = found(key)
    assert (who.kind, who.owner, who.attribute) == ("native", "saved_tensors_hooks", "ExpBackward0")
    # The place of the hook that unpacks, where torch shows it.
    assert (who.path, who.line) in [(__file__, who.line), (None, None)]


def test_a_hook_that_hands_back_another_tensor_makes_no_cycle() -> None:
    keep = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
        out = torch.ones(2, requires_grad=True).exp()
        keep.append(out.detach())
    key = key_of(out)
    del out
    assert all(who.owner != "saved_tensors_hooks" for who in found(key))


class Furious(type):
    """A metaclass that must not be run."""

    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(name)


class Proxy(metaclass=Furious):
    """Its class answers nothing."""


def test_a_class_that_cannot_be_asked_does_no_harm() -> None:
    proxy: Any = object.__new__(Proxy)
    space = object.__getattribute__(proxy, "__dict__")
    space["tensor"] = torch.zeros(2)
    space["me"] = proxy
    key = key_of(space["tensor"])
    del space, proxy
    assert found(key)
