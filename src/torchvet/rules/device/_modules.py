"""Which classes of a file are modules: by a base that torch knows, or by what they do."""

from __future__ import annotations

import re
from typing import Literal

from torchvet.rules.kit import Iterator, SourceFile
from torchvet.source.model import ClassModel, Unit, name_set

Evidence = Literal["sure", "maybe", ""]

_KEEPS_LAYER = re.compile(r"self\.\w+(?:: [^\n=]+)? = (?:torch\.)?nn\.[A-Z]\w*\(")
_OF_MODULES = name_set("""
    register_buffer register_parameter register_module add_module parameters named_parameters modules named_modules
    children named_children buffers named_buffers cuda half zero_grad
""")
_ASKS_ITSELF = re.compile(rf"self\.({'|'.join(sorted(_OF_MODULES))})\(")
"""Methods that a class calls on itself and does not define: then its base has them."""
_CONTAINERS = ("ModuleList", "ModuleDict", "Sequential")
_NO_MODULES = ("object", "ABC", "abc.ABC", "Generic", "Protocol", "typing.Generic", "dict", "list", "Enum")


def evidence(file: SourceFile, model: ClassModel) -> Evidence:
    """Whether instances of a class of the file are modules: surely, maybe as a base from elsewhere may be one and there
    is a `forward`, or not as far as the file shows."""
    if "module" in file.roles.of_class(model):
        return "sure"
    if not may_be(file, model):
        return ""
    text = "\n".join(file.text_of(one) for one in model.lineage)
    if _takes_something(model) and "__init__(" in text and _KEEPS_LAYER.search(text):
        return "sure"
    if any(model.method(m[1]) is None for m in _ASKS_ITSELF.finditer(text)):
        return "sure"
    return "maybe" if _reads_like_one(file, model, text) else ""


def may_be(file: SourceFile, model: ClassModel) -> bool:
    """Whether a class's bases leave it open, at the least, whether it is a module."""
    roles = file.roles.of_class(model)
    # Where all bases stand in the file, they would have said so.
    elsewhere = roles == {"object"} and not all(b in file.classes or b in _NO_MODULES for b in model.ancestors)
    return "module" in roles or elsewhere


def _takes_something(model: ClassModel) -> bool:
    """Whether a class has a `forward` with an input."""
    forward = model.method("forward")
    return forward is not None and forward.is_bound and len(forward.parameters) > 1


def _reads_like_one(file: SourceFile, model: ClassModel, text: str) -> bool:
    """Whether a class whose base is elsewhere computes in `forward`."""
    # Transforms of data have a `forward`, too.
    return _takes_something(model) and ("torch." in text or "F." in text) and file.imports.uses("torch")


def is_container(model: ClassModel) -> bool:
    """Whether a class is a container of modules, which may register by itself what it is given."""
    return any(base.rpartition(".")[2] in _CONTAINERS for base in model.ancestors)


def is_module(file: SourceFile, model: ClassModel) -> bool:
    """Whether instances of a class of the file are surely modules."""
    return evidence(file, model) == "sure"


def methods(model: ClassModel, name: str) -> Iterator[Unit]:
    """The methods of a class and its ancestors in the file on whose lines an attribute's name stands."""
    for one in model.lineage:
        for unit in one.methods.values():
            if f".{name}" in one.file.text_of(unit):
                yield unit
