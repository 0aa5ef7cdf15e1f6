"""Looks at the hook tables of the root modules: how many hooks there are, and whose functions they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from torchvet.probes.base.kit import Host, Place, Watcher, place_in
from torchvet.probes.base.persistent_state import KnownMemory
from torchvet.probes.objects import heap
from torchvet.recording.records.training import HookCount, HookFunction

_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks")


class HookProbe(Watcher):
    """Hooks of modules and parameters. Each hook function's lines are written once."""

    always = True

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._written: set[tuple[str, int]] = set()

    def totals(self, tick: int) -> Iterator[HookCount]:
        """How many hooks there are, and which function is there most often."""
        total: Counter[tuple[Any, str]] = Counter()
        for name, _, hook in _hooks(self.host.known):
            # By code: each registration makes a new closure of the same function.
            total[(code_of(hook), name)] += 1
        if not total:
            return
        (code, module), most = total.most_common(1)[0]
        place = None if code is None else Place(code.co_filename, code.co_firstlineno, code.co_name)
        hooks, function = sum(total.values()), getattr(code, "co_name", None)
        yield HookCount(tick=tick, hooks=hooks, function=function, most=most, module=module, place=place)

    def names_counted(self, tick: int) -> None:
        """Write the hook functions that are new: stores inside them are stores by a hook."""
        for name, table, hook in _hooks(self.host.known):
            code = code_of(hook)
            if code is None or (code.co_filename, code.co_firstlineno) in self._written:
                continue
            self._written.add((code.co_filename, code.co_firstlineno))
            # The lines of functions within are not in it; the store is in the hook itself.
            last = max((line for *_, line in code.co_lines() if line), default=code.co_firstlineno)
            at = place_in(code)
            lines = {"first_line": at.line, "last_line": last}
            self.host.write(HookFunction(name=at.function, path=at.path, module=name, table=table, **lines))


def _hooks(known: KnownMemory) -> Iterator[tuple[str, str, Any]]:
    for root in known.live_roots():
        for name, module in root.named_modules():
            label = f"{type(root).__name__}.{name}" if name else type(root).__name__
            for table in _TABLES:
                # From the dictionary: a module that was not initialised has no tables, and
                # `__getattr__` would raise.
                for hook in list((module.__dict__.get(table) or {}).values()):
                    yield label, table, hook
    for parameter in known.parameters():
        for hook in list((parameter._backward_hooks or {}).values()):
            yield "parameter", "_backward_hooks", hook


def code_of(hook: Any) -> CodeType | None:
    """The code of a hook: a function's, a method's, a partial's, or a callable object's; None for what C++ calls.

    By type alone: a hook may be an object that answers to any attribute.
    """
    # Wrappers of wrappers end somewhere; a partial can even contain itself.
    for _ in range(8):
        if type(hook) is FunctionType:
            return hook.__code__
        if type(hook) is MethodType:
            hook = hook.__func__
        elif type(hook) is partial:
            hook = hook.func
        else:
            call = heap.namespace_of_class(type(hook)).get("__call__")
            return call.__code__ if type(call) is FunctionType else None
    return None
