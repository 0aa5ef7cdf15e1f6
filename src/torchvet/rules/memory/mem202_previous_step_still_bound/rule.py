"""MEM202: tensors of the last step are alive while the next one runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchvet.formatting import size
from torchvet.recording.records.training import StaleAtPeak
from torchvet.rules import kit
from torchvet.rules.core import grading
from torchvet.rules.shared import growth_rule, snapshot_rule
from torchvet.source.model import Event, Unit, edits, is_call, is_name, receiver, targets_of, terminal, walk


class PreviousStepStillBound(kit.Rule):
    """Tensors of the last step are alive while the next one runs."""

    severity = "warning"
    words = ("softmax", "sigmoid", "log_softmax", "detach")

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """`del` of the names that the run has found, as the last statement of the loop that binds them."""
        names, unit = kit.about(finding).operands, kit.unit_of(file, finding)
        if not names or unit is None:
            return ()
        loops = {id(b.loop): b.loop for n in names for b in unit.bindings.get(n, ()) if b.loop is not None}
        # Bound in two loops, `del` at the end of one would miss the other.
        loop = next(iter(loops.values())) if len(loops) == 1 else None
        node = loop.node if loop is not None else None
        if not isinstance(node, (ast.For, ast.While)) or not all(_dies_with_the_pass(unit, node, n) for n in names):
            return ()
        return edits.after(file, node.body[-1], f"del {', '.join(names)}")

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """Variables of the step before that were bound at the peak and never read again, in two windows or more."""
        seen: dict[tuple[str, ...], list[StaleAtPeak]] = {}
        for record in rank.all(StaleAtPeak):
            # By the first name, which holds most; which others do may differ from window to window.
            seen.setdefault(tuple(sorted(record.names[:1])), []).append(record)
        for records in seen.values():
            # The window in the middle, so that one odd step does not decide.
            typical = sorted(records, key=lambda r: r.saving)[len(records) // 2]
            worth = len(records) >= 2 and typical.saving >= _WORTH_A_LINE * typical.peak
            if not worth or self._is_kept(recording, typical):
                continue
            carried = self._is_carried(recording, typical)
            # What the next pass reads is needed, all but what its graph has saved.
            if not carried or _has_graph(typical):
                yield self._finding(recording, rank, typical, carried)

    def _finding(
        self, recording: kit.Recording, rank: kit.RankRecording, record: StaleAtPeak, carried: bool
    ) -> kit.Finding:
        share = record.saving / record.peak if record.peak else 0.0
        first, several = record.names[0], len(record.names) > 1
        names = " and ".join(record.names[:2])
        behind = "them" if several else "it"
        graph = f" with the autograd graph behind {behind}" if _has_graph(record) else ""
        cause = (
            f"{names} {'keep their values until they are' if several else 'keeps its value until it is'} assigned "
            "again, which is after the next forward pass has peaked"
        )
        advice = f"`del {', '.join(record.names[:3])}` at the end of the step, or put the step into a function"
        if carried:
            cause = f"the next pass reads the value of {first}, and what its graph has saved lives as long as the value"
            advice = f"carry `{first}` over without its graph: `.detach()` it, or compute it under `torch.no_grad()`"
        return self.observed(
            rank,
            severity=grading.of_waste(record.saving, share),
            place=self._line(recording, record),
            message=f"{names} of the step before {'are' if several else 'is'} still bound{graph} when the next step "
            f"peaks: {size(record.bytes)}, the peak would be {size(record.saving)} ({share:.0%}) lower without",
            cause=cause,
            about=kit.About(operands=tuple(record.names[:3])),
            advice=advice,
            related=[growth_rule.allocated(s) for s in record.sites[:3]],
            holder=kit.Holder(name=first, kind="local", path=[first]),
            measured=kit.Measured(bytes=record.bytes, peak_bytes=record.peak, share=share),
        )

    def _is_kept(self, recording: kit.Recording, record: StaleAtPeak) -> bool:
        """Whether source shows that the value is to outlive its pass: the best weights so far, bound under a condition
        and read once the loop is over."""
        at = self._line(recording, record)
        file = recording.model(at.path) if at is not None else None
        return at is not None and file is not None and _is_kept_for_later(file.unit_at(at.line), record.names[0])

    def _is_carried(self, recording: kit.Recording, record: StaleAtPeak) -> bool:
        """Whether source shows that the next pass reads the value, before it binds the name anew."""
        at = self._line(recording, record)
        file = recording.model(at.path) if at is not None else None
        return at is not None and file is not None and _is_read_first(file.unit_at(at.line), record.names[0])

    def _line(self, recording: kit.Recording, record: StaleAtPeak) -> kit.Place | kit.Store | None:
        """Where the name is assigned, else where its storage came from."""
        # `__main__` stands for any module: the index goes by the function's name.
        for place in filter(None, (record.bound, record.place)):
            stores = recording.index.stores(record.names[0], f"__main__.{place.function}", place.path)
            if stores:
                return stores[0]
        return record.place

    def in_snapshot(self, snapshot: kit.SnapshotMemory) -> kit.Findings:
        """Results of the step before that are in use at the peak and freed before the step ends."""
        from torchvet.snapshots.stale import stale_at_peak

        for memory in snapshot.devices:
            row = stale_at_peak(memory)
            share = row.bytes / memory.peak.bytes if row is not None and memory.peak.bytes else 0.0
            if row is not None and share >= _WORTH_A_LINE:
                yield snapshot_rule.in_memory(
                    self,
                    memory,
                    severity=grading.of_waste(row.bytes, share),
                    message=f"{size(row.bytes)} that {snapshot_rule.named(row.place)} allocated in the step before are "
                    f"in use when the next step peaks ({share:.0%} of the peak)",
                    place=row.place,
                    cause="a name keeps its value until it is assigned again, which is after the next forward pass",
                    advice="`del` the name at the end of the step, or put the step into a function",
                    measured=kit.Measured(bytes=row.bytes, peak_bytes=memory.peak.bytes, share=share),
                )

    def in_file(self, file: kit.SourceFile) -> kit.Findings:
        """A copy of a model's output, bound after the backward of a step and still bound in the forward of the next."""
        for step in file.steps:
            for event, name in _bound_after_backward(step):
                if _is_as_large(file, event) and not _dies_or_is_read(step, event, name):
                    yield self._suspected(file, step, event, name)

    def _suspected(self, file: kit.SourceFile, step: kit.Step, event: Event, name: str) -> kit.Finding:
        return self.suspect(
            file,
            event,
            f"{name} of one step is still bound while the next one runs forward and backward",
            severity="info",
            cause=f"{name} keeps its value until it is assigned again, which is after the next forward pass has peaked",
            advice=f"`del {name}` at the end of the step, or put the step into a function",
            edits=_deleted(file, step, event, name),
            about=kit.About(operands=(name,)),
        )


