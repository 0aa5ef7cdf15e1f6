"""Large temporaries that a fused form would not make, by the shapes and operators at a window's peak.

A peak that consists of an ordinary network's activations has no line that makes it: only tensors that somebody wrote
out by hand, and for which torch has another way, count here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torchvet.rules.kit import Iterator, Place, RankRecording, Recording, Severity, records

_WIDE = 1024
"""Classes from which on logits are worth another form."""
_BY_HAND = frozenset(["exp", "div", "log", "sub", "_softmax", "neg", "mul", "pow", "_softmax_backward_data"])
_LOGARITHMS = frozenset(["_log_softmax", "logsumexp"])
"""Where one of these is used, what else there is of that shape is no cross-entropy by hand."""
_FUSED = ("scaled_dot_product_attention(", "flash_attn")
_FILLED = ("zeros", "new_zeros", "scatter", "one_hot", "_to_copy", "eq")


@dataclass
class Pattern:
    """Tensors of one written-out computation at the peak."""

    what: str
    instead: str
    sites: list[records.base.SiteBytes] = field(default_factory=list)
    severity: Severity = "warning"

    @property
    def bytes(self) -> int:
        """Of all of them."""
        return sum(s.bytes for s in self.sites)

    @property
    def storages(self) -> int:
        """How many they are."""
        return sum(s.storages for s in self.sites)

    @property
    def largest(self) -> records.base.SiteBytes:
        """The site of the largest tensor."""
        return max(self.sites, key=lambda s: s.bytes // s.storages)

    @property
    def place(self) -> Place:
        """The line with the most bytes; of what the forward pass made, where it made any."""
        sums: dict[Place, int] = {}
        forward = [s for s in self.sites if s.site.phase == "forward"] or self.sites
        for site in forward:
            assert site.site.place is not None
            sums[site.site.place] = sums.get(site.site.place, 0) + site.bytes
        return max(sums, key=lambda p: sums[p])


def patterns(rank: RankRecording, recording: Recording, window: records.base.Window) -> Iterator[Pattern]:
    """Computations written out by hand, of which tensors were alive at the window's peak, the largest first."""
    # The optimizer's temporaries have the shapes of weights.
    sites = [s for s in window.sites if s.site.place is not None and s.site.phase in ("forward", "backward")]
    found = [
        p for p in (_attention(rank, recording, sites), *_probabilities(sites), *_encodings(recording, sites)) if p
    ]
    yield from sorted(found, key=lambda p: -p.bytes)


def _attention(rank: RankRecording, recording: Recording, sites: list[records.base.SiteBytes]) -> Pattern | None:
    """Matrices of one shape with weights that a softmax made of a matrix product, and that another product read.

    No fused operator gives the weights: where more reads them, or they outlive the step, they are wanted.
    """
    seen = [record for record in rank.latest(records.memory.AttentionMatrix, "place", "shape") if record.applied]
    # `scaled_dot_product_attention` gives the result alone, so that it cannot replace weights that are read.
    replaced = [r for r in seen if not r.elsewhere and not r.kept]
    # Weights that are only multiplied once first: of those a fused form takes the place.
    shapes = {_matrices(r.shape) for r in replaced or seen}
    matrices = [s for s in sites if _matrices(s.site.shape) in shapes and not _is_fused(recording, s)]
    if not matrices:
        return None
    instead = (
        "use `torch.nn.functional.scaled_dot_product_attention` (in `nn.MultiheadAttention`: `need_weights=False`), "
        "which does not keep the whole matrix, or compute it in chunks"
    )
    if replaced:
        return Pattern("attention matrices", instead, matrices)
    instead = "more than the product with the values uses them: compute them in chunks, or under torch.utils.checkpoint"
    return Pattern("attention matrices", instead, matrices, severity="info")


def _is_fused(recording: Recording, site: records.base.SiteBytes) -> bool:
    """Whether a line already calls a fused form."""
    return any(name in (recording.source_line(site.site.place) or "") for name in _FUSED)


def _matrices(shape: tuple[int, ...]) -> tuple[int, ...]:
    """How many matrices of how many rows and columns: products flatten what stands before."""
    return (math.prod(shape[:-2]), *shape[-2:])


def _probabilities(sites: list[records.base.SiteBytes]) -> Iterator[Pattern]:
    """Three or more tensors of one shape over many classes, from a softmax or a cross-entropy in single operators."""
    by_shape: dict[tuple[int, ...], list[records.base.SiteBytes]] = {}
    for site in sites:
        shape = site.site.shape
        # Square ones are attention's.
        if _over_classes(shape) and shape[-1] != shape[-2]:
            by_shape.setdefault(shape, []).append(site)
    for alike in by_shape.values():
        by_hand = [s for s in alike if _operator(s) in _BY_HAND]
        # A fused cross-entropy keeps one such tensor for its backward, and makes another in it.
        if sum(s.storages for s in by_hand) >= 3 and _is_softmax_by_hand(alike):
            instead = (
                "use `torch.nn.functional.cross_entropy` on the logits (`log_softmax` where probabilities are wanted), "
                "in chunks over the batch where they are large"
            )
            yield Pattern("tensors of a softmax written out", instead, by_hand)


def _over_classes(shape: tuple[int, ...]) -> bool:
    """Whether the last of several dimensions is one of many classes."""
    return len(shape) >= 2 and shape[-1] >= _WIDE


def _is_softmax_by_hand(alike: list[records.base.SiteBytes]) -> bool:
    """Whether tensors of one shape were made by the operators that a softmax or a cross-entropy is written with."""
    names = {_operator(s) for s in alike}
    made = {_operator(s) for s in alike if s.site.phase == "forward"}
    if names & _LOGARITHMS:
        return False
    return ("exp" in made and not names.isdisjoint(("div", "log", "sub"))) or ("_softmax" in made and "log" in names)


def _encodings(recording: Recording, sites: list[records.base.SiteBytes]) -> Iterator[Pattern]:
    """One-hot encodings over many classes, by the name in their line."""
    found = [
        s
        for s in sites
        if _over_classes(s.site.shape)
        and _operator(s) in _FILLED
        and "one_hot" in (recording.source_line(s.site.place) or "")
    ]
    if found:
        yield Pattern(
            "one-hot encodings", "keep the indices: `cross_entropy`, `gather` or an embedding take them", found
        )


def _operator(site: records.base.SiteBytes) -> str:
    return site.site.op.removeprefix("aten.").partition(".")[0]
