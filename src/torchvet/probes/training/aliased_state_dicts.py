"""Looks for weights that a model is given back although it never freed them: a state dict that is no copy."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Place, SiteWatcher, around, frames, tap
from torchvet.recording.records.training import OwnWeights

_WHAT = "loaded state dicts"


class OwnWeightsLoaded(SiteWatcher[Place, OwnWeights]):
    """State dicts that are the model's own weights."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._taken: dict[int, tuple[weakref.ref[Any], Place, list[int], int]] = {}
        """State dicts that are alive, by identity: where they were taken, the versions of the weights, the step."""

    def install(self) -> None:
        """Hear what modules give and load."""
        self.replace(torch.nn.Module, "load_state_dict", tap(self.host, _WHAT, before=self._note))
        self.replace(torch.nn.Module, "state_dict", lambda original: around(original, self._asked))

    def _asked(self, args: Any, kwargs: Any) -> Any:
        # A module asks its children in turn, with what they are to write into.
        if len(args) > 1 or kwargs or not self.host.active:
            return None
        place = frames.user_place(2)
        return None if place is None else (args, lambda given, error: self._given(args[0], given, place))

    def _given(self, module: torch.nn.Module, given: Any, place: Place) -> None:
        if type(given) is OrderedDict:
            with self.host.looking(_WHAT):
                key = id(given)
                gone = weakref.ref(given, lambda _: self._taken.pop(key, None))
                self._taken[key] = gone, place, _versions(module), self.host.step

    def _note(self, module: torch.nn.Module, state_dict: Any, *_: Any, **__: Any) -> None:
        own = dict(module.named_parameters()) if isinstance(state_dict, Mapping) else {}
        pairs = [(p, state_dict.get(name)) for name, p in own.items()]
        place = frames.user_place() if pairs and all(_key(p) == _key(given) for p, given in pairs) else None
        if place is None:
            return
        new = OwnWeights(place=place, parameters=len(pairs), model=type(module).__name__)
        one = self.sites.setdefault(place, new)
        one.calls += 1
        known = self._taken.get(id(state_dict))
        if known is not None and known[0]() is state_dict and known[2] != _versions(module):
            one.taken, one.changed = known[1], max(one.changed, self.host.step - known[3])

    def finish(self, how: str, error: BaseException | None) -> None:
        """Nothing of the program's is to be held, however weakly."""
        self._taken.clear()


def _versions(module: torch.nn.Module) -> list[int]:
    # An inference tensor counts no versions: to ask for one raises.
    return [p._version for p in module.parameters() if not p.is_inference()]


def _key(value: Any) -> int:
    """The identity of a tensor's storage; 0 for anything else."""
    return int(value.untyped_storage()._cdata) if isinstance(value, torch.Tensor) else 0
