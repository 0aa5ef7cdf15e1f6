"""TRN103: a model is evaluated in train mode, or goes on training in eval mode."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec

from torchvet.formatting import count
from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.shared import training_loops as loops
from torchvet.rules.shared.seen_suspicions import as_observed, suspected_in
from torchvet.rules.training import _dropout_calls as dropout_calls
from torchvet.rules.training import _modes as modes
from torchvet.rules.training._loaded_models import Loaded, never_switched
from torchvet.rules.training.fixes.eval_mode import switched_around, switched_back
from torchvet.rules.training.fixes.trained_parts import put_into_train_mode
from torchvet.source import model
from torchvet.source.model import edits, origins

_STUCK = "stays in eval mode"
_IN_EVAL_MODE = kit.About("training in eval mode")
_HANDED_OVER = kit.About("handed over in eval mode")
_EVALUATION = re.compile(r"eval|valid|test|predict|sample|infer|accuracy", re.IGNORECASE)
_STANDS_STILL = "dropout is off and batch norm's running statistics stand still"
_ENOUGH_STEPS = 2
"""Sampled steps in which a model was trained in eval mode."""


class EvaluationInTrainMode(loops.LoopRule):
    """A model is evaluated in train mode, or goes on training in eval mode."""

    severity = "warning"
    words = ("backward", "load_state_dict", "torch.load", "dropout", "Dropout")
    fix_changes_results = True

    # An evaluation may come after what was run, and a layer of the program's own may ask for the mode itself.
    silence_clears = False

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """`train()` on a part that a library has handed over in eval mode."""
        return put_into_train_mode(file, finding) if kit.about(finding) == _HANDED_OVER else ()

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> Iterator[kit.Finding]:
        """Passes without gradients in which dropout or batch norm was at work, where source sees an evaluation; dropout
        that does not ask for the mode; training in eval mode, where source sees what switches to it."""
        yield from self._trained_in_eval_mode(rank, recording)
        yield from self._left_by_library(rank)
        yield from self._dropped(rank, recording)
        ran: dict[str, dict[int, records.training.TrainModePass]] = {}
        for record in rank.latest(records.training.TrainModePass):
            for place in (record.place, *record.around):
                ran.setdefault(place.path, {})[place.line] = record
        for path, by_line in ran.items():
            for found in (
                f for f in suspected_in(self, recording, path) if kit.about(f) != dropout_calls.ALWAYS_ACTIVE
            ):
                seen = by_line.get(found.location.line) if found.location is not None else None
                if seen is not None:
                    message = f"{found.message}: {seen.layer} ran so in {seen.passes:,} sampled passes"
                    yield as_observed(found, rank, message, kit.Measured(steps=seen.passes))

    def _dropped(self, rank: kit.RankRecording, recording: kit.Recording) -> Iterator[kit.Finding]:
        for record in rank.latest(records.layers.DroppedInEvalMode, "place"):
            for found in suspected_in(self, recording, record.place.path):
                at = found.location
                if kit.about(found) == dropout_calls.ALWAYS_ACTIVE and at is not None and _is_on(at, record.place.line):
                    seen = f"{record.module} was in eval mode in {count(record.calls, 'sampled call')} that dropped"
                    observed = as_observed(found, rank, f"{found.message}: {seen}", kit.Measured())
                    yield msgspec.structs.replace(observed, severity="warning")

    def _trained_in_eval_mode(self, rank: kit.RankRecording, recording: kit.Recording) -> Iterator[kit.Finding]:
        stuck = rank.latest(records.training.EvalModeSteps, "model")
        for record in stuck:
            # Of several models source does not say which.
            yield from self._of_model(rank, recording, record, asked=len(stuck) == 1)

    def _left_by_library(self, rank: kit.RankRecording) -> Iterator[kit.Finding]:
        for left in rank.latest(records.training.LeftInEvalMode):
            if left.steps >= _ENOUGH_STEPS:
                yield self.observed(
                    rank,
                    left.place,
                    f"{left.part} is trained without dropout: {count(left.layers, 'dropout layer')} in eval mode in "
                    f"{left.steps:,} checked training steps, from step {left.since:,} on",
                    cause="the library that is called here has put it into eval mode, and nothing has put it back",
                    advice="call `train()` on it before the training, or on the whole model at the start of each "
                    "training pass; Lightning keeps the mode that it finds",
                    measured=kit.Measured(steps=left.steps),
                    about=_HANDED_OVER,
                )

    def _of_model(
        self, rank: kit.RankRecording, recording: kit.Recording, record: records.training.EvalModeSteps, asked: bool
    ) -> Iterator[kit.Finding]:
        seen = f"{record.layer} was in eval mode in {record.steps:,} checked training steps, from step "
        seen += f"{record.since:,} on"
        everywhere = (f for path in recording.sources for f in suspected_in(self, recording, path)) if asked else ()
        suspected = [f for f in everywhere if kit.about(f) == _IN_EVAL_MODE]
        for found in suspected:
            yield as_observed(found, rank, f"{found.message}: {seen}", kit.Measured(steps=record.steps))
        if not suspected and record.switched is not None and record.steps >= _ENOUGH_STEPS:
            message = f"{record.model} {_STUCK} after this evaluation: {seen}"
            cause = f"eval() lasts until train() is called; from then on {_STANDS_STILL}"
            advice = "call `train()` on the model after the evaluation, or at the start of each training pass"
            measured = kit.Measured(steps=record.steps)
            led = [self.beside("called", at.function, at) for at in record.around]
            yield self.observed(
                rank, record.switched, message, cause=cause, advice=advice, measured=measured, related=led
            )

    def in_file(self, file: kit.SourceFile) -> Iterator[kit.Finding]:
        """A model that goes on training in eval mode, or is evaluated in train mode; dropout that knows no mode; a
        loaded model that is never switched."""
        yield from (self._drops_always(file, one) for one in dropout_calls.always_active(file))
        yield from (self._as_loaded(file, one) for one in never_switched(file))
        if file.mentions("backward") and file.mentions(".eval()", "no_grad", "inference_mode"):
            yield from self._of_loops(file)

    def _drops_always(self, file: kit.SourceFile, one: dropout_calls.DropoutCall) -> kit.Finding:
        made = isinstance(one.event.parent, ast.Call) and one.event.parent.func is one.event.node
        name = "a dropout layer that is made in each pass" if made else file.segment(one.event.call.func)
        evaluates = file.mentions(".eval()") and dropout_calls.drops_surely(one)
        return self.suspect(
            file,
            one.event,
            f"{name} drops in eval mode, too: it is not told whether the module trains",
            cause="eval() reaches the layers that a module holds, and no call that gets no word of the mode",
            advice=f"write `{one.instead}`",
            severity="warning" if evaluates else "info",
            node=one.node,
            edits=one.edits,
            about=dropout_calls.ALWAYS_ACTIVE,
        )

    def _of_loops(self, file: kit.SourceFile) -> Iterator[kit.Finding]:
        found: dict[int, kit.Finding] = {}
        for unit in {id(s.unit): s.unit for s in file.steps if s.loop is not None}.values():
            trained = _trained(unit)
            run = trained or _run_with_gradients(file, unit)
            happenings = list(modes.moments(file, unit)) if run else []
            stuck = self._never_back(file, unit, happenings, run)
            for event, finding in (*stuck, *self._evaluated(file, happenings, trained)):
                found.setdefault(id(event), finding)
        yield from found.values()

    def _as_loaded(self, file: kit.SourceFile, one: Loaded) -> kit.Finding:
        name = file.segment(one.model)
        mode = "the mode that it was saved in" if one.whole else "train mode, in which it was built"
        message = f"{name} runs in {mode}: nothing in this file calls {name}.eval()"
        acts = "dropout and batch norm are active" if one.varies == "yes" else "dropout and batch norm, if it has any, "
        cause = acts if one.varies == "yes" else f"{acts}are active{' where that was train mode' * one.whole}"
        return self.suspect(
            file,
            one.runs,
            message,
            cause=cause,
            advice=f"call `{name}.eval()` after loading it",
            severity="info" if one.varies == "unknown" else None,
            edits=edits.after(file, one.loaded.statement, f"{name}.eval()"),
            related=[self.also(file, "loaded", one.loaded)],
        )

    def _never_back(
        self, file: kit.SourceFile, unit: model.Unit, happenings: list[modes.Moment], trained: kit.Identity
    ) -> Iterator[tuple[model.Event, kit.Finding]]:
        """`model.eval()` in a loop that trains on, with no `train()` in it."""
        for one in (h for h in happenings if h.kind == "eval" and h.who & trained and _is_evaluation(file, h)):
            loop = _widest_of_one_model(file, unit, one)
            if loop is None or _leaves(file, one.at, loop):
                continue
            backwards = loops.effects_in(unit, loop, "backward")
            if _is_meant(file, one, happenings, loop) or all(e.at.excludes(one.at) for e in backwards):
                continue
            # Without dropout, batch norm and their like both modes compute the same.
            if not _unseen(file, unit, loop) and modes.stochastic(file, _model(one), one.event.unit) != "no":
                yield one.event, self._stuck(file, one, backwards[0])

    def _stuck(self, file: kit.SourceFile, one: modes.Moment, backward: kit.Effect) -> kit.Finding:
        name = file.segment(_model(one))
        message = f"{name} {_STUCK}: the loop trains on and never calls {name}.train()"
        cause = f"eval() lasts until train() is called; from the second pass on {_STANDS_STILL}"
        advice = f"call `{name}.train()` at the start of each training pass"
        change = switched_back(file, one, backward.event)
        related = [self.also(file, "backward", backward.event)]
        return self.suspect(
            file,
            one.event,
            message,
            cause=cause,
            advice=advice,
            severity="info" if _is_one_of_several(one.at) else None,
            edits=change,
            about=_IN_EVAL_MODE,
            related=related,
        )

    def _evaluated(
        self, file: kit.SourceFile, happenings: list[modes.Moment], trained: kit.Identity
    ) -> Iterator[tuple[model.Event, kit.Finding]]:
        """A pass over a loader without gradients, while the model is in train mode."""
        switched = file.mentions(".eval(", "train(False", "train(mode", ".training", "from_pretrained")
        for number, one in enumerate(happenings):
            if one.kind != "evaluates" or not one.who & trained or _trains_here(one.over):
                continue
            mine = [h for h in happenings[:number] if h.kind != "evaluates" and not h.event.excludes(one.over)]
            last = mine[-1] if mine else None
            # Modules are made in train mode: a file that switches nothing evaluates in it.
            in_train_mode = not switched if last is None else last.kind == "train" and bool(last.who & one.who)
            varies = modes.stochastic(file, one.event.call.func, one.event.unit) if in_train_mode else "no"
            if varies == "yes" or (varies == "unknown" and last is not None):
                yield one.event, self._in_train_mode(file, one, sure=varies == "yes")

    def _in_train_mode(self, file: kit.SourceFile, one: modes.Moment, sure: bool) -> kit.Finding:
        name = file.segment(one.event.call.func)
        message = f"{name} is evaluated in train mode: dropout and batch norm are active"
        cause = f"{name}.train() (or the mode that it was built in) still holds in this pass over a loader"
        advice = f"call `{name}.eval()` before evaluating, and `{name}.train()` after it"
        change = switched_around(file, one)
        return self.suspect(
            file, one.over, message, cause=cause, advice=advice, severity=None if sure else "info", edits=change
        )


def _is_on(at: kit.Location, line: int) -> bool:
    return at.line <= line <= (at.end_line or at.line)


def _trained(unit: model.Unit) -> kit.Identity:
    """The models whose parameters an optimizer steps in a unit."""
    found: set[tuple[object, ...]] = set()
    for effect in loops.effects_in(unit, None, "step", "scaler_step"):
        found |= loops.models_of(loops.subject_of(effect), effect.event.unit) or frozenset()
    return frozenset(found)


def _trains_here(event: model.Event) -> bool:
    """Whether the loop around a pass without gradients goes backward each time, too: a target is computed there."""
    backwards = loops.effects_in(event.unit, event.loop, "backward")
    return any(all(arm in e.arms for arm in event.context.arms) for e in backwards)


def _run_with_gradients(file: kit.SourceFile, unit: model.Unit) -> kit.Identity:
    """The only model that runs with gradients in the loops of a unit's backward passes; nothing where there are more.
    For optimizers that somebody else builds."""
    forwards, found = file.gradients.forwards, set()
    for effect in loops.effects_in(unit, None, "backward"):
        owner = effect.event.unit
        for event in loops.events_in(owner, effect.event.loop):
            runs = event.node.__class__ is ast.Call and forwards.runs_module(event.call, owner)
            if runs and file.gradients.enabled(event) != "no":
                found.add(origins.identity(event.call.func, owner))
    return found.pop() if len(found) == 1 else frozenset()


def _widest_of_one_model(file: kit.SourceFile, unit: model.Unit, one: modes.Moment) -> model.Loop | None:
    """The widest loop around a moment that goes on with one model: `model = build()` in it or in a function that it
    calls, or `for model in models`, makes each pass another's."""
    widest, loop = None, one.at.loop
    while loop is not None:
        if modes.made_by_calls(file, unit, loop, _model(one), one.event.unit):
            return widest
        for event in loops.events_in(unit, loop):
            value = getattr(event.node, "value", None)
            mine = [t for t in model.targets_of(event.node) if one.who & origins.identity(t, unit)]
            read = {model.terminal(n) for n in model.walk(value)} if isinstance(value, ast.Call) else set()
            another = isinstance(value, ast.Call) or event.node.__class__ is ast.For
            if another and mine and not any(model.terminal(t) in read for t in mine):
                return widest
        widest, loop = loop, loop.parent
    return widest


