"""Looks into errors of devices that end the program: what was where, and which value was out of range."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

from torchvet.probes.crash import mismatch, positions, values
from torchvet.probes.crash.naming import Names
from torchvet.probes.crash.raised import Level, deciding, levels_of, users
from torchvet.probes.watcher import Watcher
from torchvet.recording.device_records import LoadRefused
from torchvet.recording.records import Record

_NOT_HERE = re.compile(r"Attempting to deserialize object on (?:a )?(\w+) device")

_Kind = tuple[Callable[[BaseException], bool], Callable[[BaseException, list[Level], Names], "Record | None"]]


def _refused(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and _NOT_HERE.search(str(error)) is not None


def _load(error: BaseException, levels: list[Level], names: Names) -> Record | None:
    at, stored = users(levels), _NOT_HERE.search(str(error))
    if at is None or stored is None:
        return None
    message = str(error).partition(". ")[0][:300]
    return LoadRefused(place=at.place, message=message, stored_on=stored[1].lower())


_KINDS: tuple[_Kind, ...] = (
    (mismatch.is_mismatch, mismatch.described),
    (values.is_bad_value, values.described),
    (_refused, _load),
)


class DeviceErrors(Watcher):
    """Errors of devices."""

    def finish(self, how: str, error: BaseException | None) -> None:
        """Look at the error while its frames are alive. Nothing is looked at before: what is caught is no fault."""
        with torch.no_grad():
            self._look(error)
        positions.forget()

    def _look(self, error: BaseException | None) -> None:
        for one in deciding(error):
            for is_one, described in _KINDS:
                if is_one(one):
                    levels = levels_of(one)
                    record = described(one, levels, Names(self.host.known, levels))
                    if record is not None:
                        self.host.write(record)
                    break
