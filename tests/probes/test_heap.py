"""The walk finds every tensor that a name reaches, runs no code of the program's, and leaves nothing behind."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import torch
from looking import name_of, names_of, walked

from torchvet.probes.base import frames, hooks
from torchvet.probes.numerics import half
from torchvet.probes.objects import heap, variables
from torchvet.probes.objects.heap import HeapWalk, Root

bug = pytest.mark.xfail


def found(wanted: torch.Tensor, *roots: Any) -> bool:
    """Whether the walk from these values comes to a tensor."""
    return bool(names_of(wanted, **{f"root{i}": value for i, value in enumerate(roots)}))


def locals_here(function: Callable[..., Any]) -> dict[str, Any] | None:
    """The variables of the running frame of a function, as the walk reads them."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not function.__code__:
        frame = frame.f_back
    assert frame is not None
    return heap.frame_locals(frame)


# Reading variables leaves no trace -----------------------------------------------------------------------------------


def test_a_rebound_variable_dies_at_once_after_a_walk() -> None:
    def program() -> tuple[bool, Any]:
        big = torch.zeros(10)
        watch = weakref.ref(big)
        seen = locals_here(program)
        same = seen is not None and seen["big"] is big
        del seen
        big = torch.ones(1)
        return same and big.item() == 1, watch()

    same, left = program()
    assert same
    assert left is None, "the look kept the variable's old value alive"


def test_variables_of_running_frames_need_no_collector_after_a_look() -> None:
    def program() -> Any:
        big = torch.zeros(10)
        for _ in heap.frame_roots([], []):
            pass
        return weakref.ref(big)

    gc.disable()
    try:
        left = program()()
    finally:
        gc.enable()
    assert left is None, "a cycle through the walk's own frame kept the program's variables"


def test_a_whole_walk_over_running_frames_keeps_nothing() -> None:
    def look() -> int:
        walk = HeapWalk(10.0)
        walk.add_roots(r for r in heap.frame_roots([], []) if r.scope.endswith("program"))
        walk.run()
        found = len(walk.tensors)
        walk.close()
        return found

    def program() -> tuple[int, Any]:
        big = torch.zeros(10)
        watch = weakref.ref(big)
        found = look()
        del big
        return found, watch()

    assert program() == (1, None)


def test_what_locals_has_handed_out_is_left_as_it_was() -> None:
    def program() -> tuple[Any, list[str], Any]:
        big = torch.zeros(3)
        mine = locals()
        mine["added"] = 1
        before = [*mine]
        big = torch.ones(3)
        later = big
        seen = locals_here(program)
        return seen is not None and seen["later"] is later is big, before, mine

    read, before, mine = program()
    assert read
    assert mine["big"].sum() == 0 or sys.version_info >= (3, 13), "its dictionary was refreshed behind its back"
    assert [*mine] == before


def test_what_vars_has_handed_out_keeps_a_variable_that_was_deleted_since() -> None:
    def program() -> tuple[bool, Any]:
        big, small = torch.zeros(3), 1
        mine = vars()
        del big
        seen = locals_here(program)
        return seen is not None and "big" not in seen and seen["small"] == small, mine

    read, mine = program()
    assert read
    assert [*mine] == ["big", "small", "program"]


def test_the_dictionary_of_locals_can_be_gone_through_during_a_look() -> None:
    def program() -> list[str]:
        first, second = torch.zeros(3), 2
        names = []
        for name in locals():
            names.append(name)
            locals_here(program)
        return [str(first.sum().item() + second), *names]

    assert program() == ["2.0", "first", "second", "names", "program"]


def test_where_frames_are_laid_out_otherwise_functions_that_call_locals_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cautious() -> tuple[list[str], list[Root], dict[str, Any]]:
        mine = locals()
        unreadable: list[str] = []
        return unreadable, list(heap.frame_roots(unreadable, [])), mine

    monkeypatch.setattr(variables, "_proofs", [None])
    unreadable, roots, mine = cautious()
    if sys.version_info < (3, 13):
        assert "cautious" in unreadable
        assert not [r for r in roots if r.scope.endswith("cautious")]
    assert "unreadable" not in mine, "its dictionary was refreshed behind its back"


def test_variables_of_code_given_to_exec_are_roots() -> None:
    space: dict[str, Any] = {"__name__": "cell", "look": lambda: list(heap.frame_roots([], []))}
    exec(compile("kept = [1]\nroots = look()", "<cell>", "exec"), space)
    found = [r for r in space["roots"] if r.name == "kept"]
    assert [(r.kind, r.scope) for r in found] == [("global", "cell")]


def test_the_walk_holds_nothing_after_it_is_closed() -> None:
    class Holder:
        pass

    holder = Holder()
    holder.tensor = torch.zeros(3)  # type: ignore[attr-defined]
    watch, watch_tensor = weakref.ref(holder), weakref.ref(holder.tensor)  # type: ignore[attr-defined]
    with walked(holder=holder) as walk:
        assert len(walk.tensors) == 1
    del holder
    assert watch() is None and watch_tensor() is None


