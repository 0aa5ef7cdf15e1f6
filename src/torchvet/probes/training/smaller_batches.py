"""Gives loaders a share of their batch size, where `torchvet whatif` asks what that would buy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import BatchSampler

from torchvet.probes.base.kit import Watcher
from torchvet.recording.records.training import BatchChange


class SmallerBatches(Watcher):
    """Loaders with a smaller batch."""

    def install(self) -> None:
        """A loader with a batch size makes a `BatchSampler` of it: there it is changed, as for the program's own."""
        if self.host.options.batch_share is not None:
            self.replace(BatchSampler, "__init__", self._sampler)

    def _sampler(self, original: Callable[..., None]) -> Callable[..., None]:
        def __init__(sampler: Any, inner: Any, batch_size: int, *args: Any, **kwargs: Any) -> None:
            original(sampler, inner, self._share(batch_size), *args, **kwargs)

        return __init__

    def _share(self, size: Any) -> Any:
        # Anything else is the program's error, and torch tells it; a batch of one has no smaller.
        if not isinstance(size, int) or isinstance(size, bool) or size < 2:
            return size
        smaller = max(1, int(size * self.host.options.batch_share))
        self.host.write(BatchChange(size=size, used=smaller))
        return smaller
