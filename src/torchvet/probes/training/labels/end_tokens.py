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
_FEW = 2
_NAMES = "input_ids", "attention_mask", "labels"


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
        # Only what is known to be there is asked for: a mapping of the program's may raise anything.
        if self._place is None or not isinstance(batch, Mapping):
            return
        self._left -= 1
        seen = self.sites.setdefault(self._place, EndTokens(place=self._place))
        if seen.batches < _BATCHES and not seen.mixed:
            with self.host.looking("labels of the tokens that end texts"):
                if all(name in batch for name in _NAMES):
                    look(seen, *(batch[name] for name in _NAMES))


def look(seen: EndTokens, ids: Any, mask: Any, labels: Any) -> None:
    """Add what one batch shows. Texts are rows, padded on one side."""
    if not all(_is_table(one) for one in (ids, mask, labels)) or not ids.shape == mask.shape == labels.shape:
        return
    labeled = labels != _IGNORED
    # Labels of something else (a translation's, masked words) say nothing of these tokens.
    if not bool(labeled.any()) or not bool((labels == ids)[labeled].all()):
        return
    seen.batches += 1
    read = mask != 0
    # The last token that is read, on whichever side the padding is.
    columns = torch.arange(1, ids.shape[1] + 1, device=ids.device)
    last = (read * columns).argmax(1)
    rows = torch.arange(len(ids), device=ids.device)
    ends, texts = ids[rows, last], read.any(1)
    silent = texts & ~labeled[rows, last]
    tokens = ends[silent].unique()[:_FEW].tolist()
    seen.texts += int(texts.sum())
    seen.silent += int(silent.sum())
    seen.tokens = sorted({*seen.tokens, *tokens})
    # Texts that were cut end with anything.
    seen.mixed = len(seen.tokens) > 1
    if len(tokens) != 1 or seen.mixed:
        return
    (end,) = tokens
    is_end = ids == end
    # Of a text whose prompt has no labels either, more is left out on purpose.
    seen.only += int((silent & ((read & ~labeled).sum(1) == (read & is_end).sum(1))).sum())
    seen.labeled += int((labeled & is_end).sum())
    seen.padded += int((~read).sum())
    seen.padded_so += int((~read & is_end).sum())


def _is_table(one: Any) -> bool:
    """Whether something is a plain table of whole numbers in the host's memory."""
    plain = type(one) is torch.Tensor and one.layout is torch.strided and one.device.type == "cpu"
    return plain and one.dim() == 2 and one.numel() > 0 and not one.is_floating_point()
