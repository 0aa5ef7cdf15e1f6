"""TRN105: parameters of the trained model get gradients that no optimizer applies."""

from __future__ import annotations

from torchvet.formatting import count, size
from torchvet.recording import records
from torchvet.rules import kit
from torchvet.rules.training.fixes.unowned_parameters import frozen, given_to_the_optimizer

_RESTS = "rests"
"""The variant of parameters whose modules are in eval mode."""


class ParametersNotInOptimizer(kit.Rule):
    """Parameters of the trained model get gradients that no optimizer applies."""

    severity = "error"
    fix_may_change_losses = True  # that a part in eval mode is frozen does not

    def fixes(self, finding: kit.Finding, file: kit.SourceFile) -> kit.Edits:
        """The optimizer built when the model is complete, or given what came later; a part that rests frozen."""
        return frozen(file, finding) if kit.about(finding).variant == _RESTS else given_to_the_optimizer(file, finding)

    def in_rank(self, rank: kit.RankRecording, recording: kit.Recording) -> kit.Findings:
        """Parameters of a trained module with gradients that no optimizer owns and nobody changes."""
        for record in records.optimizers.still_unowned(rank.all(records.optimizers.UnownedParameters)):
            if record.owned:
                yield self._finding(recording, rank, record)

        stalled = rank.last(records.optimizers.StalledOptimizers)
        if stalled is not None and stalled.optimizers:
            yield self._stalled(rank, stalled)

    def _stalled(self, rank: kit.RankRecording, record: records.optimizers.StalledOptimizers) -> kit.Finding:
        """Each has an optimizer, which is not asked to step any more."""
        more = record.parameters - min(4, len(record.names))
        names = ", ".join(record.names[:4]) + (f" and {more} more" if more > 0 else "")
        return self.observed(
            rank,
            record.place,
            f"{count(record.parameters, 'parameter')} got gradients up to step {record.until:,} and "
            f"{'was' if record.parameters == 1 else 'were'} stepped only within the first {record.after}: {names}",
            cause=f"{count(record.optimizers, 'optimizer')} ({record.name}) stepped in the first steps and never again,"
            " and nothing else has changed these parameters",
            advice="find what decides in each step which optimizers step, or with which parameters, and why these are "
            "left out after the first; `requires_grad_(False)` if they are meant to stay as they are",
            severity="warning",
            holder=kit.Holder(name=record.names[0], kind="attribute", path=record.names[:4]) if record.names else None,
            measured=kit.Measured(steps=record.until - record.after),
        )

    def _finding(
        self, recording: kit.Recording, rank: kit.RankRecording, record: records.optimizers.UnownedParameters
    ) -> kit.Finding:
        names = ", ".join(record.names[:4])
        rest = f" and {record.count - 4} more" if record.count > 4 else ""
        replaced, rests = record.orphans > 0, record.resting and not record.orphans
        cause = "they were not among the parameters that the optimizer was given, and gradients are computed for them"
        advice = (
            "give them to the optimizer, or, if they are meant to stay as they are, `requires_grad_(False)`: that also "
            f"saves {size(record.bytes)} of gradients"
        )
        if replaced:
            cause = (
                f"the optimizer was built before they were put in: it still owns {record.orphans} parameters that the "
                "model does not have any more"
            )
            advice = "build the optimizer after the model is complete, or `add_param_group` them"
        if rests:
            cause = (
                "the optimizer was given other parts alone, and these are in eval mode: they seem to be meant to stay "
                "as they are, but backward passes compute gradients for them in every step"
            )
            advice = (
                "`requires_grad_(False)` on them: that saves their part of each backward pass, and "
                f"{size(record.bytes)} of gradients"
            )
        return self.observed(
            rank,
            self._line(recording, record, replaced),
            f"{record.count} parameters of {record.module} get gradients and are never stepped: {names}{rest}",
            cause=cause,
            advice=advice,
            severity=None if replaced else "warning",
            holder=kit.Holder(name=record.names[0], kind="attribute", path=record.names[:4]),
            measured=kit.Measured(bytes=record.bytes, steps=record.steps),
            about=kit.About(_RESTS if rests else "", (record.module,)),
        )

    def _line(
        self, recording: kit.Recording, record: records.optimizers.UnownedParameters, replaced: bool
    ) -> kit.Place | kit.Location | None:
        """Where a replaced submodule was assigned, else where the optimizer was made."""
        parts = record.names[0].split(".")
        if replaced and len(parts) > 1 and record.place is not None:
            stores = recording.index.stores(f"model.{parts[0]}", "__main__", record.place.path)
            outside = [s for s in stores if not s.function.endswith("__init__")]
            if outside:
                return kit.Location(path=outside[0].path, line=outside[0].line, function=outside[0].function)
        return record.place
