"""Watches whether batches for a masked language model go to a causal one."""

from __future__ import annotations

import re
from types import FrameType
from typing import Any

import torch

from torchvet.probes.base.kit import EVERY_STEP, Place, SiteWatcher, user_lines
from torchvet.recording.records.labels import MaskedForCausal

_COLLATOR = re.compile(r"^DataCollatorFor(LanguageModeling|WholeWordMask)$")
_CAUSAL = re.compile(r"(ForCausalLM|(?<!With)LMHeadModel)$")
"""Classes of transformers that predict the next token. XLM and Flaubert (`...WithLMHeadModel`) do both."""
_WRAPPERS = 3


class MaskedForCausalProbe(SiteWatcher[str, MaskedForCausal]):
    """Masked batches, and the causal models that take them with labels."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Any) -> None:
        super().__init__(host)
        self._place: Place | None = None
        self._collator = ""
        """Of the batch that came last, where it masks tokens."""

    def batch_asked(self, iterator: Any, caller: FrameType) -> None:
        """See `Watcher`."""
        self._collator = _masking(getattr(iterator, "_collate_fn", None))
        self._place = next(iter(user_lines(caller, 1)), None) if self._collator else None

    def forward_ended(self, module: torch.nn.Module, output: Any) -> None:
        """A model has given its output, and a loss where it was given labels."""
        # The first model takes the batch; what others are given may be made of it anew.
        collator = self._collator if getattr(output, "loss", None) is not None else ""
        if not collator:
            return
        self._collator = ""
        name = type(getattr(module, "module", module)).__name__
        if _CAUSAL.search(name):
            new = MaskedForCausal(model=name, collator=collator, place=self._place)
            self.sites.setdefault(name, new).steps += 1


def _masking(collator: Any) -> str:
    """The class of a collator that masks tokens, which a Trainer may have wrapped; empty for another."""
    for _ in range(_WRAPPERS):
        if _COLLATOR.search(type(collator).__name__):
            return type(collator).__name__ if getattr(collator, "mlm", None) is True else ""
        collator = getattr(collator, "data_collator", None)
    return ""
