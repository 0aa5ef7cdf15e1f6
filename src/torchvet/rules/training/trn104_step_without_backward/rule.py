"""TRN104: an optimizer steps although its parameters never get a gradient."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from torchvet.finding import Measured
from torchvet.formatting import count
from torchvet.recording.records.numeric import CutOutput, LostLoss
from torchvet.recording.records.optimizers import ENOUGH_STARVED, OptimizerUse, UnownedParameters, still_unowned
from torchvet.recording.records.scaling import EmptyStep
from torchvet.recording.records.training import ConstantSoftmax
from torchvet.rules.kit import (
    NOTHING_MORE,
    About,
    Edits,
    Effect,
    Finding,
    Findings,
    Location,
    Place,
    RankRecording,
    Recording,
    Severity,
    SourceFile,
    about,
    calls_at,
)
from torchvet.rules.shared import training_loops as loops
from torchvet.rules.shared.empty_steps import refused_empty
from torchvet.rules.shared.normalised import along_another
from torchvet.rules.training import _reentrant as reentrant
from torchvet.rules.training._dropped_columns import Wanted, wanted_columns
from torchvet.rules.training.fixes.dropped_columns import kept_by_the_trainer
from torchvet.source.model import Event, Unit, edits, given, is_call, receiver, target_names, targets_of, terminal
from torchvet.source.model.origins import Identity, identity, models_in
from torchvet.source.model.steps import Step

_ELSEWHERE = re.compile(r"backward|autograd|\.grad\b|closure|engine|manual_|\.prepare\(|grad_fn|strategy")
"""Text that says that gradients come from somewhere else."""
_CUTS = re.compile(r"no_grad|inference_mode|\.detach\(|\.data\b")
_HARMLESS = re.compile(r"^(print|append|item|format|float|update|add_scalar|log|set_postfix|info|detach|str|write)$")
_FREEZES = re.compile(r"freez|froz", re.I)
"""In the name of a function on the way: it means to freeze."""
_OF_ONE = "softmax of one value"
_REENTRANT = "behind a reentrant checkpoint"
_DROPPED = "columns dropped by a Trainer"
_FIXES = {_OF_ONE: along_another, _DROPPED: kept_by_the_trainer, _REENTRANT: reentrant.not_reentrant}
"""By the variant of a finding of a run."""
_ENOUGH = 4
"""Checked steps from which on an optimizer is judged."""
_SURE = 5
"""Checked steps after which no gradient at all is no accident of the first batches."""
_USUAL = ("train", "eval", "parameters", "to", "cuda", "state_dict", "zero_grad")
"""Methods of a model that run nothing of it."""


class StepWithoutBackward(loops.LoopRule):
    """An optimizer steps although its parameters never get a gradient."""

    severity = "error"
    words = ("zero_grad",)
    fix_may_change_losses = True

    def could_be_measured(self, recording: Recording) -> bool:
        """Needed: an optimizer whose steps were checked."""
        uses = [use for rank in recording.ranks for use in rank.all(OptimizerUse)]
        return super().could_be_measured(recording) and any(use.checked >= _ENOUGH for use in uses)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Optimizers that step without any gradient, and parameters that never have one."""
        ended = refused_empty(rank)
        if any(loss.is_habit or loss.left_empty(ended) for loss in rank.latest(LostLoss)):
            return  # that loss is the cause, and has a rule of its own
        cut = any(c.is_habit for c in rank.latest(CutOutput))
        if ended is not None and ended.cleared is None:
            yield self._refused(rank, ended)
        for use in rank.latest(OptimizerUse, "id"):
            if not use.gradients_were_cleared:  # TRN102
                yield from self._of_use(rank, recording, use, cut)

    def _of_use(self, rank: RankRecording, recording: Recording, use: OptimizerUse, cut: bool) -> Findings:
        seen = use.checked + use.starved
        # A few steps with gradients may have come before the fault set in.
        if use.starved >= ENOUGH_STARVED and use.starved >= 0.9 * seen:
            yield self._starved(rank, use)
        # A cut output explains parameters without gradients, and TRN106 tells it at its line.
        elif use.without_gradient_count and seen >= _ENOUGH and not cut:
            yield from self._without_gradient(rank, recording, use)
        if use.frozen_count and seen >= _ENOUGH:
            yield self._frozen_since(rank, use)
        if use.stopped_count:
            yield self._stopped(rank, recording, use)
        made = next((s for s in rank.latest(ConstantSoftmax) if use.zero and set(use.zero) <= set(s.names)), None)
        # A single bias may well cancel out, as the last of a critic whose two means are subtracted.
        if use.zero_count > 1 or made is not None:
            yield self._zero(rank, use, made)

    def _starved(self, rank: RankRecording, use: OptimizerUse) -> Finding:
        message = f"{use.name}.step() changes nothing: in {use.starved} checked steps no parameter had a new gradient"
        cause = "no backward pass reaches this optimizer's parameters between its steps"
        advice = "call `loss.backward()` before `step()`, on a loss that depends on these parameters (not detached)"
        measured = Measured(steps=use.starved)
        return self.observed(rank, use.step_place, message, cause=cause, advice=advice, measured=measured)

    def _refused(self, rank: RankRecording, ended: EmptyStep) -> Finding:
        """A step that a scaler refused, which ended the program."""
        name, none = ended.optimizer, f"none of the {count(ended.parameters, 'parameter')}"
        cause = f"no backward pass ran between the scaler's last update and this step of {name}"
        advice = "call `scaler.scale(loss).backward()` before `scaler.step()`"
        if not ended.trainable:
            cause = f"{none} of {name} requires a gradient"
            advice = "give the optimizer the parameters that are to be trained, or do not step it"
        elif ended.passes:
            reached = f"; {count(ended.reached, 'parameter')} of other optimizers had one" if ended.reached else ""
            passes = count(ended.passes, "backward pass", "backward passes")
            cause = f"{passes} ran before it, and reached none of its parameters{reached}"
            advice = "follow the loss back to these parameters: what is detached, or left out of the sum, reaches none"
        if ended.trainable and ended.before:
            cause += f"; it had gradients in {count(ended.before, 'step')} before"
            advice = (
                "step an optimizer through the scaler only where the loss of this step reaches it: "
                "`if any(p.grad is not None for g in optimizer.param_groups for p in g['params'])`"
            )
        return self.observed(
            rank,
            ended.place,
            f"the program ended here: {none} of {name} had a gradient in this step, which scaler.step() refuses",
            cause=cause,
            advice=advice,
        )

    def _without_gradient(self, rank: RankRecording, recording: Recording, use: OptimizerUse) -> Findings:
        unowned = still_unowned(rank.all(UnownedParameters))
        swapped = [u for u in unowned if use.without_gradient_count <= u.orphans]
        if any(u.owned for u in swapped):
            return  # a part of the model was replaced: TRN105
        if use.without_gradient_count >= use.trainable > 0 and use.checked >= _SURE:
            yield self._none_at_all(rank, use, bool(swapped))
        elif (wanted := wanted_columns(rank, recording, use.without_gradient, use.silent)) is not None:
            yield self._dropped(rank, use, wanted)
        else:
            yield self._partly(rank, recording, use)

    def _none_at_all(self, rank: RankRecording, use: OptimizerUse, swapped: bool) -> Finding:
        cause = "backward does not start from anything computed from these parameters, or the way is cut"
        advice = (
            "follow the loss back to the model: what takes values out of the graph (`torch.tensor(…)` of tensors, "
            "`.item()`, `.detach()`, `.data`, numpy, `no_grad`) cuts it; build the loss of the tensors themselves "
            "(`torch.stack`, `+`)"
        )
        if swapped:
            cause = "no model that runs has these parameters: the gradients go to those of a model that was made later"
            advice = "build the optimizer of the parameters of the model that is trained, after that is complete"
        message = (
            f"{use.name}.step() changes nothing: backward ran before {use.checked} checked steps, and none of "
            f"its {count(use.trainable, 'parameter')} ever had a gradient"
        )
        measured = Measured(steps=use.steps)
        return self.observed(rank, use.step_place or use.place, message, cause=cause, advice=advice, measured=measured)

    def _frozen_since(self, rank: RankRecording, use: OptimizerUse) -> Finding:
        """A note where a part is frozen on purpose: once, after it was trained for a while, or by a function that says
        so. Nobody else gives an optimizer what every step freezes, before it has had a single gradient."""
        again = bool(use.frozen_at)
        certain = again and use.frozen_untrained == use.frozen_count and not _freezes_on_purpose(use.frozen_at)
        place = use.frozen_at[0] if again else use.place or use.step_place
        return self.observed(
            rank,
            place,
            f"{use.frozen_count} of {use.parameters} parameters of {use.name} have not required a gradient since step "
            f"{use.frozen_since} or before, up to step {use.steps:,}: {_named(use.frozen, use.frozen_count)}",
            cause="they did when the optimizer was made"
            + ("; this line switches that off again in later steps, and nothing on before they end" if again else ""),
            advice="find what should switch `requires_grad` on again after this line, and why it does not"
            if again
            else "leave them out of the optimizer if they are to stay as they are",
            severity="warning" if certain else "info",
            measured=Measured(steps=use.steps),
            related=[self.beside("called", at.function, at) for at in use.frozen_at[1:]],
        )

    def _stopped(self, rank: RankRecording, recording: Recording, use: OptimizerUse) -> Finding:
        after = f"step {use.stopped_after}" if use.stopped_after > 1 else "the first step"
        cause = "they have not changed since, while the same optimizer changed others"
        if use.silent:
            cause += "; their modules did not run in the later steps that were heard"
        kept = _kept_detached(recording) if use.silent else None
        if kept is not None:
            cause += ". This line keeps a detached copy of what a pass has computed, and is the only one that does"
        return self.observed(
            rank,
            kept or use.step_place or use.place,
            f"{use.stopped_count} of {use.parameters} parameters of {use.name} had no gradient after {after}, in any "
            f"checked step up to step {use.steps:,}: {_named(use.stopped, use.stopped_count)}",
            cause=cause,
            advice="look for what the program keeps of the first pass (a cache, a detached copy) and uses in its later "
            "ones; freeze them with `requires_grad_(False)` if that is meant",
            severity="warning",
            measured=Measured(steps=use.steps),
        )

    def _zero(self, rank: RankRecording, use: OptimizerUse, made: ConstantSoftmax | None) -> Finding:
        """Gradients that were exactly zero: a fault where the run shows why, or where all are; else a note."""
        severity: Severity = "error" if use.zero_count >= use.trainable else "info"
        kind = NOTHING_MORE
        cause = "the loss does not change with them in these steps"
        advice = "check whether what they compute can change the loss: a factor of 0, a clamped value"
        if made is not None:
            severity = "error" if severity == "error" else "warning"
            cause = (
                f"softmax here normalises over dimension {made.dim} of {made.shape}, which has size 1: it gives 1 "
                "whatever it is given, so that what led to it cannot matter"
            )
            advice = "normalise over the dimension that is to be weighed"
            kind = About(variant=_OF_ONE, operands=_others(made.shape))
        elif use.zero_valued > 1:
            cause = (
                f"{use.zero_valued} of them hold nothing but zeros: of two factors that are both zero, neither ever "
                "has a gradient other than zero"
            )
            advice = "look for what sets them to zero after they were initialized; start one of the factors at random"
        return self.observed(
            rank,
            made.place if made is not None else use.step_place or use.place,
            f"the gradient of {use.zero_count} of {use.parameters} parameters of {use.name} was exactly zero in all "
            f"{use.zero_looks} checked steps: {_named(use.zero, use.zero_count)}",
            cause=cause,
            advice=advice,
            severity=severity,
            measured=Measured(steps=use.steps),
            about=kind,
        )

    def _dropped(self, rank: RankRecording, use: OptimizerUse, wanted: Wanted) -> Finding:
        """A column of the dataset that a part of the model needs is in no batch."""
        place, related = wanted.places()
        return self.observed(
            rank,
            place,
            f"{_never(use)}; {wanted.said}",
            cause=wanted.cause,
            advice="`TrainingArguments(remove_unused_columns=False)`, or name the column as an argument of forward",
            severity="warning",
            measured=Measured(steps=use.steps),
            related=related,
            # What else was dropped may be no tensor, which a collator or the model cannot take.
            about=About(variant=_DROPPED) if wanted.alone else NOTHING_MORE,
        )

    def _partly(self, rank: RankRecording, recording: Recording, use: OptimizerUse) -> Finding:
        severity: Severity = "info"
        behind = 2 * use.checkpointed >= use.without_gradient_count
        asked, called = reentrant.setting(recording) if behind else None, use.checkpointed_at
        cause = "the loss does not depend on them in these steps"
        advice = "leave them out of the optimizer, or check that the loss reaches them"
        if behind:
            cause, advice, severity = reentrant.cause(use), reentrant.ADVICE, "warning"
        elif use.switched_off is not None:
            cause = "their modules ran with gradients switched off (no_grad, inference_mode), here"
            advice = "run them with gradients; if they are to stay as they are, leave them out of the optimizer"
            # Who freezes other parts by `requires_grad` meant these to be trained.
            severity = "warning" if use.frozen_beside else "info"
        elif use.silent:
            cause = "their modules did not run in the steps that were heard"
        return self.observed(
            rank,
            asked or (called if behind else use.switched_off) or use.place or use.step_place,
            _never(use),
            cause=cause,
            advice=advice,
            severity=severity,
            measured=Measured(steps=use.steps),
            related=[self.beside("called", "they run here", called)] if asked and called else [],
            about=About(variant=_REENTRANT) if asked else NOTHING_MORE,
        )

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """Call backward on the loss that the step's loop computes before it; a softmax over a dimension that has more
        than one value."""
        known = _FIXES.get(about(finding).variant)
        if known is not None:
            return known(file, finding)
        for stepped, _ in calls_at(file, finding, "step"):
            before = stepped.unit.events[: stepped.index]
            events = [e for e in before if e.inside(stepped.loop) and not e.excludes(stepped)]
            losses = [e for e in events if isinstance(e.node, ast.Assign) and _is_loss(file, e)]
            if not losses or any(is_call(e.node, "backward") for e in events):
                continue
            target = losses[-1].node.targets[0]  # type: ignore[attr-defined]
            if isinstance(target, ast.Name) and stepped.sure_after(losses[-1]):
                return edits.before(file, stepped.statement, f"{target.id}.backward()")
        return ()

    def in_file(self, file: SourceFile) -> Findings:
        """Steps without any backward in their loop, and models that only ever run without gradients."""
        for unit in {id(e.unit): e.unit for e in file.calls("zero_grad")}.values():
            for stepped in loops.effects_in(unit, None, "step", "scaler_step"):
                loss = self._forgotten(file, unit, stepped)
                if loss is not None:
                    yield self._no_backward(file, stepped, loss)
        for step in (s for s in file.steps if _CUTS.search(_text(s))):
            for stepped in step.of("step", "scaler_step"):
                call = self._without_gradients(file, stepped)
                if call is not None:
                    yield self._frozen(file, stepped, call)

    @staticmethod
    def _forgotten(file: SourceFile, unit: Unit, stepped: Effect) -> Event | None:
        """A loss that is computed where gradients are cleared and applied, but never made."""
        loop, call = stepped.at.loop, stepped.event.call
        if loop is None or (stepped.kind == "step" and (stepped.through or call.args or call.keywords)):
            return None
        effects = [e for e in file.effects(unit) if e.at.inside(loop)]
        clears = [e for e in effects if e.kind == "zero_grad" and loops.who(e) & loops.who(stepped)]
        if not clears:
            return None
        step = Step(unit, loop, effects)
        if step.of("backward"):
            return _between(file, step, clears, stepped)
        if _ELSEWHERE.search(_text(step)) or loops.may_do_more(file, step):
            return None
        return _loss(file, loops.events_in(stepped.event.unit, stepped.event.loop), stepped, anyhow=True)

    def _no_backward(self, file: SourceFile, stepped: Effect, loss: Event) -> Finding:
        name = file.segment(targets_of(loss.node)[0])
        message = f"{loops.name_of(stepped)}.step() changes nothing: no backward runs before it"
        cause = f"gradients are cleared and {name} is computed, but `{name}.backward()` is missing"
        advice = f"call `{name}.backward()` after the loss and before the step"
        related = [self.also(file, "loss", loss)]
        return self.suspect(file, stepped.event, message, cause=cause, advice=advice, related=related)

    @staticmethod
    def _without_gradients(file: SourceFile, stepped: Effect) -> Event | None:
        """The call of the optimizer's only model, where that and every other runs without gradients."""
        subject, unit = loops.subject_of(stepped), stepped.event.unit
        mine, made = loops.models_of(subject, unit), loops.constructors(subject, unit)
        if not mine or not made or len(made) != 1:
            return None
        models = models_in(made[0][0])
        if len(models) != 1 or not terminal(models[0]):
            return None
        if any(key[0] != "made" for key in mine) and not _is_cleared(file, stepped):
            return None  # somebody else may have run it
        return _run_for_nothing(file, mine, terminal(models[0]), stepped.at.unit)

    def _frozen(self, file: SourceFile, stepped: Effect, call: Event) -> Finding:
        model = file.segment(call.call.func)
        message = f"{loops.name_of(stepped)}.step() does nothing: {model} only runs without gradients"
        cause = f"every call of {model} is under no_grad or detached at once, so that no backward reaches it"
        advice = f"run {model} with gradients where it is to learn; if it is meant to be frozen, drop the optimizer"
        related = [self.also(file, "forward", call)]
        return self.suspect(file, stepped.event, message, cause=cause, advice=advice, related=related)


