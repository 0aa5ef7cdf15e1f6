"""What was where when an operation refused tensors of different devices, or of different dtypes."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from torchvet.probes.base import frames
from torchvet.probes.crash import expressions, statements
from torchvet.probes.crash.naming import Names
from torchvet.probes.crash.raised import Level, message_of, users
from torchvet.recording.records.device import DeviceMismatch, Placed

_DEVICES = re.compile(
    # Without the first letter: torch writes it as the start of a sentence and within one.
    r"xpected all tensors to be on the same device|"
    r"indices should be either on (the )?(cpu|CPU)|"
    r"Input type \(.*\) and (weight|bias) type \(.*\) should be the same|"
    r"Expected object of (device type|backend)|"
    r"tensors are not at the same device|to have the same device type|"
    r"must (both )?be on the same device|to be on the same device|on different devices|"
    r"attempting to assign a gradient with device type|"
    r"Expected .* to be on (cuda|cpu|GPU|CPU)|is on (cpu|cuda:\d+), but expected (it )?on "
)
_DTYPES = re.compile(r"(to|must) have the same dtype|expected scalar type|Input type \(.*\) and (weight|bias) type")
_MOST = 8


def is_mismatch(error: BaseException) -> bool:
    """Whether an error is torch's refusal of tensors of different devices or dtypes."""
    text = str(error)
    kinds = (RuntimeError, ValueError, TypeError)
    return isinstance(error, kinds) and bool(_DEVICES.search(text) or _DTYPES.search(text))


def described(error: BaseException, levels: list[Level], names: Names) -> DeviceMismatch | None:
    """The record of such an error; None where no line of the program's is to blame."""
    place = users(levels)
    if place is None:
        return None
    tensors, level, unlike = _operands(levels, names)
    devices = {t.device for t in tensors if t.device}
    # The first line alone: what follows is a stack of C++ that may name devices as well.
    dtypes = len(devices) < 2 and not _DEVICES.search(str(error).partition("\n")[0])
    # The error speaks of dtypes, and the tensors that are in sight agree: they are not those it is about.
    if dtypes and len({t.dtype for t in tensors}) < 2:
        return None
    module = names.module_at_work()
    operation, shown = _operation(level, error), [*tensors, *unlike][:_MOST]
    record = DeviceMismatch(place=place.place, message=message_of(error), operation=operation, tensors=shown)
    record.module = names.module_path(module) if module is not None else None
    record.spread, record.dtypes_differ = _spread(names, tensors), dtypes
    _look_back(record, level, levels, names)
    return record


def _look_back(record: DeviceMismatch, level: Level | None, levels: list[Level], names: Names) -> None:
    """Add what the program itself did to one of the tensors before."""
    node = level.expression() if level is not None else None
    for text, tensor in expressions.tensors_in(node, level.names) if node is not None and level is not None else ():
        if tensor is None:
            continue
        name = names.placed(tensor, text).name
        moves = statements.MOVES if record.dtypes_differ else statements.BETWEEN_DEVICES
        found = statements.thrown_away(tensor, levels, moves)
        # The first operand that was moved in vain is told; one fix is enough for an error.
        if found is not None and not record.discarded:
            record.moved, (record.discarded, record.discarded_at) = name, found
        if record.written is None and not record.dtypes_differ:
            record.written = statements.written_out(tensor, name, levels)
            record.hard_coded = name if record.written is not None else ""


def _operands(levels: list[Level], names: Names) -> tuple[list[Placed], Level | None, list[Placed]]:
    """The tensors of the innermost frame that has two that differ; what of it has no tensor to look at comes last."""
    best: tuple[list[Placed], Level | None, list[Placed]] = ([], None, [])
    for level in reversed(levels):
        found = _of_frame(level, names)
        known, unknown = [t for t in found if t.device], [t for t in found if not t.device]
        if len({t.device for t in known}) > 1:
            return known, level, []
        dtypes = {t.dtype for t in known}
        # Kept in case no frame has two devices: a difference of dtypes, or one tensor beside something
        # unknown.
        if best[1] is None and (len(dtypes) > 1 or (known and unknown)):
            best = known, level, [] if len(dtypes) > 1 else unknown
        # Further out stand callers that gave the operands on, under other names.
        if level.whose == frames.USER:
            break
    return best


def _of_frame(level: Level, names: Names) -> list[Placed]:
    node, found = level.expression(), dict[Any, Placed]()
    for text, tensor in expressions.tensors_in(node, level.names) if node is not None else ():
        if tensor is None:
            found[text] = Placed(name=text, role="expression", device="")
        # A number on the CPU goes with tensors of any device: torch does not refuse it.
        elif tensor.dim() or tensor.device.type != "cpu":
            argument = text if level.whose != frames.USER else ""
            found.setdefault(id(tensor), names.placed(tensor, text, argument))
    return list(found.values())


def _operation(level: Level | None, error: BaseException) -> str:
    """What was being done, by the name that the program, or torch's function, has for it."""
    node = level.expression() if level is not None else None
    called = expressions.called(node) if node is not None else ""
    # `F.linear` rather than what it calls in C, which users never wrote.
    if level is not None and level.whose == frames.TORCH and "functional" in level.place.path:
        called = level.function
    if called:
        return called.lstrip("_")
    named = re.search(r"\(when checking arguments? (?:.* )?(?:of|in method) (?:wrapper_\w+?_)?(\w+)\)", str(error))
    return named[1] if named is not None else "the operation"


def _spread(names: Names, tensors: list[Placed]) -> dict[str, int]:
    """On which devices the parameters and buffers are of the root whose parameter is among the tensors."""
    owner = next((t.owner for t in tensors if t.role in ("parameter", "buffer")), None)
    root = next((r for r in names.roots if names.root_name(r) == owner), None)
    if root is None:
        return {}
    return dict(Counter(str(t.device) for t in [*root.parameters(), *root.buffers()]))
