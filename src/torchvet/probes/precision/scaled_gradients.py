"""What the gradients of a few parameters of each optimizer are made of: which backward, scaled how, divided when.

Gradients are identified by their tensor and its version, so that nothing is read and no device waits.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from torchvet.probes.precision.loss_marks import Mark
from torchvet.recording.records.base import Place

_WITNESSES = 8
"""Parameters of an optimizer that are watched, spread evenly over its groups."""
_MOST_PARTS = 16

Stamp = tuple[int, int] | None


class Division(NamedTuple):
    """One `unscale_`: whose scale, the number of that scale, for which optimizer object, where."""

    scaler: int
    generation: int
    optimizer: int
    place: Place | None


class Part(NamedTuple):
    """What one backward line left in a gradient. `spent`: an optimizer has stepped on it, or left that step out."""

    mark: Mark | None
    place: Place | None
    divided: tuple[Division, ...] = ()
    spent: bool = False

    @property
    def power(self) -> int:
        """How often it is multiplied by a scale now; below 0 it was divided more often."""
        return (self.mark.power if self.mark is not None else 0) - len(self.divided)


class Clip(NamedTuple):
    """A clipping that met scaled gradients."""

    place: Place | None
    limit: float
    norm: float | None
    scale: float | None
    scaler: int


# One list for all, so that `_change` works out only once what all of them become.
_NOTHING: list[Any] = []
"""Lists of parts and clips are never changed: witnesses share them, so that what is alike is worked out once."""


class Witness:
    """A parameter, held weakly, and what its gradient is made of. `unknown` once somebody else has changed it."""

    __slots__ = ("clips", "parts", "ref", "stamp", "thrown", "unknown")

    def __init__(self, parameter: torch.Tensor, died: Callable[[Any], None]) -> None:
        # The callback tells when identities may be given out again.
        self.ref = weakref.ref(parameter, died)
        self.parts: list[Part] = _NOTHING
        self.clips: list[Clip] = _NOTHING
        self.unknown = False
        self.thrown: tuple[int, Place | None] = (0, None)
        """After how many backward passes, and on which line, was cleared what no step had used."""
        self.stamp = self.now()

    def gradient(self) -> torch.Tensor | None:
        """Its gradient, if it is alive and has one."""
        parameter = self.ref()
        return parameter.grad if parameter is not None else None

    def now(self) -> Stamp:
        """What identifies its gradient: reading numbers would make a device wait."""
        parameter = self.ref()
        gradient = None if parameter is None else parameter.grad
        # `_version` rises with each in-place change. Private (`private.ATTRIBUTES`).
        return None if gradient is None else (id(gradient), gradient._version)

    def clear(self) -> None:
        """Its gradient is gone, or zero."""
        self.parts = self.clips = _NOTHING
        self.unknown = False
        self.stamp = self.now()

    @property
    def fresh(self) -> list[Part]:
        """What no step has used."""
        # What somebody else has changed may be anything: no fault is reported of it.
        return _NOTHING if self.unknown else [part for part in self.parts if not part.spent]

    def waits(self) -> bool:
        """Whether it has a gradient of a scaled loss that no step has used, whatever else was done to it."""
        return self.gradient() is not None and any(p.mark is not None and not p.spent for p in self.parts)


class Gradients:
    """The witnesses of all optimizers, and of what is handed to a scaler in an optimizer's place."""

    def __init__(self) -> None:
        self._witnesses: dict[int, Witness] = {}
        self._of: dict[int, tuple[tuple[int, ...], list[Witness]]] = {}
        self._all: list[Witness] | None = None
        self.passes = 0
        """Backward passes so far."""

    def of(self, optimizer: Any) -> list[Witness]:
        """The witnesses of an optimizer, or of anything with parameter groups."""
        groups = getattr(optimizer, "param_groups", None) or []
        # Changes where a group or a parameter is added, without going through all parameters at each step.
        # `id(groups)` for optimizers whose groups are replaced as a whole (`load_state_dict`).
        key = (id(groups), *[len(g["params"]) for g in groups])
        known = self._of.get(id(optimizer))
        if known is not None and known[0] == key:
            return known[1]
        parameters = [
            p for g in groups for p in g["params"] if isinstance(p, torch.Tensor) and p.requires_grad and p.is_leaf
        ]
        apart = max(1.0, len(parameters) / _WITNESSES)
        chosen = {id(p): p for p in (parameters[int(i * apart)] for i in range(min(len(parameters), _WITNESSES)))}
        if parameters:
            # The last parameter as well: heads, and what was added late, stand at the end.
            chosen[id(parameters[-1])] = parameters[-1]
        found = [self._witness(parameter) for parameter in chosen.values()]
        self._of[id(optimizer)] = (key, found)
        self._all = None
        return found

    def _witness(self, parameter: torch.Tensor) -> Witness:
        known = self._witnesses.get(id(parameter))
        if known is None or known.ref() is not parameter:
            known = self._witnesses[id(parameter)] = Witness(parameter, self._died)
        return known

    def _died(self, _: Any) -> None:
        # Lists go by identities, which are given out again after a death.
        self._of.clear()
        self._all = None

    def all(self) -> list[Witness]:
        """Every witness that is alive."""
        if self._all is None:
            self._witnesses = {key: w for key, w in self._witnesses.items() if w.ref() is not None}
            self._all = list(self._witnesses.values())
        return self._all

    def check(self) -> None:
        """Before anything that counts: has somebody else cleared or changed a gradient meanwhile?"""
        for witness, stamp in self._changed():
            if stamp is None:
                # Set to None: that is how torch clears.
                witness.clear()
            else:
                witness.unknown, witness.stamp = True, stamp

    def _changed(self) -> list[tuple[Witness, Stamp]]:
        """Those whose gradient is not what it was, and what identifies it now. Asked several times a step: one loop."""
        found = []
        for witness in self.all():
            parameter = witness.ref()
            gradient = None if parameter is None else parameter.grad
            stamp = None if gradient is None else (id(gradient), gradient._version)
            if stamp != witness.stamp:
                found.append((witness, stamp))
        return found

    def cleared(self, owner: Any, where: Callable[[], Place | None]) -> None:
        """`zero_grad` of an optimizer or a module has run; `where` is asked if that threw away what no step had
        used."""
        if isinstance(owner, torch.nn.Module):
            found = [w for w in map(self.known, owner.parameters()) if w is not None]
        else:
            found = self.of(owner)
        fresh = [witness for witness in found if witness.fresh]
        thrown = (self.passes, where()) if fresh else (0, None)
        for witness in fresh:
            witness.thrown = thrown
        for witness in found:
            witness.clear()

    def known(self, parameter: Any) -> Witness | None:
        """The witness that a parameter is, if it is one."""
        witness = self._witnesses.get(id(parameter))
        return witness if witness is not None and witness.ref() is parameter else None

    def among(self, identities: Iterable[int]) -> list[Witness]:
        """Those of some objects that are alive, given by identity."""
        found = [self._witnesses[key] for key in self._witnesses.keys() & set(identities)]
        return [w for w in found if w.ref() is not None]

    def add(self, parts: Iterable[Part]) -> None:
        """A backward has ended: it has left these in the gradients that have changed."""
        self.passes += 1
        # Accumulation over many backward passes would make the lists ever longer.
        parts = list(parts)[-_MOST_PARTS:]
        added = []
        for witness, stamp in self._changed():
            # It had no gradient before: nothing older is in this one.
            if witness.stamp is None:
                witness.parts, witness.clips = parts, _NOTHING
            else:
                added.append(witness)
            witness.stamp = stamp
        _change(added, lambda before: [*before, *(p for p in parts if p not in before)][-_MOST_PARTS:])

    def doubt(self) -> None:
        """A backward has ended of which it is not known what it has left."""
        self.passes += 1
        for witness, stamp in self._changed():
            witness.unknown, witness.stamp = True, stamp

    def divide(self, optimizer: Any, division: Division) -> None:
        """`unscale_` has divided the gradients of an optimizer."""
        divided = (division,)
        _change(
            self.of(optimizer),
            lambda parts: [p if p.spent else Part(p.mark, p.place, p.divided + divided) for p in parts],
        )

    def spend(self, optimizer: Any) -> None:
        """An optimizer has used its gradients, or would have."""
        witnesses = self.of(optimizer)
        _change(witnesses, _spent)
        for witness in witnesses:
            witness.clips = _NOTHING
            witness.stamp = witness.now()


def _spent(parts: list[Part]) -> list[Part]:
    return list(dict.fromkeys(p if p.spent else Part(p.mark, p.place, p.divided, spent=True) for p in parts))


def _change(witnesses: Iterable[Witness], change: Callable[[list[Part]], list[Part]]) -> None:
    """Put other parts in place of each witness's: lists that were shared still are."""
    # By the identity of the list before: thousands of parameters have a few histories.
    done: dict[int, list[Part]] = {}
    for witness in witnesses:
        parts = witness.parts
        after = done.get(id(parts))
        if after is None:
            after = done[id(parts)] = change(parts)
        witness.parts = after