def _others(shape: tuple[int, ...]) -> tuple[str, ...]:
    """The one dimension, besides that of the batch, that has more than one value; empty where there is none, or are
    more."""
    larger = [str(dim) for dim, size in enumerate(shape) if dim and size > 1]
    return (larger[0],) if len(larger) == 1 else ()


def _freezes_on_purpose(lines: list[Place]) -> bool:
    """Whether a module's own `train()` does it, as for a backbone or batch norms that stay as they are, or a function
    on the way is called after it."""
    return lines[0].function.endswith(".train") or any(_FREEZES.search(at.function) for at in lines)


def _kept_detached(recording: Recording) -> Location | None:
    """The only line of the program that puts something detached into an attribute where that is not filled yet."""
    found = []
    for path in recording.sources:
        file = recording.model(path)
        for event in file.calls("detach") if file is not None else ():
            target = next((t for t in targets_of(event.statement) if isinstance(t, ast.Attribute)), None)
            tests = [ast.unparse(arm[0].test) for arm in event.context.arms if isinstance(arm[0], ast.If)]
            if target is not None and any(ast.unparse(target) in test for test in tests):
                found.append(Location(path=path, line=event.line, function=event.unit.name))
    return found[0] if len(found) == 1 else None


def _never(use: OptimizerUse) -> str:
    return (
        f"{use.without_gradient_count} of {use.parameters} parameters of {use.name} never had a gradient in the "
        f"checked steps: {_named(use.without_gradient, use.without_gradient_count)}"
    )


