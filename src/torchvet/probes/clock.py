"""Finds a program's steps from what it does, without being told. Pure logic: no torch, no time.

The strongest signal seen so far marks the boundaries: the program's own `watch.step()`, else optimizer steps, else
backward calls, else loader batches, else top-level forward passes. Stretches of forward passes without any backward
inside a training program (evaluation, sampling) count by their loader's batches, as steps of their own kind.
"""

from __future__ import annotations

from torchvet.recording.records import StepKind

_LEVELS: dict[StepKind, int] = {"forward": 0, "evaluation": 1, "backward": 2, "training": 3, "manual": 4}
_MOST_TOGETHER = 3
_QUIET_BATCHES = 2
"""Batches without a backward before a loop counts as evaluation: gradient accumulation pulls a few ahead."""


class StepClock:
    """Turns events into step boundaries. Each method returns the kind of step that just ended, or None.

    `n` counts boundaries from 1, `counts` by kind. When a stronger signal appears, what the weaker one counted in a
    training loop is forgotten (`restarted` is then true for that boundary): two losses before the first optimizer
    step are not two steps.
    """

    def __init__(self) -> None:
        self.n = 0
        self.counts: dict[StepKind, int] = {}
        self.level: StepKind = "forward"
        self.restarted = False
        self._stepped: set[int] = set()
        self._optimizers: set[int] = set()
        self._unheard_in_a_row = 0
        self._passed_backward = False
        self._quiet_batches = 0
        self._quiet_forwards = 0
        self._forward_key = 0
        self._forwards_since_batch = 0
        self._watching_forwards = True

    def manual(self) -> StepKind | None:
        """The program said that a step ended."""
        return self._boundary("manual")

    def optimizer_stepped(self, key: int) -> StepKind | None:
        """An optimizer finished a step. Several optimizers in one iteration (a GAN) make one step."""
        self.busy()
        unheard = key not in self._optimizers
        self._optimizers.add(key)
        if self._passed_backward:
            # Optimizers that step in one backward pass, one a parameter, belong together however many they are.
            self._unheard_in_a_row = self._unheard_in_a_row + 1 if unheard else 0
        self._passed_backward = False
        # One after another that was never heard of: made anew at every step, not several of one iteration.
        anew = self._unheard_in_a_row > _MOST_TOGETHER
        if key not in self._stepped and self._stepped and not anew:
            self._stepped.add(key)
            return None
        self._stepped = {key}
        return self._boundary("training")

    def backward_ended(self) -> StepKind | None:
        """A backward pass ended; a boundary only where no optimizer is known."""
        self.busy()
        self._passed_backward = True
        return self._boundary("backward")

    def batch_asked(self, has_forward_events: bool) -> StepKind | None:
        """A loader is asked for its next batch, so that the work on the one before is over.

        `has_forward_events` tells whether forward passes are reported too; then batches that nobody ran a model on
        (prefetching for gradient accumulation) do not count.
        """
        worked = self._forwards_since_batch > 0 or not has_forward_events
        self._forwards_since_batch = 0
        self._quiet_forwards = 0
        if not worked:
            return None
        self._quiet_batches += 1
        first_in_pure_loop = _LEVELS[self.level] <= _LEVELS["evaluation"]
        if self._quiet_batches <= (1 if first_in_pure_loop else _QUIET_BATCHES):
            return None
        return self._boundary("evaluation")

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
        self._quiet_forwards = 0
        self._forwards_since_batch = 0

    def _boundary(self, kind: StepKind) -> StepKind | None:
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
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return kind
