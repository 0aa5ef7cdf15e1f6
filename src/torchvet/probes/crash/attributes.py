"""What an object keeps in its own attributes, and which line of its class puts it there."""

from __future__ import annotations

import ast
import linecache
import textwrap
from collections.abc import Iterator
from inspect import getblock
from types import FunctionType
from typing import Any

import torch

from torchvet.probes.base.callers import PROGRAM
from torchvet.probes.base.kit import Place, frames, place_in

_DEEP = 2
"""Lists within lists that are looked into for modules."""
_WIDE = 256


def plain_attributes(owner: Any) -> Iterator[tuple[str, Any]]:
    """An object's own attributes, without those that `nn.Module` keeps apart."""
    try:
        # Past the program's `__getattr__` and `__getattribute__`: nothing of it is run after it has failed.
        own = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return
    if isinstance(own, dict):
        yield from ((n, v) for n, v in list(own.items()) if n not in ("_parameters", "_buffers", "_modules"))


def modules_within(value: Any, depth: int = 0) -> Iterator[tuple[str, torch.nn.Module]]:
    """Modules in a plain list, tuple or dict, those within it among them, each with its subscripts."""
    kind = type(value)
    if depth > _DEEP or not issubclass(kind, (list, tuple, dict)):
        return
    pairs = list(value.items()) if issubclass(kind, dict) else list(enumerate(value))
    # A table of data may have millions of entries, a list of layers has not.
    for key, one in pairs[:_WIDE]:
        if isinstance(one, torch.nn.Module):
            yield f"[{key!r}]", one
        else:
            yield from ((f"[{key!r}]{rest}", m) for rest, m in modules_within(one, depth + 1))


def assigned(kind: type, name: str) -> Place | None:
    """The line of a class's methods that gives `self.NAME` its value, the constructor's first."""
    # The most derived class first: its line is the one that won.
    for one in kind.__mro__:
        methods = [v for v in vars(one).values() if isinstance(v, FunctionType)]
        for method in sorted(methods, key=lambda m: m.__name__ != "__init__"):
            code = method.__code__
            if frames.owner(code.co_filename) in PROGRAM:
                line = _assigning_line(code.co_filename, code.co_firstlineno, name)
                if line is not None:
                    return place_in(code, line)
    return None


def _assigning_line(path: str, first: int, name: str) -> int | None:
    lines = linecache.getlines(path)
    try:
        # `getblock` cuts the method out by its indentation: parsing the whole file for each attribute would
        # be slow.
        tree = ast.parse(textwrap.dedent("".join(getblock(lines[first - 1 :]))))
    except (SyntaxError, ValueError, IndexError):
        return None
    for node in ast.walk(tree):
        # `AugAssign`, `AnnAssign` and loops have one `target`.
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        flat = [t for one in targets for t in (one.elts if isinstance(one, ast.Tuple) else [one])]
        if any(isinstance(t, ast.Attribute) and t.attr == name and isinstance(t.ctx, ast.Store) for t in flat):
            return first + int(getattr(node, "lineno", 1)) - 1
    return None
