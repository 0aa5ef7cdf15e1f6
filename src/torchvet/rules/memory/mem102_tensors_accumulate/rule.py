"""MEM102: tensors without a graph pile up in a container, an attribute or a registry."""

from __future__ import annotations

import ast

from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.memory import _lasting, _stores
from torchvet.rules.memory._collected import result_of
from torchvet.rules.memory._idle_models import ADVICE, cause_of, is_of_models, line_of, makers_of
from torchvet.rules.memory._storages import of_a_batch
from torchvet.rules.memory.fixes.bounded_containers import bounded, trimmed
from torchvet.rules.memory.fixes.emptied_lists import emptied_after_use
from torchvet.rules.memory.fixes.framework_lists import freed_before_the_next, without_predictions
from torchvet.rules.memory.fixes.fresh_defaults import made_in_each_call
from torchvet.rules.memory.fixes.memos import evicted
from torchvet.rules.memory.fixes.stored_values import without_cache
from torchvet.rules.shared import bounds, growth_rule, snapshot_rule, step_code, training_loops
from torchvet.rules.shared.number_format import count, per_step
from torchvet.source.model import Event, Unit, is_call, walk

_OFTEN = 4
"""Steps from one store to the next below which it is no rare one."""
_USUAL_HISTORY, _WORTH_A_WARNING = 100, 32 << 20
"""The `history_size` of torch.optim.LBFGS where none is given; bytes below which nobody misses
those of a longer one, or of what a call returns for nothing."""
_MOST = 5
"""Lines of a snapshot that are reported; the sum is in the facts."""


