"""Records about what optimizers step on: gradients, none at all, parameters that nobody steps; random
states from which they step again and again."""

from __future__ import annotations

from collections.abc import Iterable

from torchvet.recording.records.base import Place, Record

ENOUGH_STARVED = 3
"""Steps without any gradient from which on an optimizer is judged."""


FIRST_STEPS = 8
"""Steps of an optimizer at first that are all checked."""


class OptimizerUse(Record):
    """What was seen of one optimizer. Counts are of its own steps.

    `uncleared` steps applied gradients that no backward since the last step had started afresh; `starved` steps had no
    gradient at all; `without_gradient` names parameters that never had one in any step. `rebuilt` optimizers before it
    were made on its line of the same parameters. `trainable` of its parameters required gradients when last looked at.
    `thrown` of its `FIRST_STEPS` had no gradient, and had one when the last backward returned.
    """

    id: int
    name: str
    place: Place | None
    step_place: Place | None
    steps: int
    checked: int = 0
    uncleared: int = 0
    starved: int = 0
    parameters: int = 0
    without_gradient: list[str] = []
    without_gradient_count: int = 0
    rebuilt: int = 0
    trainable: int = 0
    thrown: int = 0
    rebuilt_steps: int = 0
    """Steps of the optimizers before it that `rebuilt` counts."""
    continued: int = 0
    """How many of those after the second began with the weights as the one before had left them, which had state."""
    switched_off: Place | None = None
    """The line that runs the modules of all parameters in `without_gradient` with gradients switched off."""
    checkpointed: int = 0
    checkpointed_at: Place | None = None
    """How many of the parameters without a gradient belong to modules that ran only within `torch.utils.checkpoint`
    with `use_reentrant=True`, which switches gradients off, and a line that ran one."""
    frozen_beside: int = 0
    """Of the models that have those: how many parameters are frozen by `requires_grad`."""
    silent: bool = False
    """Whether the modules of those in `without_gradient`, or in `stopped`, did not run in the steps that were heard."""
    stopped: list[str] = []
    stopped_count: int = 0
    stopped_after: int = 0
    """Parameters that had a gradient in the first steps, the last in this one, and in none of those after."""
    zero: list[str] = []
    zero_count: int = 0
    zero_looks: int = 0
    zero_valued: int = 0
    """Parameters whose gradient was exactly zero in all steps that were looked at, how many those were, and how many of
    these parameters hold nothing but zeros."""
    history: int = 0
    history_bytes: int = 0
    history_known: bool = False
    """How many of its last steps it keeps at most (`history_size`), and the bytes that these take: known of torch's
    L-BFGS, else it has an option of that name."""
    dropped: int = 0
    """How often, around its first steps, gradients that a backward had left were cleared before the next, with no step
    in between."""
    frozen: list[str] = []
    frozen_count: int = 0
    frozen_since: int = 0
    frozen_untrained: int = 0
    frozen_at: list[Place] = []
    """Parameters that required a gradient when the optimizer was made, and none at every look since this step of it,
    up to the last; how many of them never had a gradient; and the line that was heard to switch that off in later
    steps, with the calls that led there."""

    @property
    def gradients_were_cleared(self) -> bool:
        """Whether it is no accident that steps find no gradient, and what backward had left was cleared."""
        return self.thrown >= ENOUGH_STARVED and self.thrown >= 0.8 * min(self.steps, FIRST_STEPS)


class NeverStepped(Record):
    """An optimizer, made on `place`, that never stepped; `steps` take that back.

    Of the first `passes` backward calls after which its `parameters` were looked at, `dropped` left gradients that were
    cleared before the next one. The first call was on the line `backward`. `changed`: whether the program wrote to a
    parameter itself.
    """

    place: Place
    name: str
    parameters: int
    passes: int
    dropped: int
    backward: Place | None = None
    changed: bool = False
    steps: int = 0


class StalledOptimizers(Record):
    """Optimizers (of the kind `name`) that stepped in the first steps of a run, up to step `after`, and in none since.

    Their `parameters` got new gradients up to step `until`, and nobody changed them. No `optimizers` take that back.
    """

    optimizers: int
    name: str
    place: Place | None
    names: list[str]
    parameters: int
    after: int
    until: int


class UnownedParameters(Record):
    """Parameters of a trained root module that got gradients, that no optimizer owns and that nobody changed.

    `orphans` counts the optimizers' parameters that no root module has any more: they were replaced. `resting` says
    that the modules that have the unowned ones are in eval mode, `place` where the optimizer of another part of the
    module, or the first one, was made. A `count` of 0 takes the earlier records of that module back: an optimizer has
    them now, or the program changes them by hand.
    """

    module: str
    names: list[str]
    count: int
    bytes: int
    owned: int
    steps: int
    orphans: int = 0
    place: Place | None = None
    resting: bool = False


def still_unowned(records: Iterable[UnownedParameters]) -> list[UnownedParameters]:
    """The latest record of each module, but for those that have been taken back."""
    return [r for r in {r.module: r for r in records}.values() if r.count]


class RepeatedRandoms(Record):
    """Calls on the line `place` that set a global generator (`torch`, `numpy` or `random`), by `function`, as one
    optimizer (its number is `optimizer`) found them: in `times` steps it was looked what its state is, and in
    `repeated` of them an earlier step of this optimizer, with other weights, had begun its update from the same state.

    After `drawn` of these the training has drawn from it. In `under_way` of them the function that had called was still
    at work, and in `drawn_before` of these something had drawn between the call and the step. `steps` steps followed
    that are as many as had followed the same state before; the run has had `of` steps. `inner` is the line within a
    function that only seeds.
    """

    place: Place
    generator: str
    function: str
    optimizer: int
    inner: Place | None = None
    times: int = 0
    repeated: int = 0
    drawn: int = 0
    under_way: int = 0
    drawn_before: int = 0
    steps: int = 0
    of: int = 0
