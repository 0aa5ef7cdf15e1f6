"""Times an optimizer's update by its other implementations, after the program has ended, on tensors that it makes."""

from __future__ import annotations

import inspect
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import Host, Optimizer, Place, frames
from torchvet.probes.time.real_time import ENDED, TimeWatcher, medians
from torchvet.recording.records.timing import UpdateTimes

_CHOSEN = ("foreach", "fused", "capturable", "differentiable")
WAYS = ("fused", "foreach")
_MOST = 6
"""Optimizers that are timed."""
_STEPS = 50
_WORTH = 0.05
"""The share of the program's time from which on its updates are timed."""
MOST_BYTES = 64 << 20
"""Of what is made for it, by implementation: parameters, gradients, and two more of each as state. The program may have
left little memory, and what it does at exit comes afterwards."""
_SECONDS = 0.4
"""That timing takes in all, about."""
_WARM = 2


@dataclass
class Updated:
    """An optimizer as it was in the last step that was looked at. Tensors are not kept."""

    kind: type[Optimizer]
    groups: list[tuple[dict[str, Any], list[tuple[torch.Size, torch.dtype, torch.dtype, torch.device]]]]
    place: Place
    made: Place | None

    @classmethod
    def of(cls, optimizer: Optimizer, place: Place, made: Place | None = None) -> Updated:
        """An optimizer as it is now, stepped on the line `place`."""
        groups = [({k: v for k, v in g.items() if k != "params"}, _shapes(g["params"])) for g in optimizer.param_groups]
        return cls(type(optimizer), groups, place, made)

    @property
    def bytes(self) -> int:
        """What a copy with gradients and state takes."""
        return sum(4 * shape.numel() * dtype.itemsize for _, shapes in self.groups for shape, dtype, _, _ in shapes)


class UpdateTimer(TimeWatcher):
    """What a fused or a foreach optimizer would take."""

    only_sampled = frozenset(["optimizer_starts"])

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._made: dict[int, Place | None] = {}
        self._seen: dict[tuple[Place, Place | None], Updated] = {}
        """By the lines of the step and of the optimizer: a program may make one anew in each epoch."""

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """The line that makes it."""
        self._made[id(optimizer)] = frames.user_place(3)

    def optimizer_starts(self, optimizer: Optimizer) -> None:
        """What it steps on."""
        place = frames.user_place(3)
        if place is None or not _may_be_told(optimizer):
            return
        made = self._made.get(id(optimizer))
        if (place, made) in self._seen or len(self._seen) < _MOST:
            self._seen[place, made] = Updated.of(optimizer, place, made)

    def last_look(self, how: str, error: BaseException | None) -> None:
        """Time them, where updates may matter and there is room for it."""
        steps, elapsed = self.host.clock.main_steps, self.host.elapsed()
        # After an error the program's memory may be full, and nobody waits for times.
        if how not in ENDED or steps < _STEPS:
            return
        for seen in self._seen.values():
            if seen.bytes and seen.bytes <= MOST_BYTES and _room(seen):
                found = _timed(seen, _WORTH * elapsed / steps)
                if found is not None:
                    self.host.write(found)


def _may_be_told(optimizer: Optimizer) -> bool:
    """Whether it is one of torch's own that has other implementations, of which the program has not chosen."""
    # A program's own optimizer may do anything in its step.
    own = type(optimizer).__module__.startswith("torch.optim.")
    known = inspect.signature(type(optimizer).__init__).parameters
    chosen = any(group.get(name) for group in optimizer.param_groups for name in _CHOSEN)
    return own and all(way in known for way in WAYS) and not chosen


def _shapes(parameters: list[torch.Tensor]) -> list[tuple[torch.Size, torch.dtype, torch.dtype, torch.device]]:
    """Shapes, dtypes of values and gradients, and devices of the parameters that have a gradient."""
    found = []
    for parameter in parameters:
        gradient = gradient_of(parameter)
        if gradient is not None and gradient.layout is torch.strided and parameter.is_floating_point():
            found.append((parameter.shape, parameter.dtype, gradient.dtype, parameter.device))
    return found


def _room(seen: Updated) -> bool:
    """Whether the devices have room for it four times over."""
    devices = {device for _, shapes in seen.groups for *_, device in shapes}
    if any(device.type not in ("cpu", "cuda") for device in devices):
        return False
    # Twins of three implementations, and room to spare.
    return all(4 * seen.bytes <= torch.cuda.mem_get_info(d)[0] for d in devices if d.type == "cuda")


def _timed(seen: Updated, least: float) -> UpdateTimes | None:
    """None where the update as it is takes less than `least` seconds, or one cannot be made."""
    twins = {"plain": twin_of(seen, {})}
    # An update that takes less than a twentieth of a step is not worth a word.
    if seconds_of(twins["plain"]) < least:
        return None
    for way in WAYS:
        try:
            twins[way] = twin_of(seen, {way: True})
        except (RuntimeError, ValueError, TypeError):  # this implementation does not take such tensors
            continue
    taken = medians([partial(seconds_of, twin) for twin in twins.values()], _SECONDS)
    shapes = [shape for _, those in seen.groups for shape, *_ in those]
    tensors, elements = len(shapes), sum(shape.numel() for shape in shapes)
    name, by_way = seen.kind.__name__, dict(zip(twins, taken, strict=True))
    return UpdateTimes(name=name, place=seen.place, made=seen.made, tensors=tensors, elements=elements, **by_way)


def twin_of(seen: Updated, choice: dict[str, bool]) -> Optimizer:
    """An optimizer of the same kind over tensors of the same shapes, that has updated twice."""
    known = inspect.signature(seen.kind.__init__).parameters
    groups = []
    for given, shapes in seen.groups:
        parameters = [_parameter(*shape) for shape in shapes]
        if parameters:
            values = {k: v for k, v in given.items() if k in known and k not in _CHOSEN}
            # It may be a tensor of the program's.
            values["lr"] = float(values.get("lr", 1e-3))
            groups.append({"params": parameters, **values, **choice})
    twin: Any = seen.kind
    made: Optimizer = twin(groups, lr=1e-3, **choice)
    for _ in range(_WARM):
        _update(made)
    return made


def _update(optimizer: Optimizer) -> None:
    """A step without the hooks that the program may have set for all optimizers."""
    step: Any = type(optimizer).step
    # torch wraps `step` for its hooks, the program's and torchvet's among them.
    getattr(step, "__wrapped__", step)(optimizer)


def _parameter(
    shape: torch.Size, dtype: torch.dtype, gradient: torch.dtype, device: torch.device
) -> torch.nn.Parameter:
    """Values are all the same: none is drawn by chance, which would change what the program draws next."""
    made = torch.nn.Parameter(torch.full(shape, 0.5, dtype=dtype, device=device))
    made.grad = torch.full(shape, 0.01, dtype=dtype, device=device)
    return made


def seconds_of(optimizer: Optimizer) -> float:
    """What one update takes."""
    devices = {p.device for group in optimizer.param_groups for p in group["params"] if p.is_cuda}
    for device in devices:
        # Before and after: kernels run on while Python goes on.
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    _update(optimizer)
    for device in devices:
        torch.cuda.synchronize(device)
    return time.perf_counter() - start
