"""The memory that training needs by right: parameters, buffers, gradients, optimizer state."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from torchvet.probes.base import graphs
from torchvet.probes.base.by_storage import ByStorage
from torchvet.probes.base.gradients import gradient_of
from torchvet.recording.records.base import Place

_DEEP = 4
"""Deep enough for LBFGS, which keeps lists of tensors by name for each parameter."""


class KnownMemory:
    """Optimizers and root modules seen so far, held weakly, and the storages that are theirs.

    Of gradients only those that the calling thread may read (`gradients`).
    """

    def __init__(self) -> None:
        self.optimizers: dict[int, weakref.ref[Optimizer]] = {}
        self._made: dict[int, int] = {}
        self._stepped: dict[int, int] = {}
        # A counter and no clock: two events within a clock's tick would have no order.
        self._moments = itertools.count(1)
        """When each optimizer was made and when it stepped last, by identity: numbers that only rise."""
        self.newest = 0
        """The tick at which the newest optimizer was made."""
        self.roots: dict[int, weakref.ref[torch.nn.Module]] = {}
        self.loaded: ByStorage[Place] = ByStorage()
        """The line that loaded a storage from a file."""
        self.buckets: ByStorage[None] = ByStorage()
        """What DistributedDataParallel averages gradients in."""
        self.built_on: weakref.WeakKeyDictionary[Optimizer, str] = weakref.WeakKeyDictionary()
        """The device of an optimizer's parameters when it was built, where it was one."""
        self._names: weakref.WeakKeyDictionary[torch.nn.Module, dict[int, str]] = weakref.WeakKeyDictionary()

    def add_optimizer(self, optimizer: Optimizer, tick: int = 0) -> None:
        """Note an optimizer that was made or stepped, at a tick."""
        self.newest = tick
        self.optimizers[id(optimizer)] = weakref.ref(optimizer)
        self._made[id(optimizer)] = next(self._moments)
        # The identity may be that of an optimizer that has died.
        self._stepped.pop(id(optimizer), None)

    def stepped(self, optimizer: Optimizer) -> None:
        """Note that an optimizer has just changed its parameters."""
        self._stepped[id(optimizer)] = next(self._moments)

    def add_root(self, module: torch.nn.Module) -> bool:
        """Note a module that was called from outside any other. True when it is new."""
        known = self.roots.get(id(module))
        # Same: the id alone may be a dead module's.
        if known is not None and known() is module:
            return False
        self.roots[id(module)] = weakref.ref(module)
        return True

    def live_optimizers(self) -> list[Optimizer]:
        """The optimizers that are still alive."""
        return [o for o in (ref() for ref in list(self.optimizers.values())) if o is not None]

    def live_roots(self) -> list[torch.nn.Module]:
        """The root modules that are still alive."""
        return [m for m in (ref() for ref in list(self.roots.values())) if m is not None]

    # Optimizers first: they may have parameters of modules that were never called from outside.
    def parameters(self) -> Iterator[torch.Tensor]:
        """Every parameter of a root module or an optimizer, once."""
        seen: set[int] = set()
        for tensor in self._all_parameters():
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield tensor

    def _all_parameters(self) -> Iterator[torch.Tensor]:
        for optimizer in self.live_optimizers():
            for group in optimizer.param_groups:
                yield from group["params"]
        for module in self.live_roots():
            yield from module.parameters()

    def owned(self) -> set[int]:
        """Identities of the parameters that some optimizer has."""
        return {id(p) for o in self.live_optimizers() for g in o.param_groups for p in g["params"]}

    def storages(self) -> dict[int, tuple[str, int]]:
        """Storage key to (category, bytes), for everything known; a storage counts for the first that claims it."""
        found: dict[int, tuple[str, int]] = {}
        for parameter in self.parameters():
            _claim(found, parameter, "parameters")
        for module in self.live_roots():
            for buffer in module.buffers():
                _claim(found, buffer, "buffers")
        for gradient in self.gradients():
            _claim(found, gradient, "gradients")
        for optimizer in self._in_use():
            for tensor in _state_of(optimizer):
                _claim(found, tensor, "optimizer state")
        # Gradients that are views of them came first.
        for storage, _ in self.buckets.living():
            found.setdefault(storage._cdata, ("gradient buckets", storage.nbytes()))
        return found

    def histories(self) -> set[int]:
        """Of the keys of `storages` those in lists of an optimizer's state, as L-BFGS keeps of its last steps: they may
        become more."""
        lists = (one for o in self.live_optimizers() for one in _lists_below(o.state, _DEEP))
        return {s._cdata for one in lists for tensor in _tensors_below(one, 1) for s in graphs.storages_of(tensor)}

    def idle(self, stored: Collection[int]) -> set[int]:
        """Of the keys of `storages` those that no training needs any more.

        They belong to models that are not trained: an optimizer was made after theirs had stepped last, or they never
        had one, as the copy that an average is kept in. One such model may be wanted; ever more of them are a leak.
        """
        busy = self._busy()
        needed: dict[int, tuple[str, int]] = {}
        for tensor in self._needed_by(busy):
            _claim(needed, tensor, "")
        return set(stored) - needed.keys() if busy else set()

    def _busy(self) -> list[Optimizer]:
        """The optimizers in use but for those that stepped last before another was made; none if none has stepped."""
        trained = [o for o in self.live_optimizers() if id(o) in self._stepped]
        # Of those that have stepped: one that is made and not used yet says nothing of the others.
        newest = max((self._made[id(o)] for o in trained), default=0)
        old = {id(o) for o in trained if self._stepped[id(o)] < newest}
        return [o for o in self._in_use() if id(o) not in old] if newest else []

    def _needed_by(self, busy: list[Optimizer]) -> Iterator[torch.Tensor]:
        """What some optimizers train with, and the whole of each model of which they train a part."""
        parameters = [p for o in busy for group in o.param_groups for p in group["params"]]
        trained = set(map(id, parameters))
        for root in self.live_roots():
            mine = list(root.parameters())
            # Frozen parts of a model that is trained in part are parts of it.
            if not trained.isdisjoint(map(id, mine)):
                parameters += mine
                yield from root.buffers()
        yield from parameters
        yield from (gradient for p in parameters if (gradient := gradient_of(p)) is not None)
        for optimizer in busy:
            yield from _state_of(optimizer)

    def _in_use(self) -> Iterator[Optimizer]:
        """The optimizers but for those that others have replaced, made after their last step over the same parameters:
        what these still hold nobody needs."""
        live = self.live_optimizers()
        replaced: dict[int, int] = {}
        for optimizer in live:
            if id(optimizer) in self._stepped:
                made = self._made[id(optimizer)]
                replaced |= {key: max(made, replaced.get(key, 0)) for key in _parameters_of(optimizer)}
        for optimizer in live:
            last = max(self._made[id(optimizer)], self._stepped.get(id(optimizer), 0))
            # One parameter that nobody took over is enough to be in use.
            if any(replaced.get(key, 0) <= last for key in _parameters_of(optimizer)):
                yield optimizer

    def gradients(self) -> list[torch.Tensor]:
        """The gradients that are there now; none that another thread trains with."""
        return [gradient for p in self.parameters() if (gradient := gradient_of(p)) is not None]

    def name_of(self, module: torch.nn.Module) -> str | None:
        """A submodule's path below its root, the root's class first: `Net.encoder.0`; None for a stranger."""
        for root in self.live_roots():
            names = self._names.get(root)
            if names is None:
                kind = type(root).__name__
                names = {id(m): f"{kind}.{n}" if n else kind for n, m in root.named_modules()}
                self._names[root] = names
            name = names.get(id(module))
            if name is not None:
                return name
        return None

    def parameter_names(self) -> dict[int, str]:
        """Identity to name for every parameter of a root module."""
        return {id(p): name for root in self.live_roots() for name, p in root.named_parameters()}


