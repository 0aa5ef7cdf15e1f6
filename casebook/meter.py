"""Run one program and write down the tensor bytes in use at every step.

``python -m casebook.meter OUT script.py args``, or ``OUT -m package args``.

The bytes are the CPU allocator's own events, as ``torch.profiler`` reports them. They are exact, they include tensors
that only C++ holds (autograd graphs), and they owe nothing to torchvet.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.autograd import profiler
from torch.nn.modules import module as nn_module
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.data import dataloader

from casebook.program import become

MARKERS = ("optimizer", "backward", "loader", "module")
"""What may mark a step, best first."""

_PREFIX = "casebook:"


def mark(kind: str) -> None:
    """Leave a mark of this kind among the allocator's events."""
    with profiler.record_function(_PREFIX + kind):
        pass


def install_marks() -> None:
    """Mark the steps of the first optimizer, backward calls, loader iterations and outermost module calls."""
    first: list[int] = []

    def after_step(optimizer: Optimizer, _args: object, _kwargs: object) -> None:
        if not first:
            first.append(id(optimizer))
        if id(optimizer) == first[0]:
            mark("optimizer")

    register_optimizer_step_post_hook(after_step)
    _mark_after(torch.autograd, "backward", "backward")
    _mark_before(dataloader._BaseDataLoaderIter, "__next__", "loader")
    _mark_outermost_modules()


def _mark_after(owner: Any, name: str, kind: str) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    def marked(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        mark(kind)
        return result

    setattr(owner, name, marked)


def _mark_before(owner: Any, name: str, kind: str) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    def marked(*args: Any, **kwargs: Any) -> Any:
        mark(kind)
        return original(*args, **kwargs)

    setattr(owner, name, marked)


def _mark_outermost_modules() -> None:
    depth = 0

    def enter(_module: object, _args: object) -> None:
        nonlocal depth
        depth += 1

    def leave(_module: object, _args: object, _output: object) -> None:
        nonlocal depth
        depth -= 1
        if depth == 0:
            mark("module")

    nn_module.register_module_forward_pre_hook(enter)
    nn_module.register_module_forward_hook(leave, always_call=True)


def watch_threads() -> None:
    """Have the program's own threads report their allocations too, where the profiler's library can be asked to."""
    try:
        library = ctypes.CDLL(str(next((Path(torch.__file__).parent / "lib").glob("*torch_cpu*"))))
        enable = library["_ZN5torch8autograd8profiler27enableProfilerInChildThreadEv"]
        disable = library["_ZN5torch8autograd8profiler28disableProfilerInChildThreadEv"]
    except (OSError, AttributeError, StopIteration):
        return
    original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def bootstrap(self: threading.Thread) -> None:
        enable()
        try:
            original(self)
        finally:
            disable()

    threading.Thread._bootstrap_inner = bootstrap  # type: ignore[attr-defined]


@contextlib.contextmanager
def measured(out: Path) -> Iterator[None]:
    """Profile the block and write ``{"peak": bytes, "marks": {kind: [bytes in use at each mark]}}`` to ``out``."""
    watch: Any = profiler.profile(use_kineto=True, profile_memory=True)
    watch.__enter__()
    try:
        yield
    finally:
        watch.__exit__(None, None, None)
        out.write_text(json.dumps(_curve(watch.kineto_results.events())))


def _curve(events: Any) -> dict[str, Any]:
    wanted = (e for e in events if e.name() == "[memory]" or e.name().startswith(_PREFIX))
    in_use = peak = 0
    marks: dict[str, list[int]] = {kind: [] for kind in MARKERS}
    for event in sorted(wanted, key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            in_use += event.nbytes()
            peak = max(peak, in_use)
        else:
            marks[event.name().removeprefix(_PREFIX)].append(in_use)
    return {"peak": peak, "marks": marks}


def main(argv: list[str]) -> None:
    """Run the program named by ``script.py args`` or ``-m package args`` and leave its curve in ``argv[0]``."""
    out, program = Path(argv[0]).resolve(), argv[1:]
    install_marks()
    watch_threads()
    with measured(out):
        become(program)


if __name__ == "__main__":
    main(sys.argv[1:])
