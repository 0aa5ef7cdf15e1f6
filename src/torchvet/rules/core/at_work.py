"""What must have been at work in a run before its silence says anything of a suspicion."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torchvet.recording import Recording

AtWork = Literal["a device", "CUDA", "autocast", "a scaler"]
_ENOUGH = 8
"""Steps of a scaler from which on its silence says something."""


def was_at_work(what: AtWork, recording: Recording) -> bool:
    """Whether a run had a device besides the CPU, ran on CUDA alone, ran operators in an autocast region in every rank,
    or made enough steps with a scaler that was on."""
    return _SEEN[what](recording)


def _devices(recording: Recording) -> set[str]:
    return {rank.program.device for rank in recording.ranks if rank.program is not None}


def _autocast(recording: Recording) -> bool:
    from torchvet.recording.records.autocast import AutocastRegion

    # Every rank: one without it could have had the fault unseen.
    return all(any(region.inside for region in rank.all(AutocastRegion)) for rank in recording.ranks)


def _scaler(recording: Recording) -> bool:
    from torchvet.recording.records.scaling import ScalingUse

    # By scaler: each record has its counts so far.
    latest = (use for rank in recording.ranks for use in rank.latest(ScalingUse, "id"))
    return any(use.enabled and use.steps >= _ENOUGH for use in latest)


_SEEN: dict[AtWork, Callable[[Recording], bool]] = {
    "a device": lambda recording: bool(_devices(recording) - {"cpu"}),
    "CUDA": lambda recording: _devices(recording) == {"cuda"},
    "autocast": _autocast,
    "a scaler": _scaler,
}
