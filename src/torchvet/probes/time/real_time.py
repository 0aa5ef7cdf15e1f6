"""What probes of time have in common."""

from __future__ import annotations

from typing import Any

from torchvet.probes.base.kit import Watcher


class TimeWatcher(Watcher):
    """A probe of time: not on a simulated GPU, whose time means nothing, nor in runs that are timed themselves."""

    @classmethod
    def wanted(cls, options: Any) -> bool:
        """See `Watcher`."""
        return super().wanted(options) and options.simulated_gpu is None
