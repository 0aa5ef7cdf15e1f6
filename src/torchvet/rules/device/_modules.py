"""Which classes of a file are modules: by a base that torch knows, or by what they do."""

from __future__ import annotations

import re

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.source.model import ClassModel, Unit

_KEEPS_LAYER = re.compile(r"\bself\.\w+(?:: [^\n=]+)? = (?:torch\.)?nn\.[A-Z]\w*\(")


def is_module(file: SourceFile, model: ClassModel) -> bool:
    """Whether instances of a class of the file are modules."""
    roles = file.roles.of_class(model)
    return "module" in roles or (roles == {"object"} and _shown(file, model))


def _shown(file: SourceFile, model: ClassModel) -> bool:
    """Whether a class whose base is elsewhere does what modules do: it keeps layers of torch as attributes after
    `super().__init__()`, and has a `forward` that takes something."""
    forward = model.method("forward")
    if forward is None or len(forward.parameters) < 2 or not any("__init__" in one.methods for one in model.lineage):
        return False
    # `object` and the like have no constructor that makes a module of it.
    if all(base in file.classes or base in ("object", "ABC", "abc.ABC", "Generic", "Protocol") for base in model.ancestors):
        return False
    text = "\n".join(file.text_of(one) for one in model.lineage)
    return "__init__(" in text and _KEEPS_LAYER.search(text) is not None


def methods(model: ClassModel, name: str) -> Iterator[Unit]:
    """The methods of a class and its ancestors in the file on whose lines an attribute's name stands."""
    for one in model.lineage:
        for unit in one.methods.values():
            if f".{name}" in one.file.text_of(unit):
                yield unit
