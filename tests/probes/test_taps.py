"""The taps tell what torch does, pass everything through, and leave nothing behind."""

from __future__ import annotations

import gc
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from torchvet.probes.base.collector import CollectorProbe
from torchvet.probes.base.hooks import Taps
from torchvet.probes.base.ledger import Ledger
from torchvet.probes.internals.patching import replace


class Heard:
    """A listener that writes down what it is told."""

    def __init__(self) -> None:
        self.active = True
        self.events: list[str] = []
        self.details: list[Any] = []

    def optimizer_made(self, optimizer: Any) -> None:
        self.events.append("made")

    def optimizer_starts(self, optimizer: Any, closure: bool = False) -> None:
        self.events.append("step")

    def ended_aside(self, optimizer: Any, is_grad: bool = False) -> None:
        pass

    def optimizer_ended(self, optimizer: Any) -> None:
        self.events.append("stepped")

    def backward_starts(self, tensors: Any, retain_graph: bool, create_graph: bool, is_grad: bool) -> None:
        self.events.append("grad" if is_grad else "backward")
        self.details.append((retain_graph, create_graph))

    def backward_ended(self, seconds: float, is_grad: bool) -> None:
        self.events.append("backwarded")

    def backward_failed(self) -> None:
        self.events.append("failed")

    def batch_asked(self, iterator: Any, caller: Any) -> None:
        self.events.append("ask")

    def batch_got(self, iterator: Any, batch: Any, seconds: float) -> None:
        self.events.append("got")

    def batch_failed(self) -> None:
        self.events.append("no batch")

    def batch_aside(self, iterator: Any) -> None:
        self.events.append("ask aside")

    def forward_aside(self, module: Any) -> None:
        self.events.append("forward aside")

    def forward_starts(self, module: Any, depth: int) -> None:
        self.events.append(f"forward {depth}")

    def forward_ended(self, module: Any, output: Any, depth: int) -> None:
        self.events.append(f"forwarded {depth}")

    def mode_changed(self, module: Any, training: bool) -> None:
        self.events.append("train" if training else "eval")


@pytest.fixture
def heard() -> Iterator[Heard]:
    """A listener with its taps installed."""
    one = Heard()
    taps = Taps(one)
    taps.install()
    one.taps = taps  # type: ignore[attr-defined]
    yield one
    taps.remove()


def test_a_training_step_is_told_in_order(heard: Heard) -> None:
    heard.taps.watch_modules()  # type: ignore[attr-defined]
    model = torch.nn.Sequential(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in DataLoader(TensorDataset(torch.ones(2, 2)), batch_size=2):
        model(x).sum().backward()
        optimizer.step()
    assert heard.events == [
        "made", "ask", "got", "forward 0", "forward 1", "forwarded 1", "forwarded 0", "backward", "backwarded",
        "step", "stepped", "ask", "no batch",
    ]  # fmt: skip


def test_flags_of_backward_are_told(heard: Heard) -> None:
    x = torch.ones(2, requires_grad=True)
    x.exp().sum().backward(retain_graph=True)
    torch.autograd.grad(x.exp().sum(), x, create_graph=True)
    torch.autograd.backward([x.exp().sum()], None, True)
    assert heard.events == ["backward", "backwarded", "grad", "backwarded", "backward", "backwarded"]
    assert heard.details == [(True, False), (False, True), (True, False)]


def test_what_torch_compile_differentiates_while_it_traces_is_not_told(heard: Heard) -> None:
    from torch._guards import TracingContext, tracing

    x = torch.ones(2, requires_grad=True)
    with tracing(TracingContext(None)):
        torch.autograd.grad(x.sum(), x)
        x.sum().backward()
    assert heard.events == []
    x.sum().backward()
    assert heard.events == ["backward", "backwarded"]


def test_a_model_that_is_only_sized_takes_no_steps(heard: Heard) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    heard.taps.watch_modules()  # type: ignore[attr-defined]
    with FakeTensorMode():
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters())
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    assert heard.events == []


