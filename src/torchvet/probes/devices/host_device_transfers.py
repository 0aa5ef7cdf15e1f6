"""Watches what crosses between host and device in sampled steps, and what makes the host wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import torch

from torchvet.probes.base import frames
from torchvet.probes.base.kit import EVERY_STEP, ByStorage, Host, SiteWatcher, bare_name, names, overloads, tap
from torchvet.probes.devices.copies_underway import Underway
from torchvet.probes.internals import private
from torchvet.recording.records.base import Place, Record, StepKind
from torchvet.recording.records.crossing import Crossing

_aten = torch.ops.aten
_DATA_DEPENDENT = overloads(
    "nonzero masked_select _unique2 unique_dim unique_consecutive repeat_interleave.Tensor equal"
)
"""Their result's size, or their result, is a number that the host must know."""
_INDEXING = overloads("index.Tensor index_put index_put_")
_FILLING = names(
    "zeros ones full empty arange eye linspace logspace rand randn randint randperm zeros_like ones_like full_like "
    "rand_like randn_like fill_ zero_ normal_ uniform_ tril triu scalar_tensor"
)
_SCALER = ("grad_scaler.py", "_maybe_opt_step")
"""Where a scaler asks, in every step, whether its gradients are finite: no line of a program's can do without."""
# The check's name in the report where one of these fails.
_WAITS = "waits for the device"
_METHODS = {"_local_scalar_dense": "item()", "_to_copy": "to()", "copy_": "copy_()"}
Kind = Literal["to device", "to host", "wait"]
_Site = tuple[Place, Kind, str]


