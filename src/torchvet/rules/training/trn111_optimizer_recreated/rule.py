"""TRN111: the optimizer is built anew in every pass, so that its state is lost."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchvet.rules.kit import Edits, Effect, Finding, Identity, Measured, RankRecording, Recording, SourceFile, records
from torchvet.rules.shared import training_loops as loops
from torchvet.rules.shared.seen_suspicions import confirmed
from torchvet.rules.training.fixes import kept_optimizers as fixes
from torchvet.source.model import Event, Unit, is_call, names_in, origins, targets_of, torch_names
from torchvet.source.model.units import behind_progress
from torchvet.source.syntax import keyword, receiver, terminal
from torchvet.source.walking import Loop, walk

_PASS = re.compile(r"epoch|step|iter|batch|^(i|j|t|_|it|idx)$")
_MANY, _FEW_STEPS = 10, 10
"""Optimizers that one line has built again over the same weights, and steps of each, at which their state is lost."""
_NUMBER = re.compile(r"(?:n_?|num_?|max_?|total_?)?(epoch|step|iter)(?:s|ations)?")
_AGAIN = re.compile(
    r"load_state_dict|\.apply\(|init_weights|init_param|reset|requires_grad|freeze|prun|merge|task|client"
)
"""Text that says that the weights, too, start again."""
_OTHER = re.compile(
    r"fold|seed|trial|run|client|task|stage|round|model|agent|worker|config|lr|phase|episode|attack|restart|ensemble"
    r"|member|split|repeat|domain|layer|repet|exp",
    re.IGNORECASE,
)
"""What a loop goes over that is no training pass."""
_NEW_PARTS = re.compile(r"setattr\(|add_module\(|register_(module|parameter)\(|\bParameter\(|\bnn\.[A-Z]\w*\(")
_GROWS = re.compile(r"grow|expand|extend|resize|widen|deepen|(^|_)add(_|$)|replace")
"""Methods of a model from elsewhere that may give it other parameters, by their names."""


class OptimizerRecreated(loops.LoopRule):
    """The optimizer is built anew in every pass, so that its state is lost."""

    severity = "warning"
    words = ("optim",)
    fix_changes_results = True

    silence_clears = False  # passes that were not run yet may show it

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Optimizers that one line has built again over the same parameters, where source shows that none is needed."""
        again = {
            u.place: u for u in sorted(rank.all(records.optimizers.OptimizerUse), key=lambda u: u.rebuilt) if u.rebuilt
        }
        for use in again.values():
            times = use.rebuilt + 1
            seen, measured = f": {use.name} was built {times:,} times", Measured(steps=times)
            found = [*confirmed(self, recording, rank, use.place, seen=seen, measured=measured)]
            yield from found
            if not found and _lost_its_state(use):
                yield self._lost(rank, use)

    def _lost(self, rank: RankRecording, use: records.optimizers.OptimizerUse) -> Finding:
        each = use.rebuilt_steps / use.rebuilt
        return self.observed(
            rank,
            use.place,
            f"{use.name} was built {use.rebuilt + 1:,} times over the same weights, for {each:.3g} steps each: every "
            "time without what the one before had learnt",
            cause="an optimizer's state (momentum, running averages, step count) lives in the object; the new one "
            f"starts from nothing, and the weights went on as they were, {use.continued:,} times",
            advice="build the optimizer once, and hand it to what trains",
            measured=Measured(steps=use.rebuilt + 1),
        )

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """An optimizer that is built in a loop which trains the same model with it."""
        for made, first in _replaced(file):
            yield self._finding(file, made, fixes.not_again(file, made, first))
        for made in _made_where_it_trains(file):
            if made.loop is not None and self._recreated(file, made):
                yield self._finding(file, made, _hoisted(file, made))
            elif made.loop is None and self._in_called(file, made):
                moved = fixes.in_the_constructor(file, made) or fixes.given_by_the_caller(file, made)
                yield self._finding(file, made, moved)

    def _recreated(self, file: SourceFile, made: Event) -> bool:
        loop, unit, call = made.loop, made.unit, made.call
        if loop is None or not _passes(loop):
            return False
        name, models = _holder(made), origins.models_in(call)
        if _branches(made, loop) or not models or not _trains(unit, loop, origins.identity(name, unit), made):
            return False
        again = _AGAIN.search(loops.loop_text(file, loop)) or _rebuilt(file, unit, loop, models)
        return not _depends_on(unit, loop, call) and not again

    @staticmethod
    def _in_called(file: SourceFile, made: Event) -> bool:
        """One that a function builds for itself, which is called in every epoch with the same model."""
        unit, call, name = made.unit, made.call, _holder(made)
        callers = [] if made.context.arms or name is None else file.callers(unit)
        mine = _steps(unit, origins.identity(name, unit)) if callers else []
        if not mine or any(e.at.loop is not None and e.at.loop.parent is not None for e in mine):
            return False
        models = origins.models_in(call)
        if not models or _depends_on(unit, None, call) or _AGAIN.search(loops.unit_text(unit)):
            return False
        return all(_same_model(file, c) and not _rebuilt(file, c.unit, c.loop, models, unit) for c in callers)

    def _finding(self, file: SourceFile, made: Event, moved: Edits) -> Finding:
        name = ast.unparse(targets_of(made.statement)[0])
        kind = file.dotted(made.call.func).rpartition(".")[2]
        momentum = keyword(made.call, "momentum")
        plain = kind == "SGD" and (momentum is None or (isinstance(momentum, ast.Constant) and not momentum.value))
        message = f"{name} is built anew in every pass of this loop, without what {kind} had learnt"
        cause = (
            "an optimizer's state (momentum, running averages, step count) lives in the object; the new one "
            "starts from nothing, the model does not"
        )
        advice = f"build {name} once, before the loop"
        return self.suspect(
            file, made, message, cause=cause, advice=advice, severity="info" if plain else None, edits=moved
        )


