"""TRN118: an activation gives nothing but the ends of its range, and what lies before it gets no gradient."""

from __future__ import annotations

from torchvet.finding import Location
from torchvet.formatting import count, percent
from torchvet.recording.records.layers import ClampedScores, DeadActivation
from torchvet.rules.kit import About, Edits, Finding, Findings, Measured, RankRecording, Recording, Rule, SourceFile
from torchvet.rules.training.fixes.sequentials import activation_of, without_activation

_STEPS = 3
"""Sampled steps from which on it is no accident. Chosen, not measured."""
_NAMES = {
    "relu": "ReLU",
    "hardtanh": "clamped activation",
    "hardsigmoid": "Hardsigmoid",
    "hardswish": "Hardswish",
}


class GradientsVanish(Rule):
    """An activation gives nothing but the ends of its range: what lies before it gets gradients of 0."""

    severity = "warning"
    silence_clears = False
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The Sequential without the ReLU that ends its scores."""
        return without_activation(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Activations without a living number in all sampled steps since one, where weights get no gradient."""
        dead = [one for one in rank.latest(DeadActivation, "place", "module", "number") if one.steps >= _STEPS]
        # Behind one that gives only 0 another gets only its biases. The first to die is the cause.
        if dead:
            first = min(dead, key=lambda one: one.since)
            yield self._seen(rank, first, [one for one in dead if one is not first])
        places = [one.place for one in dead]
        for seen in rank.latest(ClampedScores, "loss"):
            if seen.steps >= _STEPS and seen.place not in places:
                made = activation_of(recording.model(seen.place.path), seen.place.line, seen.module)
                yield self._scores(rank, seen, made)

    def _seen(self, rank: RankRecording, seen: DeadActivation, others: list[DeadActivation]) -> Finding:
        kind = _NAMES.get(seen.operator, seen.operator)
        where = f" in `{seen.module}`" if seen.module else ""
        value = "0" if seen.operator in ("relu", "hardswish") else "an end of its range"
        since = f"since step {seen.since}" if seen.since > 2 else "from the first sampled step on"
        named = [f"`{name}`" for name in seen.names if name]
        some = f", as {', '.join(named)}" if named else ""
        return self.observed(
            rank,
            seen.place,
            f"each of the {seen.numbers:,} numbers that the {kind}{where} gave is {value}, {since}; "
            f"{count(seen.weights, 'weight')} get no gradient{some}",
            cause=f"where an activation is flat its derivative is 0, and so is the gradient of what lies before it. "
            f"It was so in {count(seen.steps, 'sampled step')}, in which the loss was not 0; "
            f"{count(seen.moved, 'other weight')} got a gradient",
            advice="look at what it is given: a bias far below 0, weights of 0, inputs that are not scaled, an update "
            "that was too large; lower the learning rate, or use an activation that is nowhere flat (`LeakyReLU`)",
            measured=Measured(steps=seen.steps),
            related=[self.beside("also-dead", "gives nothing else either", one.place) for one in others],
        )

    def _scores(self, rank: RankRecording, seen: ClampedScores, made: Location | None) -> Finding:
        what = f"{count(seen.dead, 'class', 'classes')} of {seen.classes} got 0 for all their own samples lately"
        where = f" in `{seen.module}`" if seen.module else ""
        return self.observed(
            rank,
            seen.place,
            f"a ReLU{where} ends the scores of a cross entropy: {percent(seen.zeros / seen.scores)} of them are 0, "
            f"{what if seen.dead else 'and none below'}",
            cause=f"a score of 0 gets no gradient, so that a class which is 0 for a sample is not learned from it. "
            f"It was so in {count(seen.steps, 'sampled step')}",
            advice="end the model with the layer before the ReLU: scores may be negative",
            severity="warning" if seen.dead else "info",
            measured=Measured(steps=seen.steps),
            related=[
                self.beside("loss", "the loss that takes the scores", seen.loss),
                *([self.beside("activation", "the ReLU that ends them", made)] if made is not None else []),
            ],
            about=About(variant="scores", operands=(seen.module,)),
        )
