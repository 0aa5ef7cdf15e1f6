"""What only a running loop's iterator or a `with` statement holds is found and named by the loop."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from looking import key_of

from torchvet.probes.memory.retained_sizes import HoldingTree
from torchvet.probes.objects import heap, naming, strays
from torchvet.probes.objects.heap import HeapWalk


class Pool:
    """Keeps what it has given out."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self

    def __next__(self) -> torch.Tensor:
        x = torch.zeros(2)
        self.seen.append(x)
        return x + 1

    def __call__(self, number: int) -> torch.Tensor:
        return next(self)


def batches() -> Iterator[torch.Tensor]:
    history = []
    while True:
        history.append(torch.zeros(2))
        yield history[-1] + 1


def names_now() -> set[str]:
    """The names of all tensors that strays lead to, by whom they are held."""
    walk = HeapWalk(10.0)
    walk.add_roots(heap.frame_roots([], []))
    walk.run()
    known = len(walk.tensors)
    walk.add_roots(list(strays.stray_roots(walk.parent, heap.running_frames())))
    walk.run()
    tree = HoldingTree(walk)
    found = {tree.name(id(t)).rpartition("[")[0] for t in walk.tensors[known:]}
    walk.close()
    tree.close()
    return {name for name in found if name}


def looped(values: Iterable[Any]) -> Iterator[Any]:
    """Gives a loop's iterable away: no variable is to hold it."""
    return iter(values)


def test_the_iterator_of_a_loop_is_named_by_its_line() -> None:
    def program() -> set[str]:
        for number, _ in enumerate(Pool()):
            if number == 2:
                return names_now()
        return set()

    line = program.__code__.co_firstlineno + 1
    assert program() == {f"<iterator of the loop in line {line}>.seen"}


def test_of_nested_loops_each_has_its_own() -> None:
    def program() -> set[str]:
        for _ in zip(Pool(), itertools.count(), strict=False):
            for number, _ in enumerate(batches()):
                if number == 1:
                    return names_now()
        return set()

    line = program.__code__.co_firstlineno + 1
    assert program() == {
        f"<iterator of the loop in line {line}>.seen",
        f"<iterator of the loop in line {line + 1}> → batches(): history",
    }


@pytest.mark.parametrize("make", [lambda: map(Pool(), range(9)), lambda: zip(Pool())])
def test_iterators_of_c_show_no_hop(make: Any) -> None:
    def program() -> set[str]:
        for _ in make():
            return names_now()
        return set()

    line = program.__code__.co_firstlineno + 1
    found = program()
    assert found and all(name.startswith(f"<iterator of the loop in line {line}>") for name in found)
    assert not any(".<" in name for name in found)


def test_a_comprehension_names_its_iterator() -> None:
    def program() -> list[set[str]]:
        pool = [Pool()]
        next(pool[0])
        return [names_now() for _ in itertools.islice(pool.pop(), 1)]

    (found,) = program()
    assert any("seen" in name for name in found) or not found  # from 3.12 on it is a loop like any other


def test_what_a_with_statement_entered_is_held_by_it() -> None:
    class Recorder(Pool):
        def __enter__(self) -> None:
            next(self)

        def __exit__(self, *error: object) -> None:
            self.seen.clear()

    def program() -> set[str]:
        with Recorder():
            return names_now()

    assert program() == {"<Recorder of a with statement>.seen"}


def test_a_context_manager_made_of_a_generator_is_held_too() -> None:
    @contextlib.contextmanager
    def recording() -> Iterator[None]:
        kept = [torch.zeros(2)]
        yield
        kept.clear()

    def program() -> set[str]:
        with recording():
            return names_now()

    assert any(name.endswith("recording(): kept") for name in program())


def test_garbage_that_looks_like_an_iterator_is_no_stray() -> None:
    gc.collect()
    gc.disable()
    try:
        pool = Pool()
        pool.seen.append(torch.zeros(2))
        pool.me = iter([pool])  # type: ignore[attr-defined]
        del pool
        assert not {name for name in names_now() if "seen" in name}
    finally:
        gc.enable()
        gc.collect()


def test_looking_for_strays_keeps_none_of_them() -> None:
    def program() -> int:
        for _ in enumerate(Pool()):
            names_now()
            break
        return len([o for o in gc.get_objects() if type(o) is Pool])

    gc.collect()
    assert program() == 0


def test_the_name_of_a_stray_is_read_as_an_attribute() -> None:
    from torchvet.source.holder import parse

    parsed = parse("<iterator of the loop in line 32>.seen")
    assert parsed is not None
    assert [(p.name, p.free) for p in parsed.parts] == [("seen", False)]
    assert naming.hop(enumerate([]), []).text == ""
    assert key_of(torch.zeros(1))
