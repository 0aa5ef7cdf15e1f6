"""Counts calls of `torch.cuda.empty_cache()`: what they give back, and what is asked for again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Place, Record, SiteWatcher, StepKind, frames
from torchvet.recording.records.memory import CacheEmptied


class CacheWatcher(SiteWatcher[Place, CacheEmptied]):
    """Calls of empty_cache()."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._in_step: set[Place] = set()
        self._steps = 0
        self._last: tuple[CacheEmptied, int, int] | None = None
        """Of the latest call: its record, the bytes it gave back, and what was reserved after it."""

    def install(self) -> None:
        """Wrap the function under each of its names."""
        if not torch.cuda.is_available():
            self.ignored = frozenset(["boundary"])
            return
        # The one imports the function from the other: two names, and programs use both.
        for owner in (torch.cuda, torch.cuda.memory):
            self.replace(owner, "empty_cache", self._counting)
        accelerator = getattr(torch, "accelerator", None)
        if accelerator is not None and "empty_cache" in vars(accelerator):  # torch 2.9 and later
            self.replace(accelerator, "empty_cache", self._counting)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended. Where steps are counted anew, so are those with a call."""
        # A stronger signal of steps has begun the count anew: calls of before belong to no step.
        if tick == 1:
            self._steps = 0
            for record in self.sites.values():
                record.steps = 0
        self._steps += 1
        self._count()

    def _count(self) -> None:
        for place in self._in_step:
            self.sites[place].steps += 1
        self._in_step.clear()

    def _counting(self, original: Any) -> Any:
        def empty_cache() -> None:
            used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
            if not used or not self.host.active:
                return original()  # type: ignore[no-any-return]
            place = None
            with self.host.looking("calls of empty_cache()"):
                place = frames.user_place(2)
                before = _state()
                # What came back since the last call shows only now, before this one gives it away
                # again.
                self._asked_again(before[0])
            original()
            # The look before failed: then nothing is recorded of this call, which the program has had.
            if place is not None:
                with self.host.looking("calls of empty_cache()"):
                    self._note(place, before, _state())

        return empty_cache

    def _note(self, place: Place, before: tuple[int, int], after: tuple[int, int]) -> None:
        record = self.sites.setdefault(place, CacheEmptied(place=place))
        given = max(0, before[0] - after[0])
        record.calls += 1
        record.given += given
        record.segments += max(0, after[1] - before[1])
        self._in_step.add(place)
        self._last = (record, given, after[0])

    def _asked_again(self, reserved: int) -> None:
        """Of what the call before gave back: how much has come from the driver since."""
        if self._last is not None:
            record, given, left = self._last
            # At most what was given back: a program that grows asks for more.
            record.again += max(0, min(given, reserved - left))
            self._last = None

    def finish(self, how: str, error: BaseException | None) -> None:
        """The last call stands behind the last step's end, and its memory may have been asked for again as well."""
        self._count()
        if self._last is not None:
            self._asked_again(_state()[0])

    def totals(self, tick: int) -> Iterable[Record]:
        """Each line's."""
        for record in self.sites.values():
            record.of_steps = max(self._steps, record.steps)
        return super().totals(tick)


def _state() -> tuple[int, int]:
    """Bytes reserved on all devices, and the segments that were given back so far."""
    reserved = freed = 0
    for device in range(torch.cuda.device_count()):
        statistics = torch.cuda.memory_stats(device)
        reserved += statistics.get("reserved_bytes.all.current", 0)
        freed += statistics.get("num_device_free", 0)
    return reserved, freed
