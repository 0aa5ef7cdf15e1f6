"""What watchers are made of: tables by storage, taps around calls, operators by name, the program's frames."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torchvet.probes.base.kit import ByStorage, bare_name, of_program, overloads, place_in, tap, user_lines


class Host:
    """Notes what is looked at, and keeps failures from the program."""

    def __init__(self) -> None:
        self.active = True
        self.looks: list[str] = []

    @contextmanager
    def looking(self, what: str) -> Iterator[None]:
        self.looks.append(what)
        try:
            yield
        except ValueError:
            self.looks.append("failed")


def double(x: int, *, handler: int = 0) -> int:
    return 2 * x + handler


def test_a_tap_names_arguments_as_the_function_does() -> None:
    host, seen = Host(), []
    before = tap(host, "calls", before=lambda x, handler=0: seen.append((x, handler)))  # type: ignore[arg-type]
    after = tap(host, None, after=lambda result, x, **_: seen.append((result, x)))  # type: ignore[arg-type]
    assert before(double)(3, handler=1) == 7
    assert after(double)(x=3) == 6
    assert seen == [(3, 1), (6, 3)]
    assert host.looks == ["calls"], "without a name it is no look"


def test_a_tap_that_fails_or_sleeps_changes_nothing() -> None:
    host = Host()

    def fails(*_: Any, **__: Any) -> None:
        raise ValueError

    wrapped = tap(host, "calls", before=fails, after=fails)(double)  # type: ignore[arg-type]
    assert wrapped(1) == 2
    assert host.looks == ["calls", "failed"] * 2
    host.active = False
    assert wrapped(2) == 4
    assert host.looks == ["calls", "failed"] * 2
    assert wrapped.__wrapped__ is double  # type: ignore[attr-defined]


def test_a_table_by_storage_keeps_nothing_alive_and_takes_none_for_another() -> None:
    table: ByStorage[str] = ByStorage()
    tensor = torch.ones(4)
    table.put(tensor, "mine")
    assert table.get(tensor[1:]) == "mine", "a view has the same storage"
    assert table.get(torch.ones(4)) is None
    assert table.get(tensor.to_sparse()) is None
    assert table.get("no tensor") is None
    assert [value for _, value in table.living()] == ["mine"]
    del tensor
    assert table.living() == []
    assert len(table) == 1, "until it is swept"
    table.sweep()
    assert not table


def test_operators_by_name_as_far_as_there_are_any() -> None:
    aten = torch.ops.aten
    assert overloads("add.Tensor neg not_there add.not_there") == (aten.add.Tensor, aten.neg.default)
    assert [bare_name(o) for o in (aten.div_.Tensor, "aten.matmul", "DataLoader")] == ["div_", "matmul", "DataLoader"]


def test_the_programs_frames_from_the_innermost_outward() -> None:
    frame = sys._getframe()
    assert next(of_program(frame)) is frame
    (place,) = user_lines(frame, 1)
    assert place.path == __file__
    assert place_in(frame.f_code).function.endswith("outward")


def test_what_stands_for_a_tensor_within_a_transform_has_no_storage_to_ask_for() -> None:
    table: ByStorage[int] = ByStorage()
    asked: list[int | None] = []

    def loss(x: torch.Tensor) -> torch.Tensor:
        asked.append(table.get(x))
        return x.sum()

    torch.func.vmap(torch.func.grad(loss))(torch.ones(2, 3))
    assert asked == [None]
