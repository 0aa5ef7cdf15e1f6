"""Watches where the tensors of loaded checkpoints come to lie, and how long they stay beside the model's own."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from torchvet.probes.base import frames
from torchvet.probes.base.watcher import EVERY_STEP, Host, Watcher
from torchvet.recording.records.base import Place, Record, StepKind
from torchvet.recording.records.device import LoadedCheckpoint

_DEEP, _MOST = 4, 4096
_AT_MOST_PLACES = 64


class Checkpoints(Watcher):
    """Checkpoints and the devices that they are loaded to."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._loaded: dict[Place, LoadedCheckpoint] = {}
        self._held: dict[Place, list[weakref.ref[torch.UntypedStorage]]] = {}
        """Storages of the last file that a line has loaded."""
        self._owners: dict[Place, weakref.ref[torch.nn.Module]] = {}
        self.ignored = EVERY_STEP
        self._of: dict[int, tuple[weakref.ref[torch.UntypedStorage], Place]] = {}

    def install(self) -> None:
        """Be told of what is loaded, and of what is copied into modules."""
        self.replace(torch, "load", self._loading)
        self.replace(torch.nn.Module, "load_state_dict", self._copying)

    def _loading(self, original: Any) -> Any:
        def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
            found = original(f, map_location, *args, **kwargs)
            if map_location is None and self.host.active:
                with self.host.looking("loaded checkpoints"):
                    self._note(found)
            return found

        load.__name__, load.__qualname__, load.__doc__ = "load", "load", original.__doc__
        return load

    def _copying(self, original: Any) -> Any:
        def load_state_dict(module: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            if self._of and self.host.active:
                with self.host.looking("loaded checkpoints"):
                    self._note_owner(module, state_dict)
            return original(module, state_dict, *args, **kwargs)

        load_state_dict.__name__, load_state_dict.__doc__ = "load_state_dict", original.__doc__
        return load_state_dict

    def _note(self, found: Any) -> None:
        place = frames.user_place(2)
        storages = {s._cdata: (s, str(t.device)) for t in _tensors(found) for s in [t.untyped_storage()]}
        if place is None or not storages or len(self._loaded) >= _AT_MOST_PLACES:
            return
        sizes: Counter[str] = Counter()
        for storage, device in storages.values():
            sizes[device] += storage.nbytes()
        self.heed()
        before = self._loaded.get(place)
        record = LoadedCheckpoint(place=place, bytes=dict(sizes), calls=1 + (before.calls if before else 0))
        self._loaded[place] = record
        self._held[place] = [weakref.ref(s) for s, device in storages.values() if device != "cpu"]
        self._of.update({k: (weakref.ref(s), place) for k, (s, _) in storages.items()})

    def _note_owner(self, module: torch.nn.Module, state: Any) -> None:
        first = next(_tensors(state), None)
        known = self._of.get(first.untyped_storage()._cdata) if first is not None else None
        if first is None or known is None or known[0]() is not first.untyped_storage() or not _devices(module):
            return
        record = self._loaded[known[1]]
        record.owner, record.into = type(module).__name__, _devices(module)
        record.copied += 1
        self._owners[known[1]] = weakref.ref(module)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: is what was loaded still there, and not the model's own by now? And where has that come to?"""
        for place, owner in self._owners.items():
            module = owner()
            if module is not None and (not self._loaded[place].settled or self.host.sampling):
                self._loaded[place].settled = _devices(module)
        for place, held in list(self._held.items()):
            alive = [s for s in (ref() for ref in held) if s is not None]
            record = self._loaded[place]
            if not alive or len(alive) < len(held) or not record.owner or self._taken_over(alive):
                del self._held[place]
            else:
                record.kept += 1

    def _taken_over(self, alive: list[torch.UntypedStorage]) -> bool:
        """Whether the program trains or keeps what was loaded as it is (`assign=True`)."""
        known = self.host.known.storages()
        return any(s._cdata in known for s in alive)

    def totals(self, tick: int) -> Iterable[Record]:
        """Each line that loads."""
        return list(self._loaded.values())


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
