"""What a Trainer of transformers takes its loss from: it decides by that whether it divides the loss itself."""

from __future__ import annotations

import os
from types import FrameType
from typing import Any, NamedTuple

from torchvet.probes.base import frames
from torchvet.probes.base.kit import Place, outward, place_in
from torchvet.probes.objects.variables import frame_locals

_FILE = os.path.join("transformers", "trainer.py")


class LossSource(NamedTuple):
    """The Trainer's class, and what gives it the loss: "method", "function" or "model", with its line."""

    trainer: str
    given_by: str
    place: Place | None


def variables(frame: FrameType | None) -> dict[str, Any] | None:
    """Those of the Trainer's step that is calling backward in a frame or further out; None where none is."""
    for one in outward(frame):
        if one.f_code.co_name == "training_step" and one.f_code.co_filename.endswith(_FILE):
            return frame_locals(one)
    return None


def loss_source(trainer: Any) -> LossSource:
    """Whose `self` this is."""
    name = type(trainer).__name__
    # Of the class: an attribute of its object could be a property that runs the program's code.
    own = _place(getattr(type(trainer), "compute_loss", None))
    if own is not None:
        return LossSource(name, "method", own)
    function = vars(trainer).get("compute_loss_func")
    return LossSource(name, "model" if function is None else "function", _place(function))


def _place(function: Any) -> Place | None:
    """Where a function of the user's begins."""
    code = getattr(function, "__code__", None)
    return place_in(code) if code is not None and frames.owner(code.co_filename) == frames.USER else None
