"""TRN122: autocast is on, and nothing in its regions runs in half precision."""

from __future__ import annotations

from torchvet.formatting import count
from torchvet.recording.records.autocast import AutocastRegion, ProductsOutside
from torchvet.rules.kit import Finding, Findings, Measured, RankRecording, Recording, Rule

_STEPS = 3
"""Regions, and steps, in which nothing was cast. Chosen, not measured."""
_PRODUCTS = "matrix products and convolutions"


class AutocastCastsNothing(Rule):
    """Autocast is on, and nothing in its regions runs in half precision."""

    severity = "warning"
    fix_changes_results = True
    silence_clears = False  # there is nothing that source is suspected of

    def in_rank(self, rank: RankRecording, recording: Recording) -> Findings:
        """Regions of a run in which no operator was cast, although there were products to cast."""
        regions = list(rank.latest(AutocastRegion, "place", "device", "dtype"))
        # One that casts something shows that autocast is used for a part, and AMP207 has those of another device.
        if any(one.casts or one.elsewhere or one.inside > one.double for one in regions):
            return
        heard = [one for one in regions if one.enabled and one.heard >= _STEPS]
        double = [one for one in heard if one.double]
        yield from (self._double(rank, region) for region in double)
        for region in heard if not double else ():
            outside = _outside(rank, region)
            if outside is not None:
                yield self._empty(rank, region, outside)

    def _double(self, rank: RankRecording, region: AutocastRegion) -> Finding:
        return self.observed(
            rank,
            region.place,
            f"autocast casts nothing: all {region.double:,} {_PRODUCTS} looked at ran in float64",
            cause="autocast casts float32 to half precision, and leaves float64 as it is",
            advice="make inputs and weights float32, `.float()` (arrays of NumPy are float64); or leave autocast out, "
            "if float64 is wanted",
            measured=Measured(steps=region.heard),
        )

    def _empty(self, rank: RankRecording, region: AutocastRegion, outside: ProductsOutside) -> Finding:
        related = [self.beside("products", "one that runs outside", outside.place)] if outside.place is not None else []
        return self.observed(
            rank,
            region.place,
            f"autocast casts nothing: {count(outside.calls, 'matrix product')} looked at ran outside of its regions, "
            f"in {outside.dtype}, and none in one",
            cause=f"a region casts what is called while it is open; in {count(region.heard, 'region')} that were heard "
            "no operator had anything to cast",
            advice="call the model within the region, and the loss too: `with torch.autocast(…): output = model(x)`",
            measured=Measured(steps=outside.steps),
            related=related,
        )


def _outside(rank: RankRecording, region: AutocastRegion) -> ProductsOutside | None:
    """The products that a region could have cast, had they been in it."""
    those = [one for one in rank.latest(ProductsOutside, "device", "dtype") if one.device == region.device]
    wide = [one for one in those if one.steps >= _STEPS and one.dtype in ("float32", "float64")]
    return max(wide, key=lambda one: one.calls, default=None)
