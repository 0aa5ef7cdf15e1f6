"""A device that the program asked for and that is not there."""

from __future__ import annotations

import re

import torch

from torchvet.probes.crash import statements
from torchvet.probes.crash.naming import Names
from torchvet.probes.crash.raised import Level, message_of, users
from torchvet.recording.records.device import AbsentDevice

_ABSENT = re.compile(
    # A CPU build, a build for CUDA without a card, an ordinal beyond the cards, no driver: four messages of
    # torch's.
    r"not compiled with CUDA enabled|No CUDA GPUs are available|invalid device ordinal|Found no NVIDIA driver"
)
_FROM_FILE = re.compile(r"Attempting to deserialize object on (a )?(CUDA|XPU|MPS) device")


def is_absent(error: BaseException) -> bool:
    """Whether an error is torch's refusal of a device that there is not."""
    return isinstance(error, (AssertionError, RuntimeError)) and bool(
        _ABSENT.search(str(error)) or _FROM_FILE.search(str(error))
    )


def described(error: BaseException, levels: list[Level], names: Names) -> AbsentDevice | None:
    """The record of such an error; None where no line of the program's is to blame."""
    level = users(levels)
    if level is None:
        return None
    record = AbsentDevice(place=level.place, message=message_of(error), devices=torch.cuda.device_count())
    record.checkpoint = _FROM_FILE.search(str(error)) is not None
    node = level.expression()
    record.asked = next(statements.device_texts(node), "") if node is not None else ""
    chosen = statements.chosen_elsewhere("cuda", level)
    if chosen is not None:
        record.variable, record.held = chosen
    return record
