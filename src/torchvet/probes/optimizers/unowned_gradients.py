"""Finds parameters of models in training that get gradients again and again, and that no optimizer ever steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import Optimizer, Place
from torchvet.recording.records.optimizers import UnownedParameters

_SURE = 2
"""Looks at which a parameter had another gradient, no owner, and the same values."""


@dataclass
class _Unowned:
    """A parameter that has a gradient and no owner."""

    version: int
    """Of the parameter: it rises where the program changes it by hand."""
    gradient: weakref.ref[Any]
    """The storage of its latest gradient."""
    written: int
    times: int = 1


@dataclass
class _Kept:
    """A root module's unowned parameters as they were last seen."""

    record: UnownedParameters
    parameters: list[_Parameter]
    fresh: bool = True
    """Whether the record has not been written yet."""


class _Parameter(NamedTuple):
    """An unowned parameter, and what its version was then."""

    name: str
    ref: weakref.ref[torch.Tensor]
    version: int

    def stays(self, owned: Collection[int]) -> bool:
        """Whether no optimizer has got it since, and the program has not changed it by hand."""
        parameter = self.ref()
        return parameter is None or (id(parameter) not in owned and parameter._version == self.version)


class UnownedGradients:
    """What no optimizer owns. `known` has the modules and the optimizers, `place_of` knows where one was made, or the
    first one was; parameters are held weakly."""

    def __init__(self, known: Any, place_of: Callable[[Optimizer | None], Place | None]) -> None:
        self._known, self._place_of = known, place_of
        self._unowned: dict[int, _Unowned] = {}
        # Owned once means that its gradient may be a leftover of then.
        self._ever: dict[int, weakref.ref[torch.Tensor]] = {}
        """Parameters that an optimizer has owned."""
        self._present: dict[int, weakref.ref[torch.Tensor]] = {}
        """Parameters of a module, whether it still has them or not."""
        self._kept: dict[str, _Kept] = {}
        self._orphans = 0
        self._looks = 0

    def look(self, never: set[int]) -> None:
        """A step has ended, its gradients are there. `never` are the optimizers' parameters that never had one."""
        self._looks += 1
        owners, roots = self._known.live_optimizers(), self._known.live_roots()
        owned = {id(p): p for o in owners for g in o.param_groups for p in g["params"]}
        present = {id(p): p for root in roots for p in root.parameters()}
        self._orphans = sum(self._is_orphan(p, never) for key, p in owned.items() if key not in present)
        _remember(self._ever, owned)
        _remember(self._present, present)
        for key, parameter in present.items():
            self._follow(key, parameter, key in owned)
        for root in roots:
            self._note(root, owned)

    def _is_orphan(self, parameter: torch.Tensor, never: set[int]) -> bool:
        """Whether it was replaced: no module has it any more, or ever had it, and nothing gives it a gradient."""
        # One that somebody gives its gradient, as a copy in higher precision gets it, is stepped on purpose.
        return id(parameter) in never or (gradient_of(parameter) is None and _is_in(self._present, parameter))

    def _follow(self, key: int, parameter: torch.Tensor, owned: bool) -> None:
        gradient = None if owned or not parameter.requires_grad else gradient_of(parameter)
        # What an optimizer has stepped before has its last gradient still.
        if gradient is None or gradient.layout is not torch.strided or _is_in(self._ever, parameter):
            self._unowned.pop(key, None)
            return
        storage, before = gradient.untyped_storage(), self._unowned.get(key)
        now = _Unowned(parameter._version, weakref.ref(storage), gradient._version)
        # Changed by hand: the program steps it itself, and the count begins anew.
        if before is None or before.version != now.version:
            self._unowned[key] = now
        # Another gradient: a new tensor, or written to in place. The same one unchanged is a leftover.
        elif before.gradient() is not storage or before.written != now.written:
            now.times = before.times + 1
            self._unowned[key] = now

    def _note(self, root: torch.nn.Module, owned: Collection[int]) -> None:
        # A model in eval mode is a teacher, or is being evaluated.
        unowned = [(n, p) for n, p in root.named_parameters() if id(p) in self._unowned] if root.training else []
        lost = [(n, p) for n, p in unowned if self._unowned[id(p)].times >= _SURE]
        if not lost:
            return
        module, size = type(root).__name__, sum(p.numel() * p.element_size() for _, p in lost)
        mine = {id(p) for p in root.parameters()}
        kept = len(mine & set(owned))
        record = UnownedParameters(module=module, names=[], count=0, bytes=size, owned=kept, steps=self._looks)
        record.orphans, record.resting = self._orphans, _rest(root, {id(p) for _, p in lost})
        # Now: at the end the optimizer may be gone.
        record.place = self._place_of(self._owner_of(mine))
        self._kept[module] = _Kept(record, [_Parameter(n, weakref.ref(p), p._version) for n, p in lost])

    def _owner_of(self, parameters: set[int]) -> Optimizer | None:
        """The newest optimizer that has one of these parameters."""
        owners = self._known.live_optimizers()
        having = [o for o in owners if any(id(p) in parameters for g in o.param_groups for p in g["params"])]
        return having[-1] if having else None

    def records(self) -> Iterator[UnownedParameters]:
        """Of each module what is new. Parameters that an optimizer has got since, or that the program has changed by
        hand, are taken back; those of a module that has died are not."""
        # Pyro makes an optimizer for each parameter only when it steps that parameter first.
        owned = self._known.owned()
        for module, kept in list(self._kept.items()):
            left = [p for p in kept.parameters if p.stays(owned)]
            # Nothing new to say.
            if left and not kept.fresh and len(left) == len(kept.parameters):
                continue
            kept.parameters, kept.fresh, record = left, False, kept.record
            record.names, record.count = [p.name for p in left][:8], len(left)
            # An empty record takes the earlier one back: the last one for a module counts.
            if not left:
                del self._kept[module]
                record.bytes = record.owned = 0
            yield record


def _rest(root: torch.nn.Module, parameters: set[int]) -> bool:
    """Whether all modules that have these parameters are in eval mode."""
    homes = [m for m in root.modules() if any(id(p) in parameters for p in m.parameters(recurse=False))]
    return not any(m.training for m in homes)


def _remember(known: dict[int, weakref.ref[torch.Tensor]], found: dict[int, torch.Tensor]) -> None:
    for key in [key for key, ref in known.items() if ref() is None]:
        del known[key]
    for key, tensor in found.items():
        # A new weak reference only where needed: this runs over all parameters.
        if key not in known or known[key]() is not tensor:
            known[key] = weakref.ref(tensor)


def _is_in(known: dict[int, weakref.ref[torch.Tensor]], tensor: torch.Tensor) -> bool:
    ref = known.get(id(tensor))
    return ref is not None and ref() is tensor
