"""What the rules about device errors share: which rule a refused operation is the case of, and how it is described."""

from __future__ import annotations

import re

from torchvet.rules.kit import Finding, Findings, RankRecording, Recording, Related, Rule, records

_MOST = 4
_ANY = re.compile(r"\bcpu\b|\bcuda:\d+")
_DEVICE = re.compile(r"cuda(:\d+)?")
_UNKNOWN = records.device.Placed(name="", role="expression", device="")
"""Stands for the tensor that is out of place where it is not known which one is."""
_BY_ROLE = {"attribute": "DEV102", "unregistered": "DEV109", "optimizer state": "DEV103"}


class CrashRule(Rule):
    """A rule that explains why an operation refused its tensors, of several devices or dtypes."""

    def crashes(
        self, recording: Recording
    ) -> list[tuple[RankRecording, records.device.DeviceMismatch, records.device.Placed]]:
        """The refusals that this rule explains, each with the tensor that is out of place; nameless if not known."""
        every = [
            (rank, record, _astray(record))
            for rank in recording.ranks
            for record in rank.all(records.device.DeviceMismatch)
        ]
        return [(rank, record, stray) for rank, record, stray in every if self.code in _explained_by(record, stray)]

    def in_recording(self, recording: Recording) -> Findings:
        """The error that ended the program, and what else `in_rank` finds."""
        for rank, record, stray in self.crashes(recording):
            yield self.crash(rank, record, stray)
        yield from super().in_recording(recording)

    def crash(
        self, rank: RankRecording, record: records.device.DeviceMismatch, stray: records.device.Placed
    ) -> Finding:
        """The finding for a refusal that the rule explains."""
        raise NotImplementedError


def _explained_by(record: records.device.DeviceMismatch, stray: records.device.Placed) -> set[str]:
    """The codes of the rules that explain a refusal: by the program's text or by what the tensor is to the program.
    Where neither says why, DEV101 says that the devices differ."""
    found = {_by_its_text(record, stray), _BY_ROLE.get(stray.role, "")} - {""}
    return found if found or record.dtypes_differ else {"DEV101"}


def _astray(record: records.device.DeviceMismatch) -> records.device.Placed:
    """The tensor that is out of place: what is on the host where others are on a device, else the odd one out.

    Of several the one whose role says most about why. With dtypes that differ only an attribute that moved with
    nothing can be distinguished from what was converted on purpose.
    """
    if record.dtypes_differ:
        return next((t for t in record.tensors if t.role == "attribute"), _UNKNOWN)
    known = [t for t in record.tensors if t.device]
    devices = {t.device for t in known}
    if len(devices) > 1:
        odd = "cpu" if "cpu" in devices else min(devices, key=lambda d: sum(t.device == d for t in known))
        known = [t for t in known if t.device == odd]
    elif devices != {"cpu"}:
        # All that has a name is on the device: what has none is not.
        known = [t for t in record.tensors if not t.device]
    # From what explains most (`.to()` passes over it) to what explains least (a result without a name).
    order = ("attribute", "unregistered", "optimizer state", "buffer", "variable", "parameter", "expression")
    return min(known, key=lambda t: order.index(t.role), default=_UNKNOWN)


def _by_its_text(record: records.device.DeviceMismatch, stray: records.device.Placed) -> str:
    """The code of the rule that explains it by the program's text: a move whose result was thrown away (DEV110), or a
    device written out where a variable holds the others' (DEV107). Empty where neither is to blame."""
    if record.discarded and (record.dtypes_differ or not stray.name or record.moved == stray.name):
        return "DEV110"
    written = record.written
    if written is None or record.dtypes_differ:
        return ""
    others = [t.device for t in record.tensors if t.device and t.name != record.hard_coded]
    return "DEV107" if any(d.partition(":")[0] == written.device or d == written.device for d in others) else ""


def there(record: records.device.DeviceMismatch, stray: records.device.Placed) -> str:
    """The device that the others are on."""
    others = {t.device for t in record.tensors if t.device and t.device != stray.device}
    named = _DEVICE.search(record.message)
    return min(others, default=named[0] if named is not None and stray.device == "cpu" else "the device")


def here(record: records.device.DeviceMismatch, stray: records.device.Placed) -> str:
    """The device that it is on itself; of what has no tensor to look at, the one that torch names and nobody is on."""
    others = {t.device for t in record.tensors if t.device}
    named = [found[0] for found in _ANY.finditer(record.message) if found[0] not in others]
    return stray.device or next(iter(named), "another device")


def companion(record: records.device.DeviceMismatch, stray: records.device.Placed) -> str:
    """One of the others, by its name."""
    others = [t for t in record.tensors if t.device and t.device != stray.device]
    named = [t for t in others if t.role != "expression"]
    unlike = [t for t in record.tensors if not t.device and t is not stray]
    return [*named, *others, *unlike][0].name if (others or unlike) else "what it is used with"


def where(record: records.device.DeviceMismatch) -> list[Related]:
    """Where each of the tensors was."""
    return [
        Related(role="tensor", message=f"{t.name}{_as(t)} is on {t.device}: {t.shape} {t.dtype}")
        for t in record.tensors[:_MOST]
        if t.device
    ]


def raised(record: records.device.DeviceMismatch) -> Related:
    """Where the error came from."""
    return Related(role="raised", message=record.message, path=record.place.path, line=record.place.line)


def evidence(record: records.device.DeviceMismatch) -> list[Related]:
    """Where the error came from, and where each of the tensors was."""
    return [raised(record), *where(record)]


def positions(record: records.device.BadValue) -> str:
    """Where bad values stand, the batch row first."""
    if not record.positions:
        return ""
    first = record.positions[0]
    if len(first) == 1:
        text = f"row {first[0]}"
    else:
        text = f"row {first[0]}, position {first[1] if len(first) == 2 else tuple(first[1:])}"
    rest = f"and {record.count - 1:,} more" if record.count > 1 else "the only one"
    return f" at {text}, {rest} of {record.total:,}"


def _as(tensor: records.device.Placed) -> str:
    role = tensor.argument.removeprefix("self.")
    return f" ({role})" if role and role != tensor.name and not tensor.name.endswith(role) else ""