def _model(one: modes.Moment) -> ast.expr:
    on = model.receiver(one.event.call)
    assert on is not None
    return on


def _is_evaluation(file: kit.SourceFile, one: modes.Moment) -> bool:
    """Whether something without gradients follows: eval mode while training may be meant (frozen batch norm)."""
    unit = one.event.unit
    if _EVALUATION.search(unit.name) or file.gradients.enabled(one.event) == "no":
        return True
    return any(e.context.withs and file.gradients.enabled(e) == "no" for e in unit.events[one.event.index :])


def _is_meant(file: kit.SourceFile, one: modes.Moment, happenings: list[modes.Moment], loop: model.Loop) -> bool:
    """Whether a loop switches back, anywhere, since the next turn comes past it; or what trains switches to eval mode
    as well, for frozen features."""
    inside = [h for h in happenings if h.at.inside(loop)]
    if any(h.kind in ("train", "either") for h in inside):
        return True
    return any(h.kind == "eval" and h.who & one.who and not _is_evaluation(file, h) for h in inside)


def _is_one_of_several(call: model.Event) -> bool:
    """Whether a branch decides which model is evaluated: `tested = averaged if averages else model`."""
    names = (
        {n for one in model.given(call.call) for n in model.names_in(one)} if isinstance(call.node, ast.Call) else set()
    )
    bound = (call.unit.bindings.get(name, ()) for name in names)
    return any(one.excludes(other) for events in bound for one in events for other in events)


def _leaves(file: kit.SourceFile, at: model.Event, loop: model.Loop) -> bool:
    """Whether the loop is left after the evaluation."""
    inside = [b for b, _ in at.context.arms if isinstance(b, ast.If) and b.lineno > loop.first]
    texts = (loops.text_between(file, b.lineno, b.end_lineno or b.lineno) for b in inside)
    return any(re.search(r"\b(break|return|exit)\b", text) for text in texts)


def _unseen(file: kit.SourceFile, unit: model.Unit, loop: model.Loop) -> bool:
    """A function from elsewhere that may switch to train mode."""
    calls = (e for e in loops.events_in(unit, loop) if e.node.__class__ is ast.Call)
    return any("train" in model.terminal(e.node).lower() and file.callee(e) is None for e in calls)
