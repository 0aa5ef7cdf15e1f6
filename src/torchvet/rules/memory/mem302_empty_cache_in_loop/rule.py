"""MEM302: empty_cache() in every step."""

from __future__ import annotations

import ast

from torchvet.formatting import size
from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.memory.mem114_loader_remembers_batches.rule import loader_in
from torchvet.rules.shared.snapshot_rule import in_memory
from torchvet.source.model import Event, Loop, Unit, edits, name_set, receiver, terminal, walk

_PER_BATCH = name_set(
    "training_step on_train_batch_end on_train_batch_start on_before_zero_grad on_after_backward optimizer_step"
)
"""Hooks that Lightning calls for each batch of the training."""

_MOST_STEPS = 0.6
"""The share of steps in which it is seen: less often is between phases, which is what it is for."""
_FEWEST, _AGAIN = 6, 0.5
"""Steps below which a call in each of them may be part of a start; the share of what was given back that must have been
asked for again for a warning."""


class EmptyCacheInLoop(kit.Rule):
    """empty_cache() in every step gives memory back that the next step asks for again."""

    severity = "warning"
    words = ("empty_cache",)
    found_with = ("run", "--simulate-gpu", "24GiB")
    needs_at_work = "a device"

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """The call taken out, `pass` in its place where it stands alone."""
        for event, _ in kit.calls_at(file, finding, "empty_cache"):
            if isinstance(event.parent, ast.Expr):
                return _without(file, event) or [edits.replace(file, event.statement, "pass")]
        return ()

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """Lines that give memory back in most steps; a warning where it is asked for again."""
        for record in rank.latest(records.memory.CacheEmptied):
            # Calls outside of steps are not counted.
            if record.of_steps >= _FEWEST and record.steps >= _MOST_STEPS * record.of_steps:
                yield self._observed(rank, record)

    def _observed(self, rank: kit.RankRecording, record: records.memory.CacheEmptied) -> kit.Finding:
        # The call may serve another program on the device: memory that is not asked for again is no waste.
        useless = record.again >= _AGAIN * record.given and record.given > 0
        each = record.calls / max(1, record.steps)
        times = f"{each:,.0f} times a step" if each >= 2 else "in every step"
        given = f"{size(record.given / record.steps)} a step go back to the driver"
        segments = f" in {record.segments / record.steps:,.1f} segments" if record.segments else ""
        again = f", {size(record.again / record.steps)} are asked for again"
        return self.observed(
            rank,
            severity="warning" if useless else "info",
            place=record.place,
            message=f"empty_cache() {times} ({record.steps:,} of {record.of_steps:,}): "
            + (f"{given}{segments}{again}" if record.given else "there is nothing to give back, the host waits"),
            cause="it frees no tensor, only cached segments, and waits for the device; the next step asks the driver "
            "for the same memory",
            advice="take the call out of the loop; against fragmentation set "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            measured=kit.Measured(bytes=record.given, steps=record.of_steps),
        )

    def in_snapshot(self, snapshot: kit.SnapshotMemory) -> kit.Findings:
        """Segments given back in most steps by empty_cache(), and taken from the driver again."""
        from torchvet.snapshots.empty_cache_events import given_back

        for memory in snapshot.devices:
            given = given_back(memory)
            if given is not None and given.share >= _MOST_STEPS:
                yield in_memory(
                    self,
                    memory,
                    severity=self.severity,
                    place=given.place,
                    message=f"{size(given.bytes / given.steps)} in {given.segments / given.steps:,.1f} segments "
                    f"are given back to the driver in {given.share:.0%} of the steps and asked for again",
                    cause="`empty_cache()` frees no tensor, only cached segments, and waits for the device",
                    advice="take the call out of the loop",
                    measured=kit.Measured(bytes=given.bytes, steps=given.steps),
                )

    def in_file(self, file: kit.SourceFile) -> kit.Findings:
        """A call that every training step makes, under no condition but that there is a device."""
        for event in file.calls("empty_cache"):
            # Under `if step % 100 == 0` it is rare on purpose.
            if not file.dotted(event.call.func).startswith("torch.") or not _unconditional(file, event):
                continue
            if _is_between_models(file, event):
                continue
            training = _each_step(file, event) or _helps_each_step(file, event)
            if training or (event.loop is not None and _each_batch(file, event.loop, event)):
                yield self._suspected(file, event, training)

    def _suspected(self, file: kit.SourceFile, event: Event, training: bool) -> kit.Finding:
        call = file.segment(event.node)
        return self.suspect(
            file,
            event,
            f"{call} in every {'step' if training else 'batch'}: the next one asks the driver for the "
            "same memory again",
            severity=None if training else "info",
            cause="it frees no tensor, only cached blocks, and waits for the device",
            advice=f"take `{call}` out of the loop; keep it, at most, between training and evaluation",
            edits=_without(file, event),
        )


def _unconditional(file: kit.SourceFile, event: Event) -> bool:
    """Whether nothing but the kind of device decides that it runs; an `except` is a condition, so is a lambda."""
    if event.context.deferred:
        return False
    # A condition around the loop holds for all of its turns; one around a loop within the training's does not.
    around = (step.loop for step in file.steps if step.loop is not None and event.inside(step.loop))
    first = min((loop.first for loop in (event.loop, *around) if loop is not None), default=0)
    within = ((branch, arm) for branch, arm in event.context.arms if branch.lineno >= first)  # type: ignore[attr-defined]
    return all(isinstance(b, ast.If) and arm == 0 and _asks_for_device(file.segment(b.test)) for b, arm in within)


