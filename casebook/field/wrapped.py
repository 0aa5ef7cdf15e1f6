"""Run a program with another tool watching: ``python wrapped.py anomaly|debugger faulty.py --steps 60``.

``anomaly`` switches on ``torch.autograd.set_detect_anomaly(True)``. ``debugger`` puts Transformers'
``DebugUnderflowOverflow`` around every model, that is every module with parameters that is called from outside of any
other one, right before its first call: what a user does with one line after making the model.
"""

from __future__ import annotations

import sys
from typing import Any

from casebook.program import become


def watch_anomalies() -> None:
    """Switch on autograd's anomaly mode."""
    import torch

    torch.autograd.set_detect_anomaly(True)


def watch_modules() -> None:
    """Attach Transformers' debugger to each model at its first call."""
    from torch import nn
    from transformers.debug_utils import DebugUnderflowOverflow

    watched: set[nn.Module] = set()

    def attach(module: nn.Module, _: Any) -> None:
        if module not in watched and next(module.parameters(), None) is not None:
            DebugUnderflowOverflow(module)
            watched.update(module.modules())

    nn.modules.module.register_module_forward_pre_hook(attach)


def main() -> None:
    """Attach the tool that the first argument names, then become the program."""
    _, other, *argv = sys.argv
    {"anomaly": watch_anomalies, "debugger": watch_modules}[other]()
    become(argv)


if __name__ == "__main__":
    main()
