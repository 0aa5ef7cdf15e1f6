"""Counts the rows of logits that a loss ignores, in sampled steps: the last layer has computed them for nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

from torchvet.probes.base.kit import EVERY_STEP, ByStorage, Host, Place, SiteWatcher, StepKind, overloads
from torchvet.probes.internals import private
from torchvet.probes.time.real_time import TimeWatcher
from torchvet.recording.records.timing import IgnoredRows

_PRODUCTS = overloads("mm addmm bmm baddbmm")
_KEEPING = overloads("_to_copy clone _log_softmax div.Tensor div.Scalar mul.Tensor mul.Scalar")
"""What makes a row of a row."""
_LOSSES = overloads("nll_loss_forward nll_loss2d_forward")
_CLASSES = 64
"""Columns from which on a product may be the last layer's of a large vocabulary."""
_LOOKS = 64
"""Calls of one line that are counted: on a GPU each waits for the device."""


class _Product(NamedTuple):
    """A matrix product with many columns: the line that made it, its columns and the multiplications that it took."""

    place: Place
    columns: int
    work: int


class IgnoredRowsProbe(TimeWatcher, SiteWatcher[tuple[Place, Place], IgnoredRows]):
    """Logits of rows that the loss ignores."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._made: ByStorage[_Product] = ByStorage()
        self._work: dict[Place, int] = {}
        """By line: the multiplications of its products in this step."""

    def install(self) -> None:
        """In sampled steps, hear products, what is made of them row by row, and the losses that ignore rows."""
        self.host.hear(_PRODUCTS, self._multiplied)
        self.host.hear(_KEEPING, self._kept)
        self.host.hear(_LOSSES, self._lost)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: what it made is gone."""
        self._made.clear()
        self._work.clear()

    def _multiplied(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        place = self.host.line() if private.graph_task() == -1 else None
        if place is None:
            return
        # The last argument is the right matrix of all four: its rows are the inner dimension.
        work = out.numel() * args[-1].shape[-2]
        self._work[place] = self._work.get(place, 0) + work
        if out.shape[-1] >= _CLASSES:
            self._made.put(out, _Product(place, out.shape[-1], work))

    def _kept(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        made = self._made.get(args[0]) if self._made else None
        # As many elements: a row is a row still.
        if made is not None and out.numel() == args[0].numel() and private.graph_task() == -1:
            self._made.put(out, made)

    def _lost(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        # The operator's signature: self, target, weight, reduction, ignore_index.
        given, target, ignored = args[0], args[1], args[4]
        made, loss = self._made.get(given), self.host.line()
        # One target for each row of the product: the loss is over its columns.
        if made is None or loss is None or not given.requires_grad or target.numel() * made.columns != given.numel():
            return
        new = IgnoredRows(place=made.place, loss=loss, columns=made.columns)
        record = self.sites.setdefault((made.place, loss), new)
        if record.calls >= _LOOKS or given.shape[1 if given.dim() > 1 else 0] != made.columns:
            return
        rows, skipped = target.numel(), int((target == ignored).sum())
        record.calls += 1
        record.rows += rows
        record.ignored += skipped
        record.least = min(record.least, skipped / max(1, rows))
        # A line that multiplies other things as well gains less by leaving rows out.
        record.part = min(record.part, made.work / max(1, self._work.get(made.place, 0)))

    def totals(self, tick: int) -> list[IgnoredRows]:
        """Lines whose loss has ignored some."""
        return [record for record in self.sites.values() if record.ignored]
