"""OPS102: values go from the device to the host and back again within a step."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.formatting import size
from torchvet.rules.core.fixing import recorded_source
from torchvet.rules.kit import Edit, Finding, Iterator, Place, RankRecording, Recording, SourceFile
from torchvet.rules.operations._crossings import CrossingRule, amount, each_step, is_known, mostly
from torchvet.rules.operations._values import followed
from torchvet.rules.shared.step_code import guarded, per_step
from torchvet.rules.shared.trace_costs import TraceRule, Worst
from torchvet.source.model import Event, edits, given, is_call, keyword, name_set, receiver, terminal, walk

if TYPE_CHECKING:
    from torchvet.recording.records.crossing import Crossing

_WRAPPING = name_set(
    "torch.from_numpy torch.tensor torch.as_tensor torch.FloatTensor torch.LongTensor torch.autograd.Variable"
)
_METHODS = name_set(
    "astype reshape copy transpose float long unsqueeze squeeze view clone detach numpy double half contiguous round "
    "clip sum mean"
)
_TORCH_DOES = name_set(
    "clamp abs exp log sqrt pow max min argmax argmin topk sort argsort softmax sigmoid flatten permute cumsum norm "
    "mul div add sub where eq gt lt flip"
)
_NUMPY_DOES_TOO = name_set(
    "array asarray where clip abs exp log sqrt maximum minimum sum mean stack concatenate sign transpose expand_dims "
    "squeeze argmax round power square sort argsort cumsum max min tanh"
)
_ON_DEVICE = (_METHODS | _TORCH_DOES) - {"astype", "copy", "numpy"}
_NO_NUMBERS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Starred)
_BRINGING = ("to", "cuda", "tensor", "as_tensor")
"""Calls that may bring to the device what was on the host."""


class RoundTripTransfer(CrossingRule, TraceRule):
    """Values go from the device to the host and back again within a step."""

    severity = "warning"
    words = (".cpu()",)
    lost_in = "round_trips"
    cost = "transfers"

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A move to the device of what numpy or torch made of a tensor that was moved to the host."""
        if not file.mentions(".to(", ".cuda(", "device="):
            return
        for event in file.calls(*_BRINGING):
            origin = _origin(file, event)
            if origin is not None and per_step(file, event) and not guarded(event, event.loop):
                yield self._finding(file, event, origin)

    def brought(self, rank: RankRecording, record: Crossing, recording: Recording) -> Iterator[Finding]:
        """Lines that bring to the device, in every step, what had been fetched from it in that step."""
        seen = mostly(record.back, record)
        fetched = record.back_from if seen else _by_way_of_numpy(recording, record)
        if fetched is None and not seen:
            return
        there = "another line"
        if fetched is not None:
            there = f"line {fetched.line}" if fetched.path == record.place.path else f"{fetched.path}:{fetched.line}"
        message = (
            f"{amount(record)} come back to the device that {there} had fetched to the host in the same step"
            f"{'' if seen else ', by way of NumPy'}"
        )
        cause = "the fetch waits until the device has finished what was queued, and the way back is a copy more"
        advice = "do the work between the two on the device, with torch's own operations"
        yield self.crossing(rank, record, message, cause, advice)

    def slow(self, found: Worst) -> Finding:
        """Copies to the host of which as many bytes come back in the same step, by the time that nothing hid."""
        message = (
            f"{size(found.costs[0].bytes)}{found.a_step} go from the device to the host, and as many bytes back"
            f"{found.where()}: the device does nothing else for {found.of_step()}"
        )
        cause = "a copy to the host is waited for, and what is made of it has to be copied back"
        advice = "do on the device what is done on the host in between"
        return self.loses(found, message, cause, advice)

    def _finding(self, file: SourceFile, event: Event, origin: ast.Call) -> Finding:
        down, up = file.segment(origin), file.segment(event.node)
        message = f"{down} goes to the host and comes back to the device in every step"
        cause = f"line {origin.lineno} copies it to the host and waits; line {event.line} copies it back: {up[:60]}"
        advice = "do the work between the two on the device, with torch's own operations"
        return self.suspect(file, event, message, cause=cause, advice=advice, edits=_left_there(file, event, origin))