def _made_where_it_trains(file: SourceFile) -> Iterator[Event]:
    """The optimizers that functions make which have a part in a training step."""
    units = {id(u): u for s in file.steps for u in (s.unit, *(e.event.unit for e in s.effects))}
    for unit in units.values():
        yield from (made for made in unit.calls_of(torch_names.OPTIMIZERS) if _is_optimizer(file, made))


def _steps(unit: Unit, who: Identity, loop: Loop | None = None) -> list[Effect]:
    """The steps of an optimizer that a unit makes, in a loop if one is given."""
    return [e for e in loops.effects_in(unit, loop, "step", "scaler_step") if loops.who(e) & who]


def _lost_its_state(use: records.optimizers.OptimizerUse) -> bool:
    """Whether one training went on with many optimizers of a few steps each. Stages of a training, tasks and rounds
    take more steps or begin from other weights; LBFGS builds its state within one step."""
    short = use.rebuilt_steps <= _FEW_STEPS * use.rebuilt and use.name != "LBFGS"
    return short and use.rebuilt >= _MANY and use.continued >= 0.9 * (use.rebuilt - 1)


def _holder(made: Event) -> ast.expr | None:
    """The name or attribute that an optimizer is bound to."""
    return next((t for t in targets_of(made.statement) if isinstance(t, (ast.Name, ast.Attribute))), None)


def _hoisted(file: SourceFile, made: Event) -> Edits:
    """The edits that move it before its loop, or before the one around that which goes over passes as well."""
    found: Edits = []
    loop, inner = made.loop, made.statement
    while loop is not None and _passes(loop) and not _depends_on(made.unit, loop, made.call):
        moved = fixes.before_the_loop(file, made, loop, inner)
        if not moved:
            break
        found, inner, loop = moved, loop.node, loop.parent  # type: ignore[assignment]
    return found


def _replaced(file: SourceFile) -> Iterator[tuple[Event, Event]]:
    """Methods that bind `self.optimizer` to a new one like that of `__init__`, called in every epoch of a training;
    with each the first."""
    for made in file.calls(*torch_names.OPTIMIZERS) if file.steps else ():
        owner, target = made.unit.owner, next(iter(targets_of(made.statement)), None)
        first = owner.method("__init__") if owner is not None and made.unit.name != "__init__" else None
        if first is None or not isinstance(target, ast.Attribute) or not _is_optimizer(file, made):
            continue
        alike = (e for e in first.calls.get(terminal(made.node), ()) if _like(e.call, made.call))
        before = [e for e in alike if [terminal(t) for t in targets_of(e.statement)] == [target.attr]]
        if before and _called_each_epoch(file, made):
            yield made, before[-1]


def _like(one: ast.Call, other: ast.Call) -> bool:
    """Whether two optimizers are of one kind and over the same parameters."""
    mine, yours = ([ast.dump(m) for m in origins.models_in(c)] for c in (one, other))
    return bool(mine) and mine == yours and ast.dump(one.func) == ast.dump(other.func)


def _called_each_epoch(file: SourceFile, made: Event) -> bool:
    """Whether a loop over epochs calls the method in each turn, and trains with what it built."""
    unit, name = made.unit, targets_of(made.statement)[0]
    callers = [] if made.loop is not None or made.context.arms else file.callers(unit)
    if len(callers) != 1 or _AGAIN.search(loops.unit_text(unit)):
        return False
    caller = callers[0]
    loop = _only_loop(file, caller)
    if loop is None or not _passes(loop) or _branches(caller, loop):
        return False
    return bool(_steps(caller.unit, origins.identity(name, unit), loop))


