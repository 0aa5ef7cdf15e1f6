"""One file as rules see it: units of code, what they do in order, what names stand for, where gradients flow.

`SourceFile`, which knows all of it, is loaded when it is first asked for: rules that only read traces do without.
"""

from typing import TYPE_CHECKING, Any

from torchvet.source.model import blocks, edits
from torchvet.source.model.events import Event
from torchvet.source.model.expressions import (
    calls_in,
    holds,
    is_attribute,
    is_call,
    is_literal,
    is_name,
    is_set,
    is_unpacked,
    name_set,
    names_bound,
    names_in,
    operand,
    parents_in,
    reads_of,
    root_of,
    sole_target,
    target_names,
    under_methods,
    value_bound,
)
from torchvet.source.model.units import ClassModel, Unit, keyword, receiver, targets_of, terminal, value_for
from torchvet.source.model.words import signs_of
from torchvet.source.syntax import argument, given
from torchvet.source.walking import Loop, walk

if TYPE_CHECKING:
    from torchvet.source.model.file import SourceFile

__all__ = [
    "ClassModel", "Event", "Loop", "SourceFile", "Unit", "argument", "blocks", "calls_in", "edits", "given",
    "holds", "is_attribute", "is_call", "is_literal", "is_name", "is_set", "is_unpacked", "keyword", "name_set",
    "names_bound", "names_in", "operand", "parents_in", "reads_of", "receiver", "root_of", "signs_of",
    "sole_target", "target_names", "targets_of", "terminal", "under_methods", "value_bound", "value_for", "walk",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name != "SourceFile":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from torchvet.source.model.file import SourceFile

    return SourceFile
