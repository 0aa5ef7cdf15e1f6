"""Checks at the start that probes work on this torch: each has to find what is there in tensors of a few bytes.

A version that works differently shows here, and not as a report that finds nothing. No random number is drawn, nothing
runs backward (that would start the engine's threads), nothing is imported, and none of the program's modes or hooks is
told: where some are on, the checks wait.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchvet.gc_pause import collector_off
from torchvet.probes.base import graphs
from torchvet.probes.base.ledger import Birth, Ledger
from torchvet.probes.base.watcher import Host
from torchvet.probes.internals import finite, private
from torchvet.probes.memory.cohorts import Cohort, Cohorts
from torchvet.probes.memory.retained_sizes import HoldingTree
from torchvet.probes.objects import heap
from torchvet.probes.objects.variables import frame_locals
from torchvet.probes.session.bus import Bus
from torchvet.probes.time.stacks import understood
from torchvet.recording.records.base import Place
from torchvet.recording.records.training import Probe, Unchecked

_LOST: dict[Probe, str] = {
    "storages": "storages of sampled steps",
    "survival": "which storages outlive their step",
    "graphs": "what autograd graphs hold",
    "names": "which names hold memory",
    "lines": "which lines take the time",
    "numbers": "losses and gradients that are not finite",
}


class NotFound(Exception):
    """A probe did not find what was there."""


class _Keeping(torch.autograd.Function):
    """Saves its operand, and keeps another tensor on its `ctx`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.kept = kept
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * 2, None


class Proofs:
    """Which probes work here. One that fails its check is switched off alone, and the report says so."""

    def __init__(self, host: Host, bus: Bus) -> None:
        self._host, self._bus = host, bus
        self._waiting = False

    def begin(self) -> None:
        """Say what is missing and run the checks, or have them wait until nobody of the program's would hear them."""
        graphs.switch(on=True)
        for name, lost in private.missing.items():
            self._host.write(Unchecked(check=lost, reason=f"torch {torch.__version__} has no {name}"))
        # The program may import torch within a mode of its own.
        self._waiting = True
        self.check()

    def check(self) -> None:
        """Run the checks, if they wait and this is the place for it."""
        # Asked again at each step boundary until there is room.
        if self._waiting and possible():
            self._waiting = False
            for probe, failure in failures():
                self._host.write(failure)
                self._host.broken.add(probe)
                self._switch_off(probe)

    def end(self) -> None:
        """Say so where there was no place for the checks."""
        if self._waiting:
            reason = "modes or saved-tensor hooks of the program's were on at every step boundary"
            self._host.write(
                Unchecked(check="whether the probes work on this torch", reason=reason, failed="everything")
            )

    def _switch_off(self, probe: Probe) -> None:
        if probe in ("storages", "survival"):
            self._host.ledger.refused = True
        elif probe == "graphs":
            graphs.switch(on=False)
        elif probe == "numbers":
            self._bus.switch_off_kind("NonFiniteWatcher")


def possible() -> bool:
    """Whether the checks can run here: nothing but torch itself would hear of them."""
    # A name that is missing must not keep the checks from running, which then name it.
    with contextlib.suppress(private.LacksName, RuntimeError):
        return (
            not private.modes_on()
            and private.functorch_level() is None
            # Under tracing the checks' tensors would become a part of the traced program.
            and private.TracingContext.try_get() is None
            and private.graph_task() == -1
            and _without_hooks()
        )
    return True


def _without_hooks() -> bool:
    """Whether no saved-tensor hooks are on. Switching them off says so where some are, and changes nothing there."""
    try:
        with torch.autograd.graph.disable_saved_tensors_hooks("in use by torchvet"):
            return True
    except RuntimeError:
        return False


def failures() -> Iterator[tuple[Probe, Unchecked]]:
    """Runs all checks: what is lost, for each that fails."""
    for probe, check in CHECKS.items():
        try:
            with _alone():
                check()
        except Exception as error:
            # One by one: a failed check says nothing of the others.
            yield probe, failure(probe, error)