def _branches(event: Event, loop: Loop) -> bool:
    """Whether an event stands in a branch within a loop."""
    return any(branch.lineno > loop.first for branch, _ in event.context.arms)  # type: ignore[attr-defined]


def _only_loop(file: SourceFile, caller: Event) -> Loop | None:
    """The `for` loop that a call stands in; None where it is in several, and where the weights, too, start again."""
    loop = caller.loop
    if loop is None or loop.parent is not None or not isinstance(loop.node, ast.For):
        return None
    return None if _AGAIN.search(loops.loop_text(file, loop)) else loop


def _passes(loop: Loop) -> bool:
    """A loop that goes over epochs, steps or batches: not over models, folds, seeds or settings."""
    node = loop.node
    if isinstance(node, ast.While):
        return True
    if not isinstance(node, ast.For):
        return False
    return not _OTHER.search(ast.unparse(node.target) + " " + ast.unparse(node.iter)) and (
        bool(_PASS.search(_turns(node))) or terminal(behind_progress(node.iter)) == "range"
    )


def _trains(unit: Unit, loop: Loop, name: Identity, made: Event) -> bool:
    """Whether this loop steps it, and a whole further loop does not stand between: one pass is one epoch or step."""
    mine = [e for e in _steps(unit, name, loop) if e.at.index > made.index]
    if not mine:
        return False
    # Over epochs one more loop, that over batches, may lie between; more loops are rounds of something else.
    depth, inner = 0, mine[0].at.loop
    while inner is not None and inner is not loop:
        depth, inner = depth + 1, inner.parent
    epoch = isinstance(loop.node, ast.For) and "epoch" in _turns(loop.node)
    return depth == 0 or (depth == 1 and bool(epoch))


def _turns(loop: ast.For) -> str:
    """What a loop counts, in the words of its variable or of the number of its turns: `for i in range(epochs)`."""
    over = behind_progress(loop.iter)
    words = ast.unparse(loop.target).lower()
    if is_call(over, "range") and over.args:
        number = _NUMBER.fullmatch(terminal(over.args[-1]).lower())
        words += f" {number[1]}" if number is not None else ""
    return words


def _is_optimizer(file: SourceFile, made: Event) -> bool:
    return "optimizer" in torch_names.role_of_call(file.dotted(made.call.func))


def _same_model(file: SourceFile, caller: Event) -> bool:
    """Whether a call stands in a loop over epochs or steps that makes nothing anew of what it passes."""
    loop = _only_loop(file, caller)
    if loop is None or not isinstance(loop.node, ast.For):
        return False
    words = ast.unparse(loop.node.target)
    if _OTHER.search(words + ast.unparse(loop.node.iter)):
        return False
    if re.search("epoch|step|iter", _turns(loop.node)):
        return not _depends_on(caller.unit, loop, caller.call, words)
    if "epoch" in terminal(caller.node).lower() and terminal(behind_progress(loop.node.iter)) == "range":
        return not _depends_on(caller.unit, loop, caller.call)
    on = _stepping(file, caller)
    return (
        on is not None and loops.is_loader(file, loop.node.iter, caller.unit) and not _depends_on(caller.unit, loop, on)
    )


def _stepping(file: SourceFile, caller: Event) -> ast.expr | None:
    """The object whose method takes one step with each batch of the loop around a call of it; None for no such call."""
    steps = [e for e in file.effects(caller.unit) if e.is_step and e.at is caller]
    once = bool(steps) and all(e.event.loop is None for e in steps)
    return receiver(caller.call) if once else None


def _rebuilt(
    file: SourceFile, unit: Unit, loop: Loop | None, models: list[ast.expr], where: Unit | None = None
) -> bool:
    """Whether a loop calls a method of the model that gives it new parameters, which only a new optimizer knows of.
    `where` is the unit that names the models, if that is another."""
    mine = {key for model in models for key in origins.identity(model, where or unit)}
    for event in loops.events_in(unit, loop):
        on = receiver(event.call) if event.node.__class__ is ast.Call else None
        if on is None or not origins.identity(on, unit) & mine:
            continue
        callee = file.callee(event)
        if _GROWS.search(terminal(event.node)) if callee is None else _NEW_PARTS.search(loops.unit_text(callee)):
            return True
    return False


def _depends_on(unit: Unit, loop: Loop | None, call: ast.expr, but: str = "") -> bool:
    """Whether the optimizer is given something that is made in the loop."""
    used = names_in(call)
    attributes = {ast.unparse(n) for n in walk(call) if isinstance(n, ast.Attribute)}
    for event in loops.events_in(unit, loop):
        for target in targets_of(event.node):
            text = ast.unparse(target)
            if text == but or isinstance(getattr(event.node, "value", None), ast.Constant):
                continue
            if text in used or text in attributes or any(a.startswith(text + ".") for a in attributes):
                return True
    return False
