"""Parts of a model whose dropout never acts, since a library has left them in eval mode."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from torchvet.probes.training.modes.left_by_library import PartsLeftInEvalMode
from torchvet.recording.records.training import LeftInEvalMode

_FILE = os.path.join(os.path.dirname(msgspec.__file__), "made_for_this_test.py")
_LIBRARY: dict[str, Any] = {}
# A library's function, which calls `eval()` as `from_pretrained` does.
exec(compile("def loaded(model, switched):\n    model.eval()\n    switched(model, False)\n", _FILE, "exec"), _LIBRARY)


def part(dropout: float = 0.5) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 3), nn.Dropout(dropout))


class Loop:
    """A training loop under the probe."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        host: Any = SimpleNamespace(active=True, sampling=True, known=SimpleNamespace(live_roots=lambda: [model]))
        self.probe = PartsLeftInEvalMode(host)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loaded(self, module: nn.Module) -> None:
        _LIBRARY["loaded"](module, self.probe.mode_changed)

    def switched(self, module: nn.Module) -> None:
        module.eval()
        self.probe.mode_changed(module, False)

    def steps(self, *ticks: int) -> None:
        for tick in ticks:
            self.optimizer.zero_grad()
            self.model(torch.randn(4, 3)).sum().backward()
            self.optimizer.step()
            self.probe.settle(tick, "training")

    @property
    def found(self) -> list[LeftInEvalMode]:
        return [one for one in self.probe.totals(0) if isinstance(one, LeftInEvalMode) and one.steps]


def test_a_part_that_a_library_gives_in_eval_mode_is_trained_so() -> None:
    loop = Loop(nn.Sequential(part(), part()))
    loop.loaded(loop.model[0])
    loop.steps(1, 2, 3)
    (found,) = loop.found
    assert (found.part, found.layers, found.since, found.steps) == ("Sequential", 1, 1, 2)
    assert found.place.path == __file__ and found.place.function.endswith("Loop.loaded")


def test_so_is_a_whole_model_and_the_parts_of_what_it_gives() -> None:
    whole = Loop(nn.Sequential(part(), part(0.0)))
    whole.loaded(whole.model)
    whole.steps(1, 2)
    assert [(one.part, one.layers) for one in whole.found] == [("Sequential", 1)]
    given = nn.Sequential(part(), part())
    taken = Loop(nn.Sequential(given[0], nn.Linear(3, 1)))
    taken.loaded(given)
    taken.steps(1, 2)
    assert len(taken.found) == 1


def _meant(loop: Loop) -> None:
    loop.loaded(loop.model[0])
    loop.switched(loop.model[0])


def _frozen(loop: Loop) -> None:
    loop.loaded(loop.model[0])
    loop.model[0].requires_grad_(False)


def _back_later(loop: Loop) -> None:
    loop.loaded(loop.model[0])
    loop.steps(1, 2, 3)
    loop.model.train()


def _without_dropout(loop: Loop) -> None:
    loop.model[0][1].p = 0.0
    loop.loaded(loop.model[0])


def _validated(loop: Loop) -> None:
    loop.loaded(loop.model)
    loop.model.train()


@pytest.mark.parametrize("how", [_meant, _frozen, _back_later, _without_dropout, _validated])
def test_what_is_meant_frozen_or_put_back_is_quiet(how: Any) -> None:
    loop = Loop(nn.Sequential(part(), part()))
    how(loop)
    loop.steps(4, 5, 6, 7)
    assert loop.found == []


def test_a_part_that_no_optimizer_steps_is_quiet() -> None:
    loop = Loop(nn.Sequential(part(), part()))
    loop.optimizer = torch.optim.SGD(loop.model[1].parameters(), lr=0.1)
    loop.loaded(loop.model[0])
    loop.steps(1, 2, 3, 4)
    assert loop.found == []
