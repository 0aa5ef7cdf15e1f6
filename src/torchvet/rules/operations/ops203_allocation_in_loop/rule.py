"""OPS203: the same constant tensor is made anew in every step."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import Finding, Iterator, Rule, SourceFile
from torchvet.rules.operations.fixes.hoisting import before_loop
from torchvet.rules.shared.step_code import bound_in, few_turns, guarded
from torchvet.source.model import Event, Loop, names_in, receiver, targets_of, terminal, walk

_FACTORIES = frozenset(("zeros", "ones", "full", "eye", "arange", "linspace"))
_SHAPING = frozenset(("tril", "triu", "bool", "float", "long", "unsqueeze", "view", "reshape", "transpose"))
"""Methods that may follow the factory: what they make is always the same too."""
_WRITTEN_OUT = re.compile(r"=[ ]?(?:\w+\.)?(zeros|ones|full|eye)\(\s*[(\[]?\s*[\dA-Z][\dA-Z_]*\s*[),\]]")
_LARGE = 32 * 2**20
"""Bytes from which glibc's allocator maps fresh pages for each tensor, by measurement on Linux."""


class AllocationInLoop(Rule):
    """The same constant tensor is made anew in every step."""

    code = "OPS203"
    name = "allocation-in-loop"
    summary = "The same constant tensor is made anew in every step"
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
            line = file.line_of(match.start())
            yield from (e for e in file.unit_at(line).calls.get(match[1], ()) if e.line == line)

    @staticmethod
    def _holds(event: Event) -> str:
        """The one name that the call's result is bound to."""
        statement = event.statement
        if not isinstance(statement, ast.Assign) or _calls_in(event.call):
            return ""
        value: ast.expr | None = statement.value
        while isinstance(value, ast.Call) and value is not event.node and terminal(value) in _SHAPING:
            value = value.args[0] if value.args and terminal(receiver(value)) == "torch" else receiver(value)
        if value is not event.node:
            return ""
        target = targets_of(statement)
        return target[0].id if len(target) == 1 and isinstance(target[0], ast.Name) else ""

    @staticmethod
    def _only_read(event: Event, name: str, loop: Loop) -> bool:
        """Whether no statement of the loop changes, keeps or binds the name anew."""
        for other in event.unit.events:
            if other.loop is None or not other.loop.within(loop) or other.node is event.statement:
                continue
            for target in targets_of(other.node):
                root = target.value if isinstance(target, (ast.Subscript, ast.Attribute)) else target
                if isinstance(root, ast.Name) and root.id == name:
                    return False
            if isinstance(other.node, ast.Call):
                on, called = receiver(other.node), terminal(other.node)
                if isinstance(on, ast.Name) and on.id == name and called.endswith("_"):
                    return False
                given = [*other.node.args, *(k.value for k in other.node.keywords)]
                kept = called in ("append", "put", "add", "update", "requires_grad_")
                kept = kept or any(k.arg == "out" for k in other.node.keywords)
                if kept and any(isinstance(g, ast.Name) and g.id == name for g in given):
                    return False
        return not any(k.arg == "requires_grad" for k in event.call.keywords)

    def _finding(self, file: SourceFile, event: Event, name: str) -> Finding:
        size = _bytes(file, event)
        large = size > _LARGE and not any(k.arg == "device" for k in event.call.keywords)
        much = f", {size / 1e6:,.0f} MB each time" if large else ""
        message = f"{name} = {file.segment(event.node)[:60]} is made anew in every step{much}, always the same"
        cause = "nothing that it is made from changes within the loop"
        advice = f"make {name} once, before the loop"
        return self.suspect(
            file,
            event,
            message,
            cause=cause,
            advice=advice,
            severity="warning" if large else "info",
            edits=before_loop(file, event, name),
            safe=True,
        )


def _goes_on(file: SourceFile, event: Event, loop: Loop) -> bool:
    """Outside training: whether a loop of many turns makes a tensor so large that it costs on the CPU."""
    over = loop.node.iter if isinstance(loop.node, ast.For) else None
    if not isinstance(loop.node, (ast.For, ast.While)) or isinstance(over, (ast.List, ast.Tuple)):
        return False
    if isinstance(over, ast.Call) and terminal(over) == "range" and few_turns(over):
        return False
    on_device = any(k.arg == "device" for k in event.call.keywords)
    return not on_device and not file.devices.default_changed and _bytes(file, event) > _LARGE


def _calls_in(call: ast.Call) -> bool:
    """Whether the arguments call something, which may give another value each time."""
    return any(isinstance(n, ast.Call) for a in (*call.args, *call.keywords) for n in walk(a))


def _bytes(file: SourceFile, event: Event) -> int:
    """The size that constant arguments give; 0 where they are not constant."""
    call, name = event.call, terminal(event.node)
    given = list(call.args[:1] if name in ("full", "arange") else call.args)
    if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)):
        given = given[0].elts
    size = 4
    for one in given:
        values = [v for v, _ in file.roles.values(one, event.unit)] if isinstance(one, ast.Name) else [one]
        if len(values) != 1 or not isinstance(values[0], ast.Constant) or not isinstance(values[0].value, int):
            return 0
        size *= values[0].value
    return size * (size // 4) if name == "eye" and len(given) == 1 else size