def _is_between_models(file: kit.SourceFile, event: Event) -> bool:
    """Whether it stands where something ends: in a `finally`, or in a loop each turn of which makes a model of its own,
    for another configuration."""
    if event.loop is None:
        return False
    tries = (n for n in walk(event.loop.node) if isinstance(n, ast.Try))
    if any(t.finalbody and t.finalbody[0].lineno <= event.line <= (t.end_lineno or 0) for t in tries):
        return True
    return any(_makes_model(file, e) for e in event.unit.events if e.inside(event.loop))


def _makes_model(file: kit.SourceFile, event: Event) -> bool:
    """Whether a name is bound to a module that is made there, moved at once or not."""
    value = event.node.value if isinstance(event.node, ast.Assign) else None
    made = file.roles.of(value, event.unit)
    while isinstance(on := receiver(value) if isinstance(value, ast.Call) else None, ast.Call):
        value = on
    if not isinstance(value, ast.Call) or "module" not in made or "criterion" in made:
        return False
    return file.dotted(value.func).startswith("torch.nn.") or file.roles.class_named(value.func) is not None


def _asks_for_device(test: str) -> bool:
    asks = any(word in test for word in ("is_available()", "device", "cuda"))
    # "cuda" in a test that asks for more than the device is no such test.
    return asks and "%" not in test and " and " not in test


def _each_step(file: kit.SourceFile, event: Event) -> bool:
    """Whether a training step runs it: in the step's own loop, or in a function that the step consists of."""
    if event.unit.owner is not None and event.unit.name in _PER_BATCH and event.loop is None:
        return bool(file.roles.of_class(event.unit.owner) & {"lightning", "hooked"})
    for step in file.steps:
        if not step.of("backward"):
            continue
        if step.loop is not None and step.unit is event.unit:
            # Not in a loop around it, nor around a call of a function that has the loop: an epoch is long.
            if event.inside(step.loop) and not _loops_below(step):
                return True
        # In a function that the step's loop calls to go backward.
        elif event.loop is None and step.loop is not None and _goes_through(step, event.unit):
            return True
    return False


def _helps_each_step(file: kit.SourceFile, event: Event, depth: int = 0) -> bool:
    """Whether it stands in a function that does no training itself and that each training step calls."""
    unit = event.unit
    # With effects of its own it is a part of the step: asked above.
    if event.loop is not None or unit.is_module or depth > 2 or file.effects(unit):
        return False
    return any(
        _unconditional(file, caller) and (_each_step(file, caller) or _helps_each_step(file, caller, depth + 1))
        for caller in file.callers(unit)
    )


def _loops_below(step: kit.Step) -> bool:
    """Whether every backward of the step stands in a loop of a function that the step calls."""
    return all(e.event.unit is not step.unit and e.event.loop is not None for e in step.of("backward"))


def _goes_through(step: kit.Step, unit: Unit) -> bool:
    """Whether the step calls a function that goes backward itself."""
    return any(e.event.unit is unit and e.event.loop is None for e in step.of("backward"))


def _each_batch(file: kit.SourceFile, loop: Loop, event: Event) -> bool:
    """Whether a loop that trains nothing goes over batches, or runs a model in each turn."""
    if _over_loader(file, loop, event):
        return True
    if file.effects(event.unit) or loop.comprehension:
        return False
    runs = (e for e in event.unit.events if isinstance(e.node, ast.Call) and e.loop is loop)
    return any(file.gradients.forwards.runs_module(e.call, event.unit) or _generates(file, e) for e in runs)


def _generates(file: kit.SourceFile, event: Event) -> bool:
    """`model.generate(...)` of a pretrained model, or what is named like one."""
    on = receiver(event.call)
    return terminal(event.node) == "generate" and on is not None and file.roles.is_a("module", on, event.unit)


def _over_loader(file: kit.SourceFile, loop: Loop, event: Event) -> bool:
    """Whether a loop goes over the batches of a loader and holds no loop of a training step."""
    node = loop.node
    if not isinstance(node, (ast.For, ast.AsyncFor)) or loop.comprehension:
        return False
    inner = any(s.loop is not None and s.loop.within(loop) for s in file.steps)
    return not inner and loader_in(file, node.iter, event.unit) is not None


def _without(file: kit.SourceFile, event: Event) -> list[kit.Edit]:
    """The call's line taken out, where other statements stay beside it in its block."""
    statement = event.statement
    block = _block_of(event)
    if not isinstance(event.parent, ast.Expr) or len(block) < 2 or not edits.stands_alone(file, statement):
        return []
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    start, end = (first - 1, len(file.lines[first - 2]) + 1), (last, len(file.lines[last - 1]) + 1)
    return [kit.Edit(path=file.path, start=start, end=end, text="")]


def _block_of(event: Event) -> list[ast.stmt]:
    """The statements beside the event's own, itself included; empty where that is a loop's or function's end."""
    # From the outside in: the innermost is asked first.
    around: list[ast.AST] = [event.unit.node]
    if event.loop is not None:
        around.append(event.loop.node)
    if event.context.arms:
        around.append(event.context.arms[-1][0])
    for node in reversed(around):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and event.statement in block:
                return block
    return []
