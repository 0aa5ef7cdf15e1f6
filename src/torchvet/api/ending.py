"""Why a process ends in which a training has begun and not ended: what an exit handler can know of it."""

from __future__ import annotations

import sys


class TrainingUnfinished(Exception):
    """A training has not come to its end, and nobody knows by what error."""

    def __init__(self) -> None:
        super().__init__("it did not come to its end; what the process has printed says why")


def why() -> BaseException:
    """In an exit handler, or a finalizer of `multiprocessing`: the error that ends the process."""
    from torchvet.probes.session.exception_hook import on_its_way

    # The interpreter sets it for an error that nobody caught.
    return on_its_way() or getattr(sys, "last_value", None) or TrainingUnfinished()
