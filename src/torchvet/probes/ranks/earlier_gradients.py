"""Gradients as they were before the step that is looked at: when the backward pass had ended, and before they were
clipped. What has made them differ between ranks lies behind the last moment at which they were the same.
"""

from __future__ import annotations

import torch

from torchvet.probes.base.gradients import gradient_of
from torchvet.probes.ranks.digests import digests
from torchvet.recording.records.base import Place


class EarlierGradients:
    """Digests by the identity of parameters, since the last step that was looked at."""

    def __init__(self) -> None:
        self.after_pass: dict[int, int | None] = {}
        self.before_clipping: dict[int, int | None] = {}
        self.place: Place | None = None
        """The line that has clipped."""

    def passed(self, parameters: list[torch.Tensor]) -> None:
        """A backward pass has ended: of several before one step the last counts."""
        self.after_pass = _of_gradients(parameters)

    def clipped(self, parameters: list[torch.Tensor], place: Place | None) -> None:
        """These are about to be clipped: the first time counts."""
        fresh = {key: value for key, value in _of_gradients(parameters).items() if key not in self.before_clipping}
        self.before_clipping |= fresh
        if fresh:
            self.place = place

    def forget(self) -> None:
        """Another step begins."""
        self.after_pass, self.before_clipping, self.place = {}, {}, None


def _of_gradients(parameters: list[torch.Tensor]) -> dict[int, int | None]:
    with_gradient = [(p, g) for p in parameters if (g := gradient_of(p)) is not None]
    values = digests([g for _, g in with_gradient])
    return {id(p): value for (p, _), value in zip(with_gradient, values, strict=True)}
