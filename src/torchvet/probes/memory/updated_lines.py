"""Notes which lines change tensors in place while gradients are recorded: each such change makes a graph longer."""

from __future__ import annotations

from typing import Any

import torch

from torchvet.probes.base.kit import Watcher, names

_NAMES = names(
    "add_ sub_ mul_ div_ lerp_ copy_ addcmul_ addcdiv_ clamp_ maximum_ index_add_ index_copy_ index_put_ scatter_ "
    "scatter_add_ _foreach_add_ _foreach_sub_ _foreach_mul_ _foreach_div_ _foreach_lerp_ _foreach_addcmul_ "
    "_foreach_addcdiv_ _foreach_copy_"
)
_MOST = 4096


class UpdatedLines(Watcher):
    """Lines that change tensors in place."""

    def install(self) -> None:
        """Hear of what changes its first argument."""
        packets = [getattr(torch.ops.aten, name, None) for name in _NAMES]
        overloads = [getattr(packet, name) for packet in packets if packet for name in packet.overloads()]
        self.host.hear(overloads, self._changed)

    def _changed(self, operator: Any, args: Any, kwargs: Any, out: Any) -> None:
        # Without gradients no graph gets longer: the updates of an optimizer come by here, too.
        if not torch.is_grad_enabled() or not args:
            return
        updated = self.host.ledger.updated
        line = self.host.line()
        if line is None:
            return
        # Storages that have died stay in the table: without a bound it would grow with the run.
        if len(updated) >= _MOST:
            updated.clear()
        # `_foreach_*` operators take a list.
        for tensor in args[0] if isinstance(args[0], (list, tuple)) else args[:1]:
            if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
                updated[tensor.untyped_storage()._cdata] = line
