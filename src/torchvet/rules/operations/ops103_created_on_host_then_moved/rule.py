"""OPS103: a tensor is made on the host and copied to the device, where it could be made there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torchvet.rules.kit import Edit, Finding, RankRecording, Recording, Severity, SourceFile, calls_at
from torchvet.rules.operations._crossings import CrossingRule, amount, mostly
from torchvet.rules.operations._values import followed
from torchvet.rules.shared.step_code import per_step
from torchvet.source.model import Event, edits, is_call, name_set, receiver, terminal

if TYPE_CHECKING:
    from torchvet.recording.records.crossing import Crossing

_RANDOM = name_set("rand randn randint randperm")
_TYPED = name_set("FloatTensor LongTensor")
"""Given sizes, they make a tensor to be filled; given data, they copy it."""
_FILLED = name_set("zeros ones full empty arange eye linspace logspace") | _RANDOM | _TYPED
_SHAPING = name_set(
    "long float bool int half view reshape unsqueeze squeeze repeat expand tril triu type mul div uniform_ normal_ "
    "fill_"
)
"""Methods that may stand between a factory and the move."""


class CreatedOnHostThenMoved(CrossingRule):
    """A tensor is made on the host and copied to the device, where it could be made there."""

    severity = "info"
    words = (".to(", ".cuda(")
    cost = "transfers"

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """`torch.factory(…).to(device)` in a step or in `forward`."""
        for event in file.calls("to", "cuda"):
            factory = _factory(file, receiver(event.call), event)
            moved = file.devices.move(event.call, event.unit) if factory is not None else None
            if factory is not None and moved is not None and moved[0] == "device" and per_step(file, event):
                yield self._finding(file, event, factory, terminal(factory) in _RANDOM)

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """Random numbers too are made on the device: others there, which the losses may tell."""
        for event, on in calls_at(file, finding, "to", "cuda"):
            if is_call(on, *_RANDOM) and file.dotted(on.func).startswith("torch."):
                return _made_there(file, event, on) if on.args and not on.keywords else ()
        return ()

    def brought(self, rank: RankRecording, record: Crossing, recording: Recording) -> Iterator[Finding]:
        """Lines that bring to the device, in every step, what an operator on the host has just filled."""
        if mostly(record.filled, record) and not mostly(record.back, record):
            random = record.filled_by.startswith(("rand", "normal", "uniform"))
            made = f"made on the host ({record.filled_by}, {record.examples})"
            message = f"{amount(record)} are {made} and copied to the device"
            cause = "the host allocates and fills it, and waits for a copy from memory that is not pinned"
            # Other random numbers may be wanted as they are: never a warning.
            severity: Severity | None = "info" if random else None
            yield self.crossing(rank, record, message, cause, _advice(random), severity=severity)

    def _finding(self, file: SourceFile, event: Event, factory: ast.Call, random: bool) -> Finding:
        message = f"{terminal(factory)}(…) is made on the host and copied to the device in every step"
        cause = f"{file.segment(factory)} has no device=, so that the host allocates and fills it first"
        made = () if random else _made_there(file, event, factory)
        return self.suspect(file, event, message, cause=cause, advice=_advice(random), edits=made, safe=not random)


def _advice(random: bool) -> str:
    return "give the factory device=" + (": it draws other random numbers there" if random else "")


def _made_there(file: SourceFile, event: Event, factory: ast.Call) -> list[Edit]:
    """`torch.zeros(3).to(device)` as `torch.zeros(3, device=device)`."""
    call, made = event.call, file.segment(factory)
    given = [*call.args, *(k.value for k in call.keywords if k.arg == "device")]
    if receiver(call) is not factory or len(given) != len(call.args) + len(call.keywords):
        return []
    if len(given) != (terminal(call) == "to") or not edits.on_one_line(call) or made[-2] == ",":
        return []
    device = file.segment(given[0]) if given else '"cuda"'
    return [edits.replace(file, call, f"{made[:-1]}, device={device})")]


def _factory(file: SourceFile, node: ast.expr | None, event: Event) -> ast.Call | None:
    """The call of torch, without a device, that begins a chain of methods, of `torch.tril` and the like, or of one name
    bound just before."""
    for one, _ in followed(node, event, _made_of):
        if isinstance(one, ast.Call) and file.dotted(one.func) in (f"torch.{name}" for name in _FILLED):
            # `FloatTensor(values)` holds data, and so do factories that are told where or how to make it.
            holds_data = terminal(one) in _TYPED and one is node
            free = {k.arg for k in one.keywords}.isdisjoint(("device", "pin_memory", "generator", None))
            return one if one.args and free and not holds_data else None
    return None


def _made_of(node: ast.expr, event: Event) -> ast.expr | None:
    """What a tensor is made of that only lays out, converts or fills anew what it is given."""
    if not isinstance(node, ast.Call):
        return None
    by_torch = event.unit.file.dotted(node.func).startswith("torch.")
    if is_call(node, "Variable") or (by_torch and is_call(node, "tril", "triu", "diag")):
        return node.args[0] if node.args else None
    return receiver(node) if not by_torch and terminal(node) in _SHAPING else None
