"""Looks for layers without `batch_first` that are given batches first: they work along the samples of the batch."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from torchvet.probes.base.kit import EVERY_STEP, Host, Place, Record, Watcher, bare_name, frames, names, overloads, tap
from torchvet.probes.base.ledger import place_of_line, storage_key
from torchvet.probes.internals import private
from torchvet.probes.training.sequences.sample_rows import Rows, SampleRows
from torchvet.recording.records.layers import BatchAsSequence

_PICKS = overloads("index.Tensor index_select")
_OVER_POSITIONS = names(
    "_softmax _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_attention_math _scaled_dot_product_fused_attention_overrideable"
)
"""Operators of attention that a program writes itself."""
_VIEWS = names("view _unsafe_view")
_TRANSPOSED = names("linear mkldnn_rnn_layer")
"""What layers call, having turned batches that come first. A projection is a view as rows, where it is no operator."""
_AS_GIVEN = names("_cudnn_rnn miopen_rnn _lstm_mps")
"""What turns them itself."""
_SCORES = names("bmm baddbmm")
"""What attention compares queries with keys by, where it is not fused."""
_LINES = 16
_Layer = nn.MultiheadAttention | nn.RNNBase


class BatchAsSequenceProbe(Watcher):
    """Layers that take the samples of a batch for a sequence."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.ignored = EVERY_STEP
        self._rows = SampleRows()
        self._made: dict[tuple[Any, ...], set[Place | None]] = {}
        """By a layer's kind and sizes, which copies of it have as well: where such are made."""
        self._found: dict[tuple[int, int], tuple[type | None, BatchAsSequence]] = {}
        """By line: records, with the kind of layer whose calls along the other dimension clear them."""
        self._others: dict[type, int] = {}
        """By kind: calls that work along the other dimension."""
        self._queries: tuple[_Layer, Rows, torch.Size] | None = None
        """What attention that has not compared anything yet was given last, if that is samples."""

    def install(self) -> None:
        """Hear of layers that are made, and of rows that are picked."""
        self.host.hear(_PICKS, self._picked)
        for kind in (nn.MultiheadAttention, nn.RNNBase):
            self.replace(kind, "__init__", tap(self.host, "where layers of sequences are made", after=self._layer_made))

    def remove(self) -> None:
        """Leave torch as it was."""
        listeners = self.host.ledger.listeners
        listeners[:] = [one for one in listeners if one != self._operator]
        super().remove()

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """See `Watcher`."""
        if self.host.sampling:
            self._rows.drawn(iterator, batch)

    def _layer_made(self, _: None, layer: _Layer, *args: Any, **kwargs: Any) -> None:
        if layer.batch_first:
            return
        self._made.setdefault(_sizes(layer), set()).add(frames.user_place())
        # Until there is such a layer nothing is followed.
        if self._operator not in self.host.ledger.listeners:
            self.host.ledger.listeners.append(self._operator)
            self.heed()

    def _picked(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if not self._made or private.graph_task() != -1 or private.is_fake(out) or private.is_functorch_wrapped(out):
            return
        if not args[0].requires_grad and args[0].layout is torch.strided and self._is_kept(args[0]):
            self._rows.picked(args, out)

    def _is_kept(self, source: torch.Tensor) -> bool:
        """Whether a tensor was there before this step, and is no model's."""
        ledger, key = self.host.ledger, storage_key(source)
        birth = ledger.live.get(key) if key is not None else None
        return key not in ledger.known and (birth is None or not birth.counted or birth.tick < ledger.tick)

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        # What a backward pass makes is given to no layer.
        if not args or private.graph_task() != -1:
            return
        given, name = args[0], bare_name(func)
        if isinstance(given, torch.Tensor) and given.dim() in (3, 4):
            layer = self.host.ledger.running()
            if isinstance(layer, (nn.MultiheadAttention, nn.RNNBase)):
                self._in_layer(layer, name, args, out)
            elif name in _OVER_POSITIONS:
                self._written_out(args)
        self._rows.passed_on(name, args, out)

    def _in_layer(self, layer: _Layer, name: str, args: Any, out: Any) -> None:
        given = args[0]
        reads = name in _TRANSPOSED or name in _AS_GIVEN or (name in _VIEWS and out.dim() == 2)
        if reads and given.dim() == 3:
            self._read(layer, given, 1 if name in _AS_GIVEN and layer.batch_first else 0)
        elif self._queries is not None and (name in _SCORES or name in _OVER_POSITIONS):
            self._compared(layer, args[1:3] if name == "baddbmm" else args[:2])

    def _read(self, layer: _Layer, given: torch.Tensor, along: int) -> None:
        """A layer projects what it was given, or computes with it: it works along this dimension."""
        width = layer.embed_dim if isinstance(layer, nn.MultiheadAttention) else layer.input_size
        self._queries = None
        if given.shape[2] != width:
            return
        kind, known = _kind(layer), self._rows.of(given)
        if known is not None and known[1] == along:
            if along == 0 and given.shape[0] == known[0].size and self._means_samples(layer, known[0], given):
                if isinstance(layer, nn.MultiheadAttention):
                    self._queries = layer, known[0], given.shape
                else:
                    self._found_in(layer, known[0], given.shape)
            return
        across, samples = given.shape[1 - along], known[0].size if known is not None else self._rows.size
        if samples > 1 and given.shape[along] > 1 and across % samples == 0:
            self._others[kind] = self._others.get(kind, 0) + 1

    def _means_samples(self, layer: _Layer, rows: Rows, given: torch.Tensor) -> bool:
        """Whether a layer without `batch_first` has the samples of a batch for a sequence, and not on purpose."""
        second = given.shape[1]
        # Several rows may be of one sample: where the second dimension divides by the batch it may be that.
        if second < 2 or layer.batch_first or (not rows.exact and second % rows.size == 0):
            return False
        if self._rows.are_answered(given, rows.pool):
            return False
        # A recurrence over the members of a set means nothing either.
        is_set = isinstance(layer, nn.MultiheadAttention) and rows.pool
        return not is_set or self._rows.has_labels(given, rows.pool, second)

    def _compared(self, layer: _Layer, factors: Any) -> None:
        """Attention compares samples with each other, or with what is no batch: a memory, or those to learn from."""
        queries, self._queries = self._queries, None
        if queries is None or queries[0] is not layer or len(factors) < 2:
            return
        one, other = factors
        keys = other.shape[-1] if one.dim() == 3 else other.shape[-2]
        if one.shape[-2] == keys == queries[1].size:
            self._found_in(*queries)

    def _found_in(self, layer: _Layer, rows: Rows, shape: torch.Size) -> None:
        line = self.host.ledger.located(sys._getframe(4))[0]
        place = place_of_line(line)
        if line is None or place is None or not torch.is_grad_enabled() or not layer.training:
            return
        key = id(line[0]), line[1]
        if key not in self._found:
            if len(self._found) >= _LINES:
                return
            record = BatchAsSequence(
                place=place, layer=type(layer).__name__, batch=rows.size, length=shape[1], width=shape[2]
            )
            made = self._made.get(_sizes(layer), set())
            record.made = next(iter(made)) if len(made) == 1 else None
            # Some models attend along both dimensions; samples in no order are no sequence to recur along.
            is_certain = rows.exact and isinstance(layer, nn.RNNBase)
            self._found[key] = None if is_certain else _kind(layer), record
        record = self._found[key][1]
        if record.last != self.host.tick:
            record.last = self.host.tick
            record.steps += 1
            record.sizes = sorted({*record.sizes, rows.size})[:8]

    def _written_out(self, args: Any) -> None:
        """Attention without the layer, along the positions of each sample."""
        given, known = args[0], self._rows.of(args[0])
        # A softmax of attention: (…, queries, keys) over the keys.
        is_softmax = len(args) > 1 and isinstance(args[1], int)
        last = not is_softmax or args[1] in (-1, given.dim() - 1)
        if known is not None and known[1] == 0 and last and given.shape[-2] > 1:
            self._others[nn.MultiheadAttention] = self._others.get(nn.MultiheadAttention, 0) + 1

    def totals(self, tick: int) -> Iterable[Record]:
        """Lines where the samples are the sequence."""
        for kind, record in self._found.values():
            record.others = self._others.get(kind, 0) if kind is not None else 0
        return [record for _, record in self._found.values()]


def _kind(layer: _Layer) -> type:
    return nn.MultiheadAttention if isinstance(layer, nn.MultiheadAttention) else nn.RNNBase


def _sizes(layer: _Layer) -> tuple[Any, ...]:
    if isinstance(layer, nn.MultiheadAttention):
        return type(layer), layer.embed_dim, layer.num_heads, layer.dropout
    return type(layer), layer.input_size, layer.hidden_size, layer.num_layers, layer.bidirectional