def _named(names: list[str], number: int) -> str:
    more = number - min(4, len(names))
    return ", ".join(names[:4]) + (f" and {more} more" if more > 0 else "")


def _text(step: Step) -> str:
    """The text that one pass of a step runs through, as far as it is known."""
    file, own = step.unit.file, step.unit
    others = {e.event.unit for e in step.effects} - {own}
    mine = loops.loop_text(file, step.loop) if step.loop is not None else loops.unit_text(own)
    return mine + "".join(loops.unit_text(u) for u in others)


def _between(file: SourceFile, step: Step, clears: list[Effect], stepped: Effect) -> Event | None:
    """The loss computed between the last clear and the step, where that is all that happens to gradients there."""
    owner = stepped.event.unit
    clear = next((e for e in reversed(clears) if e.order < stepped.order and not e.excludes(stepped)), None)
    if clear is None or not clear.sure_with(stepped) or clear.event.unit is not owner:
        return None
    if any(clear.order < e.order < stepped.order for e in step.of("backward")):
        return None
    if _ELSEWHERE.search(loops.text_between(file, clear.line + 1, stepped.line - 1)):
        return None
    if owner is not step.unit or loops.hides_between(file, clear, stepped) or loops.clears_by_hand({owner}):
        return None
    inside = owner.events[clear.event.index + 1 : stepped.event.index]
    return _loss(file, (e for e in inside if e.inside(step.loop)), stepped)


