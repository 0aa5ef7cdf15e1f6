"""Reads from an autograd graph whether all that trains is one affine map, whose layers nothing nonlinear parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import torch

from torchvet.probes.base.kit import graphs, names
from torchvet.probes.internals.graph_teardown import all_below, nodes_below
from torchvet.probes.training.labels.ranges import MOVING, plain_name

MOST_NODES = 2048
"""Nodes of a graph that are gone through; a larger one is not judged. Chosen, not measured."""
_DENSE = {"Addmm": (1, 2), "Mm": (0, 1), "Bmm": (0, 1)}
"""Products of matrices: where their two factors stand."""
_SUMS = names("Add Sub Rsub Cat Stack")
_AVERAGING = names(
    "Mean Sum Nansum Neg AvgPool2D AvgPool3D AdaptiveAvgPool2D AdaptiveAvgPool3D MkldnnAdaptiveAvgPool2D "
    "ConstantPadNd ReflectionPad1D ReflectionPad2D ReplicationPad1D ReplicationPad2D PixelShuffle PixelUnshuffle "
    "UpsampleNearest1D UpsampleNearest2D UpsampleLinear1D UpsampleBilinear2D Cumsum Tril Triu"
)
_VIEWS = names("View UnsafeView ReshapeAlias")
_LOOKUPS = names("Embedding EmbeddingBag Index IndexSelect Gather Take MaskedSelect")
"""Rows of a table, or of what is computed, by number: of these a model is no affine map, since the data may choose."""
_AFFINE = (MOVING - _LOOKUPS) | _AVERAGING | names("NativeDropout FusedDropout")
"""What is affine in the one thing that it is given."""
_TURNS = names("Transpose Permute T")
"""What may give a matrix its other axis as the last one."""
_NORMS = names("NativeBatchNorm CudnnBatchNorm MiopenBatchNorm")
_COMPARING = names(
    "NllLoss NllLoss2D NllLossNd MseLoss SmoothL1Loss HuberLoss BinaryCrossEntropy BinaryCrossEntropyWithLogits KlDiv "
    "SoftMarginLoss MultiMarginLoss Sub Rsub Gather"
)
"""What compares a prediction with a target."""
_LOSS = (
    MOVING
    | _COMPARING
    | names(
        "Mean Sum Nansum Add Mul Div Neg Pow Abs Sqrt Log Log1P Log10 Exp Clamp ClampMin Logsumexp LogSoftmax Softmax "
        "Sigmoid LogSigmoid LinalgVectorNorm Norm NanToNum MaskedFill"
    )
)
"""What may stand between the last layer and the loss."""
_PENALTY = MOVING | names("Pow Abs Square Sum Mean Add Mul Div Sqrt LinalgVectorNorm Norm")
"""What a decay of weights that is written into the loss is made of."""

Constant = Callable[[Any], bool]
"""Whether what a product's node multiplies with is a number, a mask or a buffer."""


class Layer(NamedTuple):
    """One application of trained weights: its node, the weights by identity, and what it maps to what."""

    node: Any
    weights: frozenset[int]
    enter: int
    leave: int
    convolves: bool
    crosses: bool
    """Whether it is a structure: it works in groups, along one axis of an image, or not along the axis of the layer
    in front of it."""
    behind: bool = True
    """Whether its weights stand behind what they are applied to: they mix the last axis."""
    kernel: tuple[int, ...] = ()


class _Made(NamedTuple):
    """What a node gives: something of weights alone, something affine of the input, or neither."""

    kind: Literal["weights", "affine", "other"]
    weights: frozenset[int] = frozenset()
    chain: tuple[Layer, ...] = ()
    """The longest row of layers on the ways down to the input, the lowest first."""
    turned: bool = False
    """Whether its axes were turned since the last layer of the row."""


_OTHER = _Made("other")
_INPUT = _Made("affine")
_Given = list[_Made | None]
"""What a node was given; None for what has no graph."""


def linear_chain(roots: Iterable[Any], parameters: set[int], constant: Constant) -> tuple[Layer, ...]:
    """The longest row of layers of a network that is one affine map; nothing where it is none, or may mean to be."""
    roots = list(roots)
    nodes = list(all_below(roots, MOST_NODES))
    if len(nodes) >= MOST_NODES:
        return ()
    graph = _Graph(parameters, constant)
    if not graph.read(nodes):
        return ()
    last = _last_layers(roots, graph)
    if not last or any(graph.made[node].kind != "affine" for node in last) or _used_between(last):
        return ()
    chain = max((graph.made[node].chain for node in last), key=len)
    if len(chain) < 2 or _on_purpose(chain) or _holds_weights(last, roots, chain, graph):
        return ()
    return (*chain[:-1], chain[-1]._replace(leave=_outputs(chain[-1], last, graph)))


