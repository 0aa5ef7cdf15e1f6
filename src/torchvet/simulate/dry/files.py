"""What a dry run writes: no tensor. A file of numbers that nobody worked out could be taken for a result.

What `torch.save` is given is kept in memory (`archives.py`), and files that hold checkpoints are left as they are
(`paths.py`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import torch

from torchvet.simulate.dry import archives, paths
from torchvet.simulate.late_imports import when_imported

skipped: dict[str, int] = {}
"""Calls that were to write tensors and wrote nothing."""


def _skip(name: str) -> None:
    if name not in skipped:
        warnings.warn(f"torchvet: {name} writes nothing in a dry run: its numbers are made up", stacklevel=3)
    skipped[name] = skipped.get(name, 0) + 1


def _save(
    obj: Any,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = torch.serialization.DEFAULT_PROTOCOL,
    *_: Any,
    **of_the_file: Any,
) -> None:
    """Save an object for this process alone."""
    _skip("torch.save")
    token = archives.keep(obj, pickle_module, pickle_protocol)
    if isinstance(f, (str, os.PathLike)):
        paths.hold(f, token)
        return
    # The program may read its file again: the token leads back to the object.
    f.write(token)
    # A file that the program opened itself: the token in it must go when the run is over.
    name = getattr(f, "name", None)
    if isinstance(name, str):
        _tokens.add(os.path.realpath(name))


def _loading(load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def from_memory(f: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("mmap") and paths.holds(f):
            kwargs["mmap"] = False  # there is no file to map
        return load(f, *args, **kwargs)

    return from_memory


_tokens: set[str] = set()
"""Files that a token may have been written to, since the program opened them under names that say nothing."""


def clear() -> None:
    """The run is over: files that hold a token, which nobody else can read, go."""
    for path in _tokens:
        with contextlib.suppress(OSError):
            paths.remove_token(path)


def _writing_nothing(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def save(*args: Any, **kwargs: Any) -> None:
        _skip(name)

    return functools.update_wrapper(save, function)


def install() -> None:
    """Replace the functions that write tensors."""
    _save.__name__ = _save.__qualname__ = "save"
    _save.__doc__ = torch.save.__doc__
    torch.save, torch.load = _save, _loading(torch.load)
    archives.install()
    paths.install()
    # Not every program has it, and importing it for nothing would cost time.
    when_imported("safetensors.torch", _in_safetensors)


def _in_safetensors(module: Any) -> None:
    for function in ("save_file", "save_model", "save"):
        setattr(module, function, _writing_nothing(f"safetensors.{function}", getattr(module, function)))
