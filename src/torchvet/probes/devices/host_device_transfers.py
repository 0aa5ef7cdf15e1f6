"""Watches what crosses between host and device in sampled steps, and what makes the host wait."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Literal

import torch

from torchvet.probes.base import frames
from torchvet.probes.base.watcher import Host, Watcher
from torchvet.probes.internals import private
from torchvet.recording.records.base import Place, Record, StepKind
from torchvet.recording.records.crossing import Crossing

_aten = torch.ops.aten
_DATA_DEPENDENT = (
    _aten.nonzero.default, _aten.masked_select.default, _aten._unique2.default, _aten.unique_dim.default,
    _aten.unique_consecutive.default, _aten.repeat_interleave.Tensor, _aten.equal.default,
)  # fmt: skip
"""Their result's size, or their result, is a number that the host must know."""
_INDEXING = (_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default)
_FILLING = frozenset(
    ["zeros", "ones", "full", "empty", "arange", "eye", "linspace", "logspace", "rand", "randn", "randint", "randperm",
     "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "fill_", "zero_", "normal_", "uniform_", "tril",
     "triu", "scalar_tensor"]
)  # fmt: skip
_SCALER = ("grad_scaler.py", "_maybe_opt_step")
"""Where a scaler asks, in every step, whether its gradients are finite: no line of a program's can do without."""
_METHODS = {"_local_scalar_dense": "item()", "_to_copy": "to()", "copy_": "copy_()"}
Kind = Literal["to device", "to host", "wait"]
_Storage = weakref.ref[torch.UntypedStorage]


