"""Looks whether the tokens that end texts have labels, in batches that loaders give.

A collate function that makes labels of the tokens, and takes padding out, takes the end of each text out as well where
texts are padded with the token that ends them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import FrameType
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Place, SiteWatcher, user_lines
from torchvet.recording.records.training import EndTokens

_IGNORED = -100
"""What losses leave out by default."""
_BATCHES = 24
"""Batches of a loop that are looked at."""
_ALL = 200


class EndTokenProbe(SiteWatcher[Place, EndTokens]):
    """The last token of each text in batches of tokens with labels."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._left = _ALL
        self._place: Place | None = None
        """The loop that asks for a batch now."""

    def batch_asked(self, iterator: Any, caller: FrameType) -> None:
        """See `Watcher`."""
        self._place = next(iter(user_lines(caller, 1)), None) if self._left > 0 else None

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """See `Watcher`."""
        if self._place is None or not isinstance(batch, Mapping):
            return
        self._left -= 1
        seen = self.sites.setdefault(self._place, EndTokens(place=self._place))
        if seen.batches < _BATCHES:
            with self.host.looking("labels of the tokens that end texts"):
                _look(seen, *(batch.get(name) for name in ("input_ids", "attention_mask", "labels")))


def _look(seen: EndTokens, ids: Any, mask: Any, labels: Any) -> None:
    """Add what one batch shows. Texts are rows, padded on one side."""
    given = (ids, mask, labels)
    if not all(isinstance(one, torch.Tensor) and one.dim() == 2 and one.device.type == "cpu" for one in given):
        return
    if not (ids.shape == mask.shape == labels.shape) or not ids.numel():
        return
    labeled = labels != _IGNORED
    # Labels of something else (a translation's, masked words) say nothing of these tokens.
    if not bool(labeled.any()) or not bool((labels == ids)[labeled].all()):
        return
    seen.batches += 1
    read = mask != 0
    # The last token that is read, on whichever side the padding is.
    last = (read * torch.arange(1, ids.shape[1] + 1)).argmax(1)
    rows = torch.arange(len(ids))
    ends, texts = ids[rows, last], read.any(1)
    seen.texts += int(texts.sum())
    silent = texts & ~labeled[rows, last]
    seen.silent += int(silent.sum())
    # Of a text whose prompt has no labels either, more is left out on purpose.
    seen.only += int((silent & ((read & ~labeled).sum(1) == (read & (ids == ends[:, None])).sum(1))).sum())
    seen.tokens = sorted({*seen.tokens, *ends[silent].unique().tolist()})[:_BATCHES]
    seen.labeled += int((labels[labeled][:, None] == ends[silent].unique()).sum())
    seen.width = max(seen.width, ids.shape[1])