def test_the_mode_is_told_once_for_a_whole_model(heard: Heard) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.Linear(2, 2)))
    assert model.eval() is model
    assert model.train() is model
    assert heard.events == ["eval", "train"]
    assert all(m.training for m in model.modules())


def test_an_inactive_listener_hears_nothing_and_everything_works(heard: Heard) -> None:
    heard.active = False
    model = torch.nn.Linear(2, 1).eval().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2):
        model(x).sum().backward()
        optimizer.step()
    torch.autograd.grad(model(torch.ones(1, 2)).sum(), model.weight)
    assert heard.events == ["ask aside"] * 3


def test_results_pass_through_unchanged(heard: Heard) -> None:
    x = torch.ones(3, requires_grad=True)
    (gradient,) = torch.autograd.grad((x * x).sum(), x)
    assert gradient.tolist() == [2, 2, 2]
    assert torch.autograd.grad((x * x).sum(), [x], allow_unused=True, materialize_grads=True)[0].tolist() == [2, 2, 2]
    torch.autograd.backward((x * x), torch.ones(3), inputs=[x])
    assert x.grad is not None and x.grad.tolist() == [2, 2, 2]
    assert [b[0].tolist() for b in DataLoader(TensorDataset(torch.arange(4)), batch_size=2)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("call", [
    lambda: torch.ones(1).backward(),
    lambda: torch.autograd.grad(torch.ones(1, requires_grad=True).sum(), torch.ones(1, requires_grad=True)),
    lambda: torch.optim.SGD([], lr=0.1),
    lambda: torch.autograd.backward(),
    lambda: torch.autograd.grad(torch.ones(1), torch.ones(1), nonsense=1),
    lambda: torch.nn.Linear(1, 1).train("yes"),
], ids=["no graph", "unused", "no parameters", "no arguments", "unknown argument", "bad mode"])  # fmt: skip
def test_errors_are_torchs_own(heard: Heard, call: Callable[[], Any]) -> None:
    with pytest.raises(Exception) as watched:
        call()
    heard.taps.remove()  # type: ignore[attr-defined]
    with pytest.raises(Exception) as alone:
        call()
    assert (type(watched.value), str(watched.value)) == (type(alone.value), str(alone.value))


def test_signatures_and_names_stay(heard: Heard) -> None:
    tapped = (torch.autograd.backward, torch.autograd.grad, torch.nn.Module.train, torch.optim.Optimizer.__init__)
    described = [(inspect.signature(f), f.__name__, f.__doc__, f.__module__) for f in tapped]
    heard.taps.remove()  # type: ignore[attr-defined]
    plain = (torch.autograd.backward, torch.autograd.grad, torch.nn.Module.train, torch.optim.Optimizer.__init__)
    assert described == [(inspect.signature(f), f.__name__, f.__doc__, f.__module__) for f in plain]


def test_a_forward_that_raises_leaves_the_depth_right(heard: Heard) -> None:
    heard.taps.watch_modules()  # type: ignore[attr-defined]
    model = torch.nn.Sequential(torch.nn.Linear(2, 1))
    for _ in range(3):
        with pytest.raises(RuntimeError):
            model(torch.ones(1, 5))
    heard.events.clear()
    model(torch.ones(1, 2))
    assert heard.events[0] == "forward 0" and heard.events[-1] == "forwarded 0"


def test_a_call_within_another_threads_call_is_at_the_top(heard: Heard) -> None:
    heard.taps.watch_modules()  # type: ignore[attr-defined]
    inner = torch.nn.Linear(1, 1)

    class Waits(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            other = threading.Thread(target=inner, args=(x,))
            other.start()
            other.join()
            return x

    Waits()(torch.ones(1, 1))
    assert heard.events == ["forward 0", "forward 0", "forwarded 0", "forwarded 0"]


def test_of_passes_that_are_not_listened_to_only_the_top_is_told(heard: Heard) -> None:
    heard.taps.watch_modules()  # type: ignore[attr-defined]
    heard.active = False
    torch.nn.Sequential(torch.nn.Linear(1, 1))(torch.ones(1, 1))
    next(iter(DataLoader(TensorDataset(torch.ones(2, 1)))))
    assert heard.events == ["forward aside", "ask aside"]


def test_watching_modules_can_be_switched(heard: Heard) -> None:
    taps: Taps = heard.taps  # type: ignore[attr-defined]
    model = torch.nn.Linear(1, 1)
    taps.watch_modules()
    taps.watch_modules()
    assert taps.watching_modules
    taps.unwatch_modules()
    taps.unwatch_modules()
    model(torch.ones(1, 1))
    assert heard.events == [] and not taps.watching_modules


# Nothing stays -------------------------------------------------------------------------------------------------------


def test_removed_taps_leave_torch_as_it_was() -> None:
    before = (torch.autograd.backward, torch.autograd.grad, torch.nn.Module.train, torch.optim.Optimizer.__init__)
    taps = Taps(Heard())
    taps.install()
    taps.watch_modules()
    assert torch.autograd.backward is not before[0]
    taps.remove()
    taps.remove()
    after = (torch.autograd.backward, torch.autograd.grad, torch.nn.Module.train, torch.optim.Optimizer.__init__)
    assert all(a is b for a, b in zip(after, before, strict=True))


def test_of_two_taps_the_lower_may_go_first() -> None:
    """A probe that begins to listen late taps on top of others, and all end in their own order."""

    class Base:
        def step(self) -> int:
            return 1

    class Owner(Base):
        pass

    with ExitStack() as upper:
        with ExitStack() as lower:
            replace(lower, Owner, "step", lambda self: 10 + Base.step(self))
            under = Owner.step
            replace(upper, Owner, "step", lambda self: 100 + under(self))
        assert Owner().step() == 111, "the upper one still goes through it"
    assert "step" not in vars(Owner) and Owner().step() == 1


def test_a_patch_on_top_of_a_tap_is_not_taken_out_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taps = Taps(Heard())
    taps.install()
    ours = torch.autograd.backward

    def theirs(*args: Any, **kwargs: Any) -> None:
        ours(*args, **kwargs)

    torch.autograd.backward = theirs  # type: ignore[assignment]
    try:
        taps.remove()
        assert torch.autograd.backward is theirs
        torch.ones(1, requires_grad=True).sum().backward()
    finally:
        torch.autograd.backward = inspect.unwrap(ours)


@pytest.mark.parametrize("install", ["taps", "modules", "ledger", "collector"])
def test_the_check_that_nothing_stays_installed_can_fail(install: str, leftovers: Callable[[], list[str]]) -> None:
    assert leftovers() == []
    taps, ledger = Taps(Heard()), Ledger()
    host: Any = SimpleNamespace(ledger=ledger)
    collector = CollectorProbe(host)
    {"taps": taps.install, "modules": taps.watch_modules, "ledger": ledger.enter, "collector": collector.install}[
        install
    ]()
    try:
        assert leftovers() != []
    finally:
        taps.remove()
        ledger.leave()
        collector.remove()
    assert leftovers() == []


def test_the_collector_is_listened_to_and_let_go() -> None:
    host: Any = SimpleNamespace(ledger=Ledger())
    probe = CollectorProbe(host)
    probe.install()
    try:
        gc.collect()
        assert probe.total.collections == 1 and probe.total.seconds >= 0
    finally:
        probe.remove()
    gc.collect()
    assert probe.total.collections == 1


def test_only_a_collection_of_all_objects_is_full() -> None:
    host: Any = SimpleNamespace(ledger=Ledger())
    probe = CollectorProbe(host)
    probe.install()
    try:
        gc.collect()
        assert not probe.total.full, "before the first step all is young"
        host.ledger.tick = 1
        gc.collect(0)
        gc.collect(1)
        assert not probe.total.full
        gc.collect()
        assert (probe.total.full, probe.total.full_at) == (1, 1)
    finally:
        probe.remove()