def _outputs(layer: Layer, last: list[Any], graph: _Graph) -> int:
    """How many outputs a network has whose last layers are several: heads count, applications of one do not."""
    ends = {one.weights: one.leave for one in (graph.made[node].chain[-1] for node in last)}
    return sum(ends.values()) if layer.weights in ends else layer.leave


def norms_between(chain: tuple[Layer, ...]) -> list[Any]:
    """The nodes that lead to the last layer of a row, and normalize what has a graph by the statistics of a batch."""
    below = all_below(nodes_below(chain[-1].node), MOST_NODES)
    return [node for node in below if plain_name(node) in _NORMS and node.next_functions[0][0] is not None]


class _Graph:
    """What each node of a graph gives, from the leaves upward."""

    def __init__(self, parameters: set[int], constant: Constant) -> None:
        self._parameters = parameters
        self._constant = constant
        self.made: dict[Any, _Made] = {}
        self.layers: set[Any] = set()

    def read(self, nodes: list[Any]) -> bool:
        """Go through the nodes; False where their numbers do not tell which was made first."""
        leaves = [node for node in nodes if graphs.name_of(node) == graphs.ACCUMULATE]
        for leaf in leaves:
            known = isinstance(leaf.variable, torch.nn.Parameter) or id(leaf.variable) in self._parameters
            self.made[leaf] = _Made("weights", frozenset([id(leaf.variable)])) if known else _INPUT
        for node in sorted((one for one in nodes if one not in self.made), key=lambda one: int(one._sequence_nr())):
            following = [below for below, _ in node.next_functions]
            if any(below is not None and below not in self.made for below in following):
                return False
            self.made[node] = self._of(node, plain_name(node), [self.made.get(below) for below in following])
        return True

    def _of(self, node: Any, name: str, given: _Given) -> _Made:
        known = [one for one in given if one is not None]
        is_layer = name in _DENSE or name == "Convolution"
        if any(one.kind == "other" for one in known):
            # It is a layer all the same: what a network ends with.
            self.layers.update([node] if is_layer else [])
            return _OTHER
        if known and known == given and all(one.kind == "weights" for one in known):
            return _OTHER if name in _LOOKUPS else _Made("weights", frozenset().union(*(one.weights for one in known)))
        if is_layer:
            return self._layer(node, name, given)
        return self._scaled(node, name, given) if name in ("Mul", "Div") else _moved(node, name, known)

    def _layer(self, node: Any, name: str, given: _Given) -> _Made:
        self.layers.add(node)
        return self._dense(node, given, *_DENSE[name]) if name in _DENSE else self._convolved(node, given)

    def _dense(self, node: Any, given: _Given, first: int, second: int) -> _Made:
        one, other = given[first], given[second]
        # Weights stand behind what they are applied to, or before it.
        behind = other is not None and other.kind == "weights"
        weights, below = (other, one) if behind else (one, other)
        if weights is None or weights.kind != "weights" or (below is not None and below.kind != "affine"):
            return _OTHER
        sizes = graphs.result_sizes(node.next_functions[second if behind else first][0])
        if sizes is None or len(sizes) < 2 or (len(sizes) == 3 and sizes[0] != 1):
            return _OTHER
        enter, leave = sizes[-2:] if behind else sizes[:-3:-1]
        below = below or _INPUT
        crosses = _crosses(below, behind)
        layer = Layer(node, weights.weights, enter, leave, convolves=False, crosses=crosses, behind=behind)
        return _Made("affine", chain=(*below.chain, layer))

    def _convolved(self, node: Any, given: _Given) -> _Made:
        below, weights = given[:2]
        if weights is None or weights.kind != "weights" or (below is not None and below.kind != "affine"):
            return _OTHER
        sizes = graphs.result_sizes(node.next_functions[1][0])
        if sizes is None or len(sizes) < 3:
            return _OTHER
        turned = bool(getattr(node, "_saved_transposed", False))
        leave, enter = (sizes[1], sizes[0]) if turned else sizes[:2]
        grouped = int(getattr(node, "_saved_groups", 1)) != 1
        kernel = tuple(sizes[2:])
        layer = Layer(node, weights.weights, enter * math.prod(kernel), leave, True, crosses=grouped, kernel=kernel)
        return _Made("affine", chain=(*(below or _INPUT).chain, layer))

    def _scaled(self, node: Any, name: str, given: _Given) -> _Made:
        affine, weights = _of_kind(given, "affine"), _of_kind(given, "weights")
        # A product of two, or a quotient by what is affine, is no affine map.
        if len(affine) > 1 or (name == "Div" and given[-1] in affine):
            return _OTHER
        if (affine and weights) or self._constant(node):
            return (affine or weights)[0]
        # Trained weights for each feature of the input.
        return _INPUT if weights and name == "Mul" else _OTHER


