"""One file as rules see it: units of code, what they do in order, what names stand for, where gradients flow."""

from torchvet.source.model.events import Event, Loop
from torchvet.source.model.file import SourceFile
from torchvet.source.model.units import ClassModel, Unit
from torchvet.source.model.words import signs_of

__all__ = ["ClassModel", "Event", "Loop", "SourceFile", "Unit", "signs_of"]