class Crossings(Watcher):
    """Copies between host and device."""

    only_sampled = True

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._sites: dict[tuple[Place, Kind, str], Crossing] = {}
        self._in_step: dict[tuple[Place, Kind, str], int] = {}
        self._sampled = 0
        self._brought: dict[tuple[Place, Kind, str], tuple[_Storage, int, int]] = {}
        """By site: the storage that was brought last, its offset there and its version."""
        self._fetched: dict[int, tuple[_Storage, Place]] = {}
        """Host storages of this step whose data came from the device, by key."""
        self._queued = True
        """Whether the device was given work since the host last waited for it."""

    def install(self) -> None:
        """Be told of copies and of reads; wrap what waits without an operator."""
        if not torch.cuda.is_available():
            return
        self.host.hear([_aten._to_copy.default], self._copied)
        self.host.hear([_aten.copy_.default], self._copied_into)
        self.host.hear([_aten._local_scalar_dense.default], self._read)
        self.host.hear(_DATA_DEPENDENT, self._counted)
        self.host.hear(_INDEXING, self._indexed)
        self.host.ledger.listeners.append(self._operator)
        for owner, name in (
            (torch.cuda, "synchronize"),
            (torch.cuda.Event, "synchronize"),
            (torch.cuda.Stream, "synchronize"),
        ):
            self.replace(owner, name, self._waiting(name))
        self.replace(private.tensor_text, "_str", self._printing)

    def boundary(self, tick: int, kind: StepKind) -> None:
        """A step ended: was it sampled?"""
        self._sampled += self.host.sampling
        for key, calls in self._in_step.items():
            record = self._sites[key]
            record.steps += 1
            record.most = max(record.most, calls)
        self._in_step.clear()
        self._fetched.clear()

    # What is heard -------------------------------------------------------------------------------------------------

    def _copied(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        self._crossed(func, args[0], out, bool((kwargs or {}).get("non_blocking")))

    def _copied_into(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        self._crossed(func, args[1], out, bool(args[2]) if len(args) > 2 else bool((kwargs or {}).get("non_blocking")))

    def _crossed(self, func: Any, source: torch.Tensor, out: torch.Tensor, non_blocking: bool) -> None:
        if source.is_cuda == out.is_cuda or "cpu" not in (source.device.type, out.device.type):
            return
        if source.is_cuda:
            key = self._note("to host", func, source, waits=not non_blocking)
            if key is not None and out.numel() > 1:
                storage = out.untyped_storage()
                self._fetched[storage._cdata] = (weakref.ref(storage), key[0])
            return
        pinned = source.is_pinned()
        key = self._note("to device", func, source, waits=not (pinned and non_blocking))
        if key is not None:
            self._where_from(key, source, pinned)

    def _read(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if args[0].is_cuda and frames.called_by_torch(*_SCALER):
            self._queued = False
        elif args[0].is_cuda:
            self._note("wait", func, args[0], waits=True)

    def _counted(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        if any(isinstance(a, torch.Tensor) and a.is_cuda for a in args):
            self._note("wait", func, args[0], waits=True)

    def _indexed(self, func: Any, args: tuple[Any, ...], kwargs: Any, out: Any) -> None:
        """A mask selects as many elements as it has: the host asks for the number."""
        if args[0].is_cuda and any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]):
            self._note("wait", "a mask as index", args[0], waits=True)

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if not self._queued:
            self._queued = _is_work(func, args, out)
        self._derived(args, out)

    def _derived(self, args: Any, out: Any) -> None:
        """What is computed on the host from the device's data is that data still."""
        if not self._fetched or not isinstance(out, torch.Tensor) or out.is_cuda or out.numel() < 2:
            return
        for value in args:
            if isinstance(value, torch.Tensor) and not value.is_cuda:
                known = self._fetched.get(value.untyped_storage()._cdata)
                if known is not None and known[0]() is not None:
                    storage = out.untyped_storage()
                    before = self._fetched.get(storage._cdata)
                    if before is None or before[0]() is not storage:  # a dead one's address is used again
                        self._fetched[storage._cdata] = (weakref.ref(storage), known[1])
                    return

    def _waiting(self, name: str) -> Any:
        def wrap(original: Any) -> Any:
            def synchronize(*args: Any, **kwargs: Any) -> Any:
                if self.host.active and self.host.sampling:
                    with self.host.looking("waits for the device"):
                        self._note("wait", f"{name}()", None, waits=True)
                return original(*args, **kwargs)

            return synchronize

        return wrap

    def _printing(self, original: Any) -> Any:
        """torch reads the numbers that it prints with dispatch modes switched off."""

        def _str(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self.host.active and self.host.sampling and isinstance(tensor, torch.Tensor) and tensor.is_cuda:
                with self.host.looking("waits for the device"):
                    self._note("wait", "print()", tensor, waits=True)
            return original(tensor, *args, **kwargs)

        return _str

    # What is kept --------------------------------------------------------------------------------------------------

    def _note(self, kind: Kind, func: Any, tensor: torch.Tensor | None, waits: bool) -> Any:
        """Add to a site; its key, or None where no line of the program's is to blame."""
        place = frames.user_place(2)
        if place is None:
            return None
        what = func if isinstance(func, str) else _method(func, kind)
        key = (place, kind, what)
        record = self._sites.get(key)
        if record is None:
            record = self._sites[key] = Crossing(place=place, kind=kind, what=what, sampled=0)
        record.calls += 1
        if waits:
            record.waits += 1
            record.stalls += self._queued
            self._queued = False
        self._in_step[key] = self._in_step.get(key, 0) + 1
        if tensor is not None:
            record.bytes += tensor.numel() * tensor.element_size() if kind != "wait" else 0
            record.examples = f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
        return key

    def _where_from(self, key: tuple[Place, Kind, str], source: torch.Tensor, pinned: bool) -> None:
        """What is to be said of a tensor that went to the device."""
        record, storage = self._sites[key], source.untyped_storage()
        record.pinned += pinned
        fetched = self._fetched.get(storage._cdata)
        if fetched is not None and fetched[0]() is storage:
            record.back += 1
            record.back_from = fetched[1]
        before = self._brought.get(key)
        if (
            before is not None
            and before[0]() is storage
            and before[1:] == (int(source.storage_offset()), source._version)
        ):
            record.repeated += 1
        self._brought[key] = (weakref.ref(storage), int(source.storage_offset()), source._version)
        birth = self.host.ledger.live.get(storage._cdata)
        if birth is None or birth.tick != self.host.ledger.tick:
            return
        if birth.op == "DataLoader" or birth.phase == "data":
            record.batches += 1
        elif str(birth.op).removeprefix("aten.").partition(".")[0] in _FILLING:
            record.filled += 1
            record.filled_by = str(birth.op).removeprefix("aten.").partition(".")[0]
            record.filled_at = self.host.made_at(source)

    def totals(self, tick: int) -> Iterable[Record]:
        """Each site, by its line."""
        for record in self._sites.values():
            record.sampled = self._sampled
        return [r for r in self._sites.values() if r.steps]


def _method(func: Any, kind: Kind) -> str:
    name = func._schema.name.partition("::")[2]
    return "cpu()" if (name, kind) == ("_to_copy", "to host") else _METHODS.get(name, f"{name}()")


def _is_work(func: Any, args: Any, out: Any) -> bool:
    """Whether an operator gave the device something to do. Operators on lists may have no result: `out` is None."""
    if func is _aten._local_scalar_dense.default or getattr(func, "is_view", False):
        return False
    return _on_device(out) or (out is None and any(map(_on_device, args)))


def _on_device(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_on_device, value))
    return isinstance(value, torch.Tensor) and value.is_cuda
