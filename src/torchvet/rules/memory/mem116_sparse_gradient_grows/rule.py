"""MEM116: sparse gradients that are never cleared grow with every backward."""

from __future__ import annotations

import ast

from torchvet.formatting import size
from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.core import grading
from torchvet.rules.shared.exhaustion import exhaustion_of
from torchvet.source.model import Event, edits, is_attribute, is_set, receiver, targets_of, terminal, walk


class SparseGradientGrows(kit.Rule):
    """Sparse gradients that are never cleared grow with every backward."""

    severity = "error"
    words = ("sparse",)
    absence_needs = ("flat memory",)

    fix_may_change_losses = True

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """The clearing that source misses, where it misses only one."""
        missed = list(self.in_source(file))
        # The run names the gradient and not the line of the step that should clear it.
        return missed[0].remedy.edits if len(missed) == 1 else ()

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """Sparse gradients whose stored entries only ever get more."""
        series: dict[str, list[records.training.SparseGradient]] = {}
        for record in rank.all(records.training.SparseGradient):
            series.setdefault(record.name, []).append(record)
        for points in series.values():
            entries = [p.entries for p in points]
            # Dense gradients are added in place and never grow; a sparse one that is cleared falls back each step.
            # Half more, as batches differ in how many different rows they touch.
            if len(points) >= 3 and entries == sorted(entries) and entries[-1] > 1.5 * entries[0]:
                yield self._finding(recording, rank, points)

    def _finding(
        self, recording: kit.Recording, rank: kit.RankRecording, points: list[records.training.SparseGradient]
    ) -> kit.Finding:
        first, last = points[0], points[-1]
        rate = (last.bytes - first.bytes) / max(1, last.tick - first.tick)
        exhausted = exhaustion_of(rank, recording).beside(rate).step
        uses = [u for u in rank.all(records.optimizers.OptimizerUse) if u.step_place is not None]
        place = uses[-1].step_place if uses else None
        return self.observed(
            rank,
            severity=grading.of_growth(last.tick, exhausted),
            place=_sparse_line(recording) or place,
            message=f"the sparse gradient of {last.name} grows by {size(rate)} a step: {first.entries:,} entries at "
            f"step {first.tick}, {last.entries:,} at step {last.tick}",
            cause="a sparse gradient is added to by appending entries; dense ones are added in place",
            advice="clear the gradients every step (`optimizer.zero_grad()`), or use dense gradients (`sparse=False`)",
            holder=kit.Holder(name=f"{last.name}.grad", kind="attribute", path=[last.name, ".grad"]),
            measured=kit.Measured(
                bytes_per_step=rate, bytes=last.bytes, steps=last.tick - first.tick, exhausted_at_step=exhausted
            ),
        )

    def in_file(self, file: kit.SourceFile) -> kit.Findings:
        """Steps of an optimizer, in a file that makes sparse embeddings, whose gradients nothing clears."""
        tables = [e for e in file.calls("Embedding", "EmbeddingBag", "from_pretrained") if _is_sparse(file, e)]
        if not tables or _others_clear(file):
            return
        for step in file.steps:
            stepped = _never_cleared(file, step, tables)
            if stepped is not None:
                yield self._suspected(file, tables[0], stepped)

    def _suspected(self, file: kit.SourceFile, table: Event, stepped: kit.Effect) -> kit.Finding:
        optimizer = file.segment(stepped.event.call.func.value)  # type: ignore[attr-defined]
        return self.suspect(
            file,
            stepped.event,
            f"the gradient of {file.segment(table.node)} grows with every backward: "
            f"nothing clears what {optimizer} steps on",
            cause="a sparse gradient is added to by appending entries; dense ones are added in place",
            advice=f"call `{optimizer}.zero_grad()` in every step",
            edits=edits.after(file, stepped.event.statement, f"{optimizer}.zero_grad()"),
            related=[self.also(file, "made", table, file.segment(table.node))],
        )


def _sparse_line(recording: kit.Recording) -> kit.Location | None:
    """The line that makes a sparse embedding, where there is just one."""
    found = [
        kit.Location(path=path, line=number)
        for path, text in recording.sources.items()
        for number, line in enumerate(text.splitlines(), 1)
        if "sparse=True" in line and "Embedding" in line
    ]
    return found[0] if len(found) == 1 else None


def _is_sparse(file: kit.SourceFile, event: Event) -> bool:
    """`nn.Embedding(..., sparse=True)`."""
    return is_set(event.call, "sparse") and "Embedding" in file.dotted(event.call.func)


def _others_clear(file: kit.SourceFile) -> bool:
    """Whether a framework, or a hand that sets `.grad`, may clear gradients unseen."""
    unseen = ("lightning", "pytorch_lightning", "deepspeed", "ignite", "fastai", "transformers")
    return any(map(file.imports.uses, unseen)) or file.mentions(".grad = None", ".grad.zero_", ".grad.data.zero_")


def _never_cleared(file: kit.SourceFile, step: kit.Step, tables: list[Event]) -> kit.Effect | None:
    """The step of an optimizer in a loop with a backward, where no call of `zero_grad` is anywhere near."""
    steps = step.of("step")
    if step.loop is None or not step.of("backward") or not steps:
        return None
    if step.of("zero_grad"):
        return _left_out(file, step, tables)
    optimizer = steps[-1].event
    # A function from elsewhere that has the optimizer may clear it.
    if any(file.callee(e) is None and e.node is not optimizer.node for e in step.opaque):
        return None
    # One that clears before the loop, and never within, clears nothing of what the loop adds.
    clears = [e for e in file.calls("zero_grad") if e.unit is not step.unit or step.repeats(e)]
    return None if clears else steps[-1]


def _left_out(file: kit.SourceFile, step: kit.Step, tables: list[Event]) -> kit.Effect | None:
    """The step of the optimizer that owns a sparse table, where only others beside it are cleared."""
    clearing = step.of("zero_grad")
    cleared = {e.subject for e in clearing}
    seen = {id(e.event) for e in clearing}
    # `model.zero_grad()` may clear the table as well.
    if not cleared <= step.optimizers or any(id(e) not in seen for e in file.calls("zero_grad")):
        return None
    names = {terminal(t) for table in tables for t in targets_of(table.parent)}
    for effect in step.of("step"):
        made = file.roles.values(receiver(effect.event.call), effect.event.unit)
        if effect.subject not in cleared and any(_owns(value, names) for value, _ in made):
            return effect
    return None


def _owns(optimizer: ast.expr, tables: set[str]) -> bool:
    """Whether an optimizer is made for sparse gradients, or for the parameters of one of the tables."""
    if terminal(optimizer) == "SparseAdam":
        return True
    asked = [n for n in walk(optimizer) if is_attribute(n, "parameters")]
    return any(terminal(one.value) in tables for one in asked)
