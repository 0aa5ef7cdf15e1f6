"""What the names of an expression stood for in its frame, without evaluating it."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Iterator
from typing import Any

import torch

from torchvet.probes.base.operators import names as names_of

MISSING = object()
# A list of thousands of tensors would make as many names for one message.
_MOST = 64
_ELSEWHERE = names_of(
    "to cuda cpu item tolist size numel dim len numpy type_as isinstance range print type float int is_cuda get_device "
    "device"
)
"""What gives no tensor, or one on another device than it was given."""


def value_of(node: ast.AST, names: dict[str, Any]) -> Any:
    """What an expression of names, attributes and constant subscripts stands for; `MISSING` for all else."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id, MISSING)
    if isinstance(node, ast.Starred):
        return value_of(node.value, names)
    if isinstance(node, ast.Attribute):
        owner = value_of(node.value, names)
        return MISSING if owner is MISSING else attribute(owner, node.attr)
    if isinstance(node, ast.Subscript):
        owner, key = value_of(node.value, names), value_of(node.slice, names)
        return _item(owner, key) if owner is not MISSING and isinstance(key, (str, int)) else MISSING
    return MISSING


def attribute(owner: Any, name: str) -> Any:
    """An attribute as it is stored, no property and no `__getattr__` asked."""
    # Any other attribute of a tensor may be a property that computes or waits for a device.
    if isinstance(owner, torch.Tensor):
        # These show the same values on the same device: the tensor stands for them.
        return owner if name in ("T", "mT", "data") else MISSING
    kind = type(owner)
    if issubclass(kind, types.ModuleType):
        return vars(owner).get(name, MISSING)
    if issubclass(kind, torch.nn.Module):
        own = object.__getattribute__(owner, "__dict__")
        # In the order in which `nn.Module.__getattr__` would find them, without calling it.
        for store in (own, own.get("_parameters"), own.get("_buffers"), own.get("_modules")):
            if isinstance(store, dict) and name in store:
                return store[name]
    # `getattr` would run descriptors of the program's.
    found = inspect.getattr_static(owner, name, MISSING)
    # Slots and fields of named tuples: their descriptors are in C and run no code of the program's.
    if isinstance(found, types.MemberDescriptorType) or type(found).__name__ == "_tuplegetter":
        try:
            return found.__get__(owner, kind)
        except AttributeError:
            return MISSING
    # Properties and methods: what they stand for only running them would tell.
    return MISSING if hasattr(type(found), "__get__") else found


def _item(owner: Any, key: str | int) -> Any:
    if issubclass(type(owner), torch.nn.Module):
        # `Sequential` and `ModuleList` keep their children under the numbers' texts.
        return owner._modules.get(str(key), MISSING)
    if not issubclass(type(owner), (dict, list, tuple)):
        owner = attribute(owner, "data")  # UserDict: what tokenizers give
    try:
        # By the base class: a subclass may have code of its own in `__getitem__`.
        if issubclass(type(owner), dict):
            return dict.__getitem__(owner, key)
        if isinstance(key, int) and issubclass(type(owner), (list, tuple)):
            return list(owner)[key]
    except (LookupError, TypeError):
        pass
    return MISSING


def tensors_in(node: ast.AST, names: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor | None]]:
    """The tensors that an expression is made of, by their text, in order; those in lists and dicts singly.

    A call of torch's, or of a tensor's method, has its result where its arguments are: these stand for it. Of what any
    other call gives nothing is known: its text comes with None.
    """
    value = value_of(node, names)
    # The largest part that has a value is told: `batch["x"]` and not `batch`.
    if value is not MISSING and not isinstance(node, ast.Constant):
        yield from listed(ast.unparse(node), value)
        return
    if isinstance(node, ast.Call):
        yield from _called(node, names)
        return
    # Its body has not run here, and its names are its parameters.
    if isinstance(node, ast.Lambda):
        return
    for child in ast.iter_child_nodes(node):
        yield from tensors_in(child, names)


def called(node: ast.AST) -> str:
    """The bare name of what is called, or an empty string."""
    if not isinstance(node, ast.Call):
        return ""
    return str(getattr(node.func, "attr", None) or getattr(node.func, "id", ""))


def _called(node: ast.Call, names: dict[str, Any]) -> Iterator[tuple[str, torch.Tensor | None]]:
    if called(node) in _ELSEWHERE:
        yield ast.unparse(node), None
        return
    given = [*node.args, *(k.value for k in node.keywords)]
    if isinstance(node.func, ast.Attribute):
        owner = value_of(node.func.value, names)
        # A method of a tensor, or of a result that is not known: its owner is an operand. A module's function
        # has none.
        if isinstance(owner, torch.Tensor) or owner is MISSING:
            given.insert(0, node.func.value)
    found = [pair for one in given for pair in tensors_in(one, names)]
    if any(tensor is not None for _, tensor in found):
        yield from found
    else:
        yield ast.unparse(node), None


def listed(text: str, value: Any) -> Iterator[tuple[str, torch.Tensor | None]]:
    if isinstance(value, torch.Tensor):
        yield text, value
    elif issubclass(type(value), (list, tuple, dict)):
        pairs = value.items() if issubclass(type(value), dict) else enumerate(value)
        for key, one in list(pairs)[:_MOST]:
            if isinstance(one, torch.Tensor):
                yield f"{text}[{key!r}]", one
