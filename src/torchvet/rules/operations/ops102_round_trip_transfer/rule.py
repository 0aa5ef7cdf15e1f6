"""OPS102: values go from the device to the host and back again within a step."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torchvet.formatting import size
from torchvet.rules.kit import Edit, Finding, Iterator, Place, Recording, Severity, SourceFile
from torchvet.rules.operations import _crossings
from torchvet.rules.shared.step_code import guarded, per_step
from torchvet.rules.shared.trace_costs import TraceRule, Worst
from torchvet.source.model import Event, edits, keyword, receiver, terminal, value_bound, walk

if TYPE_CHECKING:
    from torchvet.recording.records.crossing import Crossing

_WRAPPING = frozenset(
    ("torch.from_numpy", "torch.tensor", "torch.as_tensor", "torch.FloatTensor", "torch.LongTensor",
     "torch.autograd.Variable")
)  # fmt: skip
_METHODS = frozenset(
    ("astype", "reshape", "copy", "transpose", "float", "long", "unsqueeze", "squeeze", "view", "clone", "detach",
     "numpy", "double", "half", "contiguous", "round", "clip", "sum", "mean")
)  # fmt: skip
_TORCH_DOES = frozenset(
    ("clamp", "abs", "exp", "log", "sqrt", "pow", "max", "min", "argmax", "argmin", "topk", "sort", "argsort",
     "softmax", "sigmoid", "flatten", "permute", "cumsum", "norm", "mul", "div", "add", "sub", "where", "eq", "gt",
     "lt", "flip")
)  # fmt: skip
_NUMPY_DOES_TOO = frozenset(
    ("array", "asarray", "where", "clip", "abs", "exp", "log", "sqrt", "maximum", "minimum", "sum", "mean", "stack",
     "concatenate", "sign", "transpose", "expand_dims", "squeeze", "argmax", "round", "power", "square", "sort",
     "argsort", "cumsum", "max", "min", "tanh")
)  # fmt: skip
_ON_DEVICE = (_METHODS | _TORCH_DOES) - {"astype", "copy", "numpy"}
_NO_NUMBERS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Starred)
_DEEPEST = 8
_BRINGING = ("to", "cuda", "tensor", "as_tensor")
"""Calls that may bring to the device what was on the host."""


class RoundTripTransfer(TraceRule):
    """Values go from the device to the host and back again within a step."""

    code = "OPS102"
    name = "round-trip-transfer"
    summary = "Values go from the device to the host and back again within a step"
    severity = "warning"
    words = (".cpu()",)

    lost_in = "round_trips"
    found_with = ("run", "--simulate-gpu", "24GiB")
    cost = "transfers"
    needs_at_work = "a device"

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A move to the device of what numpy or torch made of a tensor that was moved to the host."""
        if not file.mentions(".to(", ".cuda(", "device="):
            return
        for event in file.calls(*_BRINGING):
            origin = self._origin(file, event)
            if origin is not None and per_step(file, event) and not guarded(event, event.loop):
                yield self._finding(file, event, origin)

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Lines that bring to the device, in every step, what had been fetched from it in that step."""
        every = list(_crossings.each_step(recording))
        fetches = {(r.place.path, r.place.line): r.place for _, r in every if r.kind == "to host"}
        for rank, record in every:
            if record.kind != "to device":
                continue
            seen = _crossings.mostly(record.back, record)
            fetched = record.back_from if seen else self._by_way_of_numpy(recording, record, fetches)
            if fetched is None and not seen:
                continue
            there = f"line {fetched.line}" if fetched is not None and fetched.path == record.place.path else (
                f"{fetched.path}:{fetched.line}" if fetched is not None else "another line"
            )  # fmt: skip
            severity: Severity = "warning" if record.bytes_per_step >= _crossings.LARGE else "info"
            yield self.observed(
                rank, severity=severity, place=record.place, measured=_crossings.measured(record),
                message=f"{_crossings.amount(record)} come back to the device that {there} had fetched to the host in "
                f"the same step{'' if seen else ', by way of NumPy'} ({_crossings.seen(record)})",
                cause="the fetch waits until the device has finished what was queued, and the way back is a copy more",
                advice="do the work between the two on the device, with torch's own operations",
            )  # fmt: skip

    def _by_way_of_numpy(
        self, recording: Recording, record: Crossing, fetches: Mapping[tuple[str, int], Place]
    ) -> Place | None:  # fmt: skip
        """The line, seen to fetch in every step, whose data a line brings back by what its source says: NumPy's arrays
        are not torch's to follow."""
        from torchvet.source.model import SourceFile

        path, line = record.place.path, record.place.line
        if record.filled or record.batches or record.repeated or not any(there == path for there, _ in fetches):
            return None
        try:
            file = SourceFile(path, recording.sources[path])
        except (KeyError, SyntaxError, ValueError, RecursionError):
            return None
        calls = (e for e in file.unit_at(line).events if e.line == line and isinstance(e.node, ast.Call))
        origins = (self._origin(file, e) for e in calls if terminal(e.node) in _BRINGING)
        return next((fetches[path, o.lineno] for o in origins if o is not None and (path, o.lineno) in fetches), None)

    def slow(self, found: Worst) -> Finding:
        """Copies to the host of which as many bytes come back in the same step, by the time that nothing hid."""
        return self.loses(
            found,
            f"{size(found.costs[0].bytes)} a step go from the device to the host, and as many bytes back"
            f"{found.where()}: the device does nothing else for {found.of_step()}",
            "a copy to the host is waited for, and what is made of it has to be copied back",
            "do on the device what is done on the host in between",
        )

    def _origin(self, file: SourceFile, event: Event) -> ast.Call | None:
        """The `.cpu()` whose value this call brings back to the device."""
        call = event.call
        moved = file.devices.move(call, event.unit)
        if moved is not None and moved[0] == "device":
            return self._host_copy(file, receiver(call), event, 0)
        given = keyword(call, "device")
        made = file.dotted(call.func) in _WRAPPING and file.devices.named(given, event.unit) == "device"
        return self._host_copy(file, call.args[0], event, 0) if made and call.args else None

    def _host_copy(self, file: SourceFile, node: ast.expr | None, event: Event, depth: int) -> ast.Call | None:
        if depth > _DEEPEST or node is None:
            return None
        if isinstance(node, (ast.BinOp, ast.UnaryOp)):
            return self._host_copy(file, node.left if isinstance(node, ast.BinOp) else node.operand, event, depth + 1)
        if isinstance(node, ast.Attribute) and node.attr in ("indices", "values", "T"):
            return self._host_copy(file, node.value, event, depth + 1)
        if isinstance(node, ast.Name):
            return self._host_copy_of_name(file, node.id, event, depth)
        if not isinstance(node, ast.Call):
            return None
        on, name, dotted = receiver(node), terminal(node), file.dotted(node.func)
        if name == "cpu" and on is not None and not node.args:
            return node if file.devices.of(on, event) != "cpu" else None
        if dotted in _WRAPPING or (dotted.startswith(("numpy.", "np.")) and name in _NUMPY_DOES_TOO):
            return self._host_copy(file, node.args[0], event, depth + 1) if node.args else None
        if dotted.startswith("torch.") and dotted.count(".") == 1 and name in _TORCH_DOES and node.args:
            return self._host_copy(file, node.args[0], event, depth + 1)
        if on is not None and not dotted.startswith("torch.") and (name in _METHODS or name in _TORCH_DOES):
            return self._host_copy(file, on, event, depth + 1)
        return None

    def _host_copy_of_name(self, file: SourceFile, name: str, event: Event, depth: int) -> ast.Call | None:
        reaching = file.devices.reaching(name, event)
        if len(reaching) != 1 or event.unit.home(name) is not event.unit or reaching[0].loop is not event.loop:
            return None
        node = reaching[0].node
        value = value_bound(node, name)
        return self._host_copy(file, value, reaching[0], depth + 1)

    def _finding(self, file: SourceFile, event: Event, origin: ast.Call) -> Finding:
        down, up = file.segment(origin), file.segment(event.node)
        return self.suspect(
            file, event, f"{down} goes to the host and comes back to the device in every step",
            cause=f"line {origin.lineno} copies it to the host and waits; line {event.line} copies it back: {up[:60]}",
            advice="do the work between the two on the device, with torch's own operations",
            edits=self._edits(file, event, origin),
        )  # fmt: skip

    @staticmethod
    def _edits(file: SourceFile, event: Event, origin: ast.Call) -> list[Edit]:
        """The copy to the host left out of one chain of torch's own methods, which are given numbers alone. The way
        back stays: it moves nothing then."""
        node, on = receiver(event.call), receiver(origin)
        while node is not origin:
            if isinstance(node, ast.Attribute):
                node = node.value
                continue
            if (
                not isinstance(node, ast.Call)
                or terminal(node) not in _ON_DEVICE
                or file.dotted(node.func) in _WRAPPING
            ):
                return []
            given = [*node.args, *(k.value for k in node.keywords)]
            if receiver(node) is None or any(isinstance(n, _NO_NUMBERS) for one in given for n in walk(one)):
                return []
            node = receiver(node)
        if on is None or on.end_lineno != origin.end_lineno or origin.lineno != event.call.end_lineno:
            return []
        (line, column), end = edits.end_of(file, on), edits.end_of(file, origin)
        dot = file.lines[line - 1].index(".", column - 1, end[1] - 1)  # what is called on may stand in brackets
        return [Edit(path=file.path, start=(line, dot + 1), end=end, text="")]
