"""Modules, parameters and optimizers that move onto a simulated device and off it: the same objects, as on a GPU."""

from __future__ import annotations

import copy
import pickle
import weakref
from typing import Any

import pytest
import torch
from torch import nn


def test_a_parameter_stays_the_object_that_it_was() -> None:
    model = nn.Linear(2, 2)
    weight, known = model.weight, weakref.ref(model.weight)
    weight.tag = "mine"  # type: ignore[attr-defined]
    heard: list[int] = []
    weight.register_hook(lambda gradient: heard.append(1))
    weight.register_post_accumulate_grad_hook(lambda parameter: heard.append(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    gradient = weight.grad
    model.to("cuda")
    assert model.weight is weight is known() is optimizer.param_groups[0]["params"][0]
    assert weight.is_cuda and weight.is_leaf and weight.requires_grad and weight.tag == "mine"  # type: ignore[attr-defined]
    assert weight.grad is gradient and gradient is not None and gradient.is_cuda
    before = weight.detach().clone()
    model(torch.ones(1, 2, device="cuda")).sum().backward()
    optimizer.step()
    assert heard == [1, 2, 1, 2] and not torch.equal(before, weight)
    model.cpu().half()
    assert model.weight is weight and type(weight) is nn.Parameter and weight.dtype is torch.float16


def test_a_parameter_is_one_by_its_class() -> None:
    class Own(nn.Parameter):
        """A program's own parameters."""

    module = nn.Module()
    module.own = Own(torch.ones(2))
    module.lazy = nn.LazyLinear(3)
    module.cuda()
    module.lazy(torch.ones(1, 2, device="cuda"))
    assert isinstance(module.own, Own) and isinstance(module.lazy.weight, nn.Parameter)
    weight = module.lazy.weight
    for plain in (weight.data, weight.detach(), weight + 1, weight.clone()):
        assert not isinstance(plain, nn.Parameter)
    for again in (copy.deepcopy(weight), pickle.loads(pickle.dumps(weight)), type(weight)(weight.data)):
        assert isinstance(again, nn.Parameter) and again.is_cuda and again.requires_grad
    assert repr(nn.Parameter(torch.ones(1, device="cuda"))) == (
        "Parameter containing:\ntensor([1.], device='cuda:0', requires_grad=True)"
    )


def test_tied_weights_stay_tied() -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    model[1].weight = model[0].weight
    model.cuda().half()
    assert model[0].weight is model[1].weight and len(list(model.parameters())) == 1


def test_data_is_beside_the_history() -> None:
    x = torch.ones(2, device="cuda", requires_grad=True)
    y = x.exp()
    y.data.add_(1)  # not seen by autograd, as on a GPU
    y.sum().backward()
    z = x.exp()
    z.add_(1)
    with pytest.raises(RuntimeError, match=r"\[torch\.cuda\.FloatTensor \[2\]\], which is output 0 of Exp"):
        z.sum().backward()
    plain = nn.Parameter(torch.ones(2))
    plain.data = plain.data.cuda()
    assert plain.is_cuda and isinstance(plain, nn.Parameter) and plain.requires_grad


def test_scripted_modules_move() -> None:
    model = torch.jit.script(nn.Linear(2, 2)).cuda()  # type: ignore[no-untyped-call]
    model(torch.ones(1, 2, device="cuda")).sum().backward()
    assert model.weight.is_cuda


def test_a_programs_own_class_of_tensors_moves_too() -> None:
    class Own(torch.Tensor):
        """A program's own tensors."""

    x = torch.ones(2).as_subclass(Own).cuda()
    assert isinstance(x, Own) and x.is_cuda and isinstance(x + 1, Own) and isinstance(x.cpu(), Own)


def test_storages_say_where_they_are_and_move(tmp_path: Any) -> None:
    x = torch.arange(4.0, device="cuda:1")
    assert str(x.untyped_storage().device) == "cuda:1" and x.storage().is_cuda
    assert x.untyped_storage().cpu().device.type == "cpu"
    torch.save(x, tmp_path / "x.pt")
    for where in (lambda storage, location: storage.cuda(0), {"cuda:1": "cuda:0"}):
        assert str(torch.load(tmp_path / "x.pt", map_location=where).device) == "cuda:0"


def test_views_within_inference_mode() -> None:
    model = nn.Linear(2, 2).cuda()
    with torch.inference_mode():
        rows = [row * 2 for row in model.weight]
        moved = nn.Linear(2, 2).cuda()
    assert len(rows) == 2 and rows[0].is_inference() and moved.weight.is_cuda


@pytest.mark.parametrize("name", ["to", "cuda", "type"])
def test_a_method_that_somebody_has_wrapped_still_moves(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = getattr(torch.Tensor, name)
    called: list[str] = []

    def wrapper(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        called.append(name)
        return original(tensor, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, name, wrapper)
    given = {"to": "cuda", "cuda": "cuda:0", "type": "torch.cuda.FloatTensor"}[name]
    x = torch.ones(2, requires_grad=True)
    assert getattr(x, name)(given).device == torch.device("cuda", 0) and called
    assert getattr(x, name)(given).is_cuda and nn.Linear(2, 1).to("cuda").weight.is_cuda
