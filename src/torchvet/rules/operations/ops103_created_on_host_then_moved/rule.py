"""OPS103: a tensor is made on the host and copied to the device, where it could be made there."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Edit, Finding, Iterator, Recording, Rule, Sequence, SourceFile, calls_at
from torchvet.rules.operations import _crossings
from torchvet.rules.shared.step_code import per_step
from torchvet.source.model import Event, edits, receiver, targets_of, terminal, value_for

_FILLED = frozenset(("zeros", "ones", "full", "empty", "arange", "eye", "linspace", "logspace"))
_TYPED = frozenset(("FloatTensor", "LongTensor"))
"""Given sizes, they make a tensor to be filled; given data, they copy it."""
_SHAPING = frozenset(("long", "float", "bool", "int", "half", "view", "reshape", "unsqueeze", "squeeze", "repeat",
                      "expand", "tril", "triu", "type", "mul", "div", "uniform_", "normal_", "fill_"))  # fmt: skip
"""Methods that may stand between a factory and the move."""
_DEEPEST = 5
_RANDOM = frozenset(("rand", "randn", "randint", "randperm"))


class CreatedOnHostThenMoved(Rule):
    """A tensor is made on the host and copied to the device, where it could be made there."""

    code = "OPS103"
    name = "created-on-host-then-moved"
    summary = "A tensor is made on the host and copied to the device, where it could be made there"
    severity = "info"
    words = (".to(", ".cuda(")

    found_with = ("run", "--simulate-gpu", "24GiB")
    cost = "transfers"
    needs_at_work = "a device"

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """`torch.factory(…).to(device)` in a step or in `forward`."""
        for event in file.calls("to", "cuda"):
            factory = _factory(file, receiver(event.call), event)
            if factory is None or terminal(factory) not in _FILLED | _RANDOM | _TYPED:
                continue
            moved = file.devices.move(event.call, event.unit)
            if moved is None or moved[0] != "device":
                continue
            made = file.dotted(factory.func)
            last = made.removeprefix("torch.")
            if last in _TYPED and receiver(event.call) is factory:
                continue  # not filled: it holds data
            if last not in _FILLED | _RANDOM | _TYPED or not made.startswith("torch.") or not factory.args:
                continue
            given = {k.arg for k in factory.keywords}
            if not given & {"device", "pin_memory", "generator", None} and per_step(file, event):
                yield self._finding(file, event, factory, last in _RANDOM)

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """Random numbers too are made on the device: others there, which the losses may tell."""
        for event, on in calls_at(file, finding, "to", "cuda"):
            if isinstance(on, ast.Call) and terminal(on) in _RANDOM and file.dotted(on.func).startswith("torch."):
                return self._edits(file, event, on) if on.args and not on.keywords else ()
        return ()

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Lines that bring to the device, in every step, what an operator on the host has just filled."""
        for rank, record in _crossings.each_step(recording):
            if record.kind != "to device" or _crossings.mostly(record.back, record):
                continue
            if not _crossings.mostly(record.filled, record):
                continue
            random = record.filled_by.startswith(("rand", "normal", "uniform"))
            large = record.bytes_per_step >= _crossings.LARGE
            yield self.observed(
                rank, severity="warning" if large and not random else "info", place=record.place,
                measured=_crossings.measured(record),
                message=f"{_crossings.amount(record)} are made on the host ({record.filled_by}, {record.examples}) and "
                f"copied to the device ({_crossings.seen(record)})",
                cause="the host allocates and fills it, and waits for a copy from memory that is not pinned",
                advice="give the factory device=" + (": it draws other random numbers there" if random else ""),
            )  # fmt: skip

    def _finding(self, file: SourceFile, event: Event, factory: ast.Call, random: bool) -> Finding:
        made = file.segment(factory)
        return self.suspect(
            file, event, f"{terminal(factory)}(…) is made on the host and copied to the device in every step",
            cause=f"{made} has no device=, so that the host allocates and fills it first",
            advice="give the factory device=" + (": it draws other random numbers there" if random else ""),
            edits=() if random else self._edits(file, event, factory),
            safe=not random,
        )  # fmt: skip

    @staticmethod
    def _edits(file: SourceFile, event: Event, factory: ast.Call) -> list[Edit]:
        call, made = event.call, file.segment(factory)
        if receiver(call) is not factory:
            return []
        device = '"cuda"'
        if terminal(call) == "to":
            if len(call.args) + len(call.keywords) != 1 or (call.keywords and call.keywords[0].arg != "device"):
                return []
            device = file.segment(call.args[0] if call.args else call.keywords[0].value)
        elif call.args or call.keywords:
            return []
        if call.lineno != call.end_lineno or made[-2] == ",":
            return []
        return [edits.replace(file, call, f"{made[:-1]}, device={device})")]


def _factory(file: SourceFile, node: ast.expr | None, event: Event) -> ast.Call | None:
    """The call that begins a chain of methods, of `torch.tril` and the like, or of one name bound just before."""
    for _ in range(_DEEPEST):
        if isinstance(node, ast.Name) and event.unit.home(node.id) is event.unit:
            reaching = file.devices.reaching(node.id, event)
            target = targets_of(reaching[0].node) if len(reaching) == 1 and reaching[0].loop is event.loop else []
            node = value_for(reaching[0].node, target[0]) if len(target) == 1 else None
        if not isinstance(node, ast.Call):
            return None
        dotted, name = file.dotted(node.func), terminal(node)
        if name == "Variable" and node.args:
            node = node.args[0]
            continue
        if dotted.startswith("torch."):
            if name not in ("tril", "triu", "diag"):
                return node
            node = node.args[0] if node.args else None
        elif name in _SHAPING:
            node = receiver(node)
        else:
            return None
    return None
