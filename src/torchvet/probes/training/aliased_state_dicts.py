"""Looks at loaded state dicts: one that is the model's own weights, and one of which the model takes nothing."""

from __future__ import annotations

import weakref
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Place, Record, SiteWatcher, around, frames, tap
from torchvet.recording.records.training import NothingLoaded, OwnWeights

_WHAT = "loaded state dicts"
_MOST_NAMES = 64
"""Names of a model that are looked for in a dict that has none of them."""


class OwnWeightsLoaded(SiteWatcher[Place, OwnWeights]):
    """State dicts that are the model's own weights."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._taken: dict[int, tuple[weakref.ref[Any], Place, list[int], int]] = {}
        """State dicts that are alive, by identity: where they were taken, the versions of the weights, the step."""

        self._passed_by: dict[Place, NothingLoaded] = {}
        """Loads that took nothing."""
        self._empty: dict[int, tuple[weakref.ref[torch.nn.Module], NothingLoaded]] = {}
        """By module: the load that it took nothing of, until it takes something of another."""

    def install(self) -> None:
        """Hear what modules give and load."""
        note = tap(self.host, _WHAT, before=self._note, after=self._loaded)
        self.replace(torch.nn.Module, "load_state_dict", note)
        self.replace(torch.nn.Module, "state_dict", lambda original: around(original, self._asked))

    def _asked(self, args: Any, kwargs: Any) -> Any:
        # A module asks its children in turn, with what they are to write into.
        # The outermost call has only `self`.
        if len(args) > 1 or kwargs or not self.host.active:
            return None
        place = frames.user_place(2)
        return None if place is None else (args, lambda given, error: self._given(args[0], given, place))

    def _given(self, module: torch.nn.Module, given: Any, place: Place) -> None:
        # A plain dict takes no weak reference, and a subclass is the program's own.
        if type(given) is OrderedDict:
            with self.host.looking(_WHAT):
                key = id(given)
                # Goes with the dict, whose identity may then be another's.
                gone = weakref.ref(given, lambda _: self._taken.pop(key, None))
                self._taken[key] = gone, place, _versions(module), self.host.step

    def _note(self, module: torch.nn.Module, state_dict: Any, *_: Any, **__: Any) -> None:
        own = dict(module.named_parameters()) if isinstance(state_dict, Mapping) else {}
        pairs = [(p, state_dict.get(name)) for name, p in own.items()]
        # All of them share storage with the model: loading changes nothing.
        place = frames.user_place() if pairs and all(_key(p) == _key(given) for p, given in pairs) else None
        if place is None:
            return
        new = OwnWeights(place=place, parameters=len(pairs), model=type(module).__name__)
        one = self.sites.setdefault(place, new)
        one.calls += 1
        known = self._taken.get(id(state_dict))
        # The weights were changed since: what was to be restored is gone.
        if known is not None and known[0]() is state_dict and known[2] != _versions(module):
            one.taken, one.changed = known[1], max(one.changed, self.host.step - known[3])

    def _loaded(self, result: Any, module: torch.nn.Module, state_dict: Any, *_: Any, **__: Any) -> None:
        """What has it left out? Where it was strict there is nothing to tell: it would have raised."""
        missing: list[str] = getattr(result, "missing_keys", [])
        unexpected: list[str] = getattr(result, "unexpected_keys", [])
        known = self._empty.get(id(module))
        # Some of each: names of another model, or of a wrapper.
        if known is None and not (missing and unexpected):
            return
        # It has taken something, which also clears an earlier load that took nothing.
        if len(unexpected) < len(state_dict):
            if known is not None and known[0]() is module:
                known[1].later = True
            return
        place = frames.user_place()
        if place is not None and missing:
            own = [name for name, _ in module.named_parameters()]
            one = NothingLoaded(place=place, model=type(module).__name__, parameters=len(own), given=len(state_dict))
            one.name, one.wanted = str(unexpected[0]), str(missing[0])
            one.prefix, one.fitting = _prefix({str(key) for key in unexpected}, own)
            one = self._passed_by.setdefault(place, one)
            self._empty[id(module)] = weakref.ref(module), one

    def totals(self, tick: int) -> Iterable[Record]:
        """See `Watcher`."""
        return [*self.sites.values(), *self._passed_by.values()]

    def finish(self, how: str, error: BaseException | None) -> None:
        """Nothing of the program's is to be held, however weakly."""
        self._taken.clear()
        self._empty.clear()


def _prefix(given: set[str], own: list[str]) -> tuple[str, int]:
    """What stands before the model's names in the dict (with a minus sign: what the dict lacks before its own), and how
    many of them there would then be."""
    found: Counter[str] = Counter()
    for name in own[:_MOST_NAMES]:
        found.update(key[: -len(name)] for key in given if key.endswith(f".{name}"))
        found.update(f"-{name[: -len(key)]}" for key in given if name.endswith(f".{key}"))
    return found.most_common(1)[0] if found else ("", 0)


def _versions(module: torch.nn.Module) -> list[int]:
    # An inference tensor counts no versions: to ask for one raises.
    return [p._version for p in module.parameters() if not p.is_inference()]


def _key(value: Any) -> int:
    """The identity of a tensor's storage; 0 for anything else."""
    return int(value.untyped_storage()._cdata) if isinstance(value, torch.Tensor) else 0
