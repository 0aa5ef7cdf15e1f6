"""Imports torch and writes what it says as JSON to the file that is named. Nothing of the user's runs here.

Each answer is asked for by itself: what fails is written down as an error under its name, and the others stand.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

PINNED = 64 << 20
"""Bytes of pinned memory that are asked for, once."""


def main(bare: set[str]) -> None:
    """`sys.argv[1]` is the file to write, `bare` the modules that the interpreter starts with."""
    found: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as said:
        # Each warning once, as the user's own import would show it.
        warnings.simplefilter("default")
        import torch
    loaded = {name.partition(".")[0] for name in set(sys.modules) - bare}
    # What is built in comes before any file.
    # Files of the user's that have the name of a module that torch imports (`random.py`) are among these.
    found["imported"] = sorted(loaded - {"torchvet", *sys.builtin_module_names})
    found["warnings"] = list(dict.fromkeys(f"{w.category.__name__}: {w.message}" for w in said))
    found["version"], found["file"] = str(torch.__version__), torch.__file__
    for name, ask in QUESTIONS.items():
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                found[name] = ask()
            except Exception as error:
                found[name] = {"error": f"{type(error).__name__}: {error}"}
            found[f"{name}_warnings"] = [str(w.message) for w in said]
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")


def _numpy() -> str | None:
    """NumPy's version, None where it is not installed. Raises what torch raises where the two do not fit."""
    import importlib.util

    if importlib.util.find_spec("numpy") is None:
        return None
    import numpy
    import torch

    # A NumPy 2 beside a torch built for NumPy 1 imports and fails here.
    torch.from_numpy(numpy.zeros(1))
    return str(numpy.__version__)


def _build() -> dict[str, Any]:
    import torch

    return {"cuda": torch.version.cuda, "hip": torch.version.hip, "debug": bool(torch.version.debug)}


def _cuda() -> dict[str, Any]:
    """The devices, and why there is none where CUDA says so."""
    import torch

    if torch.cuda.is_available():
        properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        devices = [{"name": p.name, "bytes": p.total_memory, "major": p.major, "minor": p.minor} for p in properties]
        return {"available": True, "devices": devices, "architectures": torch.cuda.get_arch_list(), "why": None}
    why = None
    if torch.version.cuda is not None:
        try:
            # `is_available` swallows the driver's error, `init` raises it.
            torch.cuda.init()  # type: ignore[no-untyped-call]
        except Exception as error:
            why = str(error)
    return {"available": False, "devices": [], "architectures": [], "why": why}


def _half() -> list[dict[str, Any]]:
    import msgspec

    from torchvet.probes.precision.half_hardware import devices

    found: list[dict[str, Any]] = msgspec.to_builtins(devices())
    return found


def _precision() -> dict[str, Any]:
    import torch

    return {
        "matmul": torch.get_float32_matmul_precision(),
        "cudnn_tf32": bool(torch.backends.cudnn.allow_tf32),
        "default_dtype": str(torch.get_default_dtype()),
    }


def _threads() -> int:
    import torch

    return int(torch.get_num_threads())


def _allocator() -> str:
    """The allocator's settings as they are in force here. Raises ValueError for those that CUDA would refuse."""
    from torchvet.simulate.allocation.settings import settings_from, text_of

    text = text_of(os.environ)
    settings_from(text)
    return text


def _pinned() -> bool | None:
    """Whether memory can be pinned; None without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return None
    # A locked-memory limit (`ulimit -l`, a container) refuses 64 MiB, and would allow a few kilobytes.
    return bool(torch.empty(PINNED, dtype=torch.uint8, pin_memory=True).is_pinned())


QUESTIONS: dict[str, Callable[[], Any]] = {
    "numpy": _numpy,
    "build": _build,
    "cuda": _cuda,
    "half": _half,
    "precision": _precision,
    "threads": _threads,
    "allocator": _allocator,
    "pinned": _pinned,
}
