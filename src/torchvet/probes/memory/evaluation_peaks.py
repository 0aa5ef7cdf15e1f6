"""Measures what an evaluation takes that runs a model on many times the rows of a training step's batch.

What follows `eval()`, `no_grad()`, `inference_mode()` or a loader's end is likely to be an evaluation: the first module
call after it is looked at, and nothing else in steps that are not sampled.
"""

from __future__ import annotations

import statistics
import sys
import weakref
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch

from torchvet.probes.base.kit import Host, Place, Record, StepKind, Watcher, around, frames, user_lines
from torchvet.probes.base.ledger import Birth, sum_by_site
from torchvet.probes.internals.compiled_regions import ModuleHooks
from torchvet.probes.objects.variables import frame_locals
from torchvet.recording.records.memory import EvaluationPeak

_WHAT = "peaks of evaluations"
_TIMES = 8
"""So many times the rows of a training step make a pass worth a look: two to four are usual, as no graph is kept."""
_CALLS = 2_000
"""Module calls that are heard of in one evaluation: further passes tell that it goes by batches."""
_OFTEN = 3
"""Occasions of one kind that are all taken; then every second, fourth, eighth."""
_FIRST_ASKED, _EACH_ASKED = 1024, 16
"""Regions without gradients whose line is asked for; then of every so many one."""
_ROWS = 15
"""Training steps whose rows are kept."""
_PLACES = 16
_TAPS = 6
"""Frames of taps between `__enter__` and the program's line: other probes have theirs."""
_SITES = 4

_Occasion = tuple[CodeType, int] | str


@dataclass
class _Pass:
    """A large pass under way: where it began in the window's events, and where what follows it began."""

    module: weakref.ref[torch.nn.Module]
    place: Place
    rows: int
    known: int
    """Bytes of parameters, buffers and optimizer state."""
    graph: bool
    start: int
    end: int | None = None
    batches: int = 1
    trains: bool = False
    """Whether it may be training itself: it has a graph, and no other pass came before the next backward."""
    record: EvaluationPeak | None = None


