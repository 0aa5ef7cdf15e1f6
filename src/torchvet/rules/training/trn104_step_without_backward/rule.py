"""TRN104: an optimizer steps although its parameters never get a gradient."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from torchvet.formatting import count
from torchvet.recording.records.numeric import CutOutput, LostLoss
from torchvet.recording.records.training import OptimizerUse, UnownedParameters, still_unowned
from torchvet.rules.kit import Edit, Effect, Finding, Measured, RankRecording, Recording, Rule, SourceFile, calls_at
from torchvet.rules.shared import training_loops as loops
from torchvet.source.model import Event, Loop, Unit, edits, receiver, targets_of, terminal
from torchvet.source.model.origins import Identity, identity, models_in
from torchvet.source.model.steps import Step

_ELSEWHERE = re.compile(r"backward|autograd|\.grad\b|closure|engine|manual_|\.prepare\(|grad_fn|strategy")
"""Text that says that gradients come from somewhere else."""
_CUTS = re.compile(r"no_grad|inference_mode|\.detach\(|\.data\b")
_HARMLESS = re.compile(r"^(print|append|item|format|float|update|add_scalar|log|set_postfix|info|detach|str|write)$")


class StepWithoutBackward(Rule):
    """An optimizer steps although its parameters never get a gradient."""

    code = "TRN104"
    name = "step-without-backward"
    summary = "An optimizer steps although its parameters never get a gradient"
    severity = "error"
    words = ("zero_grad",)

    def could_be_measured(self, recording: Recording) -> bool:
        """Needed: an optimizer whose steps were looked at."""
        uses = [use for rank in recording.ranks for use in rank.all(OptimizerUse)]
        return super().could_be_measured(recording) and any(use.checked >= 4 for use in uses)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Optimizers that step without any gradient, and parameters that never have one."""
        if any(loss.is_habit for loss in rank.all(LostLoss)):
            return  # that loss is the cause, and has a rule of its own
        cut = any(c.is_habit for c in rank.latest(CutOutput))
        for use in rank.latest(OptimizerUse, "id"):
            seen = use.checked + use.starved
            if use.starved >= 3 and use.starved >= 0.9 * seen:
                yield self._starved(rank, use)
            elif use.without_gradient_count and seen >= 4 and not cut:
                unowned = still_unowned(rank.all(UnownedParameters))
                swapped = [u for u in unowned if use.without_gradient_count <= u.orphans]
                if any(u.owned for u in swapped):
                    continue  # a part of the model was replaced: TRN105
                yield (self._none_at_all(rank, use, bool(swapped)) if _learns_nothing(use) else self._partly(rank, use))

    def _starved(self, rank: RankRecording, use: OptimizerUse) -> Finding:
        return self.observed(
            rank, severity="error", place=use.step_place,
            message=f"{use.name}.step() changes nothing: in {use.starved} checked steps no parameter "
            "had a new gradient",
            cause="no backward pass reaches this optimizer's parameters between its steps",
            advice="call `loss.backward()` before `step()`, on a loss that depends on these parameters (not detached)",
            measured=Measured(steps=use.starved),
        )  # fmt: skip

    def _none_at_all(self, rank: RankRecording, use: OptimizerUse, swapped: bool) -> Finding:
        cause = (
            "no model that runs has these parameters: the gradients go to those of a model that was made later"
            if swapped else "backward does not start from anything computed from these parameters, or the way is cut"
        )  # fmt: skip
        advice = (
            "build the optimizer of the parameters of the model that is trained, after that is complete"
            if swapped else "follow the loss back to the model: what takes values out of the graph (`torch.tensor(…)` "
            "of tensors, `.item()`, `.detach()`, `.data`, numpy, `no_grad`) cuts it; build the loss of the tensors "
            "themselves (`torch.stack`, `+`)"
        )  # fmt: skip
        return self.observed(
            rank, severity="error", place=use.step_place or use.place,
            message=f"{use.name}.step() changes nothing: backward ran before {use.checked} checked steps, and none of "
            f"its {count(use.trainable, 'parameter')} ever had a gradient",
            cause=cause, advice=advice, measured=Measured(steps=use.steps),
        )  # fmt: skip

    def _partly(self, rank: RankRecording, use: OptimizerUse) -> Finding:
        names = ", ".join(use.without_gradient[:4])
        more = use.without_gradient_count - min(4, len(use.without_gradient))
        rest = f" and {more} more" if more > 0 else ""
        return self.observed(
            rank, severity="info", place=use.place or use.step_place,
            message=f"{use.without_gradient_count} of {use.parameters} parameters of {use.name} never "
            "had a gradient in the "
            f"checked steps: {names}{rest}",
            cause="the loss does not depend on them in these steps",
            advice="leave them out of the optimizer, or check that the loss reaches them",
            measured=Measured(steps=use.steps),
        )  # fmt: skip

    fix_may_change_losses = True

    def fixes(self, finding: Finding, file: SourceFile) -> Sequence[Edit]:
        """Call backward on the loss that the step's loop computes before it."""
        for stepped, _ in calls_at(file, finding, "step"):
            events = [e for e in stepped.unit.events if e.index < stepped.index and e.inside(stepped.loop)
                      and not e.excludes(stepped)]  # fmt: skip
            losses = [e for e in events if isinstance(e.node, ast.Assign) and _is_loss(file, e)]
            if any(terminal(e.node) == "backward" for e in events if isinstance(e.node, ast.Call)) or not losses:
                continue
            target = losses[-1].node.targets[0]  # type: ignore[attr-defined]
            if isinstance(target, ast.Name) and stepped.sure_after(losses[-1]):
                return edits.before(file, stepped.statement, f"{target.id}.backward()")
        return ()

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """Steps without any backward in their loop, and models that only ever run without gradients."""
        for unit in {id(e.unit): e.unit for e in file.calls("zero_grad")}.values():
            for stepped in (e for e in file.effects(unit) if e.kind in ("step", "scaler_step")):
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
        if any(e.kind == "backward" for e in effects):
            return _between(file, unit, loop, clears, stepped, effects)
        step = Step(unit, loop, effects)
        if _ELSEWHERE.search(_text(step)) or loops.may_do_more(file, step):
            return None
        return _loss(file, loops.events_in(stepped.event.unit, stepped.event.loop), stepped, anyhow=True)

    def _no_backward(self, file: SourceFile, stepped: Effect, loss: Event) -> Finding:
        name = file.segment(targets_of(loss.node)[0])
        return self.suspect(
            file, stepped.event, f"{loops.name_of(stepped)}.step() changes nothing: no backward runs before it",
            cause=f"gradients are cleared and {name} is computed, but `{name}.backward()` is missing",
            advice=f"call `{name}.backward()` after the loss and before the step",
            severity="info" if loops.is_test(file) else None,
            related=[self.also(file, "loss", loss, file.segment(loss.node))],
        )  # fmt: skip

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
        word, calls = terminal(models[0]), []
        # The step's own unit first: the model is mostly run there, with gradients.
        for owner in sorted(file.units_with(word), key=lambda u: u is not stepped.at.unit):
            for event in owner.events:
                if event.node.__class__ is not ast.Call:
                    if terminal(getattr(event.node, "value", None)) == word and not _is_call(event):
                        return None
                elif terminal(event.node) == word and identity(event.call.func, owner) & mine:
                    calls.append(event)
                    if file.gradients.enabled(event) != "no" and not _is_detached(event):
                        return None
                elif _is_used(event, owner, mine, word):
                    return None
        return calls[0] if calls else None

    def _frozen(self, file: SourceFile, stepped: Effect, call: Event) -> Finding:
        model = file.segment(call.call.func)
        return self.suspect(
            file, stepped.event, f"{loops.name_of(stepped)}.step() does nothing: {model} only runs without gradients",
            cause=f"every call of {model} is under no_grad or detached at once, so that no backward reaches it",
            advice=f"run {model} with gradients where it is to learn; if it is meant to be frozen, drop the optimizer",
            severity="info" if loops.is_test(file) else None,
            related=[self.also(file, "forward", call, file.segment(call.node))],
        )  # fmt: skip


