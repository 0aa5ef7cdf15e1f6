"""The memory that training needs by right is told from what leaks."""

from __future__ import annotations

import gc
import weakref

import torch
from looking import key_of

from torchvet.probes.base.persistent_state import KnownMemory


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    return model, optimizer


def known_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> KnownMemory:
    known = KnownMemory()
    known.add_root(model)
    known.add_optimizer(optimizer)
    return known


def test_parameters_buffers_gradients_and_state_are_told_apart() -> None:
    model, optimizer = trained()
    stored = known_of(model, optimizer).storages()
    linear, norm = model[0], model[1]  # type: ignore[index]
    assert stored[key_of(linear.weight)] == ("parameters", 64)
    assert stored[key_of(linear.weight.grad)] == ("gradients", 64)
    assert stored[key_of(norm.running_mean)] == ("buffers", 16)
    assert stored[key_of(optimizer.state[linear.weight]["exp_avg"])] == ("optimizer state", 64)
    assert {c for c, _ in stored.values()} == {"parameters", "buffers", "gradients", "optimizer state"}


def test_the_state_of_parameters_that_were_replaced_is_nobodys() -> None:
    model, optimizer = trained()
    old = model[0].weight  # type: ignore[index]
    optimizer.param_groups[0]["params"][0] = torch.nn.Parameter(old.detach().clone())
    optimizer.state["steps"] = torch.ones(1)  # type: ignore[index]
    stored = known_of(torch.nn.Sequential(), optimizer).storages()
    assert key_of(optimizer.state[old]["exp_avg"]) not in stored
    assert stored[key_of(optimizer.state[model[0].bias]["exp_avg"])][0] == "optimizer state"  # type: ignore[index]
    assert stored[key_of(optimizer.state["steps"])][0] == "optimizer state"  # type: ignore[index]


def test_state_that_is_keyed_by_copies_and_state_that_is_no_dict() -> None:
    """Optimizers that step copies in higher precision, and those that keep a list."""
    model, optimizer = trained()
    copies = {p.detach().clone(): {"average": torch.ones(7)} for p in model.parameters()}
    optimizer.state = copies  # type: ignore[assignment]
    stored = known_of(torch.nn.Sequential(), optimizer).storages()
    assert all(stored[key_of(entry["average"])][0] == "optimizer state" for entry in copies.values())
    optimizer.state = [torch.ones(5)]  # type: ignore[assignment]
    assert stored.keys() and known_of(model, optimizer).storages()[key_of(optimizer.state[0])] == (
        "optimizer state",
        20,
    )


def test_a_storage_counts_once() -> None:
    """Tied weights, and one parameter in two optimizers."""
    model = torch.nn.Module()
    model.a = torch.nn.Linear(4, 4, bias=False)
    model.b = torch.nn.Linear(4, 4, bias=False)
    model.b.weight = model.a.weight
    known = known_of(model, torch.optim.SGD(model.parameters()))
    assert sum(size for _, size in known.storages().values()) == 64
    assert len(list(known.parameters())) == 1


def test_parameters_of_an_optimizer_alone_are_known() -> None:
    """An image that is optimized, without any module."""
    image = torch.zeros(10, requires_grad=True)
    known = KnownMemory()
    optimizer = torch.optim.LBFGS([image])
    known.add_optimizer(optimizer)
    assert known.storages()[key_of(image)] == ("parameters", 40)
    assert known.owned() == {id(image)}


def test_lbfgs_history_is_optimizer_state() -> None:
    x = torch.ones(10, requires_grad=True)
    optimizer = torch.optim.LBFGS([x], max_iter=4)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (x**4).sum()
        loss.backward()
        return loss

    optimizer.step(closure)  # type: ignore[arg-type]
    known = KnownMemory()
    known.add_optimizer(optimizer)
    state = next(iter(optimizer.state.values()))
    assert known.storages()[key_of(state["old_dirs"][0])][0] == "optimizer state"


def test_asking_changes_no_optimizer_state() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    known_of(model, optimizer).storages()
    assert len(optimizer.state) == 0, "its state is a defaultdict: looking must not fill it"


def test_models_and_optimizers_are_held_weakly() -> None:
    model, optimizer = trained()
    known = known_of(model, optimizer)
    watch = [weakref.ref(model), weakref.ref(optimizer)]
    del model, optimizer
    gc.collect()
    assert [w() for w in watch] == [None, None]
    assert known.storages() == {} and known.live_roots() == [] and known.live_optimizers() == []