class EvaluationPeaks(Watcher):
    """Memory of evaluations in one pass."""

    only_sampled = frozenset(["boundary"])

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._hook = ModuleHooks(before=self._called)
        self._seen: Counter[_Occasion] = Counter()
        self._asked = 0
        self._training: list[int] = []
        self._trains = False
        """Whether the next pass is likely to be a training step's."""
        self._left = 0
        self._pass: _Pass | None = None
        self._found: dict[Place, EvaluationPeak] = {}

    def install(self) -> None:
        """Hear where gradients are switched off."""
        self.replace(torch.no_grad, "__enter__", lambda o: around(o, self._without_gradients))
        self.replace(torch.inference_mode, "__enter__", lambda o: around(o, self._in_inference_mode))

    def remove(self) -> None:
        """Leave torch as it was."""
        self._hook.off()
        super().remove()

    # Occasions ----------------------------------------------------------------------------------------------------

    def boundary(self, tick: int, kind: StepKind) -> None:
        """In sampled steps: the pass that comes next is a training step's, most times."""
        if kind in ("training", "backward", "manual") and len(self._training) < _ROWS and not self._hook.wanted:
            self._expect(trains=True)

    def mode_changed(self, module: torch.nn.Module, training: bool) -> None:
        """See `Watcher`."""
        if not training:
            self._occasion("eval")

    def loader_ended(self) -> None:
        """See `Watcher`."""
        self._occasion("loader")

    def _without_gradients(self, args: Any, kwargs: Any) -> None:
        where = self._opened()
        if where is not None:
            self._occasion(where)

    def _in_inference_mode(self, args: Any, kwargs: Any) -> None:
        where = self._opened()
        # The ledger cannot be switched on within: it is beforehand, at the first two.
        if where is not None and self._occasion(where) and self._seen[where] <= 2 and len(self._seen) < _PLACES:
            with self.host.looking(_WHAT):
                self.host.sample_evaluation()

    def _opened(self) -> _Occasion | None:
        """The program's line that switches gradients off, where that may be an evaluation."""
        # Until training is known nothing can be compared; in sampled steps most such regions are torch's own.
        if not self._training or not self.host.active:
            return None
        self._asked += 1
        if self._asked > _FIRST_ASKED and self._asked % _EACH_ASKED:
            return None
        frame: FrameType | None = sys._getframe(2)
        for _ in range(_TAPS):
            whose = frames.owner(frame.f_code.co_filename) if frame is not None else None
            if frame is None or whose == frames.USER:
                break
            # A decorated function: a frame of torch's lies between it and its caller. All else of torch's switches
            # gradients off for itself.
            if whose == frames.TORCH and frame.f_code.co_name != "decorate_context":
                return None
            frame = frame.f_back
        if frame is None or frames.owner(frame.f_code.co_filename) != frames.USER:
            return None
        return frame.f_code, frame.f_lineno

    def _occasion(self, which: _Occasion) -> bool:
        """An evaluation may begin: whether the next pass is looked at."""
        if not self._training:
            return False
        if which not in self._seen and len(self._seen) >= 4 * _PLACES:
            return False
        self._seen[which] += 1
        seen = self._seen[which]
        if seen > _OFTEN and seen & (seen - 1):
            return False
        if self._pass is None or self._pass.record is not None:
            self._expect(trains=False)
        return True

    def _expect(self, trains: bool) -> None:
        self._trains, self._left, self._pass = trains, _CALLS, None
        self._hook.on()

    # Passes -------------------------------------------------------------------------------------------------------

    def _called(self, module: torch.nn.Module, args: Any) -> None:
        if not self.host.active or torch.compiler.is_compiling():
            return
        with self.host.looking(_WHAT):
            self._left -= 1
            if self._pass is None:
                self._first(module, args)
            elif module is self._pass.module():
                self._follow(self._pass, args)
            if self._left <= 0:
                self._stop()

    def _stop(self) -> None:
        self._hook.off()
        if self._pass is not None and self._pass.record is not None:
            self._pass = None

    def _first(self, module: torch.nn.Module, args: Any) -> None:
        """The first pass after an occasion."""
        self._hook.off()
        rows, graph = _rows(args, sys._getframe(2)), torch.is_grad_enabled()
        if rows is None:
            return
        # By the median: a pass that was taken for a training step's may be an evaluation's.
        usual = statistics.median_low(self._training) if self._training else 0
        if not usual or rows < _TIMES * usual:
            if self._trains and graph and module.training:
                self._training.append(rows)
            return
        place = next(iter(user_lines(sys._getframe(3), 1)), None)
        if place is None or (place not in self._found and len(self._found) >= _PLACES):
            return
        self.host.sample_evaluation(module)
        if self.host.sampling:
            # Gradients that exist are events of the window.
            known = sum(size for what, size in self.host.known.storages().values() if what != "gradients")
            start = len(self.host.ledger.events)
            unsure = graph and module.training
            self._pass = _Pass(weakref.ref(module), place, rows, known, graph, start, trains=unsure)
            self._left = _CALLS
            self._hook.on()

    def _follow(self, one: _Pass, args: Any) -> None:
        """Another call of the module after the large pass began: of the next batch, of training."""
        alike = _rows(args, sys._getframe(2)) == one.rows and torch.is_grad_enabled() == one.graph
        if one.end is None and one.record is None:
            one.end = len(self.host.ledger.events)
            # With no backward since, what had the graph was no training.
            one.trains = one.trains and any(b.phase == "backward" for b in _since(one, self.host.ledger.births))
        if not alike:
            self._left = 0
        elif one.record is not None:
            one.record.batches = max(one.record.batches, one.batches + 1)
        one.batches += alike

    def settle(self, tick: int, kind: StepKind) -> None:
        """See `Watcher`."""
        self._measure()

    def finish(self, how: str, error: BaseException | None) -> None:
        """See `Watcher`. Code objects of the program's are not to outlive it here."""
        self._hook.off()
        self._measure(final=True)
        self._seen.clear()
        self._pass = None

    def _measure(self, final: bool = False) -> None:
        """A step has ended since the large pass: what it took."""
        one, ledger = self._pass, self.host.ledger
        if one is None or one.record is not None:
            return
        # A window that was closed meanwhile has taken its events along.
        if not (self.host.sampling or final) or len(ledger.events) < one.start or (one.trains and not final):
            self._pass = None
            return
        peak, alive = _highest(one, ledger.events, ledger.births)
        found = EvaluationPeak(place=one.place, module=type(one.module()).__name__, rows=one.rows, graph=one.graph)
        found.training_rows = statistics.median_low(self._training)
        found.bytes, found.known, found.batches = peak + one.known, one.known, one.batches
        found.sites = sum_by_site((b for b in alive if b.op != "adopted"), _SITES)
        one.record = found
        before = self._found.get(one.place)
        if before is None or before.bytes <= found.bytes:
            self._found[one.place] = found

    def totals(self, tick: int) -> Iterable[Record]:
        """See `Watcher`."""
        return list(self._found.values())


def _rows(args: Any, frame: FrameType) -> int | None:
    """How many rows a pass is given: the length of its first tensor. The frame is torch's, which calls the hook."""
    # Hooks on all modules get positional arguments alone.
    given = args or ((frame_locals(frame) or {}).get("kwargs"),)
    for one in given:
        # `model(batch)` and `model(**batch)`. A list is one of rows, or of all else.
        for tensor in one.values() if isinstance(one, dict) else one if isinstance(one, tuple) else (one,):
            if isinstance(tensor, torch.Tensor) and tensor.ndim:
                return int(tensor.shape[0])
    return None


def _since(one: _Pass, births: list[Birth]) -> list[Birth]:
    end = sys.maxsize if one.end is None else one.end
    return [b for b in births if one.start <= b.event < end]


def _highest(one: _Pass, events: list[tuple[Birth, int]], births: list[Birth]) -> tuple[int, list[Birth]]:
    """The most bytes alive between the pass's begin and what followed it, and what was alive then."""
    # What follows without another pass has a backward: that is training's.
    backward = (b.event for b in _since(one, births) if b.phase in ("backward", "optimizer") and b.op != "adopted")
    end = min(len(events) if one.end is None else one.end, next(backward, len(events)))
    live = sum(change for _, change in events[: one.start])
    peak, at = live, max(0, one.start - 1)
    for index in range(one.start, end):
        birth, change = events[index]
        live += change
        # What the program makes of all results afterwards (their distances, say) is none of the pass's.
        if live > peak and birth.module is not None:
            peak, at = live, index
    return peak, [b for b in births if b.event <= at and (b.died is None or b.died > at)]
