"""Records about the backward passes of one training step."""

from __future__ import annotations

from torchvet.recording.records.base import Place, Record


class SummedPasses(Record):
    """Backward passes from one place whose gradients an optimizer (its class) used together, as seen in sampled steps.

    In `summed` of them nothing had averaged `passes` passes: `factors` are the gradients that reached the means in
    their losses, one for each mean, in every pass. In `averaged` steps something had, and in `unclear` ones nobody can
    tell. `batches` counts the summed steps in which one loader gave a batch for each pass. In `clipped` of them the
    gradient's norm was clipped, in `clipped_anyway` of these it would have been with the average, too.

    `around` are the lines that called the place, outward, and `made` is the line that made the loss. Where a Trainer of
    transformers calls backward `trainer` is its class, and `loss_from` what gives it the loss, on the line `loss_at` if
    that is the program's: its own `method`, a `function` that it was given, or the `model`, which takes loss arguments.
    """

    id: int
    place: Place
    passes: int = 0
    factors: list[float] = []
    optimizer: str = ""
    summed: int = 0
    averaged: int = 0
    unclear: int = 0
    batches: int = 0
    clipped: int = 0
    clipped_anyway: int = 0
    around: list[Place] = []
    made: Place | None = None
    trainer: str = ""
    loss_from: str = ""
    loss_at: Place | None = None


class WalkedAgain(Record):
    """Backward passes of the same step that went through the same `nodes` and added to the same gradients, which nobody
    read or changed between them: `passes` passes in `steps` sampled steps, the first on the line `place`, all of them
    on `lines`.

    `share` of what all operators of those lines' passes took, in the middle step, would not have been needed by one
    pass. It is a share of their seconds, where they are `timed`, else of their number. `kept` says that a pass of a
    later step went through these nodes as well.
    """

    id: int
    place: Place
    timed: bool = True
    lines: list[Place] = []
    steps: int = 0
    passes: int = 0
    nodes: int = 0
    share: float = 0.0
    kept: bool = False


class UsedUpIterator(Record):
    """An iterator that one line went through after its end. `clips`: it gave it to a clip function (`what`) in `calls`
    sampled calls, and in `used_up` of them it was at its end, while `trained` parameters of the optimizers had
    gradients. Else it asked a loader's (`what`) for a batch so many times."""

    place: Place
    what: str
    clips: bool = True
    calls: int = 0
    used_up: int = 0
    trained: int = 0
