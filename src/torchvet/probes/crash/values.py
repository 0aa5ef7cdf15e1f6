"""Which value was out of range when an operation refused one: an index, a class, a probability."""

from __future__ import annotations

import ast
from typing import Literal

from torchvet.probes.base import frames
from torchvet.probes.crash import expressions, indices, probabilities
from torchvet.probes.crash.naming import Names
from torchvet.probes.crash.raised import Level, message_of, users
from torchvet.recording.records.device import BadValue

Kind = Literal["index", "probability", "unknown"]
ASSERT = "device-side assert"


def is_bad_value(error: BaseException) -> bool:
    """Whether an error is torch's refusal of a value."""
    if not isinstance(error, (IndexError, RuntimeError, ValueError)):
        return False
    text = str(error)
    return bool(indices.TOLD.search(text) or probabilities.TOLD.search(text) or ASSERT in text)


def described(error: BaseException, levels: list[Level], names: Names) -> BadValue | None:
    """The record of such an error; None where no line of the program's is to blame."""
    at = users(levels)
    if at is None:
        return None
    hides = vars(error).get("hides")  # the simulated device keeps what its assert does not say
    told = str(hides or error)
    index, probability = indices.TOLD.search(told), probabilities.TOLD.search(told)
    kind: Kind = "index" if index else "probability" if probability else "unknown"
    record = BadValue(place=at.place, kind=kind, message=message_of(error), operation=_operation(levels))
    record.asserted, record.simulated = ASSERT in str(error), hides is not None
    module = names.module_at_work()
    record.module = names.module_path(module) if module is not None else None
    if index is not None:
        indices.find(record, index, levels, names)
    elif probability is not None:
        probabilities.find(record, probability, levels, names)
    return record


def _operation(levels: list[Level]) -> str:
    """What the program, or torch on its behalf, called."""
    # Innermost first; the plumbing of `nn.Module` calls is no operation.
    for level in reversed(levels):
        if level.whose == frames.TORCH and level.function not in ("_wrapped_call_impl", "_call_impl", "forward"):
            return level.function.removeprefix("_") if level.function != "__init__" else "a distribution"
        node = level.expression()
        if level.whose == frames.USER and node is not None:
            return expressions.called(node) or ("indexing" if isinstance(node, ast.Subscript) else "")
    return ""
