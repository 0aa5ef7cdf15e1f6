"""TRN138: the units of a layer begin equal, get equal gradients, and stay equal."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchvet.formatting import count
from torchvet.recording.records.layers import AlikeUnits
from torchvet.rules.kit import (
    Edits,
    Finding,
    Findings,
    Location,
    Measured,
    Place,
    RankRecording,
    Recording,
    Rule,
    SourceFile,
    events_at,
)
from torchvet.source.model import edits, operand, terminal

_STEPS = 3
"""Sampled steps from which on it is no accident. Chosen, not measured."""
_FILLS = re.compile(r"fill_|constant_|zeros_|ones_|zero_|torch\.(zeros|ones|full)\b")
_FILLING = ("constant_", "zeros_", "ones_", "fill_", "zero_")
_NAMES = 3


class UnitsStayAlike(Rule):
    """The units of a layer are one: their weights begin equal, get equal gradients, and stay equal."""

    severity = "warning"
    silence_clears = False
    fix_changes_results = True

    def fixes(self, finding: Finding, file: SourceFile) -> Edits:
        """Weights drawn at random, where the finding's line fills them with one number and nothing else."""
        calls = [e.call for e in events_at(file, finding) if isinstance(e.node, ast.Call)]
        filling = [call for call in calls if terminal(call) in _FILLING]
        given = operand(file, filling[0]) if len(filling) == 1 and edits.on_one_line(filling[0]) else None
        weights = file.segment(given).removesuffix(".data") if given is not None else ""
        if not weights.endswith("weight") or given is None:
            return ()
        function = file.segment(filling[0].func)
        # `nn.init` by the name that the line has for it; else the whole path, which may not be imported.
        where = function[: -len(terminal(filling[0]))] if given in filling[0].args else "torch.nn.init."
        return [edits.replace(file, filling[0], f"{where}xavier_uniform_({weights})")]

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Weights that stay so in all sampled steps, those of one line together."""
        alike = [one for one in rank.latest(AlikeUnits, "id") if one.steps >= _STEPS]
        # Zeros behind zeros get no gradient. One weight without any may belong to a loss that counts for nothing yet.
        still = [one for one in alike if not one.pulled and one.value == 0]
        alike = [one for one in alike if one.pulled or (one in still and len(still) > 1)]
        for place in dict.fromkeys(one.place for one in alike):
            of_line = [one for one in alike if one.place == place]
            yield self._seen(rank, place or _filled_at(recording), of_line)

    def _seen(self, rank: RankRecording, place: Place | Location | None, found: list[AlikeUnits]) -> Finding:
        first = found[0]
        named = [f"`{one.name}`" for one in found[:_NAMES] if one.name] or [f"a weight of shape {first.shape}"]
        more = f" and {len(found) - _NAMES} more" if len(found) > _NAMES else ""
        what = f"all of them {first.value:.3g}" if first.value is not None else "equal"
        units = f"{first.shape[0]} units" if len({one.shape[0] for one in found}) == 1 else "units"
        pull = "get equal gradients" if first.pulled else "get gradients of 0"
        return self.observed(
            rank,
            place,
            f"the {units} of {', '.join(named)}{more} are one: their weights begin equal, and stay so",
            cause=f"the weights of {named[0]} are {what} at first; its units give the same numbers, {pull}, and are "
            f"never told apart. It was so in {count(first.steps, 'sampled step')}",
            advice="draw the weights at random, as torch's layers do when they are made; fill biases only",
            measured=Measured(steps=first.steps),
        )


def _filled_at(recording: Recording) -> Location | None:
    """The only line of the program that fills weights with one number otherwise than by `torch.nn.init`."""
    files = [file for path in recording.sources if (file := recording.model(path)) is not None]
    found = [Location(path=file.path, line=line) for file in files for line in _filling(file)]
    return found[0] if len(found) == 1 else None


def _filling(file: SourceFile) -> Iterator[int]:
    for unit in file.units:
        for event in unit.events:
            if isinstance(event.node, ast.Call) and _FILLS.search(file.segment(event.node.func)):
                text = file.segment(event.statement) if event.statement is not None else ""
                if "weight" in text or "Parameter" in text:
                    yield event.line
