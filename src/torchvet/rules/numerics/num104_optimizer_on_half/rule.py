"""NUM104: an optimizer that divides by a small eps works on half-precision parameters."""

from __future__ import annotations

import ast

from torchvet.recording.records.numeric import HalfOptimizer
from torchvet.rules.kit import Finding, Iterator, Measured, RankRecording, Recording, Rule, SourceFile
from torchvet.rules.numerics import _runs, _terms
from torchvet.rules.shared import half_precision
from torchvet.source.model import Event, keyword, receiver, terminal, walk

_ADAPTIVE = ("Adam", "AdamW", "NAdam", "RMSprop", "Adagrad", "Adamax")
_LARGEST_ZERO = 2.0**-25
_ENOUGH_LOOKS = 4
"""Looks at an optimizer's steps from which on lost updates are a habit."""
_MASTERED = (
    "FP16_Optimizer",
    "master",
    "amp.initialize",
    "deepspeed",
    "fairscale",
    "stochastic_rounding",
    "GradScaler",
)
"""What in a file may keep float32 copies of the weights (or is AMP113's affair)."""
_ADDED = ("lora", "LoRA", "peft", "adapter", "Adapter", "cast_training_params")
"""What gives a half model float32 parameters of its own to train."""


class OptimizerOnHalf(Rule):
    """An optimizer that divides by a small eps works on half-precision parameters."""

    code = "NUM104"
    name = "optimizer-on-half"
    summary = "An Adam-like optimizer works on half-precision parameters"
    severity = "error"
    specialises = "NUM101"
    words = (".half", "float16")

    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Steps that spoilt parameters, an eps that is 0, and updates that rounded away."""
        for record in rank.latest(HalfOptimizer, "optimizer", "place"):
            if record.spoilt:
                yield self._spoilt(rank, record)
            elif record.looks >= _ENOUGH_LOOKS and record.updates:
                yield from self._lost(rank, record)

    def _spoilt(self, rank: RankRecording, record: HalfOptimizer) -> Finding:
        names = ", ".join(record.spoilt_names[:4])
        vanishes = record.eps is not None and record.dtype == "float16" and record.eps <= _LARGEST_ZERO
        zero = f"eps={record.eps:g} is 0 in float16, and a gradient that is 0, or whose square is, is divided by 0"
        message = (
            f"step {record.spoilt_at} of {record.optimizer} made {record.spoilt} of {record.parameters} "
            f"{record.dtype} parameters NaN or infinite: {names}; they and their gradients were finite before"
        )
        cause = zero if vanishes else f"what {record.optimizer} computes in {record.dtype} does not fit into it"
        advice = "keep the parameters in float32 and run the forward pass under torch.autocast"
        return self.observed(
            rank,
            severity="error",
            place=record.place or record.step_place,
            message=message,
            cause=cause,
            advice=advice,
            measured=Measured(steps=record.spoilt_at),
        )

    def _lost(self, rank: RankRecording, record: HalfOptimizer) -> Iterator[Finding]:
        lost = record.lost / record.updates
        if lost < 0.05:
            return
        stuck = record.stuck / record.followed if record.followed else 0.0
        grave = lost >= 0.5 and stuck >= 0.5 and record.last >= 2 * _ENOUGH_LOOKS
        still = (
            f"; {_runs.share(record.stuck, record.followed)} of the followed elements had not moved at all from step "
            f"{record.first} to step {record.last}"
        )
        message = (
            f"{_runs.share(record.lost, record.updates)} of the updates of {record.optimizer} round away in "
            f"{record.dtype}" + (still if record.stuck else "")
        )
        cause = (
            f"an update of less than half the distance to the next {record.dtype} number, about 1/"
            f"{512 if record.dtype == 'bfloat16' else 4096} of the weight, changes nothing"
        )
        advice = (
            "keep the parameters in float32 and run the forward pass under torch.autocast; or let the "
            "optimizer keep float32 copies or the lost parts (Kahan summation)"
        )
        yield self.observed(
            rank,
            severity="warning" if grave else "info",
            place=record.place or record.step_place,
            message=message,
            cause=cause,
            advice=advice,
            measured=Measured(steps=record.steps),
        )

    def in_file(self, file: SourceFile) -> Iterator[Finding]:
        """Such an optimizer of torch over the parameters of a module that is half by then."""
        if file.mentions(*_MASTERED):
            return
        for event in file.calls(*_ADAPTIVE):
            if not file.dotted(event.call.func).startswith(("torch.optim.", "transformers.")):
                continue
            given = {k.arg: k.value for k in event.call.keywords}
            fused = given.get("fused")
            if None in given or (isinstance(fused, ast.Constant) and fused.value):
                continue
            model, kind = self._half_model(event)
            if model is not None and (kind == "bf16" or self._eps_vanishes(given.get("eps"), event)):
                yield self._finding(file, event, model, kind)

    @staticmethod
    def _half_model(event: Event) -> tuple[ast.expr | None, str]:
        """The module whose parameters are given, and the half dtype that they have."""
        given = event.call.args[0] if event.call.args else None
        given = given or keyword(event.call, "params")
        if isinstance(given, ast.Name) and not event.unit.file.mentions(*_ADDED):
            binding = half_precision.latest(given.id, event)
            given = getattr(binding.node, "value", None) if binding is not None else None
        for node in walk(given) if given is not None else ():
            if isinstance(node, ast.Call) and terminal(node) in ("parameters", "named_parameters"):
                on = receiver(node)
                kind = half_precision.of_module(on, event) if on is not None else ""
                if kind:
                    return on, kind
        return None, ""

    @staticmethod
    def _eps_vanishes(eps: ast.expr | None, event: Event) -> bool:
        if eps is None:
            return True
        value = _terms.number(eps, event.unit)
        return value is not None and value <= _LARGEST_ZERO

    def _finding(self, file: SourceFile, event: Event, model: ast.expr, kind: str) -> Finding:
        name, optimizer = file.segment(model), terminal(event.node)
        if kind == "fp16":
            harm, cause = "its eps is 0 there, and the first step divides by zero", "eps and v vanish in float16"
        else:
            harm, cause = "updates below 1/256 of a weight are lost", "bfloat16 has 8 bits of precision"
        dtype = "float16" if kind == "fp16" else "bfloat16"
        message = f"{optimizer} works on the {dtype} parameters of {name}: {harm}"
        advice = f"keep {name} in float32 and run its forward pass under torch.autocast"
        return self.suspect(
            file, event, message, severity="error" if kind == "fp16" else "info", cause=cause, advice=advice
        )
