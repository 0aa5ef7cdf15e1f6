"""What the rules about device errors read out of a run's records."""

from __future__ import annotations

import re

from torchvet.recording.records.device import BadValue, DeviceMismatch, Placed
from torchvet.rules.kit import Iterator, Place, RankRecording, Recording, Related

_MOST = 4
_ANY = re.compile(r"\bcpu\b|\bcuda:\d+")
_DEVICE = re.compile(r"cuda(:\d+)?")


def mismatches(recording: Recording) -> Iterator[tuple[RankRecording, DeviceMismatch, Placed | None]]:
    """Every refusal of tensors that do not go together, with the one that is out of place, where that is known."""
    for rank in recording.ranks:
        for record in rank.all(DeviceMismatch):
            yield rank, record, astray(record)


def astray(record: DeviceMismatch) -> Placed | None:
    """The tensor that is out of place: what is on the host where others are on a device, else the odd one out.

    Of several the one whose role says most about why. With dtypes that differ only an attribute that moved with
    nothing can be told from what was converted on purpose.
    """
    if record.dtypes_differ:
        return next((t for t in record.tensors if t.role == "attribute"), None)
    known = [t for t in record.tensors if t.device]
    devices = {t.device for t in known}
    if len(devices) > 1:
        odd = "cpu" if "cpu" in devices else min(devices, key=lambda d: sum(t.device == d for t in known))
        known = [t for t in known if t.device == odd]
    elif devices != {"cpu"}:
        # All that has a name is on the device: what has none is not.
        known = [t for t in record.tensors if not t.device]
    order = ("attribute", "unregistered", "optimizer state", "buffer", "variable", "parameter", "expression")
    return min(known, key=lambda t: order.index(t.role), default=None)


def by_its_text(record: DeviceMismatch, stray: Placed | None) -> str:
    """The code of the rule that tells of it by the program's own text: a move that was thrown away (DEV110), a device
    that is written out where a variable holds the others' (DEV107). Empty where neither is to blame."""
    if record.discarded and (record.dtypes_differ or stray is None or record.moved == stray.name):
        return "DEV110"
    written = record.written
    if written is None or record.dtypes_differ:
        return ""
    others = [t.device for t in record.tensors if t.device and t.name != record.hard_coded]
    return "DEV107" if any(d.partition(":")[0] == written.device or d == written.device for d in others) else ""


def there(record: DeviceMismatch, stray: Placed) -> str:
    """The device that the others are on."""
    others = {t.device for t in record.tensors if t.device and t.device != stray.device}
    told = _DEVICE.search(record.message)
    return min(others, default=told[0] if told is not None and stray.device == "cpu" else "the device")


def here(record: DeviceMismatch, stray: Placed) -> str:
    """The device that it is on itself; of what has no tensor to look at, the one that torch names and nobody is on."""
    others = {t.device for t in record.tensors if t.device}
    told = [found[0] for found in _ANY.finditer(record.message) if found[0] not in others]
    return stray.device or next(iter(told), "another device")


def companion(record: DeviceMismatch, stray: Placed) -> str:
    """One of the others, by its name."""
    others = [t for t in record.tensors if t.device and t.device != stray.device]
    named = [t for t in others if t.role != "expression"]
    unlike = [t for t in record.tensors if not t.device and t is not stray]
    return [*named, *others, *unlike][0].name if (others or unlike) else "what it is used with"


def where(record: DeviceMismatch) -> list[Related]:
    """Where each of the tensors was."""
    return [
        Related(role="tensor", message=f"{t.name}{_as(t)} is on {t.device}: {t.shape} {t.dtype}")
        for t in record.tensors[:_MOST]
        if t.device
    ]


def made(stray: Placed, place: Place) -> Place:
    """The line to change: where the attribute, list or variable is put there, else where the error was raised."""
    return stray.made or place


def raised(record: DeviceMismatch) -> Related:
    """Where the error came from."""
    return Related(role="raised", message=record.message, path=record.place.path, line=record.place.line)


def positions(record: BadValue) -> str:
    """Where bad values stand, the batch row first."""
    if not record.positions:
        return ""
    first = record.positions[0]
    if len(first) == 1:
        text = f"row {first[0]}"
    else:
        text = f"row {first[0]}, position {first[1] if len(first) == 2 else tuple(first[1:])}"
    rest = record.count - 1
    return f" at {text}" + (
        f", and {rest:,} more of {record.total:,}" if rest else f", the only one of {record.total:,}"
    )


def _as(tensor: Placed) -> str:
    told = tensor.argument.removeprefix("self.")
    return f" ({told})" if told and told != tensor.name and not tensor.name.endswith(told) else ""