def _loss(file: SourceFile, events: Iterable[Event], stepped: Effect, anyhow: bool = False) -> Event | None:
    """The last loss that some events compute; None where it is handed to something that may run the backward. With
    `anyhow` one without gradients counts, too: where no backward stands at all, that is the same fault."""
    bound = (e for e in events if isinstance(e.node, ast.Assign) and _is_loss(file, e))
    losses = [e for e in bound if anyhow or file.gradients.enabled(e) != "no"]
    return losses[-1] if losses and not _given_away(file, stepped.event, losses) else None


def _is_loss(file: SourceFile, event: Event) -> bool:
    """Whether a name is bound to a loss: by what computes it, or by its name where a function of this file does."""
    value, unit = event.node.value, event.unit  # type: ignore[attr-defined]
    if "loss" in file.roles.of(value, unit):
        return True
    named = all(file.roles.hinted("loss", target) for target in targets_of(event.node))
    own = unit.call_of(value)
    known = file.callee(own) if named and own is not None else None
    return known is not None and not _ELSEWHERE.search(loops.unit_text(known))


def _given_away(file: SourceFile, stepped: Event, losses: list[Event]) -> bool:
    """Whether a loss is handed to a function that may run the backward."""
    names = {name for e in losses for name in target_names(e.node)}
    for event in loops.events_in(stepped.unit, stepped.loop):
        if isinstance(event.node, (ast.Yield, ast.Return)):
            return True
        called = event.node.__class__ is ast.Call and not _HARMLESS.search(terminal(event.node))
        if called and any(isinstance(one, ast.Name) and one.id in names for one in given(event.call)):
            return True
    return False


