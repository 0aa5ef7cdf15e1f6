"""TRN130: targets lie where the activation that a prediction ends with cannot reach."""

from __future__ import annotations

from torchvet.finding import Location
from torchvet.formatting import count, percent
from torchvet.recording import records
from torchvet.rules.kit import About, Edits, Finding, Findings, Measured, RankRecording, Recording, Rule, SourceFile
from torchvet.rules.training.fixes.sequentials import activation_of, without_activation

_STEPS = 3
"""Sampled steps with such targets, from which on it is a habit. Chosen, not measured."""
_HABIT = 0.5
"""The share of sampled steps with such targets: those of a network may move into the range. Chosen, not measured."""
_LEAST = 0.01
"""The share of targets outside, below which they are outliers. Chosen, not measured."""
_MANY = 0.05
"""The share of targets outside from which on it harms. Chosen, not measured."""
_FLOOR = 0.01
"""The share of the targets' variance that must remain, for it to harm. Chosen, not measured."""
_NAMES = {
    "relu": "ReLU",
    "tanh": "tanh",
    "hardtanh": "Hardtanh",
    "hardsigmoid": "Hardsigmoid",
    "log_sigmoid": "LogSigmoid",
    "elu": "ELU",
    "gelu": "GELU",
    "silu": "SiLU",
    "mish": "Mish",
    "hardswish": "Hardswish",
}


class TargetsOutOfReach(Rule):
    """Targets lie where the activation that a prediction ends with cannot reach."""

    severity = "warning"
    silence_clears = False
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """The Sequential without its last activation."""
        return without_activation(file, finding)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Losses some of whose targets lie outside by habit, and not all in one place: that may stand for padding."""
        for seen in rank.latest(records.labels.TargetsOutside, "place", "loss", "operator"):
            values = seen.values
            if seen.stray < max(_STEPS, _HABIT * seen.steps) or values is None or values[0] == values[1]:
                continue
            if seen.below + seen.above >= _LEAST * seen.targets:
                yield self._finding(
                    rank, seen, activation_of(recording.model(seen.place.path), seen.place.line, seen.module)
                )

    def _finding(self, rank: RankRecording, seen: records.labels.TargetsOutside, at: Location | None) -> Finding:
        name = _NAMES.get(seen.operator, seen.operator)
        share = (seen.below + seen.above) / max(1, seen.targets)
        # The squares of what is out of reach are small where it is noise at the end of the range.
        floor = seen.floor / seen.spread if seen.spread else 0.0
        remains = seen.floor / max(1, seen.targets)
        made = f"{name} in `{seen.module}`" if seen.module else name
        limits = [f"{limit:g}" for limit in (seen.low, seen.high) if limit is not None]
        never = (
            f"between {limits[0]} and {limits[1]}"
            if len(limits) == 2
            else f"{limits[0]} or {'more' if seen.low is not None else 'less'}"
        )
        least, most = seen.values or (0.0, 0.0)
        return self.observed(
            rank,
            seen.place,
            f"{percent(share)} of the targets lie {_where(seen)}, and what {made} gives is always {never}",
            cause=f"the loss compares it with these targets as it is; those out of reach lie between {least:.3g} and "
            f"{most:.3g}. If all others were predicted exactly, a mean squared error of {remains:.3g} would remain, "
            f"{percent(floor)} of the targets' variance. It was measured in {count(seen.steps, 'sampled step')}",
            advice=f"end the model with the layer before {name}; or scale the targets into its range",
            severity="warning" if share >= _MANY and floor >= _FLOOR else "info",
            measured=Measured(steps=seen.steps),
            related=[
                self.beside("loss", "the loss that compares them", seen.loss),
                *([self.beside("activation", f"the {name} that ends the prediction", at)] if at is not None else []),
            ],
            about=About(variant=seen.operator, operands=(seen.module,)),
        )


def _where(seen: records.labels.TargetsOutside) -> str:
    """On which side of the range."""
    if seen.below and seen.above:
        return f"below {seen.low:g} or above {seen.high:g}"
    return f"below {seen.low:g}" if seen.below else f"above {seen.high:g}"
