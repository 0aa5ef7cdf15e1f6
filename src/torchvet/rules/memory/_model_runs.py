"""Calls that run a model that learns: by its making, by what else is done to it, or by its name."""

from __future__ import annotations

import ast
import re

from torchvet.rules.kit import SourceFile
from torchvet.source.model import ClassModel, Event, Unit, name_set, origins, root_of, targets_of
from torchvet.source.syntax import given, receiver, terminal

_OF_MODULES = name_set("eval train parameters named_parameters state_dict load_state_dict modules cuda to half")
"""What is done to modules; of what is done to tensors as well only modules are called."""
_OF_TENSORS_TOO = name_set("to cuda half")
_LIKE_MODULES = tuple(
    name_set("""
    model net network generator discriminator critic actor policy encoder decoder backbone student teacher
""")
)
_OF_OTHERS_TOO = name_set("encoder decoder generator policy")
"""Names of tokenizers, readers of videos, Python's generators and rules written by hand as well."""
_MAKES = re.compile(r"_*(train|get|build|load|make|create|init|fit|save|set|update|run|export|prepare|wrap|test|eval)_")


def names_of(file: SourceFile) -> list[str]:
    """Last identifiers that models of the file may have, and `forward`."""
    words, text = file.words, file.text
    found = {"forward"}
    for method in _OF_MODULES & words.identifiers:
        for end in words.positions(f".{method}("):
            start = end
            while text[start - 1 : start].isidentifier() or text[start - 1 : start].isdigit():
                start -= 1
            found.add(text[start:end])
    # By the ends of names first: a file has hundreds.
    likely = (name for name in words.identifiers if name.endswith(_LIKE_MODULES) or name.startswith("net"))
    found.update(name for name in likely if name[0].islower() and file.roles.hinted("module", ast.Name(name)))
    return sorted(found - {""})


def is_one(file: SourceFile, run: Event) -> bool:
    """Whether a call runs a model, by its making or by what else is done to what has its name."""
    function, unit = run.call.func, run.unit
    # What gets nothing saves next to nothing.
    if not given(run.call):
        return False
    if terminal(function) == "forward":
        return _forwards(file, run)
    found = file.roles.of(function, unit)
    if found:
        carries = file.gradients.carries(run.node, run)
        # Its layers may come from libraries; whose parameters are asked for, that has some.
        learns = carries == "yes" or (carries == "unknown" and file.mentions(f"{terminal(function)}.parameters("))
        return learns and file.gradients.forwards.runs_module(run.call, unit)
    return _may_be_one(file, run)


def _may_be_one(file: SourceFile, run: Event) -> bool:
    """Whether a call of something that nobody makes in this file may run a model."""
    function, unit = run.call.func, run.unit
    # By constants, or by a verb, it makes a model, or trains it.
    if all(isinstance(one, ast.Constant) for one in given(run.call)) or _MAKES.match(terminal(function)):
        return False
    # An import's name, or a method of an object of this file, is a function.
    if isinstance(function, ast.Name) and (file.dotted(function) != function.id or unit.home(function.id) is None):
        return False
    if not isinstance(function, (ast.Name, ast.Attribute)) or file.callee(run) is not None:
        return False
    owner = _class_of_self(function, unit)
    if owner is not None:
        return "module" in file.roles.of_class(owner)
    return _is_named_like_one(file, function, unit) or _is_treated_like_one(file, function, unit)


def _class_of_self(node: ast.expr | None, unit: Unit) -> ClassModel | None:
    """The class whose own object a name is in a method; None for any other expression."""
    return unit.method_class() if isinstance(node, ast.Name) and node.id == unit.self_name() else None


def _is_named_like_one(file: SourceFile, function: ast.Name | ast.Attribute, unit: Unit) -> bool:
    """Whether the name alone says that it is a model."""
    if not file.roles.hinted("module", function):
        return False
    if terminal(function) not in _OF_OTHERS_TOO:
        return True
    # `vae.encoder` is a part of something, `self.encoder` one of a module; any other may be what it likes.
    on = function.value if isinstance(function, ast.Attribute) else None
    owner = _class_of_self(on, unit)
    if owner is not None:
        return "module" in file.roles.of_class(owner)
    return on is not None and root_of(on) not in file.imports.names


def _is_treated_like_one(file: SourceFile, function: ast.Name | ast.Attribute, unit: Unit) -> bool:
    """Whether the very thing that is called is moved, trained, saved or put into evaluation mode somewhere."""
    if any(file.dotted(value) == "torch.load" for value in _makers(file, function, unit)):
        return True
    name, written, mine = terminal(function), ast.dump(function), origins.identity(function, unit)
    for event in file.calls(*_OF_MODULES):
        on = receiver(event.call)
        if name not in (terminal(on), *map(terminal, targets_of(event.statement))):
            continue
        # `batch.to(device)` says nothing of `buffer.batch(3)`, nor of another function's `batch`.
        alike = type(on) is type(function) or isinstance(on, ast.Call)
        if alike and (terminal(event.node) not in _OF_TENSORS_TOO or origins.identity(on, event.unit) & mine):
            return True
        if isinstance(on, ast.Attribute) and ast.dump(on) == written:
            return True
    return False


def _makers(file: SourceFile, function: ast.expr, unit: Unit) -> list[ast.expr]:
    """What makes something: the functions called for it."""
    return [value.func for value, _ in file.roles.values(function, unit) if isinstance(value, ast.Call)]


def _forwards(file: SourceFile, run: Event) -> bool:
    """Whether a call of `forward` by name is one of a module, by its making or its class, that learns."""
    on, unit = receiver(run.call), run.unit
    known = file.roles.class_of(on, unit)
    if known is None:
        return on is not None and "module" in file.roles.of(on, unit)
    return "module" in file.roles.of_class(known) and file.gradients.carries(run.node, run) == "yes"
