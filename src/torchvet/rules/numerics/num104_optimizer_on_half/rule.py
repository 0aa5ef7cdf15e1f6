"""NUM104: an optimizer that divides by a small eps works on half-precision parameters."""

from __future__ import annotations

import ast

from torchvet.rules.kit import Finding, Iterator, RankRecording, Recording, Severity, SourceFile, records
from torchvet.rules.numerics import _runs, _terms
from torchvet.rules.shared import half_precision
from torchvet.source.model import Event, calls_in, keyword, name_set, receiver, terminal

_ADAPTIVE = ("Adam", "AdamW", "NAdam", "RMSprop", "Adagrad", "Adamax")
_ENOUGH_LOOKS = 4
"""Looks at an optimizer's steps from which on lost updates are a habit."""
_MASTERED = name_set("FP16_Optimizer master amp.initialize deepspeed fairscale stochastic_rounding GradScaler")
"""What in a file may keep float32 copies of the weights (or is AMP113's affair)."""
_ADDED = name_set("lora LoRA peft adapter Adapter cast_training_params")
"""What gives a half model float32 parameters of its own to train."""
_OF_MODELS = ("parameters", "named_parameters")
_ADVICE = "keep the parameters in float32 and run the forward pass under torch.autocast"


class OptimizerOnHalf(_runs.NumberRule):
    """An Adam-like optimizer works on half-precision parameters."""

    severity = "error"
    specialises = "NUM101"
    words = (".half", "float16")
    fix_changes_results = True

    def in_rank(self, rank: RankRecording, recording: Recording) -> Iterator[Finding]:
        """Steps that spoilt parameters, an eps that is 0, and updates that rounded away."""
        for record in rank.latest(records.numeric.HalfOptimizer, "optimizer", "place"):
            if record.spoilt:
                yield self._spoilt(rank, record)
            elif record.looks >= _ENOUGH_LOOKS and record.updates:
                yield from self._lost(rank, record)

    def _spoilt(self, rank: RankRecording, record: records.numeric.HalfOptimizer) -> Finding:
        names = ", ".join(record.spoilt_names[:4])
        parameters = f"{record.spoilt} of {record.parameters} {record.dtype} parameters"
        made = f"step {record.spoilt_at} of {record.optimizer} made {parameters} NaN or infinite"
        message = f"{made}: {names}; they and their gradients were finite before"
        cause = f"what {record.optimizer} computes in {record.dtype} does not fit into it"
        if record.eps is not None and record.dtype == "float16" and record.eps <= _terms.LARGEST_ZERO:
            cause = f"eps={record.eps:g} is 0 in float16, and a gradient that is 0, or whose square is, is divided by 0"
        return self.at(rank, record.place or record.step_place, message, cause, _ADVICE, "error", record.spoilt_at)

    def _lost(self, rank: RankRecording, record: records.numeric.HalfOptimizer) -> Iterator[Finding]:
        lost = record.lost / record.updates
        if lost < 0.05:
            return
        stuck = record.stuck / record.followed if record.followed else 0.0
        grave = lost >= 0.5 and stuck >= 0.5 and record.last >= 2 * _ENOUGH_LOOKS
        share = _runs.share(record.lost, record.updates)
        message = f"{share} of the updates of {record.optimizer} round away in {record.dtype}"
        if record.stuck:
            still = f"{_runs.share(record.stuck, record.followed)} of the followed elements had not moved at all"
            message += f"; {still} from step {record.first} to step {record.last}"
        part = 2 * records.numeric.EXACT[record.dtype]
        cause = (
            f"an update of less than half the distance to the next {record.dtype} number, about 1/{part} of the "
            "weight, changes nothing"
        )
        advice = f"{_ADVICE}; or let the optimizer keep float32 copies or the lost parts (Kahan summation)"
        place = record.place or record.step_place
        yield self.at(rank, place, message, cause, advice, "warning" if grave else "info", record.steps)

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
        models = [receiver(c) for c in calls_in(given) if terminal(c) in _OF_MODELS] if given is not None else []
        kinds = ((model, half_precision.of_module(model, event)) for model in models if model is not None)
        return next((found for found in kinds if found[1]), (None, ""))

    @staticmethod
    def _eps_vanishes(eps: ast.expr | None, event: Event) -> bool:
        if eps is None:
            return True
        value = _terms.number(eps, event.unit)
        return value is not None and value <= _terms.LARGEST_ZERO

    def _finding(self, file: SourceFile, event: Event, model: ast.expr, kind: str) -> Finding:
        name, dtype = file.segment(model), half_precision.NAMES[kind]
        harm, cause = "updates below 1/256 of a weight are lost", "bfloat16 has 8 bits of precision"
        if kind == "fp16":
            harm, cause = "its eps is 0 there, and the first step divides by zero", "eps and v vanish in float16"
        message = f"{terminal(event.node)} works on the {dtype} parameters of {name}: {harm}"
        advice = f"keep {name} in float32 and run its forward pass under torch.autocast"
        grade: Severity = "error" if kind == "fp16" else "info"
        return self.suspect(file, event, message, cause=cause, advice=advice, severity=grade)
