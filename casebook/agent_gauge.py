"""Run one program and write down how much work it did, so that work left out can be told from a fault fixed.

``python -m casebook.agent_gauge OUT [--gpus SIZE COUNT] script.py args``, or ``-m package args`` in the script's place.
It owes nothing to torchvet but the GPUs that are not there.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from casebook.program import Program, become, environment

PATIENCE = 300
"""Seconds after which a program is given up."""


@dataclasses.dataclass
class Work:
    """What a program did, summed over its run."""

    steps: int = 0
    """Optimizer steps."""
    backwards: int = 0
    """Backward passes, and calls for gradients."""
    input_bytes: int = 0
    """Bytes of the tensors that modules were called with."""
    parameters: int = 0
    """Numbers that the optimizers change."""
    half_regions: int = 0
    """Times that autocast was switched on."""
    scaled: int = 0
    """Losses that a scaler multiplied."""
    cleanings: int = 0
    """Calls of `empty_cache` and `gc.collect`."""


def gauge(
    program: Program, argv: Sequence[str], command: Sequence[str], interpreter: str = sys.executable
) -> Work | None:
    """Run a program in a process of its own and say what it did; None where that did not come about."""
    told = dict(itertools.pairwise(command))
    card = told.get("--simulate-gpu")
    gpus = [] if card is None else ["--gpus", card, told.get("--gpus", "1")]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "work.json")
        line = [interpreter, "-m", "casebook.agent_gauge", str(out), *gpus, *program.target, *argv]
        try:
            subprocess.run(line, cwd=program.folder, env=environment(), capture_output=True, timeout=PATIENCE)
            return msgspec.json.decode(out.read_bytes(), type=Work)
        except (subprocess.TimeoutExpired, OSError, msgspec.DecodeError):
            return None


def install(work: Work) -> None:
    """Count from here on."""
    import torch
    from torch.nn.modules import module
    from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

    def stepped(optimizer: Optimizer, _args: object, _kwargs: object) -> None:
        work.steps += 1
        groups = (group["params"] for group in optimizer.param_groups)
        own = sum(p.numel() for p in itertools.chain.from_iterable(groups) if p.requires_grad)
        work.parameters = max(work.parameters, own)

    def called(_module: object, args: tuple[object, ...]) -> None:
        work.input_bytes += sum(a.numel() * a.element_size() for a in args if isinstance(a, torch.Tensor))

    def entered(region: Any) -> None:
        work.half_regions += bool(region._enabled)

    def multiplied(scaler: Any, *_: object) -> None:
        work.scaled += bool(scaler.is_enabled())

    register_optimizer_step_post_hook(stepped)
    module.register_module_forward_pre_hook(called)
    _before(torch.autograd, "backward", lambda *_: _add(work, "backwards"))
    _before(torch.autograd, "grad", lambda *_: _add(work, "backwards"))
    _before(torch.autocast, "__enter__", entered)
    _before(torch.amp.GradScaler, "scale", multiplied)
    _before(torch.cuda, "empty_cache", lambda *_: _add(work, "cleanings"))
    _before(gc, "collect", lambda *_: _add(work, "cleanings"))


def _add(work: Work, name: str) -> None:
    setattr(work, name, getattr(work, name) + 1)


def _before(owner: Any, name: str, note: Callable[..., None]) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    def noted(*args: Any, **kwargs: Any) -> Any:
        note(*args)
        return original(*args, **kwargs)

    setattr(owner, name, noted)


def main(argv: list[str]) -> None:
    """Run the program and leave what it did in ``argv[0]``, also where it fails."""
    out, program = Path(argv[0]).resolve(), argv[1:]
    if program[0] == "--gpus":
        from torchvet.simulate.cards import card_of
        from torchvet.simulate.start import start

        start(card_of(program[1]), int(program[2]))
        program = program[3:]
    work = Work()
    install(work)
    try:
        become(program)
    finally:
        out.write_text(json.dumps(dataclasses.asdict(work)))


if __name__ == "__main__":
    main(sys.argv[1:])
