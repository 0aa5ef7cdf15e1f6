"""What each optimizer steps on: gradients left over, none, and parameters that nobody steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hosts import ByHand

from torchvet.probes.optimizers import use as optimizers
from torchvet.probes.optimizers.use import OptimizerProbe
from torchvet.recording.records.base import Place
from torchvet.recording.records.optimizers import OptimizerUse, UnownedParameters
from torchvet.recording.records.training import SparseGradient


class Loop:
    """A model, and its optimizers as the observer would report them."""

    def __init__(self, *optimizers: torch.optim.Optimizer, root: torch.nn.Module | None = None) -> None:
        self.host: Any = ByHand()
        self.host.sampling = True
        self.known = self.host.known
        self.probe = OptimizerProbe(self.host)
        for optimizer in optimizers:
            self.probe.optimizer_made(optimizer)
        if root is not None:
            self.known.add_root(root)

    def backward(self, loss: torch.Tensor) -> None:
        self.probe.backward_starts(loss, False)
        loss.backward()
        self.probe.backward_ended(False)

    def step(self, optimizer: torch.optim.Optimizer, closure: Callable[[], torch.Tensor] | None = None) -> None:
        self.probe.optimizer_starts(optimizer)
        optimizer.step(closure)  # type: ignore[arg-type]
        self.probe.optimizer_ended(optimizer)

    def uses(self) -> list[OptimizerUse]:
        return [r for r in self.probe.totals(1) if isinstance(r, OptimizerUse)]

    def unowned(self) -> list[UnownedParameters]:
        return [r for r in self.probe.totals(1) if isinstance(r, UnownedParameters)]


def small() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(3, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


X = torch.ones(2, 3)


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("where", ["before backward", "after step"])
def test_cleared_gradients_are_not_reported(to_none: bool, where: str) -> None:
    model, optimizer = small()
    loop = Loop(optimizer)
    for _ in range(6):
        if where == "before backward":
            optimizer.zero_grad(set_to_none=to_none)
        loop.backward(model(X).sum())
        loop.step(optimizer)
        if where == "after step":
            optimizer.zero_grad(set_to_none=to_none)
    (use,) = loop.uses()
    assert (use.steps, use.uncleared, use.starved) == (6, 0, 0)
    assert use.checked >= 4


def test_gradients_never_cleared_are_reported_in_every_step_but_the_first() -> None:
    model, optimizer = small()
    loop = Loop(optimizer)
    for _ in range(6):
        loop.backward(model(X).sum())
        loop.step(optimizer)
    (use,) = loop.uses()
    assert use.uncleared == use.checked == 5


def test_a_trace_that_decays_by_hand_is_meant_to_stay() -> None:
    model, optimizer = small()
    loop = Loop(optimizer)
    for _ in range(6):
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(0.9)
        loop.backward(model(X).sum())
        loop.step(optimizer)
    assert loop.uses()[0].uncleared == 0


def test_clipping_before_the_step_clears_nothing() -> None:
    model, optimizer = small()
    loop = Loop(optimizer)
    for _ in range(6):
        loop.backward(model(X).sum())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        loop.step(optimizer)
    assert loop.uses()[0].uncleared == 5


@pytest.mark.parametrize("micro", [2, 4])
def test_accumulation_is_not_left_over_gradient(micro: int) -> None:
    model, optimizer = small()
    loop = Loop(optimizer)
    for _ in range(6):
        for _ in range(micro):
            loop.backward(model(X).sum())
        loop.step(optimizer)
        optimizer.zero_grad()
    assert loop.uses()[0].uncleared == 0


def test_a_gan_whose_gradients_are_each_cleared_in_time_is_fine() -> None:
    critic, critic_optimizer = small()
    maker = torch.nn.Linear(3, 3)
    maker_optimizer = torch.optim.SGD(maker.parameters(), lr=0.01)
    loop = Loop(critic_optimizer, maker_optimizer)
    for _ in range(6):
        critic_optimizer.zero_grad()
        loop.backward(critic(maker(X).detach()).sum())
        loop.step(critic_optimizer)
        maker_optimizer.zero_grad()
        loop.backward(critic(maker(X)).sum())  # leaves a gradient in the critic, which its own clearing removes
        loop.step(maker_optimizer)
    assert [u.uncleared for u in loop.uses()] == [0, 0]


def test_closures_are_judged_after_the_step() -> None:
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    loop = Loop(optimizer)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(X).pow(2).sum()
        loop.backward(loss)
        return loss

    for _ in range(4):
        loop.step(optimizer, closure)
    (use,) = loop.uses()
    assert (use.name, use.steps, use.uncleared, use.starved) == ("LBFGS", 4, 0, 0)


def test_steps_without_any_gradient_are_starved() -> None:
    model, optimizer = small()
    loop = Loop(optimizer)
    for _ in range(4):
        model(X).sum()
        loop.step(optimizer)
    (use,) = loop.uses()
    assert use.starved == 4 and use.without_gradient_count == 2


def test_clearing_between_backward_and_step_starves_it() -> None:
    model, optimizer = small()
    loop = Loop(optimizer)
    for _ in range(4):
        loop.backward(model(X).sum())
        optimizer.zero_grad()
        loop.step(optimizer)
    (use,) = loop.uses()
    assert use.starved >= 1 and use.thrown == 4 and use.gradients_were_cleared


@pytest.mark.parametrize("micro", [1, 3])
def test_what_is_cleared_after_the_step_or_before_backward_is_used(micro: int) -> None:
    model, optimizer = small()
    loop = Loop(optimizer)
    for _ in range(10):
        optimizer.zero_grad()
        for _ in range(micro):
            loop.backward(model(X).sum())
        loop.step(optimizer)
        optimizer.zero_grad()
    assert not loop.uses()[0].thrown


def test_a_closure_that_clears_within_the_step_throws_nothing_away() -> None:
    model, _ = small()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    loop = Loop(optimizer)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(X).square().sum()
        loop.backward(loss)
        return loss

    for _ in range(6):
        loop.step(optimizer, closure)
        optimizer.zero_grad()
    assert not loop.uses()[0].gradients_were_cleared


def test_parameters_that_never_get_a_gradient_are_named() -> None:
    model = torch.nn.ModuleDict({"used": torch.nn.Linear(3, 1), "unused": torch.nn.Linear(3, 1)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loop = Loop(optimizer, root=model)
    for _ in range(3):
        optimizer.zero_grad()
        loop.backward(model["used"](X).sum())
        loop.step(optimizer)
    (use,) = loop.uses()
    assert use.without_gradient == ["unused.bias", "unused.weight"] and use.without_gradient_count == 2


def test_frozen_parameters_are_not_missed() -> None:
    model = torch.nn.Linear(3, 1)
    model.bias.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loop = Loop(optimizer, root=model)
    loop.backward(model(X).sum())
    loop.step(optimizer)
    assert loop.uses()[0].without_gradient_count == 0


def half_owned(change_by_hand: bool, training: bool = True) -> list[UnownedParameters]:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)).train(training)
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.01)
    loop = Loop(optimizer, root=model)
    for _ in range(5):
        optimizer.zero_grad()
        loop.backward(model(X).sum())
        loop.step(optimizer)
        if change_by_hand:
            with torch.no_grad():
                for parameter in model[0].parameters():
                    parameter -= 0.01
        loop.probe.settle(1, "training")
    return loop.unowned()


def test_parameters_that_no_optimizer_has_are_named() -> None:
    (record,) = half_owned(change_by_hand=False)
    assert record.names == ["0.weight", "0.bias"] and (record.count, record.owned, record.bytes) == (2, 2, 48)


def test_parameters_that_the_program_changes_itself_are_owned() -> None:
    assert half_owned(change_by_hand=True) == []


def test_a_model_in_evaluation_mode_is_not_reported() -> None:
    assert half_owned(change_by_hand=False, training=False) == []


@pytest.mark.parametrize("resting", [True, False])
def test_whether_a_part_that_no_optimizer_has_rests_and_where_the_other_part_s_was_made(resting: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    model[0].train(not resting)
    before, optimizer = small()[1], torch.optim.SGD(model[1].parameters(), lr=0.01)
    loop = Loop(before, optimizer, root=model)
    # As if each had been made on a line of its own.
    for number, one in enumerate((before, optimizer)):
        loop.probe._states[id(one)].use.place = Place("train.py", 10 + number, "main")
    for _ in range(4):
        loop.backward(model(X).sum())
        loop.step(optimizer)
        loop.probe.settle(1, "training")
    # The optimizer is gone at the end of the function that made it.
    loop.probe._states.clear()
    (record,) = loop.unowned()
    assert record.resting is resting and record.place == Place("train.py", 11, "main")


def first_loop(model: torch.nn.Module) -> Loop:
    """A loop whose optimizer has the last layer only, and that has reported the first."""
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.01)  # type: ignore[index]
    loop = Loop(optimizer, root=model)
    for _ in range(3):
        loop.backward(model(X).sum())
        loop.step(optimizer)
        loop.probe.settle(1, "training")
    assert [r.count for r in loop.unowned()] == [2]
    return loop


def test_what_gets_its_optimizer_during_the_first_steps_is_taken_back() -> None:
    """Pyro makes one optimizer per parameter when the parameter is first stepped."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    loop = first_loop(model)
    own = [torch.optim.SGD([p], lr=0.01) for p in model[0].parameters()]
    loop.probe.optimizer_made(own[0])
    assert [r.count for r in loop.unowned()] == [1]
    loop.probe.optimizer_made(own[1])
    assert [(r.module, r.count) for r in loop.unowned()] == [("Sequential", 0)]
    assert loop.unowned() == []