class TensorsAccumulate(growth_rule.GrowthRule):
    """Tensors without a graph pile up in a container, an attribute or a registry."""

    severity = "error"
    words = ("backward",)

    def recognises(self, growth: kit.Growth, recording: kit.Recording) -> bool:
        """Most of what grows are storages that tensors hold by reference."""
        # Else graphs hold most of it: MEM101's.
        return growth.bytes_per_step > 0 and growth.direct_per_step >= 0.5 * growth.bytes_per_step

    def grade(self, growth: kit.Growth, recording: kit.Recording) -> kit.Severity:
        """What a function collects to return it is a note: its caller wants all of it."""
        return "info" if result_of(growth, recording) else super().grade(growth, recording)

    def message(self, growth: kit.Growth, recording: kit.Recording) -> str:
        """The headline, and what is meant to grow."""
        text, function = super().message(growth, recording), result_of(growth, recording)
        return f"{text}; {function}() joins and returns it, so that it is as large as its result" if function else text

    def store(self, growth: kit.Growth, recording: kit.Recording) -> kit.Store | None:
        """Of models that pile up the call that hands them in, where no other line is sure to store them; none of a
        history that torch's own optimizer keeps."""
        use = bounds.history_of(growth, recording)
        if use is not None and use.history_known:
            return None
        found = super().store(growth, recording)
        return line_of(growth, found, recording) if is_of_models(growth) else found

    def related(self, growth: kit.Growth, recording: kit.Recording) -> list[kit.Related]:
        """Of models that pile up the lines that make their optimizers, and how often they do."""
        found = super().related(growth, recording)
        return [*makers_of(recording), *found] if is_of_models(growth) else found

    def cause(self, growth: kit.Growth, store: kit.Store | None) -> str:
        """One more tensor each step, or one that gets larger."""
        name = growth.holding.name
        if "default" in growth.holding.via:
            return (
                "a default is made once, where the function is defined: all calls that leave the parameter out put "
                "tensors into the same object"
            )
        if is_of_models(growth):
            return cause_of(growth)
        if _of_history(growth):
            return f"the optimizer's own step puts tensors into {name}: a history of the updates before"
        # A thread's variables are no container that something is put into.
        if growth.holding.kind == "thread":
            return _of_threads(growth.holding)
        rate = growth.tensors_per_step
        # More bytes without more tensors: `x = torch.cat([x, …])`.
        if rate * growth.steps < 1:
            return f"{name} is replaced by a larger tensor again and again"
        if name == "weakref.finalize":
            return "what is to be called when an object dies keeps its arguments, and the objects live on"
        if _is_queue(growth):
            return f"more is put into {name} than is taken out of it"
        one = per_step(growth.kind)
        # Storing at each step may show as a little less than one a step.
        when = f"every {one}" if rate > 0.5 else f"one {one} in {round(1 / rate):,}"
        if growth.holding.capacity is not None:
            return f"{name} takes in tensors at {when}, and gives none away before it is full"
        return f"{name} takes in tensors at {when}, and in this run they are not taken out again"

    def matters_bounded(self, growth: kit.Growth, recording: kit.Recording) -> bool:
        """Nobody collects on purpose what a library keeps for itself, or a history that is longer than by default."""
        use = bounds.history_of(growth, recording)
        if use is not None:
            return use.history > _USUAL_HISTORY and use.history_bytes >= _WORTH_A_WARNING
        caller = growth_rule.calls_keeper(growth)
        if caller is not None:
            # What the program takes from the call, it wants.
            return _most(growth, recording) >= _WORTH_A_WARNING and _is_thrown_away(recording, caller)
        attribute = _attribute(growth)
        return attribute.startswith("_") and not recording.index.mentions(attribute)

    def advice(self, growth: kit.Growth, store: kit.Store | None) -> str:
        """Keep less of it."""
        name = growth.holding.name
        if "default" in growth.holding.via:
            return "make the default `None`, and the object in the function: `if rows is None: rows = []`"
        if growth.holding.kind == "thread":
            return (
                "end each thread when nobody waits for it any more: set its stop flag, take out what is left in the "
                "queue that it waits for, and `join()` it; or start one thread and go on with it"
            )
        if _is_queue(growth):
            return (
                f"give {name} a `maxsize`, so that who fills it waits for who empties it; or take out as many as go in"
            )
        if name == "weakref.finalize":
            return (
                "give the function that is to be called numbers and no tensors, or call what `weakref.finalize` "
                "returns as soon as it is due: its arguments stay until then, or until the object dies"
            )
        if is_of_models(growth):
            return ADVICE.format(name=name)
        if _of_history(growth):
            # The program's own optimizer has a line that stores.
            return _SHORTER.format(name=name) if store is not None else _SHORTER_HISTORY
        others = _of_a_library(growth, store)
        if others:
            return others
        # Functions and modules have no `.item()`.
        if growth.holding.item_kind is not None:
            return _OTHER_ITEMS[growth.holding.item_kind].format(name=name)
        if _of_optimizers(growth):
            return (
                f"keep in {name} only the optimizer that is in use: the state of those before it (averages of "
                "gradients, as large as the weights each) stays as long as they do"
            )
        return _less_of(growth.holding)

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """A default made in each call; a window as long as what is read of it; nothing stored where nothing is read;
        old entries of a dict that only remembers results taken out; no cache on a function that takes other arguments
        every time; what an Accelerator has prepared freed before it prepares the next; a list emptied by the one method
        that reads it; predictions that Lightning does not return where nobody takes them."""
        ways = (
            made_in_each_call,
            bounded,
            trimmed,
            evicted,
            without_cache,
            freed_before_the_next,
            emptied_after_use,
            without_predictions,
        )
        return next((made for made in (way(file, finding) for way in ways) if made), ())

    def in_snapshot(self, snapshot: kit.SnapshotMemory) -> kit.Findings:
        """Lines whose blocks stay, step after step, without the rest of a forward pass."""
        from torchvet.snapshots.growth import keeps_graph

        for memory in snapshot.devices:
            growth = memory.growth
            for leak in growth.leaks[:_MOST] if growth else ():
                if growth and not keeps_graph(leak, growth.leaks):
                    yield snapshot_rule.leaking(
                        self,
                        memory,
                        [leak],
                        growth,
                        cause=f"{leak.with_blocks:,} of {growth.steps:,} steps each left memory behind that this line "
                        "allocated, and none of it has been freed since",
                        advice="find what keeps it (a list, a dict, an attribute, a cache) and keep a number "
                        "(`.item()`), a running sum or a `collections.deque(maxlen=…)` instead; `torchvet run` names "
                        "it",
                    )

    def in_file(self, file: kit.SourceFile) -> kit.Findings:
        """A training step adds whole batches or outputs to what nothing ever empties."""
        for stored in _stores.collected(file):
            event = stored.event
            if not of_a_batch(file, stored.value, event) or not _in_training(file, event) or _seldom(event):
                continue
            store = _lasting.kept_on(file, stored)
            # Emptied each epoch it may be what the program wants.
            if store is not None and store.lasting and not _of_a_hook(file, stored.event.unit):
                yield self._suspected(file, store)

    def _suspected(self, file: kit.SourceFile, store: _stores.Stored) -> kit.Finding:
        holder, value = file.segment(store.root), file.segment(store.value)
        return self.suspect(
            file,
            store.event,
            f"{holder} takes in {value} at every training step and nothing takes it out",
            severity="info" if training_loops.is_test(file) else "warning",
            cause=f"{value} has the size of a batch; {holder} outlives the step and is emptied nowhere in this file",
            advice=f"keep in {holder} only what is needed: a number (`.item()`), a running sum, a "
            "`collections.deque(maxlen=…)`, or clear it every epoch",
            about=kit.About(operands=(holder,)),
        )


