"""Finds a program's steps from what it does, without being told. Pure logic: no torch, no time.

The strongest signal seen so far marks the boundaries: the program's own `watch.step()`, else optimizer steps, else
backward calls, else loader batches, else top-level forward passes. Stretches of forward passes without any backward
inside a training program (evaluation, sampling) count by their loader's batches, as steps of their own kind; long
stretches of backward calls without an optimizer's step (weights updated by hand) count by the call. Threads that train
make steps of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torchvet.recording.records.base import StepKind

_LEVELS: dict[StepKind, int] = {"forward": 0, "evaluation": 1, "backward": 2, "training": 3, "manual": 4}
_QUIET_BATCHES = 8
"""Batches without a backward before a loop that says nothing of evaluation counts as such: gradient accumulation pulls
so many ahead."""
_PROVISIONAL = 32
"""Boundaries after which an optimizer that has never stepped is taken not to: LBFGS evaluates its closure 25 times."""
SILENT = 32
"""Backward calls in a row that no step takes in from which on each is a step of its own: the program updates its
weights by hand. Fewer may be micro-batches."""
_TIMES = 4
"""The same, as a multiple of what a step of this thread has taken in so far."""
_FEW = 8
"""Backward calls that no step takes in, and that need not be spoken of."""


@dataclass
class ThreadSteps:
    """What one thread has done since its last step."""

    stepped: set[int] = field(default_factory=set)
    """The optimizers that stepped in it."""
    stepped_for: set[tuple[int, int]] = field(default_factory=set)
    """The same, each with the first parameter that it stepped for."""
    heard: int = 0
    """`backwards` as an optimizer stepped last."""
    backwards: int = 0
    uncounted: int = 0
    """Backward calls, and those of them that no step has taken in."""
    most: int = 0
    """How many a step has taken in at most."""

    def step_ended(self) -> None:
        """A step ended, and takes in what was not counted yet."""
        # Where `SILENT` calls made steps of their own the count is of two kinds of loop, and no habit of one.
        if self.backwards == self.uncounted:  # else there were steps of their own in between
            self.most = max(self.most, self.backwards)
        self.backwards = self.uncounted = self.heard = 0

    def goes_on(self, key: int, first: int) -> bool:
        """Whether an optimizer only goes on with a step, for other parameters and with no backward pass in between:
        libraries that shard its state step it once for each of its groups."""
        part = (key, first)
        goes_on = self.heard == self.backwards and key in self.stepped and part not in self.stepped_for
        self.heard = self.backwards
        self.stepped_for.add(part)
        return goes_on

    def begins(self, key: int, first: int) -> None:
        """An optimizer stepped, which belongs to an iteration of its own."""
        self.stepped = {key}
        self.stepped_for = {(key, first)}


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
        self._threads: dict[int, ThreadSteps] = {}
        self._forgotten = 0
        """Backward calls before the first optimizer step."""
        # Keys are identities, which Python uses again: an optimizer made anew in each step has often the same
        # one.
        self._new_optimizers: set[int] = set()
        self._within = False
        """Whether an optimizer has stepped within the pass that runs. CUDA's hooks run on another thread."""
        self._quiet_batches = 0
        self._uncounted = 0
        self._evaluating = False
        self._trained = False
        self._quiet_forwards = 0
        self._forward_key = 0
        self._forwards_since_batch = 0
        self._may_train = False
        """Whether a forward pass has run that a backward may follow; also where passes are not heard of."""

    @property
    def provisional(self) -> bool:
        """Whether what counts as steps now is likely to be parts of steps: an optimizer is there that has yet to step
        (gradient accumulation, LBFGS, which calls backward many times in a step). Passes that a backward cannot follow
        (no gradients, a model in eval mode) are parts of none."""
        unsure = self.level == "backward" or self._may_train
        waits = bool(self._new_optimizers) and _LEVELS[self.level] < _LEVELS["training"] and self.n < _PROVISIONAL
        return waits and unsure

    @property
    def under_way(self) -> int:
        """The number that the step under way will have: what was counted before the first optimizer step are parts."""
        return 1 if self.provisional else self.n + 1

    @property
    def evaluating(self) -> bool:
        """Whether the program has said last that it evaluates (`model.eval()`)."""
        return self._evaluating

    @property
    def trained(self) -> int:
        """Steps so far that changed weights."""
        return self.counts.get("training", 0) + self.counts.get("manual", 0)

    def manual(self) -> StepKind | None:
        """The program said that a step ended."""
        return self._boundary("manual")

    def optimizer_made(self, key: int) -> None:
        """An optimizer was made; a key may have been another's before."""
        self._new_optimizers.add(key)
        for thread in self._threads.values():
            # Otherwise a second optimizer at the address of one that has died would end a step at once.
            thread.stepped.discard(key)

    def optimizer_stepped(self, key: int, thread: int = 0, first: int = 0) -> StepKind | None:
        """An optimizer finished a step; `first` names the first of its parameters. Several optimizers in one iteration
        of a thread (a GAN) make one step.

        One that was made since the last boundary belongs to an iteration of its own.
        """
        self.busy()
        one = self.of_thread(thread)
        if one.goes_on(key, first):
            return None
        # Another optimizer of the same iteration (generator and discriminator): the step has ended already
        # with the first.
        if one.stepped and key not in one.stepped and key not in self._new_optimizers:
            one.stepped.add(key)
            return None
        one.begins(key, first)
        return self._step_of(one)

    def optimizer_stepped_within(self) -> None:
        """An optimizer stepped within a backward pass, for a parameter or a few: the step ends with the pass."""
        # Which thread this is says nothing, because hooks of CUDA's backward run on the engine's thread: the
        # end of the pass decides.
        self._within = True

    def backward_ended(self, thread: int = 0, part: bool = False) -> StepKind | None:
        """A backward pass ended; `part` where others make the steps (`autograd.grad` for a penalty).

        A boundary where no optimizer is known, where optimizers have stepped within the pass, and where so many follow
        each other without a step that they are no parts of one.
        """
        self.busy()
        one = self.of_thread(thread)
        if self._within:
            self._within = False
            return self._step_of(one)
        one.backwards += 1
        one.uncounted += 1
        # The program says itself where steps end; the calls are still counted, for `outside_steps`.
        if self.level == "manual":
            return None
        if self.level != "training" and not part:
            one.step_ended()
            return self._boundary("backward")
        # Both: 32 in a row for those that never step, and four times the habit of those that accumulate long.
        if one.backwards <= SILENT or one.backwards <= _TIMES * max(one.most, self._at_first()):
            return None
        steps, one.uncounted = one.uncounted, 0
        return self._boundary("backward", steps)

    @property
    def main_steps(self) -> int:
        """Steps of the kind that marks them, and those whose weights the program updates by hand."""
        # On any other level these are the main steps themselves, and would count twice.
        by_hand = self.counts.get("backward", 0) if self.level == "training" else 0
        return self.counts.get(self.level, 0) + by_hand

    @property
    def outside_steps(self) -> int:
        """Backward calls that belong to no step that was counted: those before the first optimizer step, where later
        steps had far fewer, and those after the last step."""
        threads = list(self._threads.values())
        habit = max((t.most for t in threads), default=0)
        # With one or two steps there is no habit to hold the first stretch against.
        several = self.counts.get("training", 0) > 2
        before = self._forgotten if several and self._forgotten > max(_FEW, _TIMES * habit) else 0
        return before + sum(t.uncounted for t in threads if t.uncounted > max(_FEW, 2 * t.most))

    def _at_first(self) -> int:
        """What the first step may have taken in, as long as there are no others to go by."""
        return self._forgotten if self.counts.get("training", 0) < 3 else 0

    def _step_of(self, thread: ThreadSteps) -> StepKind | None:
        self._new_optimizers.clear()
        thread.step_ended()
        return self._boundary("training")

    def backward_again(self, one: ThreadSteps) -> None:
        """The same as `backward_ended`, where steps are steady: it makes no boundary."""
        self.busy()
        one.backwards += 1
        one.uncounted += 1

    # Written out and not a call of `_step_of`: it runs in every steady step.
    def optimizer_stepped_again(self, one: ThreadSteps, key: int, first: int = 0) -> bool:
        """The same as `optimizer_stepped`, where steps are steady and no optimizer is new. Whether a step has ended."""
        if one.goes_on(key, first):
            return False
        if key not in one.stepped:
            one.stepped.add(key)
            return False
        one.begins(key, first)
        one.step_ended()
        # All that `_boundary` would set, for a level that cannot change here.
        self.restarted, self.steps, self._uncounted = False, 1, 0
        self.n += 1
        self.counts["training"] += 1
        return True

    def of_thread(self, ident: int) -> ThreadSteps:
        """What a thread has done since its last step."""
        one = self._threads.get(ident)
        if one is None:
            one = self._threads[ident] = ThreadSteps()
        return one

    def mode_changed(self, training: bool) -> None:
        """A model was switched to training or to evaluation."""
        self._evaluating = not training

    def batch_asked(self, has_forward_events: bool, first: bool = False, no_grad: bool = False) -> StepKind | None:
        """A loader is asked for its next batch, so that the work on the one before is over; `first` where none was.

        `has_forward_events` tells whether forward passes are reported too; then batches that nobody ran a model on
        (prefetching for gradient accumulation) do not count. `no_grad` tells that gradients are switched off.
        """
        # While module hooks are out nobody knows whether a model ran; then every batch counts as worked on.
        worked = self._forwards_since_batch > 0 or not has_forward_events
        self._may_train |= not has_forward_events and not no_grad and not self._evaluating
        trained, self._trained = self._trained, False
        self._forwards_since_batch = 0
        self._quiet_forwards = 0
        # The batch before was trained on, or only prefetched: it is not an evaluation's.
        if first or trained or not worked:
            return None
        self._quiet_batches += 1
        self._uncounted += 1
        # Each of them is said by the program. Without any, eight quiet batches may still be one long
        # accumulation.
        certain = no_grad or self._evaluating or _LEVELS[self.level] <= _LEVELS["evaluation"]
        if not certain and self._quiet_batches <= _QUIET_BATCHES:
            return None
        # The batches that passed before it was certain were steps of the evaluation, too.
        return self._boundary("evaluation", self._uncounted)

    def forward_started(self, key: int, no_grad: bool = False) -> StepKind | None:
        """A top-level module is called; `key` names the module. Counts only where there is no loader. `no_grad` tells
        that gradients are switched off."""
        self._forwards_since_batch += 1
        self._may_train |= not no_grad and not self._evaluating
        # The loader's batches count this evaluation already.
        if self._quiet_batches:
            return None
        # A second module beside the first (a student and its teacher) belongs to the same step.
        if key != self._forward_key and self._quiet_forwards:
            return None
        self._forward_key = key
        self._quiet_forwards += 1
        # The boundary comes with the second call of the same module: only then is the first pass known to be
        # over.
        if self._quiet_forwards <= 1 or _LEVELS[self.level] > _LEVELS["forward"]:
            return None
        return self._boundary("forward")

    def _counted_by(self, kind: StepKind) -> set[StepKind]:
        """Levels whose counts are void once `kind` shows: they counted parts of the same steps."""
        # `manual` voids optimizer steps too: the program's own word says what a step is. Evaluations are
        # never part of one.
        weaker: set[StepKind] = {"training", "forward", "backward"} if kind == "manual" else {"forward", "backward"}
        return weaker & set(self.counts)

    def busy(self) -> None:
        """A backward or an optimizer step: the loop trains."""
        self._quiet_batches = 0
        self._uncounted = 0
        self._quiet_forwards = 0
        self._forwards_since_batch = 0
        # A frozen teacher that was put in eval mode does not make the training around it an evaluation.
        # So that a teacher's `eval()` has effect only until the next backward.
        self._evaluating = False
        self._trained = True

    def _boundary(self, kind: StepKind, steps: int = 1) -> StepKind | None:
        rank, current = _LEVELS[kind], _LEVELS[self.level]
        # Evaluations, and weights that are updated by hand, are steps beside those of a stronger signal. All other
        # weaker signals are parts of its steps.
        # A backward call gets here below the training level only from the stretch that `backward_ended` found
        # too long.
        if kind not in ("evaluation", "backward") and rank < current:
            return None
        # The program's steps may well be its evaluation's batches: counted twice otherwise.
        if kind == "evaluation" and self.level == "manual":
            return None
        self.restarted = rank > current and self.level in self._counted_by(kind)
        if self.restarted:
            # Kept for `outside_steps`: a long loop by hand before the first optimizer step is more than a
            # warm-up.
            self._forgotten = self.counts.get("backward", 0)
            self.n = 0
            self.counts = {}
        if rank > current:
            self.level = kind
        self.n += 1
        self.steps = steps
        self._uncounted = 0
        self.counts[kind] = self.counts.get(kind, 0) + steps
        return kind
