"""Watches where the tensors of loaded checkpoints come to lie, and how long they stay beside the model's own."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from torchvet.probes.base.kit import EVERY_STEP, ByStorage, Host, Place, SiteWatcher, StepKind, frames, tap
from torchvet.recording.records.device import LoadedCheckpoint

_DEEP, _MOST = 4, 4096
_AT_MOST_PLACES = 64
_WHAT = "loaded checkpoints"


class Checkpoints(SiteWatcher[Place, LoadedCheckpoint]):
    """Checkpoints and the devices that they are loaded to."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._held: dict[Place, list[weakref.ref[torch.UntypedStorage]]] = {}
        """Storages of the last file that a line has loaded."""
        self._owners: dict[Place, weakref.ref[torch.nn.Module]] = {}
        self.ignored = EVERY_STEP
        self._of: ByStorage[Place] = ByStorage()
        """The line that has loaded a storage."""

    def install(self) -> None:
        """Hear what is loaded, and what is copied into modules."""
        # After, because only the result says to which devices it was loaded.
        self.replace(torch, "load", tap(self.host, _WHAT, after=self._loaded))
        # Before: with `assign=True` the module is where the file's tensors are afterwards.
        self.replace(torch.nn.Module, "load_state_dict", tap(self.host, _WHAT, before=self._copied))

    def _loaded(self, found: Any, f: Any, map_location: Any = None, *_: Any, **__: Any) -> None:
        place = frames.user_place()
        # One for each storage: views would count its bytes again.
        tensors = {t.untyped_storage()._cdata: t for t in _tensors(found)} if place is not None else {}
        if place is None or not tensors:
            return
        loaded = self.host.known.loaded
        loaded.sweep()
        for tensor in tensors.values():
            loaded.put(tensor, place)
        # With a `map_location` the program has chosen where it lands.
        if map_location is None and len(self.sites) < _AT_MOST_PLACES:
            self._unmapped(place, tensors)

    def _unmapped(self, place: Place, tensors: dict[int, torch.Tensor]) -> None:
        """A file was loaded to the devices that it names."""
        sizes: Counter[str] = Counter()
        for tensor in tensors.values():
            sizes[str(tensor.device)] += tensor.untyped_storage().nbytes()
            self._of.put(tensor, place)
        self.heed()
        before = self.sites.get(place)
        self.sites[place] = LoadedCheckpoint(place=place, bytes=dict(sizes), calls=1 + (before.calls if before else 0))
        self._held[place] = [weakref.ref(t.untyped_storage()) for t in tensors.values() if str(t.device) != "cpu"]

    def _copied(self, module: torch.nn.Module, state_dict: Any, *_: Any, **__: Any) -> None:
        # One tensor is enough to know the file: a state dict comes from one.
        place = self._of.get(next(_tensors(state_dict), None)) if self._of else None
        devices = _devices(module) if place is not None else []
        if place is not None and devices:
            record = self.sites[place]
            record.owner, record.into = type(module).__name__, devices
            record.copied += 1
            self._owners[place] = weakref.ref(module)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: is what was loaded still there, and not the model's own by now? And where has that come to?"""
        for place, owner in self._owners.items():
            module = owner()
            # Going through all parameters at each step would cost; a model rarely moves.
            if module is not None and (not self.sites[place].settled or self.host.sampling):
                self.sites[place].settled = _devices(module)
        for place, held in list(self._held.items()):
            alive = [s for s in (ref() for ref in held) if s is not None]
            record = self.sites[place]
            # Partly freed means that the program is dropping it; without an owner nobody says that the
            # model has it, too.
            if not alive or len(alive) < len(held) or not record.owner or self._taken_over(alive):
                del self._held[place]
            else:
                record.kept += 1

    def _taken_over(self, alive: list[torch.UntypedStorage]) -> bool:
        """Whether the program trains or keeps what was loaded as it is (`assign=True`)."""
        known = self.host.known.storages()
        return any(s._cdata in known for s in alive)


def _devices(module: torch.nn.Module) -> list[str]:
    return sorted({str(t.device) for t in (*module.parameters(), *module.buffers())})


def _tensors(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Tensors in nested dicts and lists, a checkpoint's usual shape."""
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided and value.device.type != "meta":
            yield value
    elif depth < _DEEP and issubclass(type(value), (dict, list, tuple)):
        items = list(value.values()) if issubclass(type(value), dict) else list(value)
        for item in items[:_MOST]:
            yield from _tensors(item, depth + 1)
