"""Do layers read a half copy of a weight that has changed since?

Autocast casts a weight once and keeps the copy until the outermost region ends. What a layer reads is asked of torch
itself: right after the layer has run, the same operator on a few unit vectors gives columns of the copy that it used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import nn

from torchvet.probes.base.kit import Place, Record, frames
from torchvet.probes.precision.autocast_regions import Region, Regions
from torchvet.recording.records.autocast import StaleWeights

Kind = Literal["step", "load", "other"]
_COLUMNS = 16
_LAYERS = 8
"""Layers asked after one change."""
_EVERY = 4
"""Changes at first after which layers are asked each time; from then on after 8, 16, 32..."""
_CONVOLUTIONS: dict[type[nn.Module], Any] = {
    nn.Conv1d: nn.functional.conv1d,
    nn.Conv2d: nn.functional.conv2d,
    nn.Conv3d: nn.functional.conv3d,
}


class _Change:
    """The change whose effect is being looked for, on the root region that it happened in."""

    def __init__(self, use: StaleWeights, parameters: set[int]) -> None:
        self.use = use
        self.parameters = parameters
        self.asked = 0


class _State:
    """What is kept on a root region."""

    def __init__(self) -> None:
        self.changes: Counter[tuple[Place | None, Kind]] = Counter()
        self.last: _Change | None = None
        self.called: set[int] = set()
        """Layers that ran in it, where that is noted."""


class CopyProbe:
    """One for the session. `changed` hears of changes within a region, `called` of layers that ran in one."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions
        self._uses: dict[tuple[Place, Place | None, Kind], StaleWeights] = {}
        self._changes: Counter[tuple[Place, Place | None, Kind]] = Counter()

    def changed(self, root: Region, kind: Kind, parameters: Iterable[torch.Tensor]) -> bool:
        """Weights changed within a region: whether layers that run from now on are to be reported."""
        line = frames.user_place()
        state, use, key = self._state(root), self._use(root, line, kind), (root.site.place, line, kind)
        state.changes[line, kind] += 1
        use.changes = max(use.changes, state.changes[line, kind])
        self._changes[key] += 1
        # Each question runs the layer's operator once more.
        if self._changes[key] > _EVERY and self._changes[key] & (self._changes[key] - 1):
            return state.last is not None
        # The latest change only: layers that run after it show whether it reached them.
        state.last = _Change(use, {id(p) for p in parameters})
        return True

    def called(self, module: nn.Module) -> bool:
        """A layer ran: whether more of them are worth hearing of, for the sake of the last change."""
        stack = self._regions.stack()
        if not stack or not stack[0].keeps_copies:
            # In a region without copies nothing is stale; others may come.
            return True
        root, state = stack[0], self._state(stack[0])
        weight = getattr(module, "weight", None)
        active = self._regions.active(weight.device.type) if isinstance(weight, torch.Tensor) else None
        if not isinstance(weight, torch.Tensor) or active is None or not _is_copied(weight):
            return True
        change = state.last
        # Another model's step does not make this layer's copy stale.
        # Weights that were swapped without any call that is heard: a second run of the layer shows it.
        if change is None or id(weight) not in change.parameters:
            if id(module) in state.called and not state.changes:
                self._again(root, module, weight, active)
            state.called.add(id(module))
            return True
        change.asked += 1
        self._note(change.use, off_by(module, weight, active), module)
        if change.asked >= _LAYERS:
            state.last = None
        return state.last is not None

    def records(self) -> Iterable[Record]:
        """The running totals."""
        return list(self._uses.values())

    def _state(self, root: Region) -> _State:
        if root.state is None:
            root.state = _State()
        state: _State = root.state
        return state

    def _use(self, root: Region, line: Place | None, kind: Kind) -> StaleWeights:
        new = StaleWeights(region=root.site.place, change=line, kind=kind, changes=0, looked=0, stale=0)
        return self._uses.setdefault((root.site.place, line, kind), new)

    def _again(self, root: Region, module: nn.Module, weight: torch.Tensor, active: Region) -> None:
        """A layer ran a second time in one region, and no change of its weight was seen."""
        found = off_by(module, weight, active)
        # None where it cannot be asked, and 0 where the copy is the weight.
        if found:
            use = self._use(root, None, "other")
            use.changes = use.changes or 1
            self._note(use, found, module)

    def _note(self, use: StaleWeights, deviation: float | None, module: nn.Module) -> None:
        use.looked += deviation is not None
        if deviation:
            use.stale += 1
            if deviation > use.deviation:
                use.deviation, use.module = deviation, type(module).__name__
            use.forward = frames.user_place()


def _is_copied(weight: torch.Tensor) -> bool:
    """Whether autocast keeps a copy of a tensor: see `cached_cast` in torch's autocast_mode.cpp (2.13)."""
    # Only those does torch keep in its cache; others are cast anew at each call, and cannot be stale.
    return weight.dtype is torch.float32 and weight.requires_grad and weight.is_leaf and not weight._is_view()


def off_by(module: nn.Module, weight: torch.Tensor, active: Region) -> float | None:
    """By how much the copy that a layer has just used differs from its weight, relative to the weight's largest
    magnitude; 0 where it is the weight as it is now, None where that cannot be asked."""
    # With autocast as it is: the operator then takes the cached copy, as the layer has.
    # Gradients stay on here: without them autocast would not take the cached copy.
    read = _columns(module, weight)
    if read is None:
        return None
    used, now = read
    with torch.no_grad():
        # An overflow is another fault, and equals nothing.
        if used.dtype is not active.dtype or not bool(torch.isfinite(used).all()):
            return None
        current = now.detach().to(used.dtype)
        if torch.equal(used, current):
            return 0.0
        off = (used.float() - now.detach().float()).abs().max() / now.detach().float().abs().max()
        return float(off)


def _columns(module: nn.Module, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Some columns of the copy that autocast has, and the same of the weight."""
    # The exact class: a subclass may read its weight in another way.
    if type(module) is nn.Linear:
        wide = weight.shape[1]
        chosen = torch.arange(0, wide, max(1, wide // _COLUMNS), device=weight.device)
        units = nn.functional.one_hot(chosen, wide).to(weight.dtype)
        return nn.functional.linear(units, weight), weight.detach()[:, chosen].t()
    convolution = _CONVOLUTIONS.get(type(module))
    # With groups a unit would need a channel for each.
    if convolution is None or module.groups != 1:
        return None
    # One input channel of one position: the result is a column of the copy, and costs a fraction of the layer.
    unit = weight.new_zeros(1, *weight.shape[1:])
    unit.view(-1)[0] = 1.0
    return convolution(unit, weight).flatten(), weight.detach().flatten(1)[:, 0]
