"""Regions are known by the line that opens them, the thread that is in them, and what they were asked to be."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from autocast_runs import BF16, Training, observed
from torch.amp.autocast_mode import autocast

from torchvet.recording.records.autocast import AutocastError, AutocastRegion, ThreadForward


def regions(rank: Any) -> dict[tuple[int, str], AutocastRegion]:
    return {(r.place.line, r.dtype): r for r in rank.all(AutocastRegion)}


def line_of(text: str) -> int:
    """The first line of this file that holds a text."""
    with open(__file__, encoding="utf-8") as file:
        return next(n for n, line in enumerate(file, 1) if text in line)


def test_a_region_is_known_by_its_line_and_counts_its_products() -> None:
    training = Training()
    with observed() as run:
        for x, y in training.batches():
            with torch.autocast("cpu", dtype=BF16):  # the region itself
                loss = torch.nn.functional.cross_entropy(training.model(x), y)
            training.apply(loss)
    (region,) = regions(run.rank).values()
    assert region.place.line == line_of("# the region itself")
    assert (region.entered, region.device, region.enabled, region.wanted) == (16, "cpu", True, True)
    assert region.inside > 0 and region.elsewhere == 0


def test_a_decorated_function_is_the_place_of_its_region() -> None:
    training = Training()

    @torch.autocast("cpu", dtype=BF16)  # the decorator
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(training.model(x), y)

    with observed() as run:
        training.run(torch.autocast("cpu", dtype=BF16)(loss.__wrapped__))  # type: ignore[attr-defined]
    (region,) = regions(run.rank).values()
    assert region.place.line == line_of("# the decorator") and region.place.function.endswith("loss")


def test_a_region_for_a_device_that_is_not_there_was_wanted() -> None:
    training = Training()
    with observed() as run, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x, y in training.batches():
            with torch.autocast("cuda", dtype=BF16):
                loss = torch.nn.functional.cross_entropy(training.model(x), y)
            training.apply(loss)
    (region,) = regions(run.rank).values()
    assert region.wanted and not region.enabled and region.inside == 0 < region.elsewhere and region.other == "cpu"


def test_a_region_that_is_switched_off_was_not_wanted() -> None:
    training = Training()
    with observed() as run:
        for x, y in training.batches():
            with torch.autocast("cuda", dtype=BF16, enabled=False):
                loss = torch.nn.functional.cross_entropy(training.model(x), y)
            training.apply(loss)
    (region,) = regions(run.rank).values()
    assert not region.wanted and not region.enabled and region.elsewhere == 0


def test_the_warning_of_a_region_that_torch_switches_off_names_the_same_line() -> None:
    def caught() -> list[int]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.autocast("cuda")
        return [w.lineno for w in seen if w.filename == __file__]

    bare = caught()
    with observed():
        assert caught() == bare != []


def test_torch_is_left_as_it_was() -> None:
    names = ("__enter__", "__exit__", "__call__", "__init__")
    before = [autocast.__dict__[name] for name in names]
    with observed():
        assert autocast.__dict__["__enter__"] is not before[0]
    assert [autocast.__dict__[name] for name in names] == before


def in_thread(training: Training, x: torch.Tensor, own: bool) -> torch.Tensor:
    results: list[torch.Tensor] = []

    def work() -> None:
        with torch.autocast("cpu", dtype=BF16, enabled=own):
            pass
        if own:
            with torch.autocast("cpu", dtype=BF16):
                results.append(training.model(x))
        else:
            results.append(training.model(x))  # in the thread

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return results[0]


def test_a_thread_that_an_active_region_waits_for_runs_without_it() -> None:
    training = Training()
    with observed() as run:
        for x, y in training.batches():
            with torch.autocast("cpu", dtype=BF16):
                loss = torch.nn.functional.cross_entropy(in_thread(training, x, own=False), y)
            training.apply(loss)
    (found,) = {(t.place.line, t.module, t.dtype) for t in run.rank.all(ThreadForward)}
    assert found == (line_of("# in the thread"), "Linear", "bfloat16")


def test_a_pool_that_is_given_the_model_itself_runs_without_it() -> None:
    training = Training()
    with observed() as run, ThreadPoolExecutor(1) as pool:
        for x, y in training.batches():
            with torch.autocast("cpu", dtype=BF16):
                parts = pool.map(training.model, x.chunk(2))
                loss = torch.nn.functional.cross_entropy(torch.cat(list(parts)), y)
            training.apply(loss)
    assert {(t.module, t.dtype) for t in run.rank.all(ThreadForward)} == {("Linear", "bfloat16")}


def test_looking_at_other_threads_keeps_nothing_of_theirs_or_ours() -> None:
    training = Training()
    made: list[weakref.ref[torch.Tensor]] = []
    with observed() as run:
        gc.collect()
        gc.disable()
        try:
            for x, y in training.batches():
                with torch.autocast("cpu", dtype=BF16):
                    output = in_thread(training, x, own=False)
                    loss = torch.nn.functional.cross_entropy(output, y)
                made.append(weakref.ref(output))
                training.apply(loss)
            del output, loss
            assert [ref for ref in made if ref() is not None] == []
        finally:
            gc.enable()
    assert run.rank.all(ThreadForward)


def test_a_thread_with_a_region_of_its_own_is_right() -> None:
    training = Training()
    with observed() as run:
        for x, y in training.batches():
            with torch.autocast("cpu", dtype=BF16):
                loss = torch.nn.functional.cross_entropy(in_thread(training, x, own=True), y)
            training.apply(loss)
    assert run.rank.all(ThreadForward) == []


def test_a_thread_that_nobody_waits_for_may_compute_in_float32() -> None:
    training, teacher = Training(), torch.nn.Linear(16, 4)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            teacher(torch.ones(2, 16))

    thread = threading.Thread(target=work)
    with observed() as run:
        thread.start()
        for x, y in training.batches():
            with torch.autocast("cpu", dtype=BF16):
                loss = torch.nn.functional.cross_entropy(training.model(x), y)
            training.apply(loss)
        stop.set()
        thread.join()
    assert run.rank.all(ThreadForward) == []


class Product(torch.autograd.Function):
    """A Function that autocast was not told about."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, w = ctx.saved_tensors
        return grad @ w, grad.t() @ x  # dies here


