"""Looks for weights that a model is given back although it never let go of them: a state dict that is no copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from torchvet.probes import frames
from torchvet.probes._importlib_bootstrap_taps import around
from torchvet.probes.watcher import Host, Watcher
from torchvet.recording.records import Place, Record
from torchvet.recording.training_records import OwnWeights


class OwnWeightsLoaded(Watcher):
    """State dicts that are the model's own weights."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._sites: dict[Place, OwnWeights] = {}

    def install(self) -> None:
        """Be told of what modules load."""
        self.replace(torch.nn.Module, "load_state_dict", self._loading)

    def _loading(self, original: Any) -> Any:
        return around(original, self._look, torch.compiler.is_compiling)

    def _look(self, args: Any, kwargs: Any) -> None:
        if self.host.active:
            with self.host.looking("loaded state dicts"):
                self._note(args[0], args[1] if len(args) > 1 else kwargs.get("state_dict"))

    def _note(self, module: torch.nn.Module, state_dict: Any) -> None:
        own = dict(module.named_parameters()) if isinstance(state_dict, Mapping) else {}
        pairs = [(p, state_dict.get(name)) for name, p in own.items()]
        place = frames.user_place(3) if pairs and all(_same(p, given) for p, given in pairs) else None
        if place is not None:
            self._sites.setdefault(place, OwnWeights(place=place, parameters=len(pairs))).calls += 1

    def totals(self, tick: int) -> Iterable[Record]:
        """Each line's."""
        return list(self._sites.values())


def _same(mine: torch.Tensor, given: Any) -> bool:
    return isinstance(given, torch.Tensor) and given.untyped_storage()._cdata == mine.untyped_storage()._cdata
