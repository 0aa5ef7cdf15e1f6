"""Follows the random generators of loaders' forked workers through their first batches.

A worker gets its batches' indices from a queue. Each time that it asks, the states of its generators are noted: those
that torch seeds for it, and those that its data set keeps, of which it has a copy.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import multiprocessing
import os
import types
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.utils.data import DataLoader, IterableDataset

from torchvet.probes.base.callers import place_in
from torchvet.probes.base.kit import Host, Place, Record, Unchecked, Watcher, tap
from torchvet.probes.internals import private
from torchvet.probes.objects.containers import tensors_in
from torchvet.probes.time.loaders.made import MadeLoaders
from torchvet.probes.training.samples import generators
from torchvet.recording.records.reading import WorkerDraws

_WHAT = "random numbers that loaders' workers draw again"
_LOADERS, _EPOCHS, _WORKERS, _BATCHES = 8, 3, 8, 4
"""Loaders that are followed, loops over each, workers of each, and batches of each."""
_COUNTED = 32
"""Batches of a loop of which it is counted whether a backward pass follows."""
_BYTES = 4096
"""Bytes of a tensor by which it is told from others."""


class _Loop:
    """A loop over a loader whose workers start for it."""

    def __init__(self, loader: int, epoch: int, made: Place | None) -> None:
        self.loader, self.epoch, self.made = loader, epoch, made
        self.given = self.trained = 0


class _Loader:
    """Loaders that one line makes over one data set: some programs make theirs anew for each epoch."""

    def __init__(self, ref: weakref.ref[Any], made: Place | None, number: int) -> None:
        self.ref, self.made = ref, made
        self.number = number
        self.loops = 0


class DrawnAgainProbe(Watcher):
    """Random numbers that loaders' workers draw again."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.ignored = frozenset({"batch_got", "backward_starts"})
        self._made = MadeLoaders()
        self._loaders: list[_Loader] = []
        self._loops: dict[tuple[int, int], _Loop] = {}
        self._starting: _Loop | None = None
        """The loop whose workers start now: they inherit this."""
        self._running: dict[int, tuple[weakref.ref[Any], _Loop]] = {}
        self._given: dict[int, _Loop] = {}
        """Loops that have given a batch since the last backward pass."""
        self._spawned = False

    def install(self) -> None:
        """Wrap what makes loaders, begins loops over them, and what workers do."""
        self.replace(DataLoader, "__init__", tap(self.host, _WHAT, after=self._loader_made))
        self.replace(private.LoaderIterator, "__init__", tap(self.host, _WHAT, before=self._begins))
        self.replace(private.loader_workers, "_worker_loop", self._in_worker)

    def _loader_made(self, _: None, loader: Any, *__: Any, **___: Any) -> None:
        self._made.note(loader)

    def _begins(self, iterator: Any, loader: Any) -> None:
        # All public: the iterator knows nothing yet.
        self._starting = None
        if not getattr(loader, "num_workers", 0):
            return
        known = self._of(loader)
        if known is None or known.loops >= _EPOCHS:
            return
        if _start_method(loader) != "fork":
            self._spawned = self._spawned or bool(generators.kept_by(loader.dataset, loader.collate_fn))
            return
        loop = self._starting = _Loop(known.number, known.loops, known.made)
        known.loops += 1
        self._loops[loop.loader, loop.epoch] = loop
        self._running = {key: one for key, one in self._running.items() if one[0]() is not None}
        self._running[id(iterator)] = weakref.ref(iterator), loop
        self.heed()

    def _of(self, loader: Any) -> _Loader | None:
        made = self._made.line_of(loader)
        try:
            ref = weakref.ref(loader.dataset)
        except TypeError:  # a list
            ref = weakref.ref(loader)
        known = next((one for one in self._loaders if one.ref() is ref() and one.made == made), None)
        if known is None and len(self._loaders) < _LOADERS:
            known = _Loader(ref, made, len(self._loaders))
            self._loaders.append(known)
        return known

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """See `Watcher`."""
        ref, loop = self._running.get(id(iterator), (None, None))
        # What is read without gradients is not trained on, whatever comes next.
        if ref is None or loop is None or ref() is not iterator or not torch.is_grad_enabled():
            return
        if loop.given < _COUNTED:
            loop.given += 1
            self._given[id(loop)] = loop

    def loader_ended(self) -> None:
        """The last batch of an evaluation is followed by training."""
        self._given.clear()

    def backward_starts(self, tensors: Any, is_grad: bool) -> None:
        """See `Watcher`."""
        if self._given:
            for loop in self._given.values():
                loop.trained += 1
            self._given.clear()

    def _in_worker(self, original: Callable[..., Any]) -> Callable[..., Any]:
        parent, directory = os.getpid(), self.host.options.directory

        @functools.wraps(original)
        def _worker_loop(*args: Any, **kwargs: Any) -> Any:
            with suppress(Exception):
                loop = self._starting
                # Spawned workers import torch anew, and have no session.
                if loop is not None and os.getppid() == parent:
                    call = inspect.signature(original).bind(*args, **kwargs)
                    if call.arguments["worker_id"] < _WORKERS:
                        _Worker(loop, call.arguments, _file(directory, parent, loop, call.arguments["worker_id"]))
                    args, kwargs = call.args, call.kwargs
            return original(*args, **kwargs)

        return _worker_loop

    def finish(self, how: str, error: BaseException | None) -> None:
        """What workers have left."""
        for record in self._left():
            self.host.write(record)

    def _left(self) -> Iterable[Record]:
        for file in sorted(Path(self.host.options.directory).glob(f"draws-{os.getpid()}-*.json")):
            with suppress(OSError, msgspec.DecodeError):
                for one in msgspec.json.decode(file.read_bytes(), type=list[WorkerDraws]):
                    loop = self._loops.get((one.loader, one.epoch))
                    one.trained = loop is not None and 0 < loop.given <= 2 * loop.trained
                    yield one
            with suppress(OSError):
                file.unlink()

    def unchecked(self) -> Iterable[Unchecked]:
        """Says so where data sets that keep generators went out of sight."""
        if self._spawned:
            reason = "workers that are spawned are not looked into; fork them, or use none"
            yield Unchecked(check=_WHAT, reason=reason)


