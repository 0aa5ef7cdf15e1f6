"""What runs compiled is out of sight and as it is without torchvet; what does not is seen, whatever came before."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.modules import module as nn_module

import torchvet
from torchvet.probes.internals.compiled_regions import REGIONS, Aside
from torchvet.probes.internals.modes import OwnMode
from torchvet.recording import read
from torchvet.recording.records.base import Window
from torchvet.recording.records.training import TrainModePass


def hooks() -> int:
    return len(nn_module._global_forward_pre_hooks)


def compiled(function: Any) -> Any:
    return torch.compile(function, backend="eager")


@pytest.fixture
def aside() -> Iterator[Aside]:
    """A hook on every module, in place."""
    compiled(lambda x: x + 1)(torch.ones(1))
    one = Aside(lambda undo: undo.callback(nn_module.register_module_forward_pre_hook(lambda m, a: None).remove))
    one.on()
    yield one
    one.off()
    assert hooks() == 0


def test_a_hook_is_out_of_the_way_while_a_region_runs(aside: Aside) -> None:
    seen = []

    @torch._dynamo.disable
    def uncompiled(x: torch.Tensor) -> torch.Tensor:
        seen.append((hooks(), REGIONS.inside))
        return x

    @compiled
    def region(x: torch.Tensor) -> torch.Tensor:
        return uncompiled(uncompiled(x * 2)) + 1

    assert hooks() == 1 and not REGIONS.inside
    assert region(torch.ones(2)).tolist() == [3, 3]
    assert seen == [(0, True), (0, True)]
    assert hooks() == 1 and not REGIONS.inside


def test_a_region_that_raises_ends(aside: Aside) -> None:
    @compiled
    def region(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        region(torch.ones(2))
    assert hooks() == 1 and not REGIONS.inside


def test_a_hook_that_comes_within_a_region_waits_for_its_end() -> None:
    later = Aside(lambda undo: undo.callback(nn_module.register_module_forward_pre_hook(lambda m, a: None).remove))
    REGIONS.watch()
    counts = []

    @torch._dynamo.disable
    def put(x: torch.Tensor) -> torch.Tensor:
        later.on()
        counts.append(hooks())
        return x

    try:
        compiled(lambda x: put(x) + 1)(torch.ones(1))
        assert counts == [0] and hooks() == 1
    finally:
        later.off()
        REGIONS.unwatch()


def test_a_region_that_is_forced_to_run_eagerly_is_none(aside: Aside) -> None:
    before = REGIONS.entered
    with torch.compiler.set_stance("force_eager"):
        assert compiled(lambda x: x + hooks())(torch.ones(1)).tolist() == [2]
    assert REGIONS.entered == before


def test_modes_are_not_switched_within_a_region() -> None:
    entered = []

    class Mode(OwnMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    mode = Mode()

    @torch._dynamo.disable
    def enter(x: torch.Tensor) -> torch.Tensor:
        entered.append(mode.enter())
        return x

    REGIONS.watch()
    try:
        compiled(lambda x: enter(x) + 1)(torch.ones(1))
        assert entered == [False]
        assert mode.enter()
        mode.leave()
    finally:
        REGIONS.unwatch()


def test_the_compiler_is_as_it_was_when_the_watch_ends() -> None:
    from torch._dynamo import eval_frame, trace_rules

    def state() -> list[Any]:
        return [
            eval_frame._maybe_set_eval_frame,
            list(trace_rules.SKIP_DIRS),
            set(trace_rules.get_mod_inlinelist()),
            trace_rules.SKIP_DIRS_RE.pattern,
            nn_module._has_any_global_hook,
        ]

    before = state()
    REGIONS.watch()
    assert state() != before
    REGIONS.unwatch()
    assert state() == before


# Whole programs -----------------------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.second = nn.Linear(8, 8), nn.Dropout(0.1), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.drop(self.first(x).relu()))  # type: ignore[no-any-return]


def a_model(net: Net, optimizer: torch.optim.Optimizer) -> Callable[[torch.Tensor], torch.Tensor]:
    model = compiled(net)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def a_model_in_place(net: Net, optimizer: torch.optim.Optimizer) -> Callable[[torch.Tensor], torch.Tensor]:
    step = a_model(net, optimizer)
    net.compile(backend="eager")
    return step


def an_optimizer(net: Net, optimizer: torch.optim.Optimizer) -> Callable[[torch.Tensor], torch.Tensor]:
    update = compiled(optimizer.step)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = net(x).square().mean()
        loss.backward()
        update()
        optimizer.zero_grad()
        return loss

    return step


def a_whole_step(net: Net, optimizer: torch.optim.Optimizer) -> Callable[[torch.Tensor], torch.Tensor]:
    @compiled
    def step(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def a_penalty_in_one_graph(net: Net, optimizer: torch.optim.Optimizer) -> Callable[[torch.Tensor], torch.Tensor]:
    @torch.compile(backend="eager", fullgraph=True)
    def penalty(x: torch.Tensor) -> torch.Tensor:
        return net.first(x).square().mean()  # type: ignore[no-any-return]

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = net(x).square().mean() + penalty(x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss  # type: ignore[no-any-return]

    return step


def trained(way: Any, watch: str) -> tuple[list[float], int, torchvet.Report | None]:
    """Losses, the number of graphs, and the last report; watched is "all", from the "middle" on, or nothing."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    net = Net()
    step = way(net, torch.optim.SGD(net.parameters(), lr=0.1))
    losses, report = [], None
    for part in range(2):
        watched = watch == "all" or (watch == "middle" and part == 1)
        with torchvet.watch() if watched else nullcontext() as seen:
            for _ in range(12):
                losses.append(step(torch.randn(4, 8)).item())
            net.eval()
            with torch.no_grad():
                losses.append(net(torch.randn(4, 8)).mean().item())
            net.train()
        report = seen.report if seen is not None else None
    return losses, counters["stats"]["unique_graphs"], report


