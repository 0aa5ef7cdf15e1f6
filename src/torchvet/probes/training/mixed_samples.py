"""Looks for views of recurrent layers' states that put the numbers of several samples into one row."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from torchvet.probes.base.kit import ByStorage, Host, Record, Watcher, bare_name, names
from torchvet.probes.base.ledger import place_of_line
from torchvet.recording.records.training import MixedSamples

_VIEWS = names("view _unsafe_view")
"""What `reshape` comes to, too."""
_LINES = 16


@dataclass(frozen=True)
class _State:
    """What a recurrent layer returned: (anything, samples, features)."""

    layer: str
    shape: tuple[int, ...]


class MixedSamplesProbe(Watcher):
    """Final states, and outputs that are not batch first, of sampled steps. They are held weakly."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._states: ByStorage[_State] = ByStorage()
        self._found: dict[tuple[int, int], MixedSamples] = {}
        self._tick = -1

    def install(self) -> None:
        """Hear each operator of sampled steps."""
        self.host.ledger.listeners.append(self._operator)

    def forward_ended(self, module: torch.nn.Module, output: Any) -> None:
        """A recurrent layer has returned."""
        if not isinstance(module, torch.nn.RNNBase) or not self.host.sampling or not isinstance(output, tuple):
            return
        if self.host.tick != self._tick:
            self._tick = self.host.tick
            self._states.sweep()
        sequence, states = output[0], output[1]
        kept = [*states] if isinstance(states, tuple) else [states]
        if not module.batch_first:
            kept.append(sequence)
        for one in kept:
            # Without a batch it has two dimensions; one layer in one direction leaves nothing to mix.
            if isinstance(one, torch.Tensor) and one.dim() == 3 and one.shape[0] > 1:
                self._states.put(one, _State(type(module).__name__, tuple(one.shape)))

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if not self._states or bare_name(func) not in _VIEWS or not isinstance(out, torch.Tensor):
            return
        state = self._states.get(args[0])
        if state is None or tuple(args[0].shape) != state.shape or not _mixes(state.shape, tuple(out.shape)):
            return
        user, inner = self.host.ledger.located(sys._getframe(2))
        line = user or inner
        place = place_of_line(line)
        if line is None or place is None or len(self._found) >= _LINES:
            return
        record = self._found.get((id(line[0]), line[1]))
        if record is None:
            record = self._found[id(line[0]), line[1]] = MixedSamples(
                place=place, layer=state.layer, state=list(state.shape), view=list(out.shape)
            )
        record.calls += 1
        if record.last != self.host.tick:
            record.last = self.host.tick
            record.steps += 1

    def totals(self, tick: int) -> Iterable[Record]:
        """Lines that mix samples."""
        return list(self._found.values())


def _mixes(shape: tuple[int, ...], view: tuple[int, ...]) -> bool:
    """Whether rows by sample are made of a tensor whose second dimension is that of the samples, without moving it."""
    first, samples = shape[:2]
    if len(view) < 2 or view[0] != samples or samples in (first, 1):
        return False
    # `(layers * directions, …)` as `(layers, directions, …)`: a dimension that is split stays in front.
    return all(math.prod(view[:depth]) != first for depth in range(1, len(view)))
