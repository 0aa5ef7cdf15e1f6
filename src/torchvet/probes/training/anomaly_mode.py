"""Sees whether steps run backward with autograd's anomaly detection on, and who has switched it on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Record, Watcher, frames
from torchvet.recording.records.timing import AnomalyMode


class AnomalyModes(Watcher):
    """Anomaly detection that is left on."""

    only_sampled = frozenset(["backward_starts"])

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._found = AnomalyMode()

    def install(self) -> None:
        """Hear of the switch. It calls nothing of torch's that is not the program's."""
        self.replace(torch, "set_anomaly_enabled", self._switch)

    def _switch(self, original: Any) -> Any:
        def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
            if mode and self.host.active:
                with self.host.looking("the switch of anomaly detection"):
                    self._found.place = frames.user_place(2)
            original(mode, check_nan)

        return set_anomaly_enabled

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """Is it on in this pass?"""
        if not is_grad:
            self._found.passes += 1
            self._found.on += torch.is_anomaly_enabled()
            # Without the check anomaly mode only records tracebacks, and costs less.
            self._found.check_nan = torch.is_anomaly_check_nan_enabled()

    def totals(self, tick: int) -> Iterable[Record]:
        """What was seen so far."""
        return [self._found] if self._found.on else []
