"""Looks into errors of devices that end the program: what was where, and which value was out of range."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torchvet.probes.base.kit import Optimizer, Record, Watcher
from torchvet.probes.crash import mismatch, missing_device, positions, statements, values
from torchvet.probes.crash.naming import Names
from torchvet.probes.crash.raised import Level, deciding, levels_of

_Kind = tuple[Callable[[BaseException], bool], Callable[[BaseException, list[Level], Names], "Record | None"]]


_KINDS: tuple[_Kind, ...] = (
    (mismatch.is_mismatch, mismatch.described),
    (values.is_bad_value, values.described),
    (missing_device.is_absent, missing_device.described),
)


class DeviceErrors(Watcher):
    """Errors of devices."""

    def optimizer_made(self, optimizer: Optimizer) -> None:
        """On which device its parameters are: they may move before it makes its state, or after."""
        found = {str(p.device) for group in optimizer.param_groups for p in group["params"]}
        if len(found) == 1:
            self.host.known.built_on[optimizer] = found.pop()

    def finish(self, how: str, error: BaseException | None) -> None:
        """Look at the error while its frames are alive. Nothing is looked at before: what is caught is no fault."""
        # Comparing values makes tensors; outside of no_grad they would get graphs on the program's
        # parameters.
        with torch.no_grad():
            self._look(error)
        # Parsed files and weak references of one error: nothing needs them after the end.
        positions.forget()
        statements.forget()

    def _look(self, error: BaseException | None) -> None:
        for one in deciding(error):
            for is_one, described in _KINDS:
                if is_one(one):
                    levels = levels_of(one)
                    record = described(one, levels, Names(self.host.known, levels))
                    if record is not None:
                        self.host.write(record)
                    # An error is of one kind: the first that claims it, in the order of the
                    # table.
                    break
