"""OPS104: batches are copied to the device while everything waits, where the copy could overlap."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.formatting import count, size
from torchvet.rules.kit import Edit, Finding, Iterator, RankRecording, Recording, Related, SourceFile
from torchvet.rules.operations._crossings import CrossingRule, amount, last_totals, mostly
from torchvet.rules.shared.trace_costs import TraceRule, Worst
from torchvet.source.model import Event, Unit, edits, is_literal, is_name, keyword, receiver, targets_of

if TYPE_CHECKING:
    from torchvet.readers.trace_facts import Cost, RankTrace
    from torchvet.recording.records.crossing import Crossing

_DEEPEST = 3


class BlockingTransfer(CrossingRule, TraceRule):
    """Batches are copied to the device while everything waits, where the copy could overlap."""

    severity = "info"
    words = ("DataLoader(",)
    cost = "blocking copies"

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A loop over a loader of this file whose batches are moved: pinned and not blocking, or not."""
        if not file.mentions(".to(", ".cuda("):
            return
        judged: set[int] = set()
        for event in file.calls("to", "cuda"):
            moved = file.devices.move(event.call, event.unit)
            found = _loop_of_batch(file, event) if moved is not None and moved[0] == "device" else None
            if found is None or id(found[0]) in judged:
                continue
            head, unit = found
            loaders = [call for call, _ in file.devices.loader_calls(head.iter, unit)]
            # `DataLoader(**options)` may pin its batches unseen, and of several loaders one may do so.
            if len(loaders) == 1 and not any(k.arg is None for k in loaders[0].keywords):
                judged.add(id(head))
                yield from self._judge(file, event, loaders[0])

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Also copies to the host that are read before they have arrived: those did not block, and had to."""
        yield from super().in_rank(rank, recording)
        yield from (self._early(rank, record) for record in last_totals(rank) if record.early)

    def _early(self, rank: RankRecording, record: Crossing) -> Finding:
        seen = f"{count(record.early, 'time')} in {count(record.sampled, 'sampled step')}"
        at = record.early_at
        return self.observed(
            rank,
            record.place,
            f"what {record.what} copies to the host with non_blocking=True is read before the host has waited for "
            f"anything ({seen})",
            severity="warning",
            cause="the copy goes to pinned memory and returns before the numbers are there: on CUDA the host may read "
            "what was in that memory before",
            advice="copy without non_blocking, or record a torch.cuda.Event after the copy and call its synchronize() "
            "before the numbers are read",
            related=[Related(role="read", message="read", path=at.path, line=at.line)] if at is not None else [],
        )

    def brought(self, rank: RankRecording, record: Crossing, recording: Recording) -> Iterator[Finding]:
        """Lines that bring batches to the device and wait for them. Whether that shows depends on the device's speed,
        which is not known here."""
        if not mostly(record.batches, record) or not record.waits:
            return
        cause = "its memory is not pinned: the driver stages the copy, and the host waits for it"
        advice = "give the DataLoader pin_memory=True and the copy non_blocking=True, if batches are large"
        if record.pinned >= record.calls:
            cause, advice = "its memory is pinned, and the copy is not asked to run on", "add non_blocking=True"
        message = f"{amount(record)} of a loader's batch are copied to the device, and the host waits for it"
        yield self.crossing(rank, record, message, cause, advice, severity="info")

    def costs(self, rank: RankTrace) -> list[Cost]:
        """Copies from pageable memory."""
        return [cost for cost in rank.transfers if cost.what == "pageable host-to-device"]

    def slow(self, found: Worst) -> Finding:
        """By the time in which the device did nothing but wait for the copies."""
        message = (
            f"{size(sum(cost.bytes for cost in found.costs))}{found.a_step} are copied from pageable memory to the "
            f"device{found.where()}; nothing hides {found.of_step()}"
        )
        cause = "a copy from memory that is not pinned is staged by the driver, and the host waits for it"
        advice = "give the DataLoader pin_memory=True and the copy non_blocking=True, so that it overlaps"
        return self.loses(found, message, cause, advice)

    def _judge(self, file: SourceFile, event: Event, loader: ast.Call) -> Iterator[Finding]:
        pinned, overlaps = keyword(loader, "pin_memory"), keyword(event.call, "non_blocking")
        not_pinned = pinned is None or (isinstance(pinned, ast.Constant) and not pinned.value)
        moved = file.segment(event.node)
        if not_pinned and is_literal(overlaps, True):
            message = f"{moved} cannot overlap: the loader of line {loader.lineno} does not pin its batches"
            cause = "non_blocking takes effect only for pinned memory"
            advice = "give the DataLoader pin_memory=True"
            yield self.suspect(
                file,
                event,
                message,
                cause=cause,
                advice=advice,
                severity="warning",
                edits=_pinning(file, loader, pinned),
                safe=True,
            )
        elif overlaps is None and not not_pinned:
            message = f"{moved} waits for the copy although the loader of line {loader.lineno} pins its batches"
            cause = "without non_blocking=True the host waits until the copy is done"
            advice = "add non_blocking=True"
            yield self.suspect(file, event, message, cause=cause, advice=advice, safe=True)
        elif overlaps is None:
            message = f"{moved} copies from pageable memory and waits for it"
            cause = f"the loader of line {loader.lineno} has no pin_memory=True and the move no non_blocking=True"
            advice = "give both, if batches are large"
            yield self.suspect(file, event, message, cause=cause, advice=advice)


def _pinning(file: SourceFile, loader: ast.Call, pinned: ast.expr | None) -> list[Edit]:
    if pinned is not None:
        return [edits.replace(file, pinned, "True")] if edits.on_one_line(pinned) else []
    return edits.with_argument(file, loader, "pin_memory=True") if edits.on_one_line(loader) and loader.args else []


def _loop_of_batch(file: SourceFile, event: Event) -> tuple[ast.For, Unit] | None:
    """The loop whose variable is moved, here or in a function that is given it, and the loop's unit."""
    node: ast.expr | None = receiver(event.call)
    while isinstance(node, ast.Subscript):
        node = node.value
    for _ in range(_DEEPEST + 1):
        if not isinstance(node, ast.Name):
            return None
        head = _loop_over(node.id, event)
        if head is not None:
            return head, event.unit
        before = _bound_before(node.id, event)
        if before is not None:
            node, event = getattr(before.node, "value", None), before
        elif node.id in event.unit.parameters:
            node, event = _given(file, node.id, event)
        else:
            return None
    return None


def _loop_over(name: str, event: Event) -> ast.For | None:
    """The loop around an event that binds a name."""
    loop = event.loop
    while loop is not None:
        if isinstance(loop.node, ast.For) and any(is_name(target, name) for target in targets_of(loop.node)):
            return loop.node
        loop = loop.parent
    return None


def _bound_before(name: str, event: Event) -> Event | None:
    bound = event.unit.bindings.get(name, ())
    before = [e for e in bound if e.index < event.index and e.node is not event.statement]
    return before[-1] if before else None


def _given(file: SourceFile, name: str, event: Event) -> tuple[ast.expr | None, Event]:
    """The first variable that a caller gives for a parameter, and the call."""
    for caller in file.callers(event.unit):
        for given in file.passed(caller, event.unit, name):
            if isinstance(given, ast.Name):
                return given, caller
    return None, event
