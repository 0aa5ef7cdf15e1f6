"""Watches networks of several layers that are one affine map: nothing nonlinear stands between the layers."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import nn

from torchvet.probes.base.kit import (
    EVERY_STEP,
    ByStorage,
    Host,
    Place,
    Record,
    SiteWatcher,
    StepKind,
    bare_name,
    frames,
    graphs,
    names,
    overloads,
    tap,
    tensors_within,
)
from torchvet.probes.base.ledger import place_of_line, storage_key
from torchvet.probes.internals.saved import saved_tensors
from torchvet.probes.numerics import half
from torchvet.probes.training.layers.affine import Layer, linear_chain, norms_between
from torchvet.recording.records.layers import LinearNetwork

_LAYERS = overloads("addmm mm bmm baddbmm convolution embedding native_layer_norm")
_LOOKS = 24
"""Backward passes that are looked at. Chosen, not measured."""
_FEWEST = 2
_RANDOM = names("empty empty_like new_empty bernoulli rand rand_like")
"""Operators that make what a mask of dropout is drawn into. A mask that was compared or read may come of the data."""
_FRESH = ("new_", "native_dropout", "detach", "view", "alias")
"""What takes a shape alone, makes a mask of its own, or is heard elsewhere."""
_CODES = {torch.bool, torch.int64, torch.int32}
"""Types of what a comparison or a search gives, which has no graph."""
_NOTED = 4096
_PARTS, _MODULES = 32, 20_000
"""Parts that are named, and modules of a model that are gone through for them."""
_MASK = 4096
"""Numbers of a factor that are read to tell a mask of dropout."""


class LinearNetworks(SiteWatcher[tuple[str, ...], LinearNetwork]):
    """Networks of several layers with nothing nonlinear between them."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._made: weakref.WeakKeyDictionary[nn.Module, Place] = weakref.WeakKeyDictionary()
        """The lines that made parts which do nothing."""
        self._looks = 0
        self._frozen = False
        """Whether a layer ran without a graph in the step under way: what trains may get what it made."""
        self._heard = 0
        """Layers with a graph that ran since the last step or backward pass."""
        self._cut: int | None = None
        """The lowest number of a node whose result has left its graph since the last backward pass."""
        self._newest = -1
        """The highest number of a node that a backward pass went through."""
        self._read: set[int] = set()
        """Numbers of nodes whose results were read without a graph since the last backward pass, such as by `h > 0`."""
        self._kept: set[int] = set()
        """Numbers of nodes that keep their result for the backward pass."""
        self._touched: ByStorage[bool] = ByStorage()
        """What was computed with, or changed, without a graph: `h.data` shares its storage with `h`."""
        self._allowance = half.Allowance(0.05, 0.002)

    def install(self) -> None:
        """Note where `nn.Identity` is made; in sampled steps, hear layers without a graph and what leaves one."""
        self.replace(nn.Identity, "__init__", tap(self.host, "where nn.Identity is made", after=self._identity))
        self.host.hear(_LAYERS, self._ran)
        self.host.hear(overloads("detach"), self._detached)
        self.host.ledger.listeners.append(self._operator)

    def remove(self) -> None:
        """Leave torch as it was."""
        listeners = self.host.ledger.listeners
        listeners[:] = [one for one in listeners if one != self._operator]
        super().remove()

    def _identity(self, _: None, module: nn.Module, *__: Any, **___: Any) -> None:
        place = frames.user_place()
        if place is not None:
            self._made[module] = place

    def _ran(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if half.in_backward():
            return
        if torch.is_grad_enabled() and any(one.requires_grad for one in tensors_within(args)):
            self._heard += 1
        elif self.host.ledger.running() is not None:
            self._frozen = True

    def _detached(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        node = args[0].grad_fn
        if node is None or half.in_backward():
            return
        number = int(node._sequence_nr())
        # Autograd itself detaches a result that it keeps, once.
        if hasattr(type(node), "_raw_saved_result") and number not in self._kept:
            self._kept.add(number)
        else:
            self._read.add(number)
        # A prediction of the last step, for a measure.
        if number > self._newest:
            self._cut = min(number, self._cut) if self._cut is not None else number

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Note what is read, without a graph, of what layers made: it may come back as if it were a constant."""
        if not self._heard or self._frozen or half.in_backward():
            return
        # What cannot be followed any more is not judged.
        self._frozen = len(self._read) + len(self._touched) >= _NOTED
        name = bare_name(func)
        if name.startswith(_FRESH) or name.endswith("_like"):
            return
        leaves = not torch.is_grad_enabled() or any(one.dtype in _CODES for one in tensors_within(out))
        for one in tensors_within(args):
            node = one.grad_fn
            if node is None:
                if not one.requires_grad and one.is_floating_point():
                    self._touched.put(one, True)
            elif leaves or not isinstance(out, (torch.Tensor, list, tuple)):
                self._read.add(int(node._sequence_nr()))

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended."""
        if kind == "training":
            self._frozen, self._heard, self._cut = False, 0, None
            self._forget()

    def _forget(self) -> None:
        self._read.clear()
        self._kept.clear()
        self._touched.clear()

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """Is what trains one affine map?"""
        if is_grad or not graphs.followed():
            return
        roots = graphs.roots_of(tensors)
        self._newest = max((int(root._sequence_nr()) for root in roots), default=self._newest)
        heard, self._heard = self._heard, 0
        # In the step after a sampled one nothing was heard.
        if self._frozen or heard < _FEWEST or self._looks >= _LOOKS or not self._allowance.left():
            return
        self._looks += 1
        began = time.thread_time()
        named = self.host.known.parameter_names()
        chain = linear_chain(roots, named.keys() | self.host.known.owned(), self._is_constant)
        # What has left the graph before the first layer ran may be what that was given.
        if len(chain) in range(_FEWEST, heard + 1) and not self._cut_before(chain[0]) and not self._is_read(chain):
            self._add(chain, named)
        self._forget()
        self._allowance.spend(began)

    def _cut_before(self, layer: Layer) -> bool:
        return self._cut is not None and self._cut < int(layer.node._sequence_nr())

    def _is_read(self, chain: tuple[Layer, ...]) -> bool:
        """Whether something without a graph was made of what stands between the layers, or changed it."""
        first, last = (int(chain[end].node._sequence_nr()) for end in (0, -1))
        if any(first <= number < last for number in self._read):
            return True
        keeping = [layer.node for layer in chain[1:]] + norms_between(chain)
        kept = (tensor for node in keeping for tensor in saved_tensors(node))
        return any(self._touched.get(one) and storage_key(one) not in self.host.ledger.known for one in kept)

    def _is_constant(self, node: Any) -> bool:
        """Whether what a product's node has kept to multiply with is a number, a buffer, or a mask of dropout."""
        kept = [one for one in saved_tensors(node) if not one.requires_grad]
        if len(kept) != 1:
            return False
        (factor,) = kept
        if factor.numel() <= 1 or storage_key(factor) in self.host.ledger.known:
            return True
        # To read a device's numbers would wait for it.
        if type(factor) is not torch.Tensor or factor.device.type != "cpu" or not factor.is_floating_point():
            return False
        key = storage_key(factor)
        birth = self.host.ledger.live.get(key) if key is not None else None
        if birth is None or bare_name(birth.op) not in _RANDOM:
            return False
        values = factor.detach().flatten()[:_MASK]
        return bool(((values == 0) | (values == values.max())).all())

    def _add(self, chain: tuple[Layer, ...], names: dict[int, str]) -> None:
        weights = tuple(min((names[key] for key in layer.weights if key in names), default="") for layer in chain)
        record = self.sites.get(weights)
        if record is None:
            place = next(self._places(chain), None) or frames.user_place()
            if place is None:
                return
            parts = list(islice(self._identities(frozenset().union(*(layer.weights for layer in chain))), _PARTS))
            record = self.sites[weights] = LinearNetwork(
                place=place,
                layers=len(chain),
                enter=chain[0].enter,
                leave=chain[-1].leave,
                convolves=any(layer.convolves for layer in chain),
                weights=weights,
                identities=[name for name, _ in parts],
                made=list(dict.fromkeys(made for _, made in parts if made is not None)),
            )
        record.steps += record.last != self.host.tick
        record.last = self.host.tick

    def _places(self, chain: tuple[Layer, ...]) -> Iterator[Place]:
        """The lines that made what the layers behind the first one got."""
        live = self.host.ledger.live
        for layer in chain[1:]:
            for tensor in saved_tensors(layer.node):
                key = storage_key(tensor)
                birth = live.get(key) if key is not None and not isinstance(tensor, nn.Parameter) else None
                place = place_of_line(birth.user or birth.inner) if birth is not None else None
                if place is not None:
                    yield place

    def _identities(self, weights: frozenset[int]) -> Iterator[tuple[str, Place | None]]:
        """The parts that do nothing, of the models that have these weights, and the lines that made them."""
        for root in self.host.known.live_roots():
            if any(id(parameter) in weights for parameter in root.parameters()):
                for name, module in islice(root.named_modules(), _MODULES):
                    if type(module) is nn.Identity:
                        yield name, self._made.get(module)

    def totals(self, tick: int) -> Iterable[Record]:
        """Networks that are linear."""
        return list(self.sites.values())