def _by_way_of_numpy(recording: Recording, record: Crossing) -> Place | None:
    """The line, seen to fetch in every step, whose data a line brings back by what its source says: NumPy's arrays are
    not torch's to follow."""
    path, line = record.place.path, record.place.line
    crossings = (one for rank in recording.ranks for one in each_step(rank))
    fetches = {c.place.line: c.place for c in crossings if c.kind == "to host" and c.place.path == path}
    if is_known(record) or not fetches:
        return None
    file = recorded_source(recording, path)
    events = file.events_on(line) if file is not None else []
    origins = (_origin(e.unit.file, e) for e in events if is_call(e.node, *_BRINGING))
    return next((fetches[o.lineno] for o in origins if o is not None and o.lineno in fetches), None)


def _origin(file: SourceFile, event: Event) -> ast.Call | None:
    """The `.cpu()` whose value this call brings back to the device."""
    call = event.call
    moved = file.devices.move(call, event.unit)
    if moved is not None and moved[0] == "device":
        return _host_copy(file, receiver(call), event)
    made = file.dotted(call.func) in _WRAPPING and file.devices.named(keyword(call, "device"), event.unit) == "device"
    return _host_copy(file, call.args[0], event) if made and call.args else None


def _host_copy(file: SourceFile, node: ast.expr | None, event: Event) -> ast.Call | None:
    for one, at in followed(node, event, _computed_from):
        if is_call(one, "cpu") and receiver(one) is not None and not one.args:
            return one if file.devices.of(receiver(one), at) != "cpu" else None
    return None


def _computed_from(node: ast.expr, event: Event) -> ast.expr | None:
    """What an expression is computed from, by NumPy or by what torch does alike on a device."""
    if isinstance(node, (ast.BinOp, ast.UnaryOp)):
        return node.left if isinstance(node, ast.BinOp) else node.operand
    if isinstance(node, ast.Attribute):
        return node.value if node.attr in ("indices", "values", "T") else None
    if not isinstance(node, ast.Call):
        return None
    name, (root, _, rest) = terminal(node), (dotted := event.unit.file.dotted(node.func)).partition(".")
    of_numpy = root in ("numpy", "np") and name in _NUMPY_DOES_TOO
    if dotted in _WRAPPING or of_numpy or (root == "torch" and rest in _TORCH_DOES):
        return node.args[0] if node.args else None
    return receiver(node) if root != "torch" and name in _METHODS | _TORCH_DOES else None


def _left_there(file: SourceFile, event: Event, origin: ast.Call) -> list[Edit]:
    """The copy to the host left out of one chain of torch's own methods, which are given numbers alone. The way back
    stays: it moves nothing then."""
    node, on = receiver(event.call), receiver(origin)
    while node is not origin:
        if isinstance(node, ast.Attribute):
            node = node.value
        # Only numbers go with every device: a name that a method is given may live on the host.
        elif (
            not is_call(node, *_ON_DEVICE)
            or file.dotted(node.func) in _WRAPPING
            or receiver(node) is None
            or any(isinstance(n, _NO_NUMBERS) for one in given(node) for n in walk(one))
        ):
            return []
        else:
            node = receiver(node)
    if on is None or on.end_lineno != origin.end_lineno or origin.lineno != event.call.end_lineno:
        return []
    (line, column), end = edits.end_of(file, on), edits.end_of(file, origin)
    dot = file.lines[line - 1].index(".", column - 1, end[1] - 1)  # what is called on may stand in brackets
    return [Edit(path=file.path, start=(line, dot + 1), end=end, text="")]
