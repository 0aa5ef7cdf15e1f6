"""MEM201: most of the peak is what forward passes save for backward ones."""

from __future__ import annotations

from torchvet.rules.kit import Finding, Findings, Measured, Related, percent, records, size
from torchvet.rules.memory._dry import DryRule, Sized

_SHARE, _WORTH = 0.4, 0.1
"""Shares of the peak: that activations have, and that checkpointing must save."""
_MODULES = 3


class ActivationsDominate(DryRule):
    """Most of the peak is what forward passes save for backward ones."""

    def in_step(self, one: Sized) -> Findings:
        """The class of blocks whose checkpointing saved most, if it saved a tenth of the peak."""
        before = one.own_batch
        # The one that leaves least first.
        tried = sorted(one.rank.all(records.dry.DryCheckpoint), key=lambda c: c.allocated)
        if before is None or not tried or one.share("activations") < _SHARE:
            return
        if before.allocated - tried[0].allocated >= _WORTH * before.allocated:
            yield self._finding(one, before, tried)

    def _finding(self, one: Sized, before: records.dry.DryBatch, tried: list[records.dry.DryCheckpoint]) -> Finding:
        best, held = tried[0], one.parts["activations"]
        saved = before.allocated - best.allocated
        # A step without a product of matrices has no arithmetic that was counted.
        more = best.arithmetic / one.size.arithmetic - 1 if one.size.arithmetic else 0.0
        cost = f" for {percent(more)} more arithmetic" if more > 0 else ""
        return self.observed(
            one.rank,
            severity=one.severity,
            message=f"activations are {percent(one.share('activations'))} of the peak ({size(held)}); with the "
            f"{best.blocks} {best.module} blocks checkpointed a step takes {size(best.allocated)} instead of "
            f"{size(before.allocated)}: {size(saved)} less{cost}",
            place=None,
            cause="what every block saves for its backward is alive at once when the backward begins",
            advice=f"call each {best.module} (`{best.first}` and on) by torch.utils.checkpoint.checkpoint(block, "
            "..., use_reentrant=False) where memory is short",
            related=[
                *map(_made, one.rank.all(records.dry.DryModule)[:_MODULES]),
                *(_other(c, before) for c in tried[1:]),
            ],
            measured=Measured(bytes=saved, peak_bytes=before.allocated, share=one.share("activations")),
            device="cuda:0",
        )


def _made(module: records.dry.DryModule) -> Related:
    return Related(role="made in", message=f"{module.name}: {size(module.bytes)} in {module.blocks:,} blocks")


def _other(tried: records.dry.DryCheckpoint, before: records.dry.DryBatch) -> Related:
    saved = before.allocated - tried.allocated
    amount = f"{size(saved)} less" if saved > 0 else "nothing saved"
    return Related(role="also tried", message=f"{tried.blocks} {tried.module} checkpointed: {amount}")
