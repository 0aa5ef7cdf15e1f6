"""Where `torch.compile` is at work, torch is as it would be without torchvet's hooks; everywhere else all is seen.

What is compiled is guarded by the hooks of modules and optimizers: one that comes or goes would have it compiled again,
and one that is there when it is traced would become part of it. So hooks are `Aside` while a compiled region runs,
whether it was compiled before the watch began or later. Torchvet's own code may run in a region too (between the graphs
that it falls into): it is kept from being compiled itself.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from torch.nn.modules import module as nn_module

import torchvet
from torchvet.probes.internals.patching import replace

# Private. On a torch without it hooks stay out from the first compilation on (`_blind`).
_SWITCH = "_maybe_set_eval_frame"
"""What a compiled function calls in its own frame, with a callback where its region begins and with None at its end."""
_ASKED = "_has_any_global_hook"
"""What a compiled module asks before its region begins, to warn: of hooks that are the program's own."""
_FOLDER = str(Path(torchvet.__file__).parent) + os.sep


class CompiledRegions:
    """The compiled regions of this process: is one running, and did one run since the watch began?"""

    def __init__(self) -> None:
        self.entered = 0
        """Regions that were entered since the watch began."""
        self._inside: dict[int, int] = {}
        """By thread: the identity of the frame whose region it is in."""
        self._asides: dict[Aside, None] = {}
        self._users = 0
        self._compiler: ModuleType | None = None
        self._undo = ExitStack()

    @property
    def inside(self) -> bool:
        """Whether this thread is in a compiled region."""
        return threading.get_ident() in self._inside

    @property
    def ran(self) -> bool:
        """Whether anything that ran since the watch began was compiled."""
        return self.entered > 0 or (self._blind and compiled_anything())

    @property
    def _hidden(self) -> bool:
        return bool(self._inside) or (self._blind and compiled_anything())

    @property
    def _blind(self) -> bool:
        """Whether this torch does not show where its regions begin and end."""
        return self._compiler is not None and not hasattr(self._compiler, _SWITCH)

    def watch(self) -> None:
        """Begin; watches may be nested."""
        if not self._users:
            self.entered = 0
            self._inside.clear()
        self._users += 1
        self.follow()

    def unwatch(self) -> None:
        """End: torch's compiler is as it was."""
        self._users -= 1
        if not self._users:
            self._undo.close()
            self._compiler = None

    def follow(self) -> None:
        """Begin to follow the compiler if it has been imported by now: torch imports it late."""
        compiler = sys.modules.get("torch._dynamo.eval_frame")
        # On a torch that does not show where regions begin, hooks stay out from the first compilation on.
        if self._hidden:
            for aside in list(self._asides):
                aside.take()
        # A module that is just being imported is in `sys.modules` before it has its functions.
        # A thread may import it right now; the next call of `follow` tries again.
        imported = compiler is not None and not getattr(compiler.__spec__, "_initializing", False)
        if not self._users or self._compiler is not None or not imported:
            return
        # Before anything is wrapped: `_blind` asks for it.
        self._compiler = compiler
        if not self._blind:
            replace(self._undo, compiler, _SWITCH, self._switching(getattr(compiler, _SWITCH)))
        if hasattr(nn_module, _ASKED):
            replace(self._undo, nn_module, _ASKED, self._asking(getattr(nn_module, _ASKED)))
        _keep_from_compiling(self._undo)

    def add(self, aside: Aside) -> None:
        """Something is in torch from now on, but for compiled regions."""
        # Each aside is a user of the watch, so that regions are followed as long as anything is in torch.
        self.watch()
        self._asides[aside] = None
        if not self._hidden:
            aside.put()

    def discard(self, aside: Aside) -> None:
        """It is no longer wanted."""
        self._asides.pop(aside, None)
        aside.take()
        self.unwatch()

    @contextmanager
    def out_of_sight(self) -> Iterator[None]:
        """As in a region, while a graph is made that is not run: an export."""
        thread = threading.get_ident()
        if thread in self._inside:
            yield
            return
        # No frame's region: only this block ends it.
        self._inside[thread] = 0
        for aside in list(self._asides):
            aside.take()
        try:
            yield
        finally:
            self._leave(thread)

    def _switching(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        inside = self._inside

        def switch(callback: Any) -> Any:
            thread = threading.get_ident()
            region = inside.get(thread)
            if region is None:
                if callback is not None:
                    # The frame that calls the switch is the compiled function's wrapper: the same
                    # frame ends the region.
                    self._enter(thread, id(sys._getframe(1)))
            elif callback is None and region == id(sys._getframe(1)):
                # Functions within that are kept from being compiled come here as well: they belong to the region.
                # The region ends in torch first, so that no hook is back while its guards are still
                # asked.
                before = original(callback)
                self._leave(thread)
                return before
            return original(callback)

        return switch

    def _asking(self, original: Callable[[], Any]) -> Callable[[], bool]:
        def has_any_global_hook() -> bool:
            asides = list(self._asides)
            for aside in asides:
                aside.take()
            try:
                return bool(original())
            finally:
                # In another thread's region they stay out; that region's end puts them back.
                for aside in () if self._hidden else asides:
                    aside.put()

        return has_any_global_hook

    def _enter(self, thread: int, frame: int) -> None:
        self._inside[thread] = frame
        self.entered += 1
        for aside in list(self._asides):
            aside.take()

    def _leave(self, thread: int) -> None:
        del self._inside[thread]
        for aside in list(self._asides):
            if not self._inside:
                aside.put()
            # Between the check and `put` the other thread may have found nothing to take.
            if self._inside:  # another thread has entered one meanwhile
                aside.take()


class Aside:
    """Something of torchvet's in torch that is out of the way while a compiled region runs.

    `install` puts it in and tells a stack how it is taken out again.
    """

    def __init__(self, install: Callable[[ExitStack], None]) -> None:
        self._install = install
        self._undo: ExitStack | None = None
        self.wanted = False

    def on(self) -> None:
        """Put it in, or wait for the region that runs to end."""
        if not self.wanted:
            self.wanted = True
            REGIONS.add(self)

    def off(self) -> None:
        """Take it out for good."""
        if self.wanted:
            self.wanted = False
            REGIONS.discard(self)

    def put(self) -> None:
        """Put it in for now."""
        if self._undo is None:
            self._undo = ExitStack()
            self._install(self._undo)

    def take(self) -> None:
        """Take it out for now."""
        # Two threads may come here at once: only one of them finds the stack.
        undo, self._undo = self._undo, None
        if undo is not None:
            undo.close()


class ModuleHooks(Aside):
    """Hooks on every module call, as torch's `register_module_forward_pre_hook` and `_hook` take them. `after` hears of
    modules that raise only together with `before`: whoever keeps a stack must hear of every end."""

    def __init__(self, before: Callable[..., None] | None = None, after: Callable[..., None] | None = None) -> None:
        def install(undo: ExitStack) -> None:
            if before is not None:
                undo.callback(nn_module.register_module_forward_pre_hook(before).remove)
            if after is not None:
                register = nn_module.register_module_forward_hook
                # `always_call` makes torch take a slower path in every module call.
                undo.callback(register(after, always_call=before is not None).remove)

        super().__init__(install)


def _keep_from_compiling(undo: ExitStack) -> None:
    """Frames of torchvet's own run as they are. What a region calls and passes on is traced through as ever, since a
    region that must be one graph would fail."""
    rules: Any = sys.modules.get("torch._dynamo.trace_rules")
    # All or nothing: one list without the other would have dynamo inline what it should skip.
    if not all(hasattr(rules, name) for name in ("SKIP_DIRS", "_recompile_re", "get_mod_inlinelist")):
        return
    folder, inlined = _FOLDER, rules.get_mod_inlinelist()
    # Skipped as frames of their own, and inlined where a region's own code calls them: dynamo asks two lists.
    rules.SKIP_DIRS.append(folder)
    inlined.add(folder)
    # dynamo matches file names by one regular expression, made of the list at import.
    rules._recompile_re()

    def restore() -> None:
        if folder in rules.SKIP_DIRS:
            rules.SKIP_DIRS.remove(folder)
        inlined.discard(folder)
        rules._recompile_re()

    undo.callback(restore)


def compiled_anything() -> bool:
    """Whether torch.compile was ever used in this process: it has compiled a frame, or will when it is called first.

    (The optimizers import dynamo in any case, which has one backend of its own: torch 2.13.)
    """
    dynamo = sys.modules.get("torch._dynamo.utils")
    frame = sys.modules.get("torch._dynamo.eval_frame")
    return (dynamo is not None and bool(dynamo.counters["frames"])) or len(getattr(frame, "cached_backends", ())) > 1


REGIONS = CompiledRegions()
