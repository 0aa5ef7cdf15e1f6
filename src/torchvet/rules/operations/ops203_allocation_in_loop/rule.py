"""OPS203: the same constant tensor is made anew in every step."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Finding, Iterator, Rule, Severity, SourceFile
from torchvet.rules.operations.fixes.hoisting import before_loop
from torchvet.rules.shared.step_code import bound_in, few_turns, guarded
from torchvet.source.model import (
    Event,
    Loop,
    calls_in,
    given,
    is_call,
    is_name,
    name_set,
    names_in,
    receiver,
    targets_of,
    terminal,
)

_FACTORIES = name_set("zeros ones full eye arange linspace")
_SHAPING = name_set("tril triu bool float long unsqueeze view reshape transpose")
"""Methods that may follow the factory: what they make is always the same too."""
_KEEPING = name_set("append put add update requires_grad_")
_WRITTEN_OUT = re.compile(r"=[ ]?(?:\w+\.)?(zeros|ones|full|eye)\(\s*[(\[]?\s*[\dA-Z][\dA-Z_]*\s*[),\]]")
_LARGE = 32 * 2**20
"""Bytes from which glibc's allocator maps fresh pages for each tensor, by measurement on Linux."""


class AllocationInLoop(Rule):
    """The same constant tensor is made anew in every step."""

    severity = "info"
    words = ("for ", "while ")
    cost = "memory"

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A factory whose arguments nothing in a training loop changes, and whose result is only read."""
        loops = {id(s.loop) for s in file.steps if s.loop is not None}
        for event in self._made(file, bool(loops)):
            loop = event.loop
            if loop is None or guarded(event, loop) or not file.dotted(event.call.func).startswith("torch."):
                continue
            if id(loop) not in loops and not _goes_on(file, event, loop):
                continue
            name = self._holds(event)
            value = getattr(event.statement, "value", None)
            if name and not names_in(value) & bound_in(loop, event.unit) and self._only_read(event, name, loop):
                yield self._finding(file, event, name)

    @staticmethod
    def _made(file: SourceFile, training: bool) -> Iterator[Event]:
        """Calls of factories: without training in the file only those whose sizes are written out."""
        if training:
            yield from file.calls(*sorted(_FACTORIES))
            return
        for match in _WRITTEN_OUT.finditer(file.text):
            yield from file.calls_on(file.line_of(match.start()), match[1])

    @staticmethod
    def _holds(event: Event) -> str:
        """The one name that the call's result is bound to."""
        statement, call = event.statement, event.call
        # What its arguments call may give another value each time.
        if not isinstance(statement, ast.Assign) or any(one is not call for one in calls_in(call)):
            return ""
        value: ast.expr | None = statement.value
        while value is not call and isinstance(value, ast.Call) and terminal(value) in _SHAPING:
            value = value.args[0] if value.args and terminal(receiver(value)) == "torch" else receiver(value)
        target = targets_of(statement) if value is call else []
        return target[0].id if len(target) == 1 and isinstance(target[0], ast.Name) else ""

    @staticmethod
    def _only_read(event: Event, name: str, loop: Loop) -> bool:
        """Whether no statement of the loop changes, keeps or binds the name anew."""
        others = (e for e in event.unit.events if e.inside(loop) and e.node is not event.statement)
        asked = any(k.arg == "requires_grad" for k in event.call.keywords)
        return not asked and not any(_changes(other.node, name) for other in others)

    def _finding(self, file: SourceFile, event: Event, name: str) -> Finding:
        size = _bytes(file, event)
        # On the CPU 4 MB make no difference and 64 MB do; a device's allocator hands the same block back.
        large = size > _LARGE and not any(k.arg == "device" for k in event.call.keywords)
        much = f", {size / 1e6:,.0f} MB each time" if large else ""
        message = f"{name} = {file.segment(event.node)[:60]} is made anew in every step{much}, always the same"
        cause, advice = "nothing that it is made from changes within the loop", f"make {name} once, before the loop"
        grade: Severity = "warning" if large else "info"
        made = before_loop(file, event, name)
        return self.suspect(file, event, message, cause=cause, advice=advice, severity=grade, edits=made, safe=True)


def _changes(node: ast.AST, name: str) -> bool:
    """Whether what happens at a node changes, keeps or binds a name anew."""
    roots = (t.value if isinstance(t, (ast.Subscript, ast.Attribute)) else t for t in targets_of(node))
    if any(is_name(root, name) for root in roots):
        return True
    if not isinstance(node, ast.Call):
        return False
    keeps = terminal(node) in _KEEPING or any(k.arg == "out" for k in node.keywords)
    in_place = terminal(node).endswith("_") and is_name(receiver(node), name)
    return in_place or (keeps and any(is_name(one, name) for one in given(node)))


def _goes_on(file: SourceFile, event: Event, loop: Loop) -> bool:
    """Outside training: whether a loop of many turns makes a tensor so large that it costs on the CPU."""
    over = loop.node.iter if isinstance(loop.node, ast.For) else None
    if not isinstance(loop.node, (ast.For, ast.While)) or isinstance(over, (ast.List, ast.Tuple)):
        return False
    if is_call(over, "range") and few_turns(over):
        return False
    on_device = any(k.arg == "device" for k in event.call.keywords)
    return not on_device and not file.devices.default_changed and _bytes(file, event) > _LARGE


def _bytes(file: SourceFile, event: Event) -> int:
    """The size that constant arguments give; 0 where they are not constant."""
    call, name = event.call, terminal(event.node)
    sizes = list(call.args[:1] if name in ("full", "arange") else call.args)
    if len(sizes) == 1 and isinstance(sizes[0], (ast.Tuple, ast.List)):
        sizes = sizes[0].elts
    size = 4
    for one in sizes:
        values = [v for v, _ in file.roles.values(one, event.unit)] if isinstance(one, ast.Name) else [one]
        if len(values) != 1 or not isinstance(values[0], ast.Constant) or not isinstance(values[0].value, int):
            return 0
        size *= values[0].value
    return size * (size // 4) if name == "eye" and len(sizes) == 1 else size
