"""Which autocast regions each thread is in. Autocast's own state is read from its objects, never set."""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import torch
from torch.amp import autocast_mode
from torch.amp.autocast_mode import autocast

from torchvet.probes.base.callers import place_in
from torchvet.probes.base.ledger import locate
from torchvet.recording.records.autocast import AutocastRegion

HALVES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}


class Region:
    """A region that is entered now. `root` is the outermost one: weights' half copies live until its end."""

    def __init__(self, context: autocast, site: AutocastRegion, wanted: bool, root: Region | None) -> None:
        self.context = context
        self.site = site
        self.device = context.device
        self.dtype = context.fast_dtype
        self.enabled = context._enabled
        self.wanted = wanted
        self.root = root or self
        self.keeps_copies = False
        """Of a root: whether a region that copies and keeps weights was entered within."""
        self.by_hand = False
        """Whether the program itself made half tensors within: then half may be what it wants there."""
        self.heard = False
        """Whether operators are heard from its beginning on, and gradients wanted."""
        self.since = 0
        """How many events the ledger had when the region began."""
        self.state: Any = None
        """Of a root: whatever a probe keeps for as long as the region lasts."""
        # With `cache_enabled=False` weights are cast at each use, and none is ever stale.
        if self.enabled and context._cache_enabled:
            self.root.keeps_copies = True


class Regions:
    """The stacks of all threads, and the sites seen."""

    def __init__(self) -> None:
        self.sites: dict[tuple[int, int, str, torch.dtype], AutocastRegion] = {}
        # By thread, as autocast's own state is.
        self._stacks: dict[int, list[Region]] = {}
        self._refused: weakref.WeakSet[autocast] = weakref.WeakSet()
        self._functions: weakref.WeakKeyDictionary[autocast, CodeType] = weakref.WeakKeyDictionary()
        self.dtypes: set[tuple[str, torch.dtype]] = set()
        """(device, dtype) of the regions that were active so far."""
        self.half_until = 0
        """How many active float16 regions were entered so far."""
        self.last_half: Region | None = None

    def stack(self, thread: int | None = None) -> list[Region]:
        """The regions that a thread is in, outermost first."""
        return self._stacks.get(threading.get_ident() if thread is None else thread, [])

    def others(self) -> list[tuple[int, list[Region]]]:
        """The other threads that are in regions."""
        own = threading.get_ident()
        # From a copy: other threads enter and leave regions meanwhile.
        return [(thread, stack) for thread, stack in list(self._stacks.items()) if thread != own and stack]

    def active(self, device: str) -> Region | None:
        """The region that casts a device's operators on this thread now."""
        # The innermost region for a device decides, on or off.
        for region in reversed(self.stack()):
            if region.device == device:
                return region if region.enabled else None
        return None

    def entered(self, context: autocast, frame: FrameType) -> Region:
        """A region was entered from a frame."""
        stack = self._stacks.setdefault(threading.get_ident(), [])
        # A region for CUDA on a machine without it is off, and was wanted all the same.
        wanted = context._enabled or context in self._refused
        region = Region(context, self._site(context, frame), wanted, stack[0] if stack else None)
        site = region.site
        site.entered += 1
        site.wanted = site.wanted or wanted
        site.enabled = site.enabled or region.enabled
        stack.append(region)
        if region.enabled:
            self.dtypes.add((region.device, region.dtype))
            if region.dtype is torch.float16:
                self.half_until += 1
                self.last_half = region
        return region

    def left(self, context: autocast) -> Region | None:
        """A region ended; None where its beginning was not seen."""
        stack = self._stacks.get(threading.get_ident(), [])
        # From the inside: one context object may be entered twice.
        for index in range(len(stack) - 1, -1, -1):
            if stack[index].context is context:
                region = stack.pop(index)
                # Idents of threads are used again: an empty list must not stay.
                if not stack:
                    del self._stacks[threading.get_ident()]
                return region
        return None

    def _site(self, context: autocast, frame: FrameType) -> AutocastRegion:
        # A decorated function is called from many lines, and written in one.
        function = self._functions.get(context) if self._functions else None
        if function is None:
            user, inner = locate(frame)
            code, number = user or inner or (frame.f_code, frame.f_lineno)
        else:
            code, number = function, function.co_firstlineno
        # By identity: the hash of a code object goes through all that it is made of.
        key = (id(code), number, context.device, context.fast_dtype)
        site = self.sites.get(key)
        if site is None:
            dtype = HALVES.get(context.fast_dtype, str(context.fast_dtype).removeprefix("torch."))
            site = self.sites[key] = AutocastRegion(
                place=place_in(code, number), device=context.device, dtype=dtype, wanted=False, enabled=False, entered=0
            )
        return site

    # Wrappers: each passes its call through unchanged. -----------------------------------------------------------

    def tap_decorator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Of `autocast.__call__`: a decorated function's region is known by the function, not by who calls it."""

        @functools.wraps(original)
        def __call__(context: autocast, function: Any) -> Any:
            code = getattr(function, "__code__", None)
            if code is not None:
                self._functions[context] = code
            return original(context, function)

        return __call__

    def tap_unavailable(self, original: Callable[..., bool]) -> Callable[..., bool]:
        """Of what `autocast.__init__` asks where it is to be on for CUDA: it switches itself off where that is true."""

        @functools.wraps(original)
        def amp_definitely_not_available() -> bool:
            unavailable = original()
            caller = sys._getframe(1)
            # Others ask as well (`GradScaler`); only here does it switch a region off.
            if unavailable and caller.f_code is autocast_mode.autocast.__init__.__code__:
                self._refused.add(caller.f_locals["self"])
            return unavailable

        return amp_definitely_not_available