def _attribute(growth: kit.Growth) -> str:
    """The last part of the growing name; empty for a variable."""
    return growth.holding.name.rpartition(".")[2] if "." in growth.holding.name else ""


def _most(growth: kit.Growth, recording: kit.Recording) -> int:
    """The bytes that a bounded growth comes to."""
    bound = bounds.bound_of(growth, recording)
    return (bound.bytes if bound is not None else None) or growth.bytes


def _is_thrown_away(recording: kit.Recording, caller: kit.Place) -> bool:
    """Whether the statement at a line is a call of an object's method and nothing else, so that nobody takes what it
    returns: `rows.append(trainer.predict(loader))` calls two."""
    file = recording.model(caller.path)
    statements = (n for n in walk(file.tree) if isinstance(n, ast.Expr)) if file is not None else ()
    for statement in statements:
        if file is not None and statement.lineno <= caller.line <= (statement.end_lineno or 0):
            return [n for n in walk(statement.value) if _is_on_object(file, n)] == [statement.value]
    return False


def _is_on_object(file: kit.SourceFile, node: ast.AST) -> bool:
    """Whether a node calls something of what is no imported module."""
    on = node.func if isinstance(node, ast.Call) else None
    if not isinstance(on, ast.Attribute):
        return False
    root: ast.expr = on
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    return not (isinstance(root, ast.Name) and root.id in file.imports.names)


def _of_a_library(growth: kit.Growth, store: kit.Store | None) -> str:
    """What to do about what a library keeps in a private attribute; nothing where it is the program's own."""
    name, attribute, caller = growth.holding.name, _attribute(growth), growth_rule.calls_keeper(growth)
    if store is not None and attribute.startswith("_") and attribute not in store.text:
        return (
            f"`{store.text}` hands {name} one more with each call, and {name} is not the program's to empty: call "
            "it once, before the loop, and renew the data of what it gives; or look for what frees it again"
        )
    if store is None and caller is not None:
        return (
            f"line {caller.line} calls what keeps {name}, which is not the program's to empty: give that call the "
            "option to keep or to return less, or call it for a part of the data at a time"
        )
    return ""


def _less_of(holding: records.base.Holding) -> str:
    """By the type: a deque is no dict, and nothing is put into a tensor."""
    name, container = holding.name, holding.container
    if holding.capacity is not None:
        return f"lower the limit of {name} where so many items are not needed; it needs nothing else"
    if growth_rule.is_tensor_class(container or None) and container:
        return (
            f"join to {name} only what is needed, keep its last rows (`{name} = {name}[-n:].clone()`), or write it to "
            "disk and start anew every epoch"
        )
    if container in ("dict", "OrderedDict", "defaultdict"):
        return (
            f"keep in {name} only what is needed: a number (`.item()`), or the last entries "
            f"(`{name}.pop(next(iter({name})))` once there are enough), or write it to disk and clear it every epoch"
        )
    return (
        f"keep in {name} only what is needed: a number (`.item()`), a running sum, a `collections.deque(maxlen=…)`, or "
        "write it to disk and clear it every epoch"
    )