def failure(probe: Probe, error: Exception) -> Unchecked:
    """The record of a probe that does not work."""
    reason = str(error) if isinstance(error, (NotFound, private.LacksName)) else f"{type(error).__name__}: {error}"
    text = f"a check at the start failed on torch {torch.__version__}: {reason}"
    return Unchecked(check=_LOST[probe], reason=text[:500], failed=probe)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Gradients are on, and neither inference mode, subclasses of tensors nor a default device has a say."""
    with collector_off(), private.DisableTorchFunction(), torch.inference_mode(False), torch.enable_grad():
        yield


def _tensor(elements: int, value: float = 1.0, requires_grad: bool = False) -> torch.Tensor:
    size = (elements,)
    return torch.full(size, value, dtype=torch.float32, device="cpu", requires_grad=requires_grad)


def _key(tensor: torch.Tensor) -> int:
    (storage,) = graphs.storages_of(tensor)
    return int(storage._cdata)


def _need(found: bool, what: str) -> None:
    if not found:
        raise NotFound(what)


def _noted() -> tuple[list[Birth], torch.Tensor]:
    """What the ledger notes of two tensors, one of which is dropped."""
    ledger = Ledger()
    _need(ledger.enter(), "the dispatch mode could not be switched on")
    try:
        kept, dropped = _tensor(4), _tensor(8)
        # Its death is what the check waits for.
        del dropped
    finally:
        ledger.leave()
    if ledger.broken is not None:
        raise NotFound(f"{type(ledger.broken).__name__}: {ledger.broken}")
    return ledger.births, kept


def _storages() -> None:
    births, kept = _noted()
    # Four and eight float32 numbers.
    _need([b.nbytes for b in births] == [16, 32], "new storages were not noted")
    _need(births[0].key == _key(kept), "a storage was taken for another")


def _survival() -> None:
    births, kept = _noted()
    _need(len(births) == 2, "new storages were not noted")
    _need(births[0].died is None, "a storage that lives counts as dead")
    _need(births[1].died is not None, "a storage that died counts as alive")
    cohorts = Cohorts()
    cohorts.add(Cohort(window=1, end=1, steps=1, births=births))
    survivors = cohorts.check(3, dict, everything=True)
    _need(len(survivors) == 1 and survivors[0].bytes == kept.nbytes, "a storage that lives on was not counted")


def _graphs() -> None:
    x = _tensor(2, requires_grad=True)
    result = (x * x).exp()
    reach = graphs.walk([result.grad_fn], set(), set(), graphs.never)
    # mul, exp, and the leaf's.
    _need(reach.nodes == 3, f"{reach.nodes} nodes were found in a graph of 3")
    _need(_key(result) in reach.saved, "a result that was saved for backward was not found")
    _need(_key(x) in reach.saved, "an operand that was saved for backward was not found")
    sequences = graphs.sequences_below([result.grad_fn])
    _need(sequences is not None and len(sequences) == 2, "nodes are not numbered")
    operand, kept = _tensor(2, requires_grad=True), _tensor(3)
    made = _Keeping.apply(operand, kept)  # type: ignore[no-untyped-call]
    reach = graphs.walk([made.grad_fn], set(), set(), graphs.never)
    _need(_key(operand) in reach.saved, "what a custom Function saved was not found")
    _need(_key(kept) in reach.ctx, "what a custom Function keeps on its ctx was not found")


def _names() -> None:
    tensor = _tensor(2)
    holder = {"kept": [tensor]}
    variables = frame_locals(sys._getframe())
    _need(variables is not None and variables.get("holder") is holder, "a function's variables were not found")
    walk = heap.HeapWalk(1.0)
    try:
        walk.add_roots([heap.Root("holder", "local", __name__, __file__, None, Place(__file__, 1, ""), holder)])
        walk.run()
        _need(any(t is tensor for t in walk.tensors), "a tensor in a container was not found")
        tree = HoldingTree(walk)
        name = tree.name(id(tensor))
        tree.close()
    finally:
        walk.close()
    _need(name == "holder['kept'][0]", f"a tensor was found under the name {name}")


def _numbers() -> None:
    good, bad = _tensor(2), _tensor(2, math.nan)
    _need(finite.is_finite(good) and not finite.suspicious([good]), "finite numbers count as not finite")
    _need(not finite.is_finite(bad), "a number that is not finite counts as finite")
    _need(finite.suspicious([good, bad]), "gradients that are not finite were not seen")


def _lines() -> None:
    program: dict[str, Any] = {}
    # Under a file name that counts as the user's; nothing of it is written.
    exec(compile("def f(look):\n    return look()\n", os.sep + "of the user.py", "exec"), program)
    doing = program["f"](lambda: understood(sys._getframe(1)))
    _need([place.line for place in doing.lines[:1]] == [2], "the line that a thread is at was not found")
    frame = sys._current_frames().get(threading.get_ident())
    _need(frame is not None, "what a thread does cannot be read")


CHECKS: dict[Probe, Callable[[], None]] = {
    "storages": _storages,
    "survival": _survival,
    "graphs": _graphs,
    "names": _names,
    "numbers": _numbers,
    "lines": _lines,
}