_SURE = 5
"""Checked steps after which no gradient at all is no accident of the first batches."""


def _learns_nothing(use: OptimizerUse) -> bool:
    """Whether an optimizer stepped on, after backward passes, and not one of its parameters ever had a gradient."""
    return use.without_gradient_count >= use.trainable > 0 and use.checked >= _SURE


def _text(step: Step) -> str:
    """The text that one pass of a step runs through, as far as it is known."""
    file, own = step.unit.file, step.unit
    others = {e.event.unit for e in step.effects} - {own}
    mine = loops.loop_text(file, step.loop) if step.loop is not None else loops.unit_text(own)
    return mine + "".join(loops.unit_text(u) for u in others)


def _between(file: SourceFile, unit: Unit, loop: Loop, clears: list[Effect], stepped: Effect,
             effects: list[Effect]) -> Event | None:  # fmt: skip
    """The loss computed between the last clear and the step, where that is all that happens to gradients there."""
    before = [e for e in clears if e.order < stepped.order and not e.excludes(stepped)]
    if not before or not before[-1].sure_with(stepped) or before[-1].event.unit is not stepped.event.unit:
        return None
    clear, owner = before[-1], stepped.event.unit
    if any(e.kind == "backward" and clear.order < e.order < stepped.order for e in effects):
        return None
    if _ELSEWHERE.search(loops.text_between(file, clear.line + 1, stepped.line - 1)):
        return None
    if owner is not unit or loops.hides_between(file, clear, stepped) or loops.clears_by_hand({owner}):
        return None
    inside = owner.events[clear.event.index + 1 : stepped.event.index]
    return _loss(file, (e for e in inside if e.inside(loop)), stepped)


