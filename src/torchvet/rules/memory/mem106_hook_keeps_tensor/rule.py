"""MEM106: a hook stores tensors, or is registered again every step."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edits, Finding, Findings, Growth, Recording, SourceFile, Store, records
from torchvet.rules.memory import _hooks, _lasting, _stores
from torchvet.rules.memory._storages import of_parameters
from torchvet.rules.memory.fixes.bounded_containers import bounded
from torchvet.rules.memory.fixes.hooks import handle_removed
from torchvet.rules.shared.growth_rule import GrowthRule
from torchvet.source.model import Event, Unit, receiver, terminal


class HookKeepsTensor(GrowthRule):
    """A hook stores tensors, or is registered again every step."""

    severity = "error"
    words = ("_hook(",)

    specificity = 3
    bounded_matters = True
    fix_may_change_losses = True  # hooks that have piled up all run

    def recognises(self, growth: Growth, recording: Recording) -> bool:
        """The path runs through a hook table, or those of many modules, or the store stands in a function that is a
        hook."""
        if "hook" in growth.holding.via or _on_many(growth):
            return True
        store = self.store(growth, recording)
        # A hook may store into anything: its lines tell that it is one.
        return store is not None and any(
            _inside(store, hook) for r in recording.ranks for hook in r.all(records.training.HookFunction)
        )

    def store(self, growth: Growth, recording: Recording) -> Store | None:
        """The registration, of hooks on many modules too."""
        if not _on_many(growth):
            return super().store(growth, recording)
        name, scope, path, files = growth.holding.where
        # Asked as if for the table of one module: the registration is the same for all.
        return next(iter(recording.index.stores(f"{name}._forward_hooks", scope, path, files)), None)

    def cause(self, growth: Growth, store: Store | None) -> str:
        """Which hook stores where, or hooks that pile up."""
        name = growth.holding.name
        if _on_many(growth):
            return (
                f"hooks on the modules of {name} keep more at every step: they are registered again and again and "
                "never removed, or each stores what it is given"
            )
        if "hook" in growth.holding.via:
            return (
                f"{name}: hooks are registered again and again and never removed; each keeps what its closure refers to"
            )
        where = f"{store.function}()" if store is not None else "a hook"
        return f"the hook {where} stores a tensor in {name} at every pass"

    def advice(self, growth: Growth, store: Store | None) -> str:
        """Store less, or remove the handle."""
        if "hook" in growth.holding.via or _on_many(growth):
            return "register the hook once, before the loop, or keep its handle and call `handle.remove()` after use"
        return (
            f"store what is needed of it, detached (`.detach().mean().item()`), clear {growth.holding.name} every "
            "step, or remove the hook's handle after use"
        )

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The handle removed; or no more kept of what the hook stores than is read of it."""
        return handle_removed(file, finding) or bounded(file, finding)

    def in_file(self, file: SourceFile) -> Findings:
        """Hooks that collect what they are given, and hooks that each step registers anew; none where handles are
        removed."""
        # A handle may be removed under any name, so that one removal in the file is enough to say nothing.
        if file.mentions(".remove()"):
            return
        reported: set[int] = set()
        for event in file.calls(*_hooks.ON_MODULES, *_hooks.ON_TENSORS):
            if _registered_each_step(file, event):
                yield self._registered(file, event)
            for call, names in _hooks.lambda_stores(event):
                # A file that only defines hooks may be used for a single pass.
                if terminal(call.node) == "append" and _runs_again(file):
                    yield from self._collected(file, event, call, names, "lambda")
            for unit in _hooks.hook_functions(file, event):
                # Registered on ten layers, one function is one finding.
                if id(unit) not in reported and _runs_again(file):
                    reported.add(id(unit))
                    yield from self._collecting(file, event, unit)

    def _collecting(self, file: SourceFile, event: Event, hook: Unit) -> Findings:
        names = _hooks.hooked_values(hook, event)
        for stored in hook.calls.get("append", ()):
            yield from self._collected(file, event, stored, names, hook.name)

    def _collected(self, file: SourceFile, event: Event, stored: Event, names: list[str], hook: str) -> Findings:
        put = _stores.put_by(stored)
        if put is None or not of_parameters(put.value, stored, names):
            return
        store = _lasting.kept_on(file, put, repeated=True)
        if store is not None and store.lasting:
            holder, value = file.segment(store.root), file.segment(store.value)
            yield self.suspect(
                file,
                store.event,
                f"the hook {hook} adds {value} to {holder} at every pass, and nothing takes it out",
                severity="warning",
                cause=f"{hook} is registered once and runs in each forward or backward pass",
                advice=f"store what is needed of it as a number (`.mean().item()`), replace the last value under a "
                f"fixed key, clear {holder} every step, or remove the hook's handle after use",
                related=[self.also(file, "registered", event, file.segment(event.node))],
            )

    def _registered(self, file: SourceFile, event: Event) -> Finding:
        on = file.segment(event.call.func)
        return self.suspect(
            file,
            event,
            f"{on} runs at every step and its handle is never removed: hooks add up",
            severity="warning",
            cause="each registration adds one more hook; all of them run in each pass and keep what their closures "
            "refer to",
            advice="register the hook once, before the loop, or keep its handle and call `handle.remove()` after use",
        )


def _on_many(growth: Growth) -> bool:
    """Whether it is a module's, or a container's, of so many modules with hooks that they are not kept apart."""
    holding = growth.holding
    # Below: the name ends before the table, as the hooks of many modules are told together.
    return "hook" in holding.below and "hook" not in holding.via and growth.tensors_per_step > 0


def _registered_each_step(file: SourceFile, event: Event) -> bool:
    """Whether a registration on a lasting module runs in each training step, there or in a function called there."""
    on = receiver(event.call)
    for step in file.steps:
        if step.loop is None:
            continue
        if step.unit is event.unit and event.inside(step.loop):
            return _hooks.on_lasting_module(file, event, step.loop)
        # A helper that is given the module.
        for caller in file.callers(event.unit) if isinstance(on, ast.Name) else ():
            if caller.unit is step.unit and caller.inside(step.loop):
                given = file.passed(caller, event.unit, on.id)  # type: ignore[union-attr]
                whole = terminal(event.node) in _hooks.ON_MODULES
                return any(_hooks.is_lasting(file, one, caller.unit, step.loop, whole) for one in given)
    return False


def _runs_again(file: SourceFile) -> bool:
    """Whether the file runs modules again and again: it trains, or calls one in a loop."""
    if file.steps:
        return True
    runs = file.gradients.forwards.runs_module
    return any(
        e.loop is not None and not e.loop.comprehension and isinstance(e.node, ast.Call) and runs(e.node, e.unit)
        for unit in file.units
        if unit.is_module or file.callers(unit)
        for e in unit.events
    )


def _inside(store: Store, hook: records.training.HookFunction) -> bool:
    return store.path == hook.path and hook.first_line <= store.line <= hook.last_line