def _start_method(loader: Any) -> str | None:
    context = loader.multiprocessing_context
    return multiprocessing.get_start_method() if context is None else context.get_start_method()


def _file(directory: str, parent: int, loop: _Loop, worker: int) -> Path:
    return Path(directory, f"draws-{parent}-{loop.loader}-{loop.epoch}-{worker}.json")


class _Queue:
    """One of a worker's two queues, of which a method is heard."""

    def __init__(self, queue: Any, method: str, heard: Callable[[Any], None]) -> None:
        self._queue = queue
        whole = getattr(queue, method)

        def hear(*args: Any, **kwargs: Any) -> Any:
            result = whole(*args, **kwargs)
            heard(result if method == "get" else args[0])
            return result

        setattr(self, method, hear)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class _Worker:
    """A worker, for its first batches."""

    def __init__(self, loop: _Loop, given: dict[str, Any], file: Path) -> None:
        self._given, self._file, self._loop = given, file, loop
        self._followed: list[tuple[Any, WorkerDraws, generators.State]] = []
        self._begun = False
        self._left = _BATCHES
        self._iterable = isinstance(given["dataset"], IterableDataset)
        self._data: list[str] = []
        given["index_queue"] = _Queue(given["index_queue"], "get", self._asked)
        if self._iterable:
            given["data_queue"] = _Queue(given["data_queue"], "put", self._put)

    def _asked(self, task: Any) -> None:
        if self._left < 0:
            return
        with suppress(Exception):
            # What a worker is to do first has run by now. No task: it is to end, or to begin anew.
            items = _digest(repr(list(task[1]))) if type(task) is tuple and type(task[1]) is list else ""
            if not self._begun:
                self._begun = True
                self._begin()
            else:
                self._note()
            self._left = self._left - 1 if type(task) is tuple else -1
            for _, record, _ in self._followed:
                record.items.append(items)
            return
        self._left = -1

    def _begin(self) -> None:
        given, loop = self._given, self._loop
        kept = generators.kept_by(given["dataset"], given["collate_fn"], given["init_fn"])
        starts = given["init_fn"]
        for one in (*generators.of_libraries(), *kept):
            state = generators.state_of(one.generator)
            if state is not None:
                record = WorkerDraws(
                    loader=loop.loader,
                    epoch=loop.epoch,
                    worker=given["worker_id"],
                    workers=given["num_workers"],
                    name=one.name,
                    kept=one in kept,
                    owner=one.owner,
                    attribute=one.attribute,
                    keeper=one.place,
                    made=loop.made,
                    starts=_line_of(starts) if starts is not None else None,
                    seed=given["base_seed"],
                    iterable=self._iterable,
                    states=[state.digest],
                )
                self._followed.append((one.generator, record, state))

    def _note(self) -> None:
        after: list[tuple[Any, WorkerDraws, generators.State]] = []
        for generator, record, before in self._followed:
            state = generators.state_of(generator) or before
            record.drew.append(generators.drew(before, state))
            record.states.append(state.digest)
            record.data = self._data
            after.append((generator, record, state))
        self._followed = after
        drawn = [record for _, record, _ in after if any(one is not False for one in record.drew)]
        if drawn:
            self._file.write_bytes(msgspec.json.encode(drawn))

    def _put(self, result: Any) -> None:
        if self._left >= 0 and len(self._data) < _BATCHES:
            with suppress(Exception):
                self._data.append(_digest(repr([_start_of(one) for one in tensors_in(result[1], 4)])))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _start_of(tensor: torch.Tensor) -> bytes:
    few = tensor.detach().reshape(-1)[: _BYTES // 8]
    return few.to(torch.float64).numpy().tobytes()


def _line_of(function: Any) -> Place | None:
    """Where a function begins, one within `functools.partial` likewise."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return place_in(code, code.co_firstlineno) if isinstance(code, types.CodeType) else None