# Roots ---------------------------------------------------------------------------------------------------------------


def test_variables_of_running_frames_are_roots_and_self_comes_last() -> None:
    class Trainer:
        def fit(self) -> list[Root]:
            loss = torch.zeros(1)
            found = list(heap.frame_roots([], []))
            del loss
            return found

    roots = [r for r in Trainer().fit() if ".fit" in r.scope and r.name != "found"]
    assert [r.name for r in roots] == ["loss", "self"]
    assert [r.kind for r in roots] == ["local", "attribute"]
    assert roots[0].path == __file__ and "Trainer.fit" in roots[0].scope


def test_variables_of_other_threads_are_roots() -> None:
    ready, done = threading.Event(), threading.Event()

    def worker() -> None:
        held_by_thread = torch.zeros(3)
        ready.set()
        done.wait(30)
        del held_by_thread

    thread = threading.Thread(target=worker, name="feeder")
    thread.start()
    try:
        assert ready.wait(30)
        roots = [r for r in heap.frame_roots([], []) if r.name == "held_by_thread"]
    finally:
        done.set()
        thread.join()
    assert len(roots) == 1 and "feeder" in roots[0].scope


def test_frames_of_an_exception_count_as_running_where_asked_for() -> None:
    def dies() -> None:
        activations = torch.zeros(3)
        raise MemoryError(f"out of memory after {activations.numel()}")

    try:
        dies()
    except MemoryError as error:
        extra = frames.traceback_frames(error)
    roots = [r for r in heap.frame_roots([], extra) if r.name == "activations"]
    assert len(roots) == 1 and "dies" in roots[0].scope


module_tensor = torch.zeros(5)


def test_globals_of_user_modules_are_roots() -> None:
    roots = {(r.scope, r.name) for r in heap.module_roots((frames.USER,))}
    assert (__name__, "module_tensor") in roots
    assert not [scope for scope, _ in roots if scope.split(".")[0] in ("torch", "collections", "torchvet")]


def test_globals_of_packages_are_roots_only_where_asked_for() -> None:
    assert any(r.scope.startswith("torch") for r in heap.module_roots((frames.TORCH,)))
    assert not any(r.scope == __name__ for r in heap.module_roots((frames.TORCH, frames.INSTALLED)))


# Nothing of the program's is run -------------------------------------------------------------------------------------

EVIL = ("__getattr__", "__getattribute__", "__len__", "__eq__", "__bool__", "__hash__", "__iter__", "__getitem__",
        "__repr__", "__contains__", "__call__", "__dir__", "__del__")  # fmt: skip


def hostile(calls: list[str], base: type = object) -> type:
    """A class whose every special method, and whose `__class__`, notes that it was run and raises."""

    def trap(name: str) -> Any:
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            raise RuntimeError(f"{name} of a user's object was run")

        return run

    space: dict[str, Any] = {name: trap(name) for name in EVIL if name != "__del__"}
    space["__class__"] = property(trap("__class__"))
    space["__slots__"] = () if base is not object else ("held",)
    return type("Hostile", (base,), space)


def hostile_holding(calls: list[str], tensor: torch.Tensor, base: type) -> Any:
    """A hostile object that holds a tensor in the way of its base."""
    cls = hostile(calls, base)
    value = cls.__new__(cls)
    if base is list:
        list.append(value, tensor)
    elif base is dict:
        dict.__setitem__(value, "key", tensor)
    else:
        vars(cls)["held"].__set__(value, tensor)
    return value


@pytest.mark.parametrize("base", [object, list, dict])
def test_hostile_objects_are_walked_through_and_never_evaluated(base: type) -> None:
    calls: list[str] = []
    tensor = torch.zeros(3)
    value = hostile_holding(calls, tensor, base)
    with walked(value=[value]) as walk:
        assert any(t is tensor for t in walk.tensors)
    assert calls == []


def test_properties_are_not_evaluated() -> None:
    calls: list[str] = []

    class Lazy:
        def __init__(self) -> None:
            self._tensor = torch.zeros(3)

        @property
        def expensive(self) -> torch.Tensor:
            calls.append("expensive")
            return self._tensor

    lazy = Lazy()
    assert found(lazy._tensor, lazy)
    assert calls == []


class Noisy(type):
    """A metaclass that notes every attribute asked of its classes."""

    asked: list[str] = []

    def __getattribute__(cls, name: str) -> Any:
        Noisy.asked.append(name)
        return super().__getattribute__(name)


class Broken(type):
    """A metaclass whose classes answer nothing."""

    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class Registry(metaclass=Noisy):
    """A user class that holds a tensor."""

    held = torch.zeros(3)


class Mute(metaclass=Broken):
    """A user class that cannot be asked."""


def test_a_metaclass_is_not_run() -> None:
    space = type.__getattribute__(Registry, "__dict__")
    Noisy.asked.clear()
    assert found(space["held"], Registry)
    assert Noisy.asked == []


