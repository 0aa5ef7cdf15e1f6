"""torchvet: a doctor for PyTorch programs.

    torchvet run train.py          what leaks, who holds it, since which line, how fast
    torchvet check src             what source alone can show, without torch
    with torchvet.watch() as w:    as `run`, around a block of one's own program; `w.report` is a `Report`
    torchvet.check("src")          as `check`; gives a `Report`
    torchvet.inspect("a.pickle")   what a CUDA memory snapshot says; gives a `Report`
    torchvet.oom_report()          in an `except torch.OutOfMemoryError`: what was alive, on stderr
    torchvet.simulate_gpu("l4")    a GPU that is not there, for the rest of the process
    %load_ext torchvet             in a notebook: `%%vet` watches a cell

Importing this package imports neither torch nor anything else that is slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchvet._version import __version__

if TYPE_CHECKING:
    from torchvet.api.check import check
    from torchvet.api.inspect import inspect
    from torchvet.api.oom import oom_report
    from torchvet.api.simulate import simulate_gpu
    from torchvet.api.watch import Watch, watch
    from torchvet.errors import BadInput, MissingExtra, TorchvetError
    from torchvet.finding import Finding, Report

__all__ = [
    "BadInput",
    "Finding",
    "MissingExtra",
    "Report",
    "TorchvetError",
    "Watch",
    "__version__",
    "check",
    "inspect",
    "oom_report",
    "simulate_gpu",
    "watch",
]

_HOMES = {
    "BadInput": "torchvet.errors",
    "Finding": "torchvet.finding",
    "MissingExtra": "torchvet.errors",
    "Report": "torchvet.finding",
    "TorchvetError": "torchvet.errors",
    "Watch": "torchvet.api.watch",
    "check": "torchvet.api.check",
    "inspect": "torchvet.api.inspect",
    "oom_report": "torchvet.api.oom",
    "simulate_gpu": "torchvet.api.simulate",
    "watch": "torchvet.api.watch",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'torchvet' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext torchvet` calls: the notebook gets `%%vet`."""
    import importlib

    importlib.import_module("torchvet.surfaces.notebook").load(shell)
