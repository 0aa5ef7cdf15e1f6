"""Finds a program's steps from what it does, without being told. Pure logic: no torch, no time.

The strongest signal seen so far marks the boundaries: the program's own `watch.step()`, else optimizer steps, else
backward calls, else loader batches, else top-level forward passes. Stretches of forward passes without any backward
inside a training program (evaluation, sampling) count by their loader's batches, as steps of their own kind.
"""

from __future__ import annotations

from torchvet.recording.records import StepKind

_LEVELS: dict[StepKind, int] = {"forward": 0, "evaluation": 1, "backward": 2, "training": 3, "manual": 4}
_QUIET_BATCHES = 8
"""Batches without a backward before a loop that says nothing of evaluation counts as such: gradient accumulation pulls
so many ahead."""
_PROVISIONAL = 32
"""Boundaries after which an optimizer that has never stepped is taken not to: LBFGS evaluates its closure 25 times."""


class StepClock:
    """Turns events into step boundaries. Each method returns the kind of step that just ended, or None.

    `n` counts boundaries from 1, `counts` the steps by kind, `steps` those that the last boundary ended: several where
    an evaluation was recognised as one only by its length. When a stronger signal appears, what the weaker one counted
    in a training loop is forgotten (`restarted` is then true for that boundary): two losses before the first optimizer
    step are not two steps.
    """

    def __init__(self) -> None:
        self.n = 0
        self.counts: dict[StepKind, int] = {}
        self.level: StepKind = "forward"
        self.restarted = False
        self.steps = 1
        self._stepped: set[int] = set()
        self._new_optimizers: set[int] = set()
        self._quiet_batches = 0
        self._uncounted = 0
        self._evaluating = False
        self._trained = False
        self._quiet_forwards = 0
        self._forward_key = 0
        self._forwards_since_batch = 0
        self._watching_forwards = True

    @property
    def provisional(self) -> bool:
        """Whether what counts as steps now is likely to be parts of steps: an optimizer is there that has yet to step
        (gradient accumulation, LBFGS, which calls backward many times in a step)."""
        return bool(self._new_optimizers) and _LEVELS[self.level] < _LEVELS["training"] and self.n < _PROVISIONAL

    @property
    def under_way(self) -> int:
        """The number that the step under way will have: what was counted before the first optimizer step are parts."""
        return 1 if self.provisional else self.n + 1

    def manual(self) -> StepKind | None:
        """The program said that a step ended."""
        return self._boundary("manual")

    def optimizer_made(self, key: int) -> None:
        """An optimizer was made; a key may have been another's before."""
        self._new_optimizers.add(key)
        self._stepped.discard(key)

    def optimizer_stepped(self, key: int) -> StepKind | None:
        """An optimizer finished a step. Several optimizers in one iteration (a GAN) make one step.

        One that was made since the last boundary belongs to an iteration of its own.
        """
        self.busy()
        if self._stepped and key not in self._stepped and key not in self._new_optimizers:
            self._stepped.add(key)
            return None
        self._stepped = {key}
        self._new_optimizers.clear()
        return self._boundary("training")

    def backward_ended(self) -> StepKind | None:
        """A backward pass ended; a boundary only where no optimizer is known."""
        self.busy()
        return None if self.level == "training" else self._boundary("backward")

    def mode_changed(self, training: bool) -> None:
        """A model was switched to training or to evaluation."""
        self._evaluating = not training

    def batch_asked(self, has_forward_events: bool, first: bool = False, no_grad: bool = False) -> StepKind | None:
        """A loader is asked for its next batch, so that the work on the one before is over; `first` where none was.

        `has_forward_events` tells whether forward passes are reported too; then batches that nobody ran a model on
        (prefetching for gradient accumulation) do not count. `no_grad` tells that gradients are switched off.
        """
        worked = self._forwards_since_batch > 0 or not has_forward_events
        trained, self._trained = self._trained, False
        self._forwards_since_batch = 0
        self._quiet_forwards = 0
        if first or trained or not worked:
            return None
        self._quiet_batches += 1
        self._uncounted += 1
        certain = no_grad or self._evaluating or _LEVELS[self.level] <= _LEVELS["evaluation"]
        if not certain and self._quiet_batches <= _QUIET_BATCHES:
            return None
        return self._boundary("evaluation", self._uncounted)

    def forward_started(self, key: int) -> StepKind | None:
        """A top-level module is called; `key` names the module. Counts only where there is no loader."""
        self._forwards_since_batch += 1
        if self._quiet_batches:
            return None
        if key != self._forward_key and self._quiet_forwards:
            return None
        self._forward_key = key
        self._quiet_forwards += 1
        if self._quiet_forwards <= 1 or _LEVELS[self.level] > _LEVELS["forward"]:
            return None
        return self._boundary("forward")

    def _counted_by(self, kind: StepKind) -> set[StepKind]:
        """Levels whose counts are void once `kind` shows: they counted parts of the same steps."""
        weaker: set[StepKind] = {"training", "forward", "backward"} if kind == "manual" else {"forward", "backward"}
        return weaker & set(self.counts)

    def busy(self) -> None:
        """A backward or an optimizer step: the loop trains."""
        self._quiet_batches = 0
        self._uncounted = 0
        self._quiet_forwards = 0
        self._forwards_since_batch = 0
        self._evaluating = False
        self._trained = True

    def _boundary(self, kind: StepKind, steps: int = 1) -> StepKind | None:
        rank, current = _LEVELS[kind], _LEVELS[self.level]
        if kind != "evaluation" and rank < current:
            return None
        if kind == "evaluation" and self.level == "manual":
            return None
        self.restarted = rank > current and self.level in self._counted_by(kind)
        if self.restarted:
            self.n = 0
            self.counts = {}
        if rank > current:
            self.level = kind
        self.n += 1
        self.steps = steps
        self._uncounted = 0
        self.counts[kind] = self.counts.get(kind, 0) + steps
        return kind