def test_a_metaclass_that_raises_does_not_end_the_walk() -> None:
    tensor = torch.zeros(3)
    assert found(tensor, [Mute, [tensor]])


@bug(strict=True, reason="heap.tensor_children reads attributes through a tensor subclass's __torch_function__")
def test_a_tensor_subclass_is_not_told() -> None:
    told: list[Any] = []

    class Telling(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            told.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    tensor = torch.zeros(3).as_subclass(Telling)
    told.clear()
    assert found(tensor, [tensor])
    assert told == []


def test_weak_references_are_not_followed() -> None:
    tensor = torch.zeros(3)
    assert not found(tensor, [weakref.ref(tensor)])


# Size and time -------------------------------------------------------------------------------------------------------


def test_containers_ten_thousand_deep_and_in_a_ring() -> None:
    tensor = torch.zeros(3)
    ring: list[Any] = [tensor]
    inner = ring
    for _ in range(10_000):
        inner = [inner]
    ring.append(inner)
    with walked(ring=inner) as walk:
        assert walk.complete and sum(t is tensor for t in walk.tensors) == 1
    while ring:
        # Taken apart by hand: a deallocator that recurses ten thousand deep is not what is tested.
        ring.pop()


def test_two_hundred_thousand_tensors_are_walked_to_the_end() -> None:
    base = torch.zeros(1)
    with walked(budget=30.0, many=[base.detach() for _ in range(200_000)]) as walk:
        assert len(walk.tensors) == 200_000 and walk.complete


def test_the_budget_ends_the_walk_and_says_so() -> None:
    with walked(budget=0.0, many=[[[i]] for i in range(100_000)]) as walk:
        assert not walk.complete
        assert len(walk.objects) < 150_000


def test_an_object_that_two_names_reach_is_found_once_by_the_shorter_way() -> None:
    tensor = torch.zeros(3)
    assert names_of(tensor, far=[[[tensor]]], near=[tensor]) == ["near[0]"]


def test_what_a_program_changes_between_two_walks_is_seen() -> None:
    held: list[torch.Tensor] = []
    for count in (0, 1, 3):
        while len(held) < count:
            held.append(torch.zeros(1))
        with walked(held=held) as walk:
            assert len(walk.tensors) == count


def iterate(tensor: torch.Tensor) -> Iterator[int]:
    """A generator that holds a tensor in its frame."""
    yield 1
    yield tensor.numel()


@pytest.mark.parametrize(
    "build",
    [
        lambda t: {"a": [{"b": (t,)}]},
        lambda t: {t: 1},
        lambda t: {frozenset([t])},
        lambda t: lambda: t,
        lambda t: iter([1, t]),
        lambda t: map(str, [t]),
        lambda t: (x for x in [t]),
        iterate,
        lambda t: type("Plain", (), {"__init__": lambda self: setattr(self, "x", t)})(),
        lambda t: RuntimeError(t),
    ],
    ids=["nested", "key", "frozenset", "closure", "iterator", "map", "genexpr", "generator", "instance", "exception"],
)
def test_ways_to_hold_a_tensor(build: Callable[[torch.Tensor], Any]) -> None:
    tensor = torch.zeros(3)
    held = build(tensor)
    assert found(tensor, held)


def test_our_own_hooks_and_what_they_remember_are_no_ones_names() -> None:
    """torch calls them from variables of its own, and a variable named `pre_hook` led to all that a probe keeps."""

    class Listener:
        active = True

    tensor, listener = torch.zeros(3), Listener()
    listener.kept = [tensor]  # type: ignore[attr-defined]
    hook = hooks._after_step(listener, None)  # type: ignore[arg-type]
    assert listener in [cell.cell_contents for cell in hook.__closure__ or ()]
    assert not found(tensor, hook)
    sample = half.Sample(tensor)
    assert not found(sample.at[0], sample, hooks.Taps(listener))  # type: ignore[arg-type]
    assert found(tensor, listener)


def test_what_two_iterators_share_is_found_below_the_one_that_lags() -> None:
    """However many items lie between them, and whichever name comes first."""
    for read in (3, 57, 58, 200):
        first, last = itertools.tee(torch.ones(1) for _ in range(300))
        for _ in range(read):
            next(first)
        (tensor,) = itertools.islice(first, 1)
        for names in ({"first": first, "last": last}, {"last": last, "first": first}):
            if read > 56 or sys.version_info < (3, 14):
                assert name_of(tensor, **names).startswith("last ")
            with walked(**names) as walk:
                assert len(walk.tensors) == read + 1


def test_going_through_the_modules_leaves_no_pairs_in_pythons_free_list() -> None:
    names = {f"torchvet_test_{i}": sys.modules[__name__] for i in range(1500)}
    sys.modules.update(names)
    try:
        gc.collect()
        before = sys.getallocatedblocks()
        assert sum(1 for _ in heap.module_roots(())) == 0
        assert sys.getallocatedblocks() - before < 500
    finally:
        for name in names:
            del sys.modules[name]