_WORTH_A_LINE = 0.01
"""Share of the peak below which nobody would change a line for it."""
_SAME_SIZE = {"softmax", "sigmoid", "log_softmax", "detach", "float", "exp", "clone", "tanh", "cpu", "contiguous"}


def _bound_after_backward(step: kit.Step) -> Iterator[tuple[Event, str]]:
    """Names that each pass of the step's loop binds after its last backward."""
    backwards = step.of("backward")
    if step.loop is None or not backwards:
        return
    last = max(e.at.index for e in backwards)
    for event in step.unit.events:
        node = event.node
        if event.index < last or event.loop is not step.loop or not isinstance(node, ast.Assign):
            continue
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield event, node.targets[0].id


def _is_as_large(file: kit.SourceFile, event: Event) -> bool:
    """Whether a value has the size of a model's output, through functions that keep the size."""
    node: ast.AST | None = getattr(event.node, "value", None)
    large = False
    while is_call(node, *_SAME_SIZE):
        large |= terminal(node) in PreviousStepStillBound.words
        on = receiver(node)
        node = node.args[0] if on is None or file.dotted(on).startswith("torch") else on
    return large and isinstance(node, ast.Name) and "output" in file.roles.of(node, event.unit)


def _dies_or_is_read(step: kit.Step, event: Event, name: str) -> bool:
    """Whether the loop deletes the name, binds it twice, or reads the last pass's value before it is bound anew."""
    assert step.loop is not None
    inside = [e for e in step.unit.bindings.get(name, ()) if e.inside(step.loop)]
    # A `del` anywhere in the function says that somebody has thought of it.
    if any(isinstance(e.node, ast.Delete) for e in step.unit.events if name in map(terminal, targets_of(e.node))):
        return True
    return len(inside) > 1 or any(line < event.line for line in _lines(step, name))