@pytest.mark.parametrize(
    ("way", "watch"),
    [
        (a_model, "all"),
        (a_model, "middle"),
        (a_model_in_place, "middle"),
        (an_optimizer, "all"),
        (a_whole_step, "all"),
        (a_penalty_in_one_graph, "middle"),
    ],
)
def test_a_compiled_program_is_compiled_as_without_torchvet(way: Any, watch: str) -> None:
    with warnings.catch_warnings(record=True) as alone:
        warnings.simplefilter("always")
        losses, graphs, _ = trained(way, "")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        *found, report = trained(way, watch)
    assert found == [losses, graphs]
    assert {str(w.message) for w in told} <= {str(w.message) for w in alone}
    assert report is not None and report.facts["steps"] == 12
    assert "inside torch.compile regions" in {n.check for n in report.not_checked}


def trains_and_evaluates(net: Net) -> None:
    """In train mode, without gradients."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(10):
        net(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        for _ in range(3):
            net(torch.randn(4, 8))


def sees_modules(folder: Path) -> bool:
    """Whether hooks of modules heard of the evaluation, and named what the windows saw."""
    (rank,) = read(folder).ranks
    named = {s.site.module for w in rank.all(Window) for s in w.sites}
    return bool(rank.all(TrainModePass)) and "Net.drop" in named


def test_what_was_compiled_before_the_watch_hides_nothing(tmp_path: Path, leftovers: Callable[[], list[str]]) -> None:
    compiled(Net())(torch.randn(4, 8))
    with torchvet.watch(record=tmp_path / "run.vet") as seen:
        trains_and_evaluates(Net())
    assert sees_modules(tmp_path / "run.vet")
    assert seen.report is not None
    assert not [n.check for n in seen.report.not_checked if "torch.compile" in f"{n.check}{n.reason}"]
    assert leftovers() == []


def test_what_is_compiled_in_a_watch_hides_only_itself(tmp_path: Path) -> None:
    with torchvet.watch(record=tmp_path / "run.vet") as seen:
        compiled(Net())(torch.randn(4, 8))
        trains_and_evaluates(Net())
    assert sees_modules(tmp_path / "run.vet")
    assert seen.report is not None
    assert "inside torch.compile regions" in {n.check for n in seen.report.not_checked}


def test_an_undo_of_a_hook_is_called_once() -> None:
    calls = []
    one = Aside(lambda undo: undo.callback(calls.append, 1))
    for _ in range(2):
        one.on()
        one.on()
        one.off()
        one.off()
    assert calls == [1, 1]