def _crosses(below: _Made, behind: bool) -> bool:
    """Whether a layer mixes another axis than the one that gives it what it gets."""
    before = below.chain[-1] if below.chain else None
    return before is not None and not before.convolves and (before.behind == behind) == below.turned


def _of_kind(given: _Given, kind: str) -> list[_Made]:
    return [one for one in given if one is not None and one.kind == kind]


def _moved(node: Any, name: str, known: list[_Made]) -> _Made:
    """What is summed, averaged or moved."""
    if name in _SUMS:
        return _longest(known)
    # Evaluation normalizes by averages that are kept: by numbers.
    if (name in _AFFINE and len(known) == 1) or (name in _NORMS and known and _keeps_averages(node)):
        if known[0].kind != "affine":
            return _OTHER
        return known[0]._replace(turned=_is_turned(node, name, known[0].turned))
    return _OTHER


def _is_turned(node: Any, name: str, turned: bool) -> bool:
    """Whether the last axis is another one than it was, where it was so in front of this node."""
    if name not in _VIEWS or not turned:
        return turned != (name in _TURNS)
    # Axes that are joined are all mixed by the next layer.
    sizes, before = graphs.result_sizes(node), getattr(node, "_saved_self_sym_sizes", None)
    return not (sizes and before and sizes[-1] != before[-1])


def _keeps_averages(node: Any) -> bool:
    """Whether a norm of batches keeps averages of its statistics. The slot is not unpacked: that may run a hook."""
    try:
        return getattr(getattr(node, "_raw_saved_running_mean", None), "data", None) is not None
    # torch raises for a node that a backward pass has freed.
    except RuntimeError:
        return False


def _longest(known: list[_Made]) -> _Made:
    affine = _of_kind([*known], "affine")
    return max(affine, key=lambda one: len(one.chain)) if affine else _INPUT


def _last_layers(roots: list[Any], graph: _Graph) -> list[Any]:
    """The layers behind which only a loss comes; none where something else does, or nothing is compared."""
    last, compares = [], False
    queue = list(dict.fromkeys(roots))
    seen = set(queue)
    for node in queue:
        if node in graph.layers:
            last.append(node)
            continue
        made, name = graph.made[node], plain_name(node)
        # What leads to weights only, or to none.
        if made.kind == "weights" or (made.kind == "affine" and not made.chain):
            continue
        if name not in _LOSS or (name in ("Mul", "Div") and _is_product(node, graph)):
            return []
        compares |= name in _COMPARING
        fresh = [below for below in nodes_below(node) if below not in seen]
        seen.update(fresh)
        queue += fresh
    return last if compares else []


def _is_product(node: Any, graph: _Graph) -> bool:
    """Whether two things are multiplied that are computed of the input: what is squared is one."""
    return len({below for below in nodes_below(node) if graph.made[below].kind != "weights"}) > 1


def _used_between(last: list[Any]) -> bool:
    """Whether a loss also goes by what a layer gets: a penalty there gives it a meaning of its own."""
    ends = set(last)
    below = all_below([one for node in last for one in nodes_below(node)], MOST_NODES)
    return any(node in ends for node in below)


def _on_purpose(chain: tuple[Layer, ...]) -> bool:
    """Whether layers in a row mean something without anything between: a rank, a layer applied again, a structure."""
    weights = [key for layer in chain for key in layer.weights]
    if len(weights) != len(set(weights)) or any(layer.crosses for layer in chain):
        return True
    if min(layer.leave for layer in chain[:-1]) < min(chain[0].enter, chain[-1].leave):
        return True
    if not any(layer.convolves for layer in chain):
        return False
    # Filters along one axis each are a separable filter.
    if any(len(layer.kernel) > 1 and min(layer.kernel) == 1 < max(layer.kernel) for layer in chain):
        return True
    # Of a convolution that takes fewer steps than what the network ends with.
    sizes = [graphs.result_numel(layer.node) for layer in chain]
    return min(sizes[:-1]) < sizes[-1]


def _holds_weights(last: list[Any], roots: list[Any], chain: tuple[Layer, ...], graph: _Graph) -> bool:
    """Whether a loss asks more of the weights than a decay of all of them: they mean something by themselves."""
    above = set(last)
    queue = [root for root in dict.fromkeys(roots) if root not in above]
    seen, held = {*queue, *above}, frozenset[int]()
    for node in queue:
        made, name = graph.made[node], plain_name(node)
        if made.kind == "weights":
            held |= made.weights
            if graphs.name_of(node) != graphs.ACCUMULATE and name not in _PENALTY:
                return True
        fresh = [below for below in nodes_below(node) if below not in seen]
        seen.update(fresh)
        queue += fresh
    own = frozenset().union(*(layer.weights for layer in chain))
    return bool(held & own) and not held >= own