def _lines(step: kit.Step, name: str) -> list[int]:
    """Lines of the step's loop that read or bind a name."""
    assert step.loop is not None
    return sorted(n.lineno for n in walk(step.loop.node) if is_name(n, name))


def _deleted(file: kit.SourceFile, step: kit.Step, event: Event, name: str) -> list[kit.Edit]:
    """`del name` after the last statement of the loop that reads it, where nothing outside the loop does."""
    assert step.loop is not None
    lines = _lines(step, name)
    body: list[ast.stmt] = step.loop.node.body  # type: ignore[attr-defined]
    # A name that is read after the loop must not be deleted in it.
    if event.statement not in body or set(file.lines_with(name)) - set(lines):
        return []
    last = next((s for s in body if s.lineno <= lines[-1] <= (s.end_lineno or s.lineno)), None)
    return edits.after(file, last, f"del {name}") if last is not None else []


def _is_kept_for_later(unit: Unit, name: str) -> bool:
    """Whether loops bind a name under conditions only, and something after them reads it."""
    bound = [b for b in unit.bindings.get(name, ()) if b.loop is not None and b.loop.comprehension is False]
    loops = {id(b.loop): b.loop.node for b in bound if b.loop is not None}
    # Right in the loop's body it is bound in each turn.
    if not bound or any(b.statement in getattr(b.loop.node, "body", ()) for b in bound if b.loop is not None):
        return False
    last = max(node.end_lineno or 0 for node in loops.values())  # type: ignore[attr-defined]
    return any(n.lineno > last for n in walk(unit.node) if is_name(n, name) and isinstance(n.ctx, ast.Load))


def _is_read_first(unit: Unit, name: str) -> bool:
    """Whether a loop reads a name above the first line on which it binds it, or on that line: `state = f(state)`."""
    loops = {id(b.loop): b.loop for b in unit.bindings.get(name, ()) if b.loop is not None}
    for loop in loops.values():
        bound = min((b.statement for b in unit.bindings[name] if b.loop is loop), key=lambda s: s.lineno)
        read = (n for n in walk(loop.node) if is_name(n, name) and isinstance(n.ctx, ast.Load))
        if any(n.lineno < bound.lineno or n in walk(bound) for n in read):
            return True
    return False


def _has_graph(record: StaleAtPeak) -> bool:
    return record.with_graph > record.bytes // 2


def _dies_with_the_pass(unit: Unit, loop: ast.For | ast.While, name: str) -> bool:
    """Whether each pass of a loop binds a name at the top of its body before it reads it, and nothing outside does."""
    read = [n for n in walk(unit.node) if is_name(n, name)]
    inside = sorted((n for n in walk(loop) if is_name(n, name)), key=lambda n: n.lineno)
    bound = [s.lineno for s in loop.body if isinstance(s, ast.Assign) and name in map(terminal, targets_of(s))]
    deleted = any(isinstance(n.ctx, ast.Del) for n in read)
    first = min((n.lineno for n in inside if isinstance(n.ctx, ast.Load)), default=0)
    # Read in the line that binds it (`x = f(x)`), it is needed from turn to turn.
    return bool(bound) and len(read) == len(inside) and not deleted and not 0 < first <= bound[0]
