"""Watches for parameters that get gradients and that no optimizer can ever step, because of where they stand."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Iterable

import torch

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import EVERY_STEP, Host, Optimizer, Place, Record, StepKind, Watcher, frames
from torchvet.probes.crash import attributes
from torchvet.recording.records.device import HiddenModules, ReplacedParameters

_LOOKS = 6
"""Sampled steps that are looked at: who owns what does not change from step to step."""
_SURE = 2


class Ownership(Watcher):
    """Parameters out of an optimizer's reach."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._looks = 0
        self._versions: dict[int, int] = {}
        """By identity: a parameter's version when it was first seen with a gradient and no owner."""
        self._made: tuple[str, Place | None] = ("the optimizer", None)
        self._replaced: dict[str, ReplacedParameters] = {}
        self._hidden: dict[str, HiddenModules] = {}
        self._uncalled: list[weakref.ref[torch.nn.Module]] | None = None

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """Where the first one was built."""
        if self._made[1] is None:
            self._made = type(optimizer).__name__, frames.user_place(3)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """After an optimizer's step, while its gradients are there."""
        # At a boundary of the optimizer's own step the gradients are not yet cleared.
        if kind != "training" or not self.host.sampling or self._looks >= _LOOKS:
            return
        self._looks += 1
        with torch.no_grad():
            # Roots are modules that were called from outside any other.
            roots, owned = self.host.known.live_roots(), self.host.known.owned()
            for root in roots:
                self._look_for_replaced(root, roots, owned)
                self._look_for_hidden(root, roots, owned)
            orphans = [r for r in roots if self._is_orphan(r, owned)]
            called = [r for r in roots if r not in orphans]
            for holder in self._holders(called, owned) if orphans else ():
                self._look_for_hidden(holder, [*called, holder], owned)

    def _is_orphan(self, root: torch.nn.Module, owned: set[int]) -> bool:
        """Whether a module that is called by itself is trained and no optimizer has anything of it."""
        # A frozen module has no gradients, and so nothing that stays.
        mine = list(root.parameters())
        return bool(self._stays(mine, owned)) and not _any_owned(mine, owned)

    def _holders(self, called: list[torch.nn.Module], owned: set[int]) -> list[torch.nn.Module]:
        """Modules that are never called themselves, only parts of them, and of which an optimizer has something: one
        may keep an orphan out of its sight. Looked for once: it takes a walk over all objects."""
        if self._uncalled is None:
            known = {id(m) for root in called for m in root.modules()}
            having = [m for m in _modules() if id(m) not in known and _any_owned(m.parameters(), owned)]
            # Only the outermost: their parts are looked at with them.
            within = {id(part) for m in having for part in m.modules() if part is not m}
            self._uncalled = [weakref.ref(m) for m in having if id(m) not in within]
        return [m for m in (ref() for ref in self._uncalled) if m is not None]

    def totals(self, tick: int) -> Iterable[Record]:
        """What was seen at least twice."""
        # Once may be the first step, before the program has built its second optimizer.
        yield from (r for r in self._replaced.values() if r.steps >= _SURE)
        yield from (r for r in self._hidden.values() if r.steps >= _SURE)

    def _stays(self, parameters: Iterable[torch.Tensor], owned: set[int]) -> list[torch.Tensor]:
        """Those that have a gradient and no owner, and that nobody has changed by hand since they were first seen."""
        having = [p for p in parameters if p.requires_grad and id(p) not in owned and gradient_of(p) is not None]
        return [p for p in having if self._versions.setdefault(id(p), p._version) == p._version]

    def _look_for_replaced(self, root: torch.nn.Module, roots: list[torch.nn.Module], owned: set[int]) -> None:
        mine = list(root.parameters())
        lost = self._stays(mine, owned)
        # A module of which an optimizer has some is not replaced as a whole.
        if not lost or _any_owned(mine, owned):
            return
        present = {id(p) for one in roots for p in one.parameters()}
        stepped = (p for o in self.host.known.live_optimizers() for g in o.param_groups for p in g["params"])
        orphans = [p for p in stepped if id(p) not in present]
        # A replaced model has the same shapes as the one that the optimizer has.
        missing = Counter(map(_kind, lost)) - Counter(map(_kind, orphans))
        # Orphans that get gradients are in use elsewhere.
        if missing or len(lost) < len(orphans) / 2 or any(gradient_of(p) is not None for p in orphans):
            return
        name = type(root).__name__
        optimizer, place = self._made
        new = ReplacedParameters(module=name, count=0, bytes=0, steps=0, place=place, optimizer=optimizer)
        record = self._replaced.setdefault(name, new)
        record.count, record.bytes, record.steps = len(lost), _bytes(lost), record.steps + 1

    def _look_for_hidden(self, root: torch.nn.Module, roots: list[torch.nn.Module], owned: set[int]) -> None:
        if not _any_owned(root.parameters(), owned):
            return
        registered = {id(m) for one in roots for m in one.modules()}
        for path, module in root.named_modules():
            for attribute, value in attributes.plain_attributes(module):
                # One in eval mode is meant not to learn (a teacher kept in a list on purpose).
                found = [m for _, m in attributes.modules_within(value) if id(m) not in registered and m.training]
                lost = self._stays({id(p): p for m in found for p in m.parameters()}.values(), owned)
                if lost:
                    name = ".".join(filter(None, [type(root).__name__, path, attribute]))
                    self._note_hidden(name, found, lost, attributes.assigned(type(module), attribute))

    def _note_hidden(
        self, name: str, found: list[torch.nn.Module], lost: list[torch.Tensor], made: Place | None
    ) -> None:
        kinds = sorted({type(m).__name__ for m in found})
        new = HiddenModules(holder=name, modules=0, parameters=0, bytes=0, kinds=kinds, made=made)
        record = self._hidden.setdefault(name, new)
        record.modules, record.parameters, record.bytes = len(found), len(lost), _bytes(lost)
        record.steps += 1


def _any_owned(parameters: Iterable[torch.Tensor], owned: set[int]) -> bool:
    return any(id(p) in owned for p in parameters)


def _kind(parameter: torch.Tensor) -> tuple[torch.Size, torch.dtype]:
    return parameter.shape, parameter.dtype


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _modules() -> list[torch.nn.Module]:
    """All modules that there are."""
    # A scan of all objects takes some 75 ms. By type: `isinstance` would ask an object's `__class__`, which may be code
    # of the program's.
    return [o for o in gc.get_objects() if issubclass(type(o), torch.nn.Module) and "_modules" in vars(o)]