def test_submodules_have_names() -> None:
    model, optimizer = trained()
    known = known_of(model, optimizer)
    assert known.name_of(model) == "Sequential"
    assert known.name_of(model[0]) == "Sequential.0"  # type: ignore[index]
    assert known.name_of(torch.nn.Linear(1, 1)) is None
    assert set(known.parameter_names().values()) == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_a_root_is_new_once() -> None:
    known, model = KnownMemory(), torch.nn.Linear(1, 1)
    assert known.add_root(model) and not known.add_root(model)


def test_gradients_are_those_of_now() -> None:
    model, optimizer = trained()
    known = known_of(model, optimizer)
    assert len(known.gradients()) == 4
    optimizer.zero_grad()
    assert known.gradients() == []
    assert "gradients" not in {c for c, _ in known.storages().values()}


def stepped(known: KnownMemory, model: torch.nn.Module) -> torch.optim.Optimizer:
    optimizer = torch.optim.Adam(model.parameters())
    known.add_optimizer(optimizer)
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    known.stepped(optimizer)
    return optimizer


def owns_state(known: KnownMemory, optimizer: torch.optim.Optimizer) -> bool:
    first = next(iter(optimizer.state.values()))["exp_avg"]
    return key_of(first) in known.storages()


def test_what_a_replaced_optimizer_still_holds_is_not_needed() -> None:
    known, model = KnownMemory(), torch.nn.Linear(4, 4)
    first = stepped(known, model)
    assert owns_state(known, first)
    waiting = torch.optim.Adam(model.parameters())
    known.add_optimizer(waiting)
    assert owns_state(known, first), "made, and not used yet"
    second = stepped(known, model)
    assert owns_state(known, second) and not owns_state(known, first)
    known.stepped(first)
    assert owns_state(known, first), "they take turns"


def test_an_optimizer_of_other_parameters_replaces_none() -> None:
    known, model = KnownMemory(), torch.nn.Linear(4, 4)
    first = stepped(known, model)
    assert owns_state(known, stepped(known, torch.nn.Linear(4, 4))) and owns_state(known, first)
    head = torch.optim.Adam([model.bias])
    known.add_optimizer(head)
    known.stepped(head)
    assert owns_state(known, first), "of a part of them"


def idle_bytes(known: KnownMemory) -> int:
    stored = known.storages()
    return sum(stored[key][1] for key in known.idle(stored))


def linear(known: KnownMemory) -> torch.nn.Module:
    model = torch.nn.Linear(4, 4)
    known.add_root(model)
    return model


def test_a_model_is_idle_once_another_is_trained() -> None:
    """Parameters, gradients, and two averages: four times twenty numbers, and a count for each parameter."""
    known = KnownMemory()
    models, optimizers = [linear(known)], []
    optimizers.append(stepped(known, models[0]))
    assert idle_bytes(known) == 0
    for number in (1, 2):
        models.append(linear(known))
        optimizers.append(stepped(known, models[-1]))
        assert idle_bytes(known) == number * (4 * 20 * 4 + 2 * 4)
    optimizers[0].step()
    known.stepped(optimizers[0])
    assert idle_bytes(known) == 4 * 20 * 4 + 2 * 4, "it is trained again"


def test_models_that_are_trained_in_turn_are_not_idle() -> None:
    known = KnownMemory()
    first, second = linear(known), linear(known)
    optimizers = [torch.optim.Adam(m.parameters()) for m in (first, second)]
    for one in optimizers:
        known.add_optimizer(one)
    for model, one in zip((first, second), optimizers, strict=True):
        model(torch.ones(3, 4)).sum().backward()
        one.step()
        known.stepped(one)
        assert idle_bytes(known) == 0


def test_a_model_that_is_trained_in_part_is_not_idle() -> None:
    """Its first layer was trained before, alone; that optimizer's averages are what nobody needs."""
    known = KnownMemory()
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    known.add_root(model)
    first = stepped(known, model[0])
    second = stepped(known, model[1])
    assert idle_bytes(known) == 2 * 20 * 4 + 2 * 4
    del first, second
    gc.collect()
    assert idle_bytes(known) == 0, "nothing says which model is trained"


def test_a_copy_that_no_optimizer_has_is_idle_where_another_is_trained() -> None:
    known = KnownMemory()
    average, model = linear(known), linear(known)
    assert idle_bytes(known) == 0, "nothing is trained"
    optimizer = stepped(known, model)
    assert idle_bytes(known) == 20 * 4
    del average, optimizer