def _loss(file: SourceFile, events: Iterable[Event], stepped: Effect, anyhow: bool = False) -> Event | None:
    """The last loss that some events compute; None where it is handed to something that may run the backward. With
    `anyhow` one without gradients counts, too: where no backward stands at all, that is the same fault."""
    unit = stepped.event.unit
    losses = [e for e in events if isinstance(e.node, ast.Assign)
              and _is_loss(file, e) and (anyhow or file.gradients.enabled(e) != "no")]  # fmt: skip
    return losses[-1] if losses and not _given_away(file, unit, stepped.event.loop, losses) else None


def _is_loss(file: SourceFile, event: Event) -> bool:
    """Whether a name is bound to a loss: by what computes it, or by its name where a function of this file does."""
    value, unit = event.node.value, event.unit  # type: ignore[attr-defined]
    if "loss" in file.roles.of(value, unit):
        return True
    named = all(file.roles.hinted("loss", target) for target in targets_of(event.node))
    own = next((e for e in unit.calls.get(terminal(value), ()) if e.node is value), None)
    known = file.callee(own) if named and own is not None else None
    return known is not None and not _ELSEWHERE.search(loops.unit_text(known))


def _given_away(file: SourceFile, unit: Unit, loop: Loop | None, losses: list[Event]) -> bool:
    """Whether a loss is handed to a function that may run the backward."""
    names = {t.id for e in losses for t in targets_of(e.node) if isinstance(t, ast.Name)}
    for event in loops.events_in(unit, loop):
        if event.node.__class__ is ast.Call and not _HARMLESS.search(terminal(event.node)):
            given = [*event.call.args, *(k.value for k in event.call.keywords)]
            if any(isinstance(one, ast.Name) and one.id in names for one in given):
                return True
        if isinstance(event.node, (ast.Yield, ast.Return)):
            return True
    return False


def _is_cleared(file: SourceFile, stepped: Effect) -> bool:
    """Whether the same function clears the optimizer's gradients in each pass that steps it, before it does."""
    effects = file.effects(stepped.event.unit)
    before = [e for e in effects if e.kind == "zero_grad" and e.event.unit is stepped.event.unit
              and e.event.index < stepped.event.index and stepped.event.loop is e.event.loop]  # fmt: skip
    return any(stepped.event.sure_after(e.event) and loops.who(e) & loops.who(stepped) for e in before)


def _is_call(binding: Event) -> bool:
    return isinstance(getattr(binding.node, "value", None), ast.Call)


def _is_used(event: Event, unit: Unit, mine: Identity, word: str) -> bool:
    """Whether a model is handed on, or asked for more than its mode and parameters."""
    on = receiver(event.call)
    if isinstance(on, (ast.Name, ast.Attribute)) and terminal(on) == word and identity(on, unit) & mine:
        return terminal(event.node) not in ("train", "eval", "parameters", "to", "cuda", "state_dict", "zero_grad")
    if isinstance(on, ast.Attribute) and terminal(on.value) == word and identity(on.value, unit) & mine:
        return True
    given = [*event.call.args, *(k.value for k in event.call.keywords)]
    named = [one for one in given if isinstance(one, (ast.Name, ast.Attribute)) and terminal(one) == word]
    return any(identity(one, unit) & mine for one in named)


def _is_detached(event: Event) -> bool:
    return isinstance(event.parent, ast.Attribute) and event.parent.attr in ("detach", "data")
