"""OPS101: the host waits for the device at every step, or for every parameter of a step."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from torchvet.formatting import count
from torchvet.rules.kit import Finding, Iterator, RankRecording, Recording, Related, Severity, SourceFile
from torchvet.rules.operations._crossings import CrossingRule, each_step
from torchvet.rules.operations.fixes.batched_reads import read_once
from torchvet.rules.shared.step_code import bound_in, few_turns, guarded, per_step, uses_a_device
from torchvet.rules.shared.trace_costs import TraceRule, Worst
from torchvet.source.model import Event, Loop, given, is_call, names_in, receiver, target_names, terminal, under_methods

if TYPE_CHECKING:
    from torchvet.recording.records.crossing import Crossing

_READ = "a value that is read on the host has to be computed first"
_ELEMENT = re.compile(r"\]\.item\(\)")
_WRITING = ("print", "set_description", "set_postfix", "set_postfix_str", "info")
_READING = ("item", "tolist", "cpu", "float", *_WRITING)
_MANY = 4
"""Waits a step with work queued in between, from one line, from which on it is a loop that waits."""
_ONE_BY_ONE = 32
"""Reads a step from one line, from which on it is a loop over elements, though only the first has to wait for long:
each is a copy of its own."""
_KEPT = "add up detached values on the device and read them where they are printed"
_FETCHED = (
    "do its work on the device, or copy less often, with `non_blocking=True`, and read the copy a step later, after "
    "`synchronize()` of an event recorded behind it"
)
_SIZED = "keep sizes fixed: `torch.where`, or a product with the mask, asks the device for no number"
_COUNTED = "count in a tensor of fixed size (`torch.bincount(…, minlength=…)`, `scatter_add`), or less often"
_ADVICE = {
    **dict.fromkeys(("cpu()", "to()", "copy_()"), _FETCHED),
    "print()": "print at an interval, what was gathered since",
    "synchronize()": "leave it out where no time is taken: what reads a value waits for it by itself",
    "repeat_interleave()": "give it `output_size=`: it need not ask the device then",
    "equal()": "compare on the device, and read what was gathered at an interval",
    **dict.fromkeys(("a mask as index", "nonzero()", "masked_select()"), _SIZED),
    **dict.fromkeys(("_unique2()", "unique_dim()", "unique_consecutive()"), _COUNTED),
}
"""By what makes the host wait; reading a number is all else."""


class SyncInLoop(CrossingRule, TraceRule):
    """The host waits for the device at every step, or for every parameter of a step."""

    severity = "info"
    words = (".item()", ".tolist()", ".cpu()", "float(", "loss")
    lost_in = "syncs"
    cost = "waits"

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """Reading a value per parameter in a step is a warning; reading one per step is worth knowing."""
        if not uses_a_device(file):
            return
        yield from self._elements(file)
        if file.steps:
            yield from self._parameters(file)
            yield from self._steps(file)

    def _elements(self, file: SourceFile) -> Iterator[Finding]:
        lines = {file.line_of(m.start()) for m in _ELEMENT.finditer(file.text)}
        for event in (e for u in file.units_at(lines) for e in u.calls.get("item", ())):
            loop = self._element_loop(file, event)
            if loop is not None:
                yield self._per_element(file, event, loop)

    def _parameters(self, file: SourceFile) -> Iterator[Finding]:
        for event in file.calls("item", "tolist", "cpu"):
            loop = self._parameter_loop(event)
            if loop is not None and per_step(file, event) and not guarded(event, None):
                yield self._per_parameter(file, event, loop)

    def _steps(self, file: SourceFile) -> Iterator[Finding]:
        for step in file.steps:
            if step.loop is not None:
                calls = [e for name in _READING for e in step.unit.calls.get(name, ())]
                found = [e for e in sorted(calls, key=lambda e: e.index) if self._each_step(file, e, step.loop)]
                if found:
                    yield self._per_step(file, found)

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Lines that wait for the device in every step, by how often: many times a step is a loop over elements."""
        every = [(rank, record) for rank in recording.ranks for record in each_step(rank)]
        fetched = {record.back_from for _, record in every if record.back}  # OPS102 speaks of those
        # Waits that are few are told together: each alone is common, and often wanted.
        few = []
        for rank, record in every:
            if record.kind == "to device" or record.place in fetched:
                continue
            # The number of calls is no measure: of 945 `item()` in a real trace only 30 copied from the device.
            if record.stalls >= _MANY * record.steps:
                waits = f"{record.what} makes the host wait for the device {record.stalls / record.steps:,.0f} times"
                message = f"{waits} a step, with work queued in between"
                cause = "each value is copied by itself, and Python queues nothing more until it has arrived"
                advice = "compute on the device what is read, stack it, and read it once a step or less"
                yield self.crossing(rank, record, message, cause, advice, severity="warning")
            elif record.what == "item()" and record.calls >= _ONE_BY_ONE * record.steps:
                numbers = f"{record.calls / record.steps:,.0f} numbers a step"
                message = f"{numbers} are read from the device one by one, by {record.what}"
                cause = "each is a copy that the host waits for, though all of them are there after the first"
                advice = "read them all at once, by one `.tolist()` before the loop, or count on the device"
                yield self.crossing(rank, record, message, cause, advice, severity="warning")
            else:
                few.append((rank, record))
        if few:
            yield self._few(few)

    def _few(self, found: list[tuple[RankRecording, Crossing]]) -> Finding:
        """One finding for all lines that wait once or a few times a step: common, and often wanted."""
        rank, first = max(found, key=lambda f: f[1].stalls / max(1, f[1].steps))
        waits = sum(record.stalls / max(1, record.steps) for _, record in found)
        also = [record for _, record in found if record is not first][:5]
        others = [Related(role="also", message=r.what, path=r.place.path, line=r.place.line) for r in also]
        message = f"the host waits for the device {_times(waits)} a step, here by {first.what}"
        advice = _ADVICE.get(first.what, _KEPT)
        return self.crossing(rank, first, message, _READ, advice, severity="info", related=others)

    def slow(self, found: Worst) -> Finding:
        """By the time that the device was idle because the host had waited for it, not by the number of waits."""
        # 60 waits of one real trace cost 0.2 ms together: the finding is graded by idle time.
        number = sum(cost.count for cost in found.costs)
        message = (
            f"the host waits for the device {count(number, 'time')}{found.a_step}, most of it{found.where()} "
            f"({found.costs[0].what}); after that the device is idle for {found.of_step()}"
        )
        cause = "once the host has waited, nothing is queued: the device idles until the next launches arrive"
        advice = (
            "read values less often, and all at once: keep sums on the device, copy with non_blocking=True and read "
            "them a step later, after synchronize() of an event recorded behind the copy"
        )
        return self.loses(found, message, cause, advice)

    @staticmethod
    def _parameter_loop(event: Event) -> Loop | None:
        """The innermost loop, where it goes over a model's parameters and the value read belongs to its variable."""
        loop, head = event.loop, _head(event.loop)
        if head is None or not is_call(head.iter, "parameters", "named_parameters"):
            return None
        variables = target_names(head)
        before = (b.node for b in event.unit.events[: event.index] if b.loop is loop)
        for node in before:
            if isinstance(node, ast.Assign) and names_in(node.value) & variables:
                variables |= target_names(node)
        return loop if names_in(receiver(event.call)) & variables else None

    @staticmethod
    def _each_step(file: SourceFile, event: Event, loop: Loop) -> bool:
        if event.loop is not loop or guarded(event, loop):
            return False
        on, name = receiver(event.call), terminal(event.node)
        if name in _WRITING:
            return any(_written(file, one, event) for one in given(event.call))
        if name == "float":
            on = event.call.args[0] if on is None and event.call.args else None  # the method casts, on the device
        elif on is not None and file.devices.of(on, event) == "device":
            return True
        on = under_methods(on, ("detach", "mean", "sum", "clone"))
        return on is not None and file.roles.is_a("loss", on, event.unit)

    @staticmethod
    def _element_loop(file: SourceFile, event: Event) -> Loop | None:
        """The loop over a range, where the value read is an element, by its variable, of a tensor on the device."""
        on, loop, head = receiver(event.call), event.loop, _head(event.loop)
        if loop is None or head is None or not isinstance(on, ast.Subscript) or not isinstance(on.value, ast.Name):
            return None
        if not is_call(head.iter, "range") or few_turns(head.iter):
            return None
        if not names_in(on.slice) & names_in(head.target) or on.value.id in bound_in(loop, event.unit):
            return None
        tests = [getattr(branch, "test", branch) for branch, _ in event.context.arms]
        # `if i % 100 == 0` reads at an interval, which is what the advice would be.
        if any(isinstance(n, ast.Mod) for test in tests for n in ast.walk(test)):
            return None
        return loop if file.devices.of(on.value, event) == "device" else None

    def _per_element(self, file: SourceFile, event: Event, loop: Loop) -> Finding:
        on = receiver(event.call)
        subject = on.value if isinstance(on, ast.Subscript) else event.node
        severity: Severity = "warning" if loop.parent is not None or per_step(file, event) else "info"
        message = f"{file.segment(event.node)} makes the host wait for the device once per element"
        cause = "each element is copied by itself, and Python waits for it before it goes on"
        advice = f"read all at once before the loop: `{file.segment(subject)}.tolist()`"
        return self.suspect(file, event, message, cause=cause, advice=advice, severity=severity)

    def _per_parameter(self, file: SourceFile, event: Event, loop: Loop) -> Finding:
        message = f"{file.segment(event.node)} makes the host wait for the device once per parameter, at every step"
        cause = "the value has to be on the host before Python goes on, for each parameter anew"
        advice = f"add up the tensors on the device, without .{terminal(event.node)}(), and read the sum once"
        made = read_once(file, event, loop)
        return self.suspect(file, event, message, cause=cause, advice=advice, severity="warning", edits=made)

    def _per_step(self, file: SourceFile, found: list[Event]) -> Finding:
        first = found[0]
        often = "once" if len(found) == 1 else f"{len(found)} times"
        message = f"{file.segment(first.node)} makes the host wait for the device; {often} per step"
        advice = "add up detached losses on the device and read them where they are printed"
        others = [self.also(file, "also", event, file.segment(event.node)) for event in found[1:4]]
        return self.suspect(file, first, message, cause=_READ, advice=advice, related=others)


def _head(loop: Loop | None) -> ast.For | ast.comprehension | None:
    """Where a loop says what it goes over; None for `while`."""
    node = getattr(loop.node, "generators", [loop.node])[0] if loop is not None else None
    return node if isinstance(node, (ast.For, ast.comprehension)) else None


def _times(waits: float) -> str:
    return "about once" if waits < 1.5 else f"about {waits:,.0f} times"


def _written(file: SourceFile, node: ast.expr, event: Event) -> bool:
    """Whether a loss is written out as it is: by itself, or in an f-string."""
    values = node.values if isinstance(node, ast.JoinedStr) else [node]
    parts = [one.value if isinstance(one, ast.FormattedValue) else one for one in values]
    return any(isinstance(p, ast.Name) and {"loss", "tensor"} <= file.roles.of(p, event.unit) for p in parts)
