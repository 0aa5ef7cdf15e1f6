"""Models and optimizers that stay alive when their training is over, and ever more of them."""

from __future__ import annotations

import statistics
from collections import defaultdict

from torchvet.rules.kit import Growth, Place, Recording, Related, Rule, Store, count, records

_MOST = 0.5
"""Share of what grows from which on it is one of models."""
ADVICE = (
    "take each model out of {name} when its training is over, or make what holds that anew (an `Accelerator` frees all "
    "that it has prepared by `free_memory()`); keep a score or a `state_dict()` where that is all that is needed"
)


def is_of_models(growth: Growth) -> bool:
    """Whether most of what grows is memory of models that are not trained, or not any more."""
    return growth.idle_per_step > _MOST * growth.bytes_per_step > 0


def cause_of(growth: Growth) -> str:
    """What stays alive."""
    return (
        f"{growth.holding.name} keeps models that are not trained any more: their parameters, gradients and optimizer "
        "state stay alive while new ones are made"
    )


def line_of(growth: Growth, store: Store | None, recording: Recording) -> Store | None:
    """The line that stores; where the text has only a method that might, the call that hands in what a line makes
    again and again."""
    if store is not None and store.kind != "call" and f".{store.kind}(" in store.text:
        return store
    sure = store is not None and store.kind in ("assign", "setattr", "item")
    found = (recording.index.handed_to(p.path, p.line, growth.holding.name) for p in _makers(recording))
    return store if sure else next(filter(None, found), store)


def makers_of(recording: Recording) -> list[Related]:
    """The lines that made several optimizers, with the steps that one of them takes."""
    return [
        Rule.beside(
            "made", f"{count(len(steps))} optimizers, one every {count(round(statistics.median(steps)))} steps", at
        )
        for at, steps in _makers(recording).items()
    ]


def _makers(recording: Recording) -> dict[Place, list[int]]:
    """By line that made several optimizers: the steps of each."""
    steps: dict[Place, list[int]] = defaultdict(list)
    for rank in recording.ranks:
        for use in rank.latest(records.optimizers.OptimizerUse, "id"):
            if use.place is not None and use.steps:
                steps[use.place].append(use.steps)
    return {place: found for place, found in steps.items() if len(found) > 1}
