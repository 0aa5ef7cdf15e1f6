"""Terms of a loss that reach none of the parameters that are stepped: another optimizer's alone, which are cleared."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.base.kit import Optimizer, Place, graphs
from torchvet.recording.records.numeric import CutOutput

_MOST_TERMS = 16
_SUMS = ("AddBackward0", "SubBackward0", "NegBackward0", "MulBackward0", "DivBackward0")


def terms_of(roots: Iterable[Any]) -> Iterator[Any]:
    """The nodes whose results a loss is the sum of, weights left out."""
    waiting = list(roots)
    # A sum over a long loop has thousands of terms, which are alike.
    for _ in range(_MOST_TERMS):
        if not waiting:
            return
        node = waiting.pop()
        below = [n for n, _ in node.next_functions if n is not None]
        # A product of two tensors with graphs is a term of its own.
        # Additions and subtractions have two, all else one graph below.
        if graphs.name_of(node) in _SUMS and (len(below) == 1 or graphs.name_of(node) in _SUMS[:2]):
            waiting += below
        else:
            yield node


class IdleTerms:
    """Follows such terms from the backward call to the next one."""

    def __init__(
        self, above: Callable[[list[Any]], set[int] | None], parameters: Callable[[], Iterable[torch.Tensor]]
    ) -> None:
        self._above, self._parameters = above, parameters
        self._terms: list[set[int]] = []
        """Of the last backward: what each term reaches, if there are several."""
        self._idle: tuple[CutOutput, int, weakref.ref[torch.Tensor], set[int]] | None = None
        """Of the last step: where its parameters left the graph, how many others a term reached instead, one of them,
        and all."""

    @property
    def waits(self) -> bool:
        """Whether the next backward call tells something."""
        return self._idle is not None

    def backward_starts(self, tensors: Any) -> None:
        """The next pass: whoever has not stepped by now, and has no gradients any more, has thrown them away."""
        idle, self._idle = self._idle, None
        witness = idle[2]() if idle is not None else None
        if idle is not None and witness is not None:
            gradient = gradient_of(witness)
            # Cleared before anybody has stepped on it.
            idle[0].idle += gradient is None or not bool(gradient.detach().any())
            idle[0].reached = idle[1]
        found = [self._above([term]) for term in terms_of(graphs.roots_of(tensors))]
        self._terms = [one for one in found if one] if len(found) > 1 and None not in found else []

    def stepped(self, optimizer: Optimizer, cuts: dict[Place, set[int]], sites: dict[Place, CutOutput]) -> None:
        """Which terms reach nothing of its own, while what its parameters lead to has left the graph?"""
        mine = {id(p): p for group in optimizer.param_groups for p in group["params"]}
        if self._idle is not None and self._idle[3] & mine.keys():
            self._idle = None  # these gradients are used after all
        terms, self._terms = self._terms, []
        others = [term for term in terms if not term & mine.keys()]
        place = next((p for p, above in cuts.items() if above <= mine.keys()), None)
        # Some term must be its own: else the loss is another optimizer's.
        if not others or place is None or len(others) == len(terms):
            return
        reached = set().union(*others)
        witness = next((p for p in self._parameters() if id(p) in reached), None)
        if witness is not None:
            record = sites.setdefault(place, CutOutput(place=place))
            record.seen += 1
            self._idle = record, len(reached), weakref.ref(witness), reached
