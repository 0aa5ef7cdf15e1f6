"""TRN134: the KL term of a variational autoencoder is a sum, its reconstruction a mean."""

from __future__ import annotations

import msgspec

from torchvet.recording import records
from torchvet.rules.kit import Finding, Findings, Measured, RankRecording, Recording, Rule, SourceFile
from torchvet.rules.shared.seen_suspicions import as_observed
from torchvet.rules.training._elbo import Uneven, summed, uneven

_COLLAPSED = 0.01
"""Nats of a latent below which it says nothing of its sample."""
_LATE = 100
"""Steps from which on a KL that small is no beginning."""
_CAUSE = (
    "beside a mean over n elements a sum weighs n times as much: the loss is least where the posterior is the prior, "
    "and every code then decodes to the average picture"
)


class KlOutweighsReconstruction(Rule):
    """The KL term of a variational autoencoder is a sum, its reconstruction a mean."""

    severity = "warning"
    words = ("sum(",)
    fix_changes_results = True
    silence_clears = False  # a run may be too short for the posterior to collapse

    def in_file(self, file: SourceFile) -> Findings:
        """KL terms that are summed over the batch beside a mean over the batch and its elements."""
        yield from (self._of(file, one) for one in uneven(file) if one.whole)

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Such terms, and those that are averaged over the batch, with what became of the KL in the run."""
        for record in rank.latest(records.numeric.LatentSum):
            file = recording.model(record.place.path)
            for one in uneven(file) if file is not None else ():
                yield from self._seen(rank, one, record)

    def _of(self, file: SourceFile, one: Uneven) -> Finding:
        what = "summed over batch and latents" if one.whole else "summed over latents"
        per = "" if one.whole else ", divided by the number of samples"
        return self.suspect(
            file,
            one.event,
            f"the KL term is {what}, the reconstruction on line {one.reconstructed.line} is a mean over batch and "
            "elements",
            node=one.kl.node,
            cause=_CAUSE,
            advice=f'sum the reconstruction as well: `reduction="sum"`{per}',
            edits=summed(file, one),
            related=[self.also(file, "reconstruction", one.reconstructed)],
        )

    def _seen(self, rank: RankRecording, one: Uneven, seen: records.numeric.LatentSum) -> Findings:
        found = self._of(one.event.unit.file, one)
        at = found.location
        if at is None or not at.line <= seen.place.line <= (at.end_line or at.line) or not one.kl.inner:
            return
        nats = [abs(mean / one.kl.inner) for mean in seen.means]
        if not nats or seen.steps[-1] < _LATE:
            return
        # A KL that rises from a small beginning may rise on.
        collapsed = max(nats[-2:]) < _COLLAPSED and nats[-1] < seen.largest / abs(one.kl.inner) / 2
        says = "the posterior has collapsed: a latent has" if collapsed else "it has not collapsed so far: a latent has"
        message = f"{found.message}; {says} {nats[-1]:.2g} nats in step {seen.steps[-1]:,}"
        observed = as_observed(found, rank, message, Measured(steps=len(nats)))
        if collapsed or one.whole:
            yield msgspec.structs.replace(observed, severity="warning" if collapsed else "info")