class Crossings(SiteWatcher[_Site, Crossing]):
    """Copies between host and device."""

    only_sampled = EVERY_STEP

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._in_step: Counter[_Site] = Counter()
        self._sampled = 0
        self._brought: dict[_Site, ByStorage[tuple[int, int]]] = {}
        """By site: the storage that was brought last, with the tensor's offset there and its version."""
        self._fetched: ByStorage[Place] = ByStorage()
        """Host storages of this step whose data came from the device, with the line that fetched it."""
        self._underway: Underway[_Site] = Underway()
        self._queued = True
        """Whether the device was given work since the host last waited for it."""

    def install(self) -> None:
        """Hear copies and reads; wrap what waits without an operator."""
        # Without a device nothing crosses. A simulated GPU says that it is available.
        if not torch.cuda.is_available():
            return
        self.host.hear(overloads("_to_copy copy_"), self._copied)
        self.host.hear([_aten._local_scalar_dense.default], self._read)
        self.host.hear(_DATA_DEPENDENT, self._counted)
        self.host.hear(_INDEXING, self._indexed)
        # Every operator: whether the device has work is known only by hearing all that is given to it.
        self.host.ledger.listeners.append(self._operator)
        # These wait without any operator, so that no dispatch mode hears them.
        for owner in (torch.cuda, torch.cuda.Event, torch.cuda.Stream):
            self.replace(owner, "synchronize", tap(self.host, _WAITS, before=self._synchronizes))
        for owner in (torch.cuda.Event, torch.cuda.Stream):
            self.replace(owner, "query", tap(self.host, _WAITS, after=self._asked))
        self.replace(torch.accelerator, "synchronize", tap(self.host, _WAITS, before=self._synchronizes))
        # It reads the numbers without an operator.
        self.replace(torch.Tensor, "tolist", tap(self.host, _WAITS, before=self._listed))
        # torch reads the numbers that it prints with dispatch modes switched off.
        self.replace(private.tensor_text, "_str", tap(self.host, _WAITS, before=self._prints))

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: was it sampled?"""
        if tick == 1 and self.host.options.every_step:  # what came before its end is the program's setting up
            self.sites.clear()
            self._in_step.clear()
            return
        self._sampled += self.host.sampling
        for key, calls in self._in_step.items():
            record = self.sites[key]
            record.steps += 1
            record.most = max(record.most, calls)
        self._in_step.clear()
        self._fetched.clear()
        # What is done in steps between sampled ones is not heard.
        self._underway.arrived()

    # What is heard -------------------------------------------------------------------------------------------------

    def _copied(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        # `copy_(self, src, non_blocking)` has its source second, and its flag by place.
        into = func is _aten.copy_.default
        source = args[1] if into else args[0]
        non_blocking = bool(args[2] if into and len(args) > 2 else (kwargs or {}).get("non_blocking"))
        # Between two cards the host does not wait; meta tensors have no bytes to copy.
        if source.is_cuda == out.is_cuda or "cpu" not in (source.device.type, out.device.type):
            return
        if source.is_cuda:
            # `cpu()` cannot be asked to run on.
            self._fetches("to()" if non_blocking and not into else func, source, out, non_blocking and out.is_pinned())
            return
        pinned = source.is_pinned()
        key = self._note("to device", func, source, waits=not (pinned and non_blocking))
        if key is not None:
            self._where_from(key, source, pinned)

    def _fetches(self, func: Any, source: torch.Tensor, out: torch.Tensor, runs_on: bool) -> None:
        key = self._note("to host", func, source, waits=not runs_on)
        # A single number that comes back as an argument is ordinary (a scale, a loss): only data that goes to
        # and fro counts.
        if key is not None and out.numel() > 1:
            self._fetched.put(out, key[0])
        if key is not None and runs_on:
            self._underway.add(out, key)

    def _read(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        # The wait itself happened, and with it everything underway has arrived.
        if args[0].is_cuda and frames.called_by_torch(*_SCALER):
            self._queued = False
            self._underway.arrived()
        elif args[0].is_cuda:
            self._note("wait", func, args[0], waits=True)

    def _counted(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        # Any argument: the host needs the number wherever the device's tensor stands.
        if any(isinstance(a, torch.Tensor) and a.is_cuda for a in args):
            self._note("wait", func, args[0], waits=True)

    def _indexed(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        """A mask selects as many elements as it has: the host asks for the number."""
        if args[0].is_cuda and any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]):
            self._note("wait", "a mask as index", args[0], waits=True)

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        # Once known it stays known until the host waits: this runs at every operator.
        if not self._queued:
            self._queued = _is_work(func, args, out)
        if self._underway:
            self._early(self._underway.read_by(func, args, _on_device(out)))
        self._derived(args, out)

    def _derived(self, args: Any, out: Any) -> None:
        """What is computed on the host from the device's data is that data still."""
        if not self._fetched or not isinstance(out, torch.Tensor) or out.is_cuda or out.numel() < 2:
            return
        for value in args:
            place = self._fetched.get(value)
            # The first argument that has come from the device is enough; a result that is noted keeps its
            # own line.
            if place is not None and not value.is_cuda:
                if self._fetched.get(out) is None:
                    self._fetched.put(out, place)
                return

    def _synchronizes(self, *_: Any, **__: Any) -> None:
        if self.host.sampling:
            self._note("wait", "synchronize()", None, waits=True)

    def _asked(self, done: bool, *_: Any, **__: Any) -> None:
        """An event or a stream was asked whether all is done."""
        # False says that the copies may still run.
        if done:
            self._underway.arrived()

    def _listed(self, tensor: Any, *_: Any, **__: Any) -> None:
        if self._underway and isinstance(tensor, torch.Tensor):
            self._early(self._underway.read(tensor))

    def _early(self, keys: list[_Site]) -> None:
        """The host has read what these copies may not have brought yet."""
        # The line that reads, as well as the line that copied: the fix stands between the two.
        place = frames.user_place(2) if keys else None
        for key in keys if place is not None else ():
            self.sites[key].early += 1
            self.sites[key].early_at = place

    def _prints(self, tensor: Any, *_: Any, **__: Any) -> None:
        if self.host.sampling and isinstance(tensor, torch.Tensor) and tensor.is_cuda:
            self._note("wait", "print()", tensor, waits=True)

    # What is kept --------------------------------------------------------------------------------------------------

    def _note(self, kind: Kind, func: Any, tensor: torch.Tensor | None, waits: bool) -> _Site | None:
        """Add to a site; its key, or None where no line of the program's is to blame."""
        # Any wait lets everything arrive that was asked for before it, whichever line waits.
        if waits:
            self._underway.arrived()
        place = frames.user_place(2)
        if place is None:
            return None
        what = func if isinstance(func, str) else _method(func, kind)
        key = (place, kind, what)
        record = self.sites.setdefault(key, Crossing(place=place, kind=kind, what=what, sampled=0))
        record.calls += 1
        if waits:
            record.waits += 1
            # A second wait in a row finds the device idle and costs nothing: only those with work behind
            # them count.
            record.stalls += self._queued
            self._queued = False
        self._in_step[key] += 1
        if tensor is not None:
            record.bytes += tensor.numel() * tensor.element_size() if kind != "wait" else 0
            record.examples = f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
        return key

    def _where_from(self, key: _Site, source: torch.Tensor, pinned: bool) -> None:
        """What is to be said of a tensor that went to the device."""
        record = self.sites[key]
        record.pinned += pinned
        fetched_at = self._fetched.get(source)
        if fetched_at is not None:
            record.back += 1
            record.back_from = fetched_at
        # The same bytes of the same storage, not written to since: the same copy was made before.
        state = int(source.storage_offset()), source._version
        brought = self._brought.setdefault(key, ByStorage())
        record.repeated += brought.get(source) == state
        # The last one only: a loop over a list of batches brings each of them again in the next epoch, which
        # is no fault.
        brought.clear()
        brought.put(source, state)
        birth = self.host.ledger.live.get(source.untyped_storage()._cdata)
        # Made in an earlier step: nothing that this step fills or loads.
        if birth is None or birth.tick != self.host.ledger.tick:
            return
        if birth.op == "DataLoader" or birth.phase == "data":
            record.batches += 1
        elif (name := bare_name(birth.op)) in _FILLING:
            record.filled += 1
            record.filled_by = name
            record.filled_at = self.host.made_at(source)

    def totals(self, tick: int) -> Iterable[Record]:
        """Each site, by its line."""
        for record in self.sites.values():
            record.sampled = self._sampled
        # What was heard in a step that has not ended yet has no rate.
        return [r for r in self.sites.values() if r.steps]


def _method(func: Any, kind: Kind) -> str:
    name = bare_name(func)
    return "cpu()" if (name, kind) == ("_to_copy", "to host") else _METHODS.get(name, f"{name}()")


def _is_work(func: Any, args: Any, out: Any) -> bool:
    """Whether an operator gave the device something to do. Operators on lists may have no result: `out` is None."""
    # Reading a number gives the device no work, and neither does a view.
    if func is _aten._local_scalar_dense.default or getattr(func, "is_view", False):
        return False
    return _on_device(out) or (out is None and any(map(_on_device, args)))


def _on_device(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_on_device, value))
    return isinstance(value, torch.Tensor) and value.is_cuda
