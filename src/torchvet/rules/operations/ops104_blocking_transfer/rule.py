"""OPS104: batches are copied to the device while everything waits, where the copy could overlap."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchvet.formatting import size
from torchvet.rules.kit import Finding, Iterator, Recording, SourceFile
from torchvet.rules.operations import _crossings
from torchvet.rules.shared.trace_costs import TraceRule, Worst
from torchvet.source.model import Event, Unit, edits, keyword, receiver, targets_of

if TYPE_CHECKING:
    from torchvet.readers.trace_facts import Cost, RankTrace

_DEEPEST = 3


class BlockingTransfer(TraceRule):
    """Batches are copied to the device while everything waits, where the copy could overlap."""

    code = "OPS104"
    name = "blocking-transfer"
    summary = "Batches are copied to the device while everything waits, where the copy could overlap"
    severity = "info"
    words = ("DataLoader(",)

    found_with = ("run", "--simulate-gpu", "24GiB")
    cost = "blocking copies"
    needs_at_work = "a device"

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """A loop over a loader of this file whose batches are moved: pinned and not blocking, or not."""
        if not file.mentions(".to(", ".cuda("):
            return
        told: set[int] = set()
        for event in file.calls("to", "cuda"):
            moved = file.devices.move(event.call, event.unit)
            found = self._loop_of_batch(file, event) if moved is not None and moved[0] == "device" else None
            if found is None or id(found[0]) in told:
                continue
            head, unit = found
            loaders = [call for call, _ in file.devices.loader_calls(head.iter, unit)]
            if len(loaders) == 1 and not any(k.arg is None for k in loaders[0].keywords):
                told.add(id(head))
                yield from self._judge(file, event, loaders[0])

    def in_recording(self, recording: Recording) -> Iterator[Finding]:
        """Lines that bring batches to the device and wait for them. Whether that shows depends on the device's speed,
        which is not known here."""
        for rank, record in _crossings.each_step(recording):
            if record.kind != "to device" or not _crossings.of_loader(record) or not record.waits:
                continue
            pinned = record.pinned >= record.calls
            yield self.observed(
                rank, severity="info", place=record.place, measured=_crossings.measured(record),
                message=f"{_crossings.amount(record)} of a loader's batch are copied to the device, and the host waits "
                f"for it ({_crossings.seen(record)})",
                cause="its memory is pinned, and the copy is not asked to run on" if pinned
                else "its memory is not pinned: the driver stages the copy, and the host waits for it",
                advice="add non_blocking=True" if pinned
                else "give the DataLoader pin_memory=True and the copy non_blocking=True, if batches are large",
            )  # fmt: skip

    def costs(self, rank: RankTrace) -> list[Cost]:
        """Copies from pageable memory."""
        return [cost for cost in rank.transfers if cost.what == "pageable host-to-device"]

    def slow(self, found: Worst) -> Finding:
        """By the time in which the device did nothing but wait for the copies."""
        return self.loses(
            found,
            f"{size(sum(cost.bytes for cost in found.costs))} a step are copied from pageable memory to the device"
            f"{found.where()}; nothing hides {found.of_step()}",
            "a copy from memory that is not pinned is staged by the driver, and the host waits for it",
            "give the DataLoader pin_memory=True and the copy non_blocking=True, so that it overlaps",
        )

    def _loop_of_batch(self, file: SourceFile, event: Event) -> tuple[ast.For, Unit] | None:
        """The loop whose variable is moved, here or in a function that is given it, and the loop's unit."""
        on = receiver(event.call)
        while isinstance(on, ast.Subscript):
            on = on.value
        return self._loop_of(file, on, event, 0) if isinstance(on, ast.Name) else None

    def _loop_of(self, file: SourceFile, node: ast.Name, event: Event, depth: int) -> tuple[ast.For, Unit] | None:
        loop = event.loop
        while loop is not None:
            head = loop.node
            if isinstance(head, ast.For) and any(isinstance(t, ast.Name) and t.id == node.id for t in targets_of(head)):
                return head, event.unit
            loop = loop.parent
        bound = event.unit.bindings.get(node.id, ())
        before = [e for e in bound if e.index < event.index and e.node is not event.statement]
        source = getattr(before[-1].node, "value", None) if before else node
        if isinstance(source, ast.Name) and before and depth < _DEEPEST:
            return self._loop_of(file, source, before[-1], depth + 1)
        if before or node.id not in event.unit.parameters or depth >= _DEEPEST:
            return None
        for caller in file.callers(event.unit):
            for given in file.passed(caller, event.unit, node.id):
                if isinstance(given, ast.Name):
                    return self._loop_of(file, given, caller, depth + 1)
        return None

    def _judge(self, file: SourceFile, event: Event, loader: ast.Call) -> Iterator[Finding]:
        pinned = keyword(loader, "pin_memory")
        overlaps = keyword(event.call, "non_blocking")
        not_pinned = pinned is None or (isinstance(pinned, ast.Constant) and not pinned.value)
        asks = isinstance(overlaps, ast.Constant) and overlaps.value is True
        moved = file.segment(event.node)
        if not_pinned and asks:
            change = []
            if pinned is not None and pinned.lineno == pinned.end_lineno:
                change = [edits.replace(file, pinned, "True")]
            elif pinned is None and loader.lineno == loader.end_lineno and loader.args:
                given: list[ast.expr | ast.keyword] = [*loader.args, *loader.keywords]
                last = given[-1]
                change = [edits.replace(file, last, f"{file.segment(last)}, pin_memory=True")]
            yield self.suspect(
                file, event, f"{moved} cannot overlap: the loader of line {loader.lineno} does not pin its batches",
                cause="non_blocking takes effect only for pinned memory", advice="give the DataLoader pin_memory=True",
                severity="warning", edits=change, safe=True,
            )  # fmt: skip
        elif overlaps is None and not not_pinned:
            yield self.suspect(
                file, event, f"{moved} waits for the copy although the loader of line {loader.lineno} pins its batches",
                cause="without non_blocking=True the host waits until the copy is done",
                advice="add non_blocking=True", safe=True,
            )  # fmt: skip
        elif overlaps is None:
            yield self.suspect(
                file, event, f"{moved} copies from pageable memory and waits for it",
                cause=f"the loader of line {loader.lineno} has no pin_memory=True and the move no non_blocking=True",
                advice="give both, if batches are large",
            )  # fmt: skip