def _is_cleared(file: SourceFile, stepped: Effect) -> bool:
    """Whether the same function clears the optimizer's gradients in each pass that steps it, before it does."""
    own = stepped.event
    before = [e for e in file.effects(own.unit) if e.kind == "zero_grad" and e.event.unit is own.unit]
    before = [e for e in before if e.event.index < own.index and e.event.loop is own.loop]
    return any(own.sure_after(e.event) and loops.who(e) & loops.who(stepped) for e in before)


def _run_for_nothing(file: SourceFile, mine: Identity, word: str, first: Unit) -> Event | None:
    """The first call of a model, if all its calls are without gradients and nothing else keeps it."""
    calls = []
    # The step's own unit first: the model is mostly run there, with gradients.
    for owner in sorted(file.units_with(word), key=lambda u: u is not first):
        for event in owner.events:
            use = _use_of(event, mine, word)
            if use == "kept" or (use == "run" and not _runs_without_gradients(file, event)):
                return None
            calls += [event] if use == "run" else []
    return calls[0] if calls else None


def _use_of(event: Event, mine: Identity, word: str) -> str:
    """What an event does with a model, of which `word` is the last part of the name: `run`, `kept` under another name,
    handed on or asked for a part of it; empty for what has no part in training."""
    unit, node = event.unit, event.node
    if node.__class__ is not ast.Call:
        value = getattr(node, "value", None)
        return "kept" if terminal(value) == word and not isinstance(value, ast.Call) else ""
    if terminal(node) == word and identity(event.call.func, unit) & mine:
        return "run"
    on = receiver(event.call)
    if _is_model(on, unit, mine, word):
        return "" if terminal(node) in _USUAL else "kept"
    parts = [on.value] if isinstance(on, ast.Attribute) else []
    return "kept" if any(_is_model(one, unit, mine, word) for one in (*parts, *given(event.call))) else ""


def _is_model(node: ast.expr | None, unit: Unit, mine: Identity, word: str) -> bool:
    named = isinstance(node, (ast.Name, ast.Attribute)) and terminal(node) == word
    return named and bool(identity(node, unit) & mine)


def _runs_without_gradients(file: SourceFile, event: Event) -> bool:
    """Whether a call stands under `no_grad`, or its result is detached at once."""
    detached = isinstance(event.parent, ast.Attribute) and event.parent.attr in ("detach", "data")
    return detached or file.gradients.enabled(event) == "no"