def test_what_is_changed_by_hand_later_is_taken_back() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    loop = first_loop(model)
    with torch.no_grad():
        for parameter in model[0].parameters():
            parameter -= 0.01
    loop.probe.settle(1, "training")
    assert [r.count for r in loop.unowned()] == [0]


@pytest.mark.parametrize("how", ["dies", "evaluates", "is cleared"])
def test_what_can_no_longer_be_seen_takes_nothing_back(how: str) -> None:
    models = [torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))]
    loop = first_loop(models[0])
    if how == "dies":
        models.clear()
    elif how == "evaluates":
        models[0].eval()
    else:
        models[0].zero_grad()
    loop.probe.settle(1, "training")
    assert loop.unowned() == []


def test_replaced_parameters_leave_orphans() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model[0] = torch.nn.Linear(3, 3)
    loop = Loop(optimizer, root=model)
    for _ in range(4):
        loop.backward(model(X).sum())
        loop.step(optimizer)
        loop.probe.settle(1, "training")
    (record,) = loop.unowned()
    assert record.orphans == 2 and record.names == ["0.weight", "0.bias"]


def test_sparse_gradients_are_measured() -> None:
    words = torch.nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SGD(words.parameters(), lr=0.1)
    loop = Loop(optimizer, root=words)
    entries = []
    for tick in range(1, 4):
        loop.backward(words(torch.tensor([1, 2, 2])).sum())
        (record,) = [r for r in loop.probe.totals(tick) if isinstance(r, SparseGradient)]
        entries.append(record.entries)
        assert record.bytes == record.entries * (8 + 4 * 4) and record.name == "weight"
    assert entries[0] < entries[1] < entries[2], "never cleared: its entries pile up"