def raised(what: Any) -> list[AutocastError]:
    run = None
    try:
        with observed() as run:
            what()
    except (RuntimeError, ValueError):
        pass
    assert run is not None
    return run.rank.all(AutocastError)


def test_a_backward_that_dies_of_mixed_dtypes_is_named() -> None:
    def program() -> None:
        x, w = torch.ones(4, 8), torch.ones(2, 8, requires_grad=True)
        with torch.autocast("cpu", dtype=BF16):
            out = Product.apply(x.requires_grad_(), w)  # type: ignore[no-untyped-call]
        out.sum().backward()

    (error,) = raised(program)
    assert (error.kind, error.name, error.place.line) == ("function", "Product", line_of("# dies here"))


def test_a_mismatch_without_any_region_is_not_autocasts() -> None:
    assert raised(lambda: torch.ones(2, 2) @ torch.ones(2, 2, dtype=BF16)) == []


def test_half_operands_that_meet_float32_in_a_region_that_is_off_are_named() -> None:
    def program() -> None:
        layer = torch.nn.Linear(8, 8)
        with torch.autocast("cpu", dtype=BF16):
            hidden = layer(torch.ones(2, 8))
            with torch.autocast("cpu", enabled=False):  # off
                layer(hidden)

    (error,) = raised(program)
    assert error.kind == "disabled" and error.region is not None and error.region.line == line_of("# off")


def test_a_device_where_its_type_is_wanted_is_named() -> None:
    def program() -> None:
        torch.autocast(torch.device("cpu"))  # type: ignore[arg-type]  # a device

    (error,) = raised(program)
    assert (error.kind, error.place.line) == ("device", line_of("# a device"))
