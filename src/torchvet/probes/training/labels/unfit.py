"""Looks for labels that a loss takes for something else: 0 and 1 for -1 and 1, several ones for shares of 1."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch

from torchvet.probes.base.kit import EVERY_STEP, Host, Place, Record, SiteWatcher, graphs, overloads
from torchvet.probes.base.ledger import place_of_line, storage_key
from torchvet.probes.internals.simulated import plain_values
from torchvet.probes.numerics import half
from torchvet.probes.training.labels import fitting
from torchvet.probes.training.labels.asked import asking
from torchvet.recording.records.labels import Unfit, UnfitLabels

_SIGNED = ("hinge_embedding_loss", "cosine_embedding_loss", "margin_ranking_loss")
_CLAMPING = overloads("clamp_min_ clamp_min")
"""What each of these does once with its differences."""
_MOST = 1 << 22
"""Numbers of labels that are looked at."""
_STEPS = 16
"""Steps in which a loss is looked at: on a GPU each look waits for the device."""
_UNREDUCED = 0
"""torch's number for `reduction="none"`."""
_MATCHED = ("Mm", "Bmm", "Mul", "Div", "Squeeze", "Select", "T")
"""What ends scores of pairs, or of a list of items, and no scores of classes."""
Judge = Callable[[torch.Tensor], fitting.Judged | None]


class UnfitLabelsProbe(SiteWatcher[tuple[Place, Unfit], UnfitLabels]):
    """Labels that losses take for something else."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._looks: Counter[Place] = Counter()
        """By loss: the steps in which its labels were looked at."""
        self._last: dict[Place, int] = {}
        self._allowance = half.Allowance(0.05, 0.005)

    def install(self) -> None:
        """In sampled steps, hear losses, and what those are made of that are no operators."""
        self.host.hear(_CLAMPING, self._signed)
        self.host.hear(overloads("soft_margin_loss"), self._signed_softly)
        self.host.hear(overloads("binary_cross_entropy_with_logits"), self._binary)
        self.host.hear(overloads("log_sigmoid_forward"), self._binaries)
        self.host.hear(overloads("_log_softmax"), self._classified)
        self.host.hear(overloads("xlogy.Tensor"), self._diverged)
        self.host.hear(overloads("multilabel_margin_loss_forward"), self._listed)

    def _signed(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        asked = asking(*_SIGNED)
        if asked is not None:
            loss, names = asked
            given = [names.get(name) for name in ("input", "input1", "input2")]
            self._look(loss, given, names.get("target"), fitting.signs)

    def _signed_softly(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        self._look("soft_margin_loss", args[:1], args[1], fitting.signs)

    def _binary(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        weight = args[2] if len(args) > 2 else None
        reduced = len(args) < 5 or args[4] != _UNREDUCED
        judge = _binary_judge(weight, reduced)
        self._look("binary_cross_entropy_with_logits", args[:1], args[1], judge)

    def _binaries(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        asked = asking("multilabel_soft_margin_loss")
        if asked is not None:
            loss, names = asked
            judge = _binary_judge(names.get("weight"), names.get("reduction") != "none")
            self._look(loss, [names.get("input")], names.get("target"), judge)

    def _classified(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        asked = asking("cross_entropy")
        target = asked[1].get("target") if asked is not None else None
        given = args[0]
        # A vector of scores is one sample, or a list of items of which several may be right.
        if isinstance(target, torch.Tensor) and target.is_floating_point() and given.dim() > 1 and given.shape[1] > 1:
            self._look("cross_entropy", args[:1], target, lambda labels: fitting.shares(labels, (1,)))

    def _diverged(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        asked = asking("kl_div")
        given = asked[1].get("input") if asked is not None else None
        if asked is not None and isinstance(given, torch.Tensor):
            self._look("kl_div", [given], asked[1].get("target"), lambda labels: _divergence(given, labels))

    def _listed(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        self._look("multilabel_margin_loss", args[:1], args[1], fitting.indices)

    def _look(self, loss: str, given: Iterable[Any], labels: Any, judge: Judge) -> None:
        # A loss that is only looked at trains nothing.
        trained = [one for one in given if isinstance(one, torch.Tensor) and one.grad_fn is not None]
        if (
            not trained
            or not torch.is_grad_enabled()
            or not isinstance(labels, torch.Tensor)
            or half.in_backward()
            or not self._allowance.left()
        ):
            return
        place = self.host.line()
        if place is None or self._looks[place] >= _STEPS or labels.numel() > _MOST:
            return
        began = time.thread_time()
        plain = plain_values(labels)
        judged = judge(plain) if plain is not None else None
        if judged is not None:
            first = self._last.get(place) != self.host.tick
            self._last[place] = self.host.tick
            self._looks[place] += first
            self._add(place, loss, judged, labels)
            record = self.sites[place, judged.form]
            record.matched = record.matched or _is_matched(trained[0], labels)
        self._allowance.spend(began)

    def _add(self, place: Place, loss: str, judged: fitting.Judged, labels: torch.Tensor) -> None:
        record = self.sites.get((place, judged.form))
        if record is None:
            record = UnfitLabels(place=place, loss=loss, form=judged.form, low=judged.low, high=judged.high)
            self.sites[place, judged.form] = record
        first = record.last != self.host.tick
        record.last = self.host.tick
        record.low, record.high = min(record.low, judged.low), max(record.high, judged.high)
        record.labels += judged.labels
        record.strays += judged.strays
        record.fit += first and judged.fit is True
        if judged.fit is False:
            record.unfit += first
            record.doubtful += first and judged.doubtful
            record.marked += first and judged.marked
            record.pair = record.pair and judged.pair
            record.made = record.made or self._made_at(labels, place)

    def _made_at(self, labels: torch.Tensor, loss: Place) -> Place | None:
        """The line that made the labels, where it is another than that of the loss."""
        key = storage_key(labels)
        birth = self.host.ledger.live.get(key) if key is not None else None
        made = place_of_line(birth.user or birth.inner) if birth is not None else None
        return made if made != loss else None

    def totals(self, tick: int) -> Iterable[Record]:
        """Losses whose labels did not fit in some step."""
        for (place, _), record in self.sites.items():
            record.steps = self._looks[place]
        return [record for record in self.sites.values() if record.unfit]


def _binary_judge(weight: Any, reduced: bool) -> Judge:
    plain = plain_values(weight) if isinstance(weight, torch.Tensor) else None
    return lambda labels: fitting.outside(labels, plain, reduced)


def _divergence(given: torch.Tensor, labels: torch.Tensor) -> fitting.Judged | None:
    plain = plain_values(given)
    dims = fitting.normalized_over(plain) if plain is not None and plain.shape == labels.shape else None
    return fitting.shares(labels, dims) if dims is not None else None


def _is_matched(scores: torch.Tensor, labels: torch.Tensor) -> bool:
    """Whether scores are of pairs within a batch, or of a list of items."""
    if scores.dim() == 2 and scores.shape == labels.shape and scores.shape[0] == scores.shape[1]:
        return True
    return graphs.name_of(scores.grad_fn).removesuffix("Backward0").removesuffix("Backward1") in _MATCHED