@pytest.mark.parametrize("sparse", [True, False])
def test_zeroed_gradients_of_any_layout_are_cleared(sparse: bool) -> None:
    words = torch.nn.Embedding(10, 4, sparse=sparse)
    optimizer = torch.optim.SGD(words.parameters(), lr=0.1)
    loop = Loop(optimizer, root=words)
    for _ in range(4):
        optimizer.zero_grad(set_to_none=False)
        loop.backward(words(torch.tensor([1, 2])).sum())
        loop.step(optimizer)
    assert loop.uses()[0].uncleared == 0


def test_the_line_that_made_an_optimizer_is_told() -> None:
    loop = Loop()

    def make(model: torch.nn.Module) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loop.probe.optimizer_made(optimizer)
        return optimizer

    model = torch.nn.Linear(3, 1)
    optimizer = make(model)
    loop.backward(model(X).sum())
    loop.step(optimizer)
    (use,) = loop.uses()
    assert use.place is not None and use.place.path == __file__


@pytest.mark.parametrize("one_address", [False, True])
def test_two_optimizers_one_after_the_other_have_two_numbers(
    monkeypatch: pytest.MonkeyPatch, one_address: bool
) -> None:
    loop, model = Loop(), torch.nn.Linear(3, 1)
    numbers = []
    if one_address:
        monkeypatch.setattr(optimizers, "id", lambda _: 1, raising=False)
    for _ in range(4):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loop.probe.optimizer_made(optimizer)
        loop.backward(model(X).sum())
        loop.step(optimizer)
        numbers.append(max(u.id for u in loop.uses()))
        del optimizer
    kept = {u.id for u in loop.uses()}
    assert len(kept) == len(loop.uses()), "one number an optimizer"
    assert numbers == [0, 1, 2, 3]


def test_one_line_that_builds_an_optimizer_again_of_the_same_parameters_is_counted() -> None:
    weight, other = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    loop, kept = Loop(), []
    for parameter in (weight, weight, weight, other):
        kept.append(torch.optim.SGD([parameter], lr=0.1))
        loop.probe.optimizer_made(kept[-1])
        loop.backward(parameter.sum())
        loop.step(kept[-1])
    assert [use.rebuilt for use in loop.uses()] == [0, 1, 2, 0]


def test_parameters_that_are_frozen_later_are_no_trainable_ones() -> None:
    model, optimizer = small()
    loop, leaf = Loop(optimizer), torch.ones(2, requires_grad=True)
    for frozen in (False, False, True):
        model.requires_grad_(not frozen)
        loop.backward(leaf.sum())
        loop.step(optimizer)
        (use,) = loop.uses()
        assert (use.without_gradient_count, use.trainable) == (2, 0 if frozen else 2)


def test_parameters_that_were_taken_out_of_an_optimizer_are_not_missed() -> None:
    """A library makes the program's optimizer step on a flat copy, and hands that its gradients."""
    model, optimizer = small()
    loop = Loop(optimizer, root=model)
    flat = torch.cat([p.detach().flatten() for p in model.parameters()]).requires_grad_()
    optimizer.param_groups[0]["params"] = [flat]
    for _ in range(8):
        loop.backward(model(X).sum())
        flat.grad = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        loop.step(optimizer)
        flat.grad = None
        model.zero_grad()
    (use,) = loop.uses()
    assert (use.without_gradient_count, use.without_gradient, use.starved) == (0, [], 0)