def _parameters_of(optimizer: Optimizer) -> Iterator[int]:
    return (id(p) for group in optimizer.param_groups for p in group["params"])


def _state_of(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    """The tensors of an optimizer's state, but for that of parameters that it does not have any more."""
    state, own = optimizer.state, set(_parameters_of(optimizer))
    # A copy: another thread may step meanwhile.
    entries = list(state.items()) if isinstance(state, dict) else [(None, state)]
    # Keyed by others altogether: by copies in higher precision.
    strange = not any(id(key) in own for key, _ in entries)
    for key, value in entries:
        if strange or not isinstance(key, torch.Tensor) or id(key) in own:
            yield from _tensors_below(value, _DEEP - 1)


def _claim(found: dict[int, tuple[str, int]], tensor: torch.Tensor, category: str) -> None:
    for storage in graphs.storages_of(tensor):
        # The order of the loops above decides: a storage of a parameter stays a parameter's, whatever else
        # shows it.
        found.setdefault(storage._cdata, (category, storage.nbytes()))


def _tensors_below(value: Any, depth: int) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, dict):
        # Nothing is asked for by key: an optimizer's state is a defaultdict, in which that would make entries.
        # A copy: another thread may step meanwhile.
        for item in list(value.values()):
            yield from _tensors_below(item, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors_below(item, depth - 1)


def _lists_below(value: Any, depth: int) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        yield value
    elif depth and isinstance(value, dict):
        for item in list(value.values()):
            yield from _lists_below(item, depth - 1)