_SHORTER_HISTORY = "keep a shorter history: `history_size` of torch.optim.LBFGS is 100 where none is given"
_SHORTER = "take the oldest out of {name} as a new one comes: a `collections.deque(maxlen=…)` does that by itself"


def _of_threads(holding: records.base.Holding) -> str:
    """What threads that do not end keep, and where they are."""
    function = holding.name.removeprefix("<threads in ").removesuffix(">")
    at = f", most of them in line {holding.place.line}" if holding.place is not None else ""
    most = f"; most of that is in {' and '.join(f'`{part}`' for part in holding.parts)}" if holding.parts else ""
    return (
        f"{count(holding.items, 'thread')} ran {function} at the last search{at}: more are started than end, and each "
        f"keeps what its variables hold{most}"
    )


def _is_queue(growth: kit.Growth) -> bool:
    return growth.holding.container.endswith("Queue") or "queue" in growth.holding.via


_OTHER_ITEMS = {
    "function": "put into {name} once, before the loop, or take each out again after use: a function keeps the tensors "
    "that it closes over, or was given; numbers (`.item()`) taken beforehand keep none",
    "module": "keep in {name} only the modules that are still needed, as the best few; others can be written to disk "
    "(`torch.save` of their `state_dict()`)",
}


def _of_optimizers(growth: kit.Growth) -> bool:
    """Whether most of what is held was made by optimizers as they stepped, and is no copy that a program took."""
    sites = growth.holding.sites
    # Optimizers make their averages by `zeros_like` in their first step; a copy is made by `clone`.
    made = sum(s.bytes for s in sites if s.site.phase == "optimizer" and s.site.op.startswith("aten.zeros"))
    return made > 0.5 * sum(s.bytes for s in sites)


def _of_history(growth: kit.Growth) -> bool:
    """Whether an optimizer goes on to make state, and not only averages in the first step of each."""
    return bounds.is_history(growth) and not _of_optimizers(growth)


def _seldom(event: Event) -> bool:
    """`if step == 0:` around it, once a loop, or `if step % 100 == 0:`: too rarely for source to call it growth. Where
    the optimizer steps under the same test, it is each training step."""
    arms = [branch for branch, arm in event.context.arms if isinstance(branch, ast.If) and arm == 0]
    return any(_holds_seldom(arm.test) and not any(map(_steps, arm.body)) for arm in arms)


def _steps(statement: ast.stmt) -> bool:
    return any(is_call(n, "step") for n in walk(statement))


def _holds_seldom(test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp):
        # One rare part makes an `and` rare; an `or` takes all of them.
        return (any if isinstance(test.op, ast.And) else all)(_holds_seldom(one) for one in test.values)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_remainder(test.operand)
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
        return False
    other = test.comparators[0]
    # `if mode == "train":` holds in every step.
    number = isinstance(other, ast.Constant) and isinstance(other.value, int)
    # `step == len(loader) - 1` holds once a loop; `a == b` of two names may hold always.
    at_one = isinstance(test.left, ast.Name) and (number or not isinstance(other, (ast.Name, ast.Constant)))
    return at_one or _is_remainder(test.left)


def _is_remainder(node: ast.expr) -> bool:
    """`step % 100`; every second or third step is often."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)):
        return False
    every = node.right
    return not (isinstance(every, ast.Constant) and isinstance(every.value, int) and every.value < _OFTEN)


def _of_a_hook(file: kit.SourceFile, unit: Unit) -> bool:
    """Whether a framework calls it for each batch: that is MEM117's."""
    return unit.owner is not None and bool(file.roles.of_class(unit.owner) & {"lightning", "hooked"})


def _in_training(file: kit.SourceFile, event: Event, depth: int = 0) -> bool:
    """Whether an event runs in each step of a training loop that updates weights."""
    if any(step.unit is event.unit and event.inside(step.loop) and step.optimizers for step in file.steps):
        return True
    if event.unit.name == "forward" and event.unit.owner is not None:
        return any(step_code.runs_module(file, step, event.unit.owner) for step in file.steps if step.optimizers)
    callers = [caller for caller in file.callers(event.unit) if not _seldom(caller)] if depth < 3 else []
    return any(_in_training(file, caller, depth + 1) for caller in callers)
