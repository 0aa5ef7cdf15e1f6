"""TRN132: nothing nonlinear stands between the layers of a network."""

from __future__ import annotations

from torchvet.formatting import count
from torchvet.recording.records.layers import LinearNetwork
from torchvet.rules.kit import Findings, Measured, RankRecording, Recording, Rule

_STEPS = 3
"""Sampled steps from which on it is a habit. Chosen, not measured."""
_NAMED = 3
"""Parts that a text names."""


class NetworkIsLinear(Rule):
    """Nothing nonlinear stands between the layers of a network."""

    severity = "warning"
    silence_clears = False
    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Networks that were one affine map by habit."""
        for seen in rank.latest(LinearNetwork, "place", "weights"):
            if seen.steps < _STEPS:
                continue
            yield self.observed(
                rank,
                seen.place,
                f"{seen.layers} weight layers in a row and nothing nonlinear between them: the network is one affine "
                f"map of {_inputs(seen)} to {count(seen.leave, 'output')}",
                cause=_cause(seen),
                advice="put an activation between the layers: look at how it is chosen where they are made, and "
                "whether its result is used",
                measured=Measured(steps=seen.steps),
                related=[self.beside("made", "an `nn.Identity` of the model is made here", made) for made in seen.made],
            )


def _inputs(seen: LinearNetwork) -> str:
    return "its input" if seen.convolves else count(seen.enter, "input")


def _cause(seen: LinearNetwork) -> str:
    """What is there in the place of activations, and what was seen."""
    seen_in = f"It was so in {count(seen.steps, 'sampled step')}"
    affine = f"one layer could do what the {seen.layers} do, from `{seen.weights[0]}` to `{seen.weights[-1]}`"
    named = [f"`{name}`" for name in seen.identities[:_NAMED]]
    if not named:
        return f"{affine}, since none is narrower than both ends. {seen_in}"
    if len(seen.identities) > _NAMED:
        named[-1:] = [f"{count(len(seen.identities) - _NAMED + 1)} more"]
    are = "are" if len(named) > 1 else "is"
    those = " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))
    return f"{those} {are} `nn.Identity`, which does nothing: {affine}. {seen_in}"
