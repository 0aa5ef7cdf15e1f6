"""Every way to a tensor is named as the person who wrote the program would name it."""

from __future__ import annotations

import collections
import functools
import itertools
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from looking import name_of, names_of, vias_of, walked

from torchvet.probes.memory.retained_sizes import HoldingTree
from torchvet.probes.objects import heap, naming

bug = pytest.mark.xfail


class Inline:
    """Attributes that Python keeps inline, without a dictionary, as long as nobody asks for one."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.other = 1


class Slotted:
    """Attributes in slots."""

    __slots__ = ("empty", "tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def take(self, given: torch.Tensor) -> None:
        """Nothing."""


class Both(Slotted):
    """Slots of a base, and a dictionary."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(torch.zeros(1))
        self.mine = tensor


class Net(torch.nn.Module):
    """A module with a submodule, a buffer and a plain attribute."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)
        self.register_buffer("seen", tensor)
        self.plain = [tensor.clone()]


class Shelf:
    """Holds tensors in a class attribute."""

    books: list[torch.Tensor] = []


Pair = collections.namedtuple("Pair", "left right")


def generate(tensor: torch.Tensor) -> Iterator[int]:
    kept = tensor
    yield 1
    yield kept.numel()


def started(generator: Iterator[Any]) -> Iterator[Any]:
    next(generator)
    return generator


def closed_over(tensor: torch.Tensor) -> Callable[[], int]:
    return lambda: tensor.numel()


def with_default(tensor: torch.Tensor) -> Callable[..., int]:
    def measure(x: int = 1, kept: torch.Tensor = tensor, *, also: int = 2) -> int:
        return kept.numel()

    return measure


def stored_error(tensor: torch.Tensor) -> Exception:
    def compute(batch: torch.Tensor) -> None:
        raise ValueError("no")

    try:
        compute(tensor)
    except ValueError as error:
        # This frame's own name for the tensor would be found first: a shorter way.
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
        return error
    raise AssertionError


def queued(tensor: torch.Tensor) -> queue.Queue[torch.Tensor]:
    one: queue.Queue[torch.Tensor] = queue.Queue()
    one.put(tensor)
    return one


def with_attribute(tensor: torch.Tensor) -> torch.Tensor:
    other = torch.zeros(1)
    other.note = tensor  # type: ignore[attr-defined]
    return other


def with_gradient(tensor: torch.Tensor) -> torch.Tensor:
    leaf = torch.zeros_like(tensor, requires_grad=True)
    leaf.grad = tensor
    return leaf


def keep(x: int, rows: list[torch.Tensor], *more: Any) -> None:
    """Nothing."""


def thread_local(**values: Any) -> threading.local:
    one = threading.local()
    vars(one).update(values)
    return one


NAMES: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "list": (lambda t: [1, t], "root[1]"),
    "tuple": (lambda t: (t,), "root[0]"),
    "dict of lists in a dict": (lambda t: {"train": {"loss": [None, t]}}, "root['train']['loss'][1]"),
    "number as key": (lambda t: {3: t}, "root[3]"),
    "object as key": (lambda t: {(1, 2): t}, "root[<tuple>]"),
    "key": (lambda t: {t: 1}, "root (as a key)"),
    "attribute": (lambda t: Inline(t), "root.tensor"),
    "slot": (lambda t: Slotted(t), "root.tensor"),
    "dictionary beside slots": (lambda t: Both(t), "root.mine"),
    "named tuple": (lambda t: Pair(1, t), "root.right"),
    "deque": (lambda t: collections.deque([t], maxlen=3), "root[0]"),
    "ordered": (lambda t: collections.OrderedDict(a=t), "root['a']"),
    "default dict": (lambda t: collections.defaultdict(list, a=[t]), "root['a'][0]"),
    "closure": (closed_over, "root.<closure>.tensor"),
    "attribute of a tensor": (with_attribute, "root.note"),
    "gradient": (with_gradient, "root.grad"),
    "partial of C": (lambda t: functools.partial(print, t), "root.args[0]"),
    "partial": (lambda t: functools.partial(keep, 1, [t]), "root.<partial keep>.rows[0]"),
    "partial by keyword": (lambda t: functools.partial(keep, rows=[t]), "root.<partial keep>.rows[0]"),
    "partial of a method": (lambda t: functools.partial(Slotted(torch.ones(1)).take, t), "root.<partial take>.given"),
    "partial with more": (lambda t: functools.partial(keep, 1, [], t), "root.args[2]"),
    "thread's own": (lambda t: thread_local(rows=[t]), "root.rows[0]"),
    "tee": (lambda t: started(itertools.tee([[t], 1])[0]), "root (itertools.tee)[0]"),
}


@pytest.mark.parametrize("way", NAMES)
def test_a_tensor_is_named_as_a_person_would(way: str) -> None:
    tensor = torch.ones(3)
    build, wanted = NAMES[way]
    assert name_of(tensor, root=build(tensor)) == wanted


VIAS: dict[str, tuple[Callable[[torch.Tensor], Any], str, str]] = {
    "closure": (closed_over, "closure", "tensor"),
    "default": (with_default, "default", "<default>"),
    "generator": (lambda t: started(generate(t)), "frame", "generate()"),
    "exception": (stored_error, "exception", "compute(): batch"),
    "queue": (queued, "queue", "root"),
    "cycle": (lambda t: started(itertools.cycle([t, t])), "iterator", "itertools.cycle"),
}


@pytest.mark.parametrize("way", VIAS)
def test_special_ways_are_marked(way: str) -> None:
    tensor = torch.ones(3)
    build, via, part = VIAS[way]
    root = build(tensor)
    assert via in vias_of(tensor, root=root)
    assert part in name_of(tensor, root=root)


def test_a_cached_function_is_named_with_its_cache() -> None:
    @functools.cache
    def positions(n: int) -> torch.Tensor:
        return torch.zeros(n)

    tensor = positions(4)
    assert name_of(tensor, positions=positions).startswith("positions (lru_cache)")
    assert "cache" in vias_of(tensor, positions=positions)
    assert naming.length(positions) == 1 and naming.capacity(positions) is None
    assert naming.cached_function(positions) is positions.__wrapped__


class Attention:
    """A cache on a method, which keeps `self` as well."""

    @functools.lru_cache(maxsize=8)  # noqa: B019
    def mask(self, n: int) -> torch.Tensor:
        return torch.zeros(n)


def test_a_cached_method_is_found_through_its_class() -> None:
    tensor = Attention().mask(5)
    try:
        name = name_of(tensor, Attention=Attention)
        assert name.startswith("Attention.mask (lru_cache)")
        assert "cache" in vias_of(tensor, Attention=Attention)
        assert naming.capacity(vars(Attention)["mask"]) == 8
    finally:
        Attention.mask.cache_clear()


def test_a_class_attribute_is_named_after_its_class() -> None:
    tensor = torch.ones(3)
    Shelf.books.append(tensor)
    try:
        assert name_of(tensor, Shelf=Shelf) == "Shelf.books[0]"
        assert name_of(tensor, shelf=Shelf()) == "shelf.<Shelf>.books[0]"
        assert "class" in vias_of(tensor, Shelf=Shelf)
    finally:
        Shelf.books.clear()


def test_a_hook_that_closes_over_a_list_is_named_by_its_table() -> None:
    tensor = torch.ones(3)
    model, seen = torch.nn.Linear(2, 2), [tensor]
    model.register_forward_hook(lambda m, i, o: seen.append(o))
    name = name_of(tensor, model=model)
    assert name.startswith("model._forward_hooks[") and name.endswith("seen[0]"), name
    assert {"hook", "closure"} <= vias_of(tensor, model=model)


def test_what_a_module_registered_is_named_as_an_attribute() -> None:
    model = Net(torch.ones(3))
    assert name_of(model.plain[0], model=model) == "model.plain[0]"
    assert name_of(model.inner.weight, model=model) == "model.inner.weight"
    assert name_of(model.seen, model=model) == "model.seen"


def test_tensors_on_a_custom_functions_ctx_are_named() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.kept = x.clone()
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return 2 * ctx.kept * grad

    out = Square.apply(torch.ones(3, requires_grad=True))
    kept = out.grad_fn.kept
    assert name_of(kept, out=out) == "out.grad_fn.ctx.kept"
    assert "ctx" in vias_of(kept, out=out)


def test_a_local_of_main_is_named_by_its_function() -> None:
    def main() -> tuple[list[heap.Root], torch.Tensor]:
        losses = [torch.ones(3)]
        roots = list(heap.frame_roots([], []))
        return roots, losses[0]

    roots, _ = main()
    (root,) = [r for r in roots if r.name == "losses" and r.scope.endswith("main")]
    assert root.scope.startswith(__name__) and root.kind == "local" and root.path == __file__


# A program's data stays as it is -------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="locals() hands out a copy")
def test_naming_leaves_the_locals_of_a_generator_alone() -> None:
    def stream() -> Iterator[dict[str, Any]]:
        kept = torch.ones(3)
        mine = locals()
        mine["added"] = kept
        while True:
            yield mine

    generator = stream()
    mine = next(generator)
    assert "stream()" in name_of(mine["kept"], generator=generator)
    assert set(mine) >= {"kept", "added"}


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="locals() hands out a copy")
def test_naming_leaves_the_locals_in_a_traceback_alone() -> None:
    def fails(mine: list[dict[str, Any]]) -> None:
        kept = torch.ones(3)
        mine.append(locals())
        raise ValueError(kept.numel())

    mine: list[dict[str, Any]] = []
    try:
        fails(mine)
    except ValueError as error:
        stored = error
    tensor = mine[0]["kept"]
    name_of(tensor, stored=stored)
    assert mine[0].get("kept") is tensor


# Hostile objects are named without being run --------------------------------------------------------------------------

CALLS: list[str] = []


def trap(name: str) -> Any:
    def run(self: Any, *args: Any) -> Any:
        CALLS.append(name)
        raise RuntimeError(f"{name} of a user's object was run")

    return run


SPECIAL = ("__getattr__", "__len__", "__eq__", "__bool__", "__iter__", "__getitem__", "__repr__", "__contains__")
TRAPS = {name: trap(name) for name in SPECIAL}


class HostileList(list):  # type: ignore[type-arg]
    vars().update(TRAPS)
    __hash__ = trap("__hash__")


class HostileItems(list):  # type: ignore[type-arg]
    __getitem__ = trap("__getitem__")


class HostileDict(dict):  # type: ignore[type-arg]
    vars().update(TRAPS)
    __hash__ = items = values = keys = trap("items")


class HostileObject:
    vars().update(TRAPS)
    __hash__ = trap("__hash__")

    @property
    def __class__(self) -> Any:
        return trap("__class__")(self)

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise AssertionError


class HostileKey:
    vars().update({k: v for k, v in TRAPS.items() if k != "__eq__"})

    @property
    def __class__(self) -> Any:
        return trap("__class__")(self)

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise AssertionError


class HostileError(Exception):
    vars().update({k: v for k, v in TRAPS.items() if k != "__eq__"})

    def __getattribute__(self, name: str) -> Any:
        CALLS.append(name)
        raise RuntimeError(name)


def hostile_list(tensor: torch.Tensor) -> Any:
    found = HostileList()
    list.append(found, tensor)
    return found


def hostile_dict(tensor: torch.Tensor) -> Any:
    found = HostileDict()
    dict.__setitem__(found, "a", tensor)
    return found


def hostile_object(tensor: torch.Tensor) -> Any:
    found = HostileObject()
    object.__getattribute__(found, "__dict__")["a"] = tensor
    return found


def hostile_error(tensor: torch.Tensor) -> Any:
    found = HostileError()
    BaseException.__dict__["args"].__set__(found, (tensor,))
    return found


def holdings_of(root: Any, tensor: torch.Tensor) -> list[Any]:
    with walked(root=root) as walk:
        tree = HoldingTree(walk)
        tree.add(id(tensor), direct=12, tensors=1)
        found = tree.holdings({})
        tree.close()
    return found


@pytest.mark.parametrize("build", [
    pytest.param(hostile_list, id="list"),
    pytest.param(hostile_dict, id="dict"),
    pytest.param(hostile_object, id="object", marks=bug(strict=True, reason="naming: isinstance reads __class__")),
    pytest.param(hostile_error, id="exception", marks=bug(strict=True, reason="naming: getattr on an exception")),
    pytest.param(lambda t: {HostileKey(): t}, id="key"),
])  # fmt: skip
def test_hostile_holders_are_named_without_being_run(build: Callable[[torch.Tensor], Any]) -> None:
    tensor = torch.ones(3)
    root = [build(tensor)]
    CALLS.clear()
    try:
        found = holdings_of(root, tensor)
    except Exception as error:
        pytest.fail(f"the naming failed: {type(error).__name__}: {error}")
    assert CALLS == []
    assert any(h.name.startswith("root[0]") for h in found)


@pytest.mark.parametrize("build", [
    hostile_list,
    pytest.param(lambda t: HostileItems([t])),
    pytest.param(hostile_dict),
    pytest.param(hostile_object),
])  # fmt: skip
def test_what_a_hostile_container_holds_is_told_without_running_it(build: Callable[[torch.Tensor], Any]) -> None:
    value = build(torch.ones(3))
    CALLS.clear()
    try:
        naming.length(value), naming.item_type(value), naming.key_type(value), naming.capacity(value)
    except Exception as error:
        pytest.fail(f"{type(error).__name__}: {error}")
    assert CALLS == []


# Facts about containers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "length", "capacity", "key", "item"), [
    ([1, "a"], 2, None, None, "str"),
    ((), 0, None, None, None),
    ({"a": 1.0}, 1, None, "str", "float"),
    ({}, 0, None, None, None),
    ({torch.zeros(1): 1}, 1, None, "Tensor", "int"),
    ({torch.nn.Parameter(torch.zeros(1)): 1}, 1, None, "Tensor", "int"),
    ({(torch.zeros(1), 2): 1}, 1, None, "Tensor", "int"),
    ({("a", 2): 1}, 1, None, "tuple", "int"),
    (collections.deque([1], maxlen=5), 1, 5, None, "int"),
    (collections.deque(), 0, None, None, None),
    (queue.Queue(7), None, 7, None, None),
    (queue.Queue(), None, None, None, None),
    ({1, 2}, 2, None, None, None),
    ("text", None, None, None, None),
    (torch.zeros(3), None, None, None, None),
])  # fmt: skip
def test_containers_are_described(value: Any, length: Any, capacity: Any, key: Any, item: Any) -> None:
    described = (naming.length(value), naming.capacity(value), naming.key_type(value), naming.item_type(value))
    assert described == (length, capacity, key, item)


@pytest.mark.parametrize(("calls", "key"), [
    ([(3, 0.1)], "tuple"), ([(3,)], "int"), ([(torch.zeros(2),)], "Tensor"), ([(1, torch.zeros(2))], "Tensor"),
    ([], None),
])  # fmt: skip
def test_what_functools_cache_is_keyed_by(calls: list[tuple[Any, ...]], key: str | None) -> None:
    @functools.cache
    def bias(*args: Any) -> int:
        return len(args)

    for args in calls:
        bias(*args)
    assert naming.key_type(bias) == key


class Counting:
    """An object with a length of its own."""

    def __len__(self) -> int:
        CALLS.append("len")
        return 3


def test_a_users_length_is_not_called() -> None:
    CALLS.clear()
    assert naming.length(Counting()) is None and CALLS == []


# Depth ---------------------------------------------------------------------------------------------------------------


class Link:
    """A state that remembers the one before."""

    def __init__(self, before: Link | None) -> None:
        self.state = torch.zeros(1)
        self.before = before


def chain(length: int) -> Link:
    last: Link | None = None
    for _ in range(length):
        last = Link(last)
    assert last is not None
    return last


def unlink(last: Link | None) -> None:
    while last is not None:
        last.__dict__["before"], last = None, last.before


def test_a_long_chain_has_a_name_of_readable_length() -> None:
    last = chain(500)
    with walked(last=last) as walk:
        tree = HoldingTree(walk)
        deepest = walk.tensors[-1]
        name = tree.name(id(deepest))
        tree.close()
    unlink(last)
    assert name.startswith("last.before.before") and name.endswith(".state")
    assert len(name) < 600


def test_names_of_two_tensors_in_one_place_differ() -> None:
    first, second = torch.ones(1), torch.ones(1)
    held = {"a": [first], "b": [second]}
    assert names_of(first, held=held) == ["held['a'][0]"]
    assert names_of(second, held=held) == ["held['b'][0]"]
