"""Asks the device's allocator for the most that it has held, also where the program sets that count back meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Record, Watcher
from torchvet.recording.records.memory import DevicePeak


class DevicePeaks(Watcher):
    """The device's peak."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._began: dict[int, tuple[int, int]] = {}
        """By device: bytes allocated, and the most so far, when it was first asked."""
        self._most: dict[int, int] = {}

    def install(self) -> None:
        """Ask, and hear of it when the program sets the count back."""
        if not torch.cuda.is_available():
            return
        if self.host.options.every_step and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            for device in range(torch.cuda.device_count()):
                # A watched block of a larger program: what was reached before it is not its own.
                torch.cuda.reset_peak_memory_stats(device)
        self._ask()
        for owner in (torch.cuda, torch.cuda.memory):
            for name in ("reset_peak_memory_stats", "reset_max_memory_allocated"):
                self.replace(owner, name, self._noting)

    def _ask(self) -> None:
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return
        for device in range(torch.cuda.device_count()):
            peak = torch.cuda.max_memory_allocated(device)
            # The first answer only.
            self._began.setdefault(device, (torch.cuda.memory_allocated(device), peak))
            self._most[device] = max(peak, self._most.get(device, 0))

    def _noting(self, original: Any) -> Any:
        def reset(*args: Any, **kwargs: Any) -> Any:
            # Before the count goes: afterwards nobody knows what it was.
            with self.host.looking("the device's peak"):
                self._ask()
            return original(*args, **kwargs)

        return reset

    def finish(self, how: str, error: BaseException | None) -> None:
        """The last time."""
        if torch.cuda.is_available():
            self._ask()

    def totals(self, tick: int) -> Iterable[Record]:
        """Each device that was used."""
        for device, most in self._most.items():
            allocated, before = self._began[device]
            # Where the allocator had held as much earlier, it does not tell what was reached since.
            yield DevicePeak(device=device, bytes=most, exact=most > before or before == allocated)
