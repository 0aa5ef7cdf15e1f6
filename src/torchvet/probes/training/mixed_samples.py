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
_JOINS = names("stack cat index_select")
"""What a recurrent layer's last operators are; the last where a packed batch is put back into its order."""
_READS = names("mm addmm bmm baddbmm linear native_layer_norm relu tanh sigmoid gelu native_dropout")
"""What computes with the features of a row. A view that is only kept and viewed back mixes nothing."""
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
        self._views: ByStorage[tuple[tuple[int, ...], MixedSamples]] = ByStorage()
        """The shapes of views that mix, by the state's storage."""
        self._found: dict[tuple[int, int], MixedSamples] = {}
        self._tick = -1

    def install(self) -> None:
        """Hear each operator of sampled steps."""
        self.host.ledger.listeners.append(self._operator)

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        name = bare_name(func)
        if name in _JOINS:
            self._joined(out)
        elif name in _VIEWS and self._states:
            state = self._states.get(args[0])
            if state is not None and args[0].shape == state.shape and _mixes(state.shape, tuple(out.shape)):
                self._mixed(state, out)
        elif name in _READS and self._views:
            for given in args:
                known = self._views.get(given)
                if known is not None and given.shape == known[0]:
                    self._read(known[1])

    def _joined(self, out: Any) -> None:
        layer = self.host.ledger.running()
        if not isinstance(layer, torch.nn.RNNBase) or not _is_returned(layer, out):
            return
        if self.host.tick != self._tick:
            self._tick = self.host.tick
            self._states.sweep()
            self._views.sweep()
        self._states.put(out, _State(type(layer).__name__, tuple(out.shape)))

    def _mixed(self, state: _State, out: torch.Tensor) -> None:
        user, inner = self.host.ledger.located(sys._getframe(3))
        line = user or inner
        place = place_of_line(line)
        if line is None or place is None or len(self._found) >= _LINES:
            return
        record = self._found.get((id(line[0]), line[1]))
        if record is None:
            record = MixedSamples(place=place, layer=state.layer, state=list(state.shape), view=list(out.shape))
            self._found[id(line[0]), line[1]] = record
        self._views.put(out, (tuple(out.shape), record))

    def _read(self, record: MixedSamples) -> None:
        record.calls += 1
        if record.last != self.host.tick:
            record.last = self.host.tick
            record.steps += 1

    def totals(self, tick: int) -> Iterable[Record]:
        """Lines that mix samples."""
        return [record for record in self._found.values() if record.calls]


def _is_returned(layer: torch.nn.RNNBase, out: Any) -> bool:
    """Whether this is a layer's final state, (layers * directions, samples, features), or its output, (steps, samples,
    features)."""
    # One layer in one direction leaves nothing to mix.
    if not isinstance(out, torch.Tensor) or out.dim() != 3 or out.shape[0] < 2:
        return False
    directions = 2 if layer.bidirectional else 1
    is_state = out.shape[0] == layer.num_layers * directions and out.shape[2] in (layer.hidden_size, layer.proj_size)
    is_output = out.shape[2] == directions * (layer.proj_size or layer.hidden_size)
    return is_state or (is_output and not layer.batch_first)


def _mixes(shape: tuple[int, ...], view: tuple[int, ...]) -> bool:
    """Whether rows by sample are made of a tensor whose second dimension is that of the samples, without moving it."""
    first, samples = shape[:2]
    if len(view) < 2 or view[0] != samples or samples in (first, 1):
        return False
    # `(layers * directions, …)` as `(layers, directions, …)`: a dimension that is split stays in front.
    return all(math.prod(view[:depth]) != first for depth in range(1, len(view)))
