"""What a dry run writes: no tensor. A file of numbers that nobody worked out could be taken for a result."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

skipped: dict[str, int] = {}
"""Calls that were to write tensors and wrote nothing."""


def _writing_nothing(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def save(*args: Any, **kwargs: Any) -> None:
        if name not in skipped:
            warnings.warn(f"torchvet: {name} writes nothing in a dry run: its numbers are made up", stacklevel=2)
        skipped[name] = skipped.get(name, 0) + 1

    save.__name__, save.__qualname__, save.__doc__ = function.__name__, function.__qualname__, function.__doc__
    return save


def install() -> None:
    """Take the place of what writes tensors; of packages that are imported later, when they are asked for."""
    torch.save = _writing_nothing("torch.save", torch.save)
    sys.meta_path.insert(0, _Safetensors())


class _Safetensors:
    """Sees `safetensors.torch` being imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Found by the others, and changed once it is loaded."""
        if name != "safetensors.torch":
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                for function in ("save_file", "save_model", "save"):
                    setattr(module, function, _writing_nothing(f"safetensors.{function}", getattr(module, function)))

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
