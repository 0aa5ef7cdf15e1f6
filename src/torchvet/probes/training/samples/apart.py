"""Watches how the first few samples of a data set are made: one function that is called on two pictures of a sample,
and moves them unlike.

While such a sample is made `sys.setprofile` tells of each call. Loaders' forked workers do the same, and leave what
they found in a small file.
"""

from __future__ import annotations

import functools
import inspect
import multiprocessing
import os
import random
import sys
import time
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import torch

from torchvet.probes.base import frames
from torchvet.probes.base.kit import Host, Place, Record, Unchecked, Watcher, of_program
from torchvet.probes.internals import private
from torchvet.probes.training.samples import movements
from torchvet.recording.records.reading import MovedApart

_WHAT = "pictures of a sample that are moved apart"
_SAMPLES, _FILES = 16, 64
"""Samples that are followed of each data set, and in each worker; files that workers leave."""
_SECONDS, _LEAST = 0.5, 4
"""What comparing the pictures of a data set may take, once so many samples are compared: large ones take 0.2 s each."""
_ALONE = 2
"""Samples without two pictures after which a data set is left."""
_ENOUGH = 8
"""Samples with pictures moved apart after which no more are compared."""
_CALLS, _PICTURES, _INNER = 20_000, 24, 8
"""Calls in a sample after which it is left; those with a picture that are kept, and as many within one of them."""
_TOGETHER = 0.7
"""The correlation of two pictures of one kind from which on they show the same: others are a pair of their own."""
_DEEP, _WORD = 3, 24
"""Containers within each other that are looked into, and letters of an argument that are shown."""
_BY_NAME = {
    *("hflip", "vflip", "rotate", "affine", "perspective", "crop", "resized_crop", "elastic_transform"),
    *("horizontal_flip", "vertical_flip", "elastic", "transpose", "transform"),
}
"""Functions of torchvision and PIL that move a picture by their arguments."""
_MOVERS = tuple(f"{os.sep}{name}{os.sep}" for name in ("PIL", "torchvision"))
_ARGUMENTS = {
    *("angle", "translate", "scale", "shear", "top", "left", "height", "width", "box", "method"),
    *("startpoints", "endpoints", "data"),
}
_LIBRARIES = tuple(f"{os.sep}{name}{os.sep}" for name in ("PIL", "numpy"))
"""Packages whose own calls are no transforms: an image may be half made in them."""


_Named = tuple[str, list[tuple[str, str]]]


class _Call:
    """A call with one picture, until its sample is made."""

    def __init__(self, frame: types.FrameType, picture: Any, place: Place, begin: int) -> None:
        self.code, self.place, self.begin, self.end = frame.f_code, place, begin, sys.maxsize
        self.before = movements.picture_of(picture)
        self.after: torch.Tensor | None = None
        self.states = _states()
        self.drew = ""
        self.by_name: list[_Named] = []
        self.origin: object = None
        """Calls of one origin are given the same picture, or what such calls have made of it."""

    @functools.cached_property
    def ways(self) -> list[movements.Movement] | None:
        """How the picture may have been moved; None where that is not known."""
        if self.before is None or self.after is None:
            return None
        return movements.movements(self.before, self.after)

    @property
    def knows(self) -> bool:
        """Whether it is known how the picture was moved."""
        return bool(self.ways) or bool(self.by_name)

    def ended(self, result: Any, end: int) -> None:
        """It returned: a picture, or what holds one, as the dictionaries of albumentations."""
        given = _pictures_in([result])
        self.end, self.after = end, movements.picture_of(given[0]) if len(given) == 1 else None
        self.drew = ", ".join(name for name, state in _states().items() if state != self.states[name])


class _Sample:
    """Hears of each call while one sample is made."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.item: types.FrameType | None = None
        self._open: dict[types.FrameType, _Call] = {}
        self._inner = 0
        """Calls that are kept within the outermost one that is open."""
        self._mover: types.FrameType | None = None
        """The outermost open function that moves by its arguments: those that it calls say the same again."""
        self._origins: dict[int, tuple[Any, object]] = {}
        """By identity: what calls have given, kept alive, and its origin."""
        self._count = 0
        self.found: list[tuple[str, list[_Call], Any]] = []
        """By sample: its data set's class, the calls, and what was made."""
        self.alone = 0
        """Samples without two pictures."""

    def hear(self, frame: types.FrameType, event: str, arg: Any) -> None:
        """As `sys.setprofile` calls it."""
        if event == "call":
            self._count += 1
            if self.item is None:
                self.item, self._count = (frame if _makes_samples(frame.f_code) else None), 0
            elif self._count <= _CALLS:
                self._begins(frame)
        elif event == "return" and self.item is not None:
            self._count += 1
            if frame is self.item:
                self.found.append((type(frame.f_locals.get("self")).__name__, self.calls, arg))
                self.alone += len(_pictures_in([arg])) < 2
                # A batch may have hundreds: the others are made as fast as without us.
                if len(self.found) >= _SAMPLES or self.alone >= _ALONE:
                    sys.setprofile(None)
                self.calls, self.item, self._open, self._origins, self._mover = [], None, {}, {}, None
            else:
                self._ends(frame, arg)

    def _ends(self, frame: types.FrameType, result: Any) -> None:
        if frame is self._mover:
            self._mover = None
        one = self._open.pop(frame, None)
        if one is not None:
            one.ended(result, self._count)
            for made in _pictures_in([result]):
                self._origins[id(made)] = made, one.origin

    def _begins(self, frame: types.FrameType) -> None:
        code = frame.f_code
        if self._mover is None and _moving(code.co_name) and any(name in code.co_filename for name in _MOVERS):
            self._moves(frame)
        self._inner = self._inner if self._open else 0
        if len(self.calls) >= _PICTURES or self._inner >= _INNER or not _may_move(code):
            return
        given = _pictures_in(_arguments(frame))
        place = next((frames.place_of(one) for one in of_program(frame.f_back, (frames.USER,))), None)
        if len(given) == 1 and place is not None:
            self._note(frame, _Call(frame, given[0], place, self._count), given[0])

    def _moves(self, frame: types.FrameType) -> None:
        name = _moving(frame.f_code.co_name)
        arguments = sorted((k, repr(v)) for k, v in frame.f_locals.items() if k in _ARGUMENTS)
        # That of PIL has arguments; a transform's own, of torchvision, calls what moves.
        if arguments or name != "transform":
            self._mover = frame
            for one in self._open.values():
                one.by_name.append((name, arguments))

    def _note(self, frame: types.FrameType, one: _Call, given: Any) -> None:
        if one.before is not None:
            known = self._origins.get(id(given))
            one.origin = known[1] if known is not None else hash(one.before.numpy().tobytes())
            self.calls.append(one)
            self._inner += bool(self._open)
            self._open[frame] = one


@functools.cache
def _moving(name: str) -> str:
    """What a function of this name does to a picture, if it moves one. Kernels are named for a kind of picture, too."""
    for end in ("_pil", "_image", "_mask", "_video"):
        name = name.removesuffix(end)
    name = name.lstrip("_")
    return name if name in _BY_NAME else ""


def _makes_samples(code: types.CodeType) -> bool:
    """Whether a call of this gives a sample: a data set's method, or one that yields."""
    name, yields = code.co_name, bool(code.co_flags & inspect.CO_GENERATOR)
    return name == ("__iter__" if yields else "__getitem__") and frames.owner(code.co_filename) == frames.USER


def _may_move(code: types.CodeType) -> bool:
    """Whether a function may be a transform: the program's, or a library's of them."""
    whose = frames.owner(code.co_filename)
    if code.co_flags & inspect.CO_GENERATOR or whose not in (frames.USER, frames.INSTALLED):
        return False
    return whose == frames.USER or not any(name in code.co_filename for name in _LIBRARIES)


class MovedApartProbe(Watcher):
    """Pictures of a sample that are moved apart."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._left: dict[str, int] = {}
        self._found: dict[tuple[Any, ...], MovedApart] = {}
        self._file: Path | None = None
        """In a worker: where what it finds goes."""
        self._spent, self._judged = 0.0, 0
        """Seconds that comparing has taken, and samples that were compared."""
        self._unseen = ""
        """Why samples with several pictures were not followed."""

    def install(self) -> None:
        """Wrap what asks a data set for samples. All of it is private."""
        self.replace(private.DatasetKind, "create_fetcher", self._fetching)
        self.replace(private.loader_workers, "_worker_loop", self._in_worker)
        self.replace(private.LoaderIterator, "__next__", self._batches)

    def _batches(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Those that workers without a session have made."""

        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:
            batch = original(iterator)
            if not self._unseen:
                with suppress(Exception):
                    worker = next(iter(getattr(iterator, "_workers", ())), None)
                    if worker is not None and not _is_forked(worker) and len(_pictures_in([batch])) > 1:
                        self._unseen = "workers that are spawned are not looked into; fork them, or use none"
            return batch

        return __next__

    def _in_worker(self, original: Callable[..., Any]) -> Callable[..., Any]:
        parent, directory = os.getpid(), self.host.options.directory

        @functools.wraps(original)
        def _worker_loop(*args: Any, **kwargs: Any) -> Any:
            with suppress(Exception):
                # Spawned workers import torch anew, and have no session.
                if os.getppid() == parent and len(_files(directory, parent)) < _FILES:
                    self._file = Path(directory, f"samples-{parent}-{os.getpid()}.json")
                    self._left, self._found = {}, {}
            return original(*args, **kwargs)

        return _worker_loop

    def _fetching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Each pass over a loader makes what asks the data set for samples."""

        @functools.wraps(original)
        def create_fetcher(*args: Any, **kwargs: Any) -> Any:
            fetcher = original(*args, **kwargs)
            with suppress(Exception):
                name = type(fetcher.dataset).__name__
                if self._left.setdefault(name, _SAMPLES) > 0 and (self.host.active or self._file is not None):
                    fetcher.fetch = functools.partial(self._fetch, fetcher, name)
            return fetcher

        return create_fetcher

    def _fetch(self, fetcher: Any, name: str, index: Any) -> Any:
        followed = (self.host.active or self._file is not None) and sys.getprofile() is None
        if sys.getprofile() is not None:
            self._unseen = self._unseen or "a profiler of the program's own was on"
        if not followed or self._left[name] <= 0:
            del fetcher.fetch  # the class's own again
            return fetcher.fetch(index)
        sample = _Sample()
        profile = _guarded(sample.hear, self.host.ledger.quiet)
        sys.setprofile(profile)
        try:
            return type(fetcher).fetch(fetcher, index)
        finally:
            # A profiler that the program has begun meanwhile stays.
            if sys.getprofile() is profile:
                sys.setprofile(None)
            if self._file is not None:
                with suppress(Exception):
                    self._judge(name, sample)
                    self._file.write_bytes(msgspec.json.encode(list(self._found.values())))
            else:
                with self.host.looking(_WHAT):
                    self._judge(name, sample)

    def _judge(self, name: str, sample: _Sample) -> None:
        # Where a batch was made without the program's own code, all others are: nothing is left to follow.
        self._left[name] -= len(sample.found) if sample.alone < _ALONE and sample.found else _SAMPLES
        began = time.thread_time()
        for number, (owner, calls, made) in enumerate(sample.found[:_SAMPLES]):
            if self._spent + time.thread_time() - began > _SECONDS and self._judged + number >= _LEAST:
                self._left[name] = 0
                break
            for first, second, others in _pairs(calls, made):
                self._compare(owner, first, second, others)
        self._spent += time.thread_time() - began
        self._judged += len(sample.found)

    def _compare(self, name: str, first: _Call, second: _Call, others: list[_Call]) -> None:
        new = MovedApart(first=first.place, second=second.place, function=_name(first.code), dataset=name)
        record = self._found.setdefault((new.first, new.second, new.function), new)
        if record.apart >= _ENOUGH:
            return
        record.samples += 1
        two_kinds = _are_of_two_kinds(first, second)
        if not two_kinds and not _show_the_same(first, second):
            record.strangers += 1
            return
        record.drew = record.drew or first.drew
        record.compared += all((first.ways, second.ways)) or any((first.by_name, second.by_name))
        if _are_apart(first, second) and not all(_has_another(one, others) for one in (first, second)):
            record.apart += 1
            if two_kinds and (match := _match(first, second)) is not None:
                record.kinds, record.matched = record.kinds + 1, record.matched + match
            record.both += bool(first.by_name) or (bool(first.ways) and movements.NOWHERE not in (first.ways or []))
            record.example = [_described(one) for one in (first, second)]

    def totals(self, tick: int) -> Iterable[Record]:
        """See `Watcher`."""
        return [one for one in self._found.values() if one.apart]

    def unchecked(self) -> Iterable[Unchecked]:
        """Says so where samples were made out of sight."""
        if self._unseen:
            yield Unchecked(check=_WHAT, reason=self._unseen)

    def finish(self, how: str, error: BaseException | None) -> None:
        """What workers have left."""
        for record in _joined(self.host.options.directory):
            self.host.write(record)


def _is_forked(worker: Any) -> bool:
    # The default context's processes are of a class of their own, whatever way they start.
    name = type(worker).__name__
    return name == "ForkProcess" or (name == "Process" and multiprocessing.get_start_method() == "fork")


def _guarded(hear: Callable[..., None], quiet: Callable[[], Any]) -> Callable[..., None]:
    def profile(frame: types.FrameType, event: str, arg: Any) -> None:
        try:
            with quiet():
                hear(frame, event, arg)
        except Exception:  # the program must not suffer from what watches it
            sys.setprofile(None)

    return profile


def _pairs(calls: list[_Call], made: Any) -> Iterator[tuple[_Call, _Call, list[_Call]]]:
    """The outermost calls of one function, on two pictures of a sample, and its calls on others of them."""
    ended, sizes = [one for one in calls if one.after is not None], _sizes(made)
    covered: list[_Call] = []
    for index, first in enumerate(ended):
        if _is_within(first, covered):
            continue
        second = _partner(first, ended[index + 1 :], sizes)
        if second is not None:
            covered += [first, second]
            yield first, second, [one for one in ended if one.code is first.code and one not in (first, second)]


def _is_within(one: _Call, others: list[_Call]) -> bool:
    return any(other.begin < one.begin and one.end <= other.end for other in others)


def _partner(first: _Call, later: list[_Call], sizes: list[tuple[int, ...]]) -> _Call | None:
    """The next call of the same function that was given another picture of the sample."""
    mine = (one for one in later if one.code is first.code and one.begin > first.end)
    return next((one for one in mine if _are_two(first, one) and _are_in(sizes, first, one)), None)


def _sizes(made: Any) -> list[tuple[int, ...]]:
    """Of the pictures of a sample."""
    return [tuple(one.shape[1:]) for one in map(movements.picture_of, _values(made)) if one is not None]


def _are_in(sizes: list[tuple[int, ...]], first: _Call, second: _Call) -> bool:
    """Whether a sample has pictures of the sizes that two calls gave."""
    given = [tuple(one.after.shape[1:]) for one in (first, second) if one.after is not None]
    return all(sizes.count(size) >= given.count(size) for size in given)


def _are_two(first: _Call, second: _Call) -> bool:
    """Whether two calls were given two pictures of one size, and not views of one."""
    a, b = first.before, second.before
    if a is None or b is None or a.shape[1:] != b.shape[1:]:
        return False
    if a.shape == b.shape and torch.equal(a, b):
        return False
    # What was made of one picture in two ways is its views; what the first call gave is its own next step.
    return _are_of_two_kinds(first, second) or first.origin != second.origin


def _are_of_two_kinds(first: _Call, second: _Call) -> bool:
    """Whether they were given a photograph and its mask, say."""
    a, b = first.before, second.before
    return a is not None and b is not None and (len(a) != len(b) or movements.is_mask(a) != movements.is_mask(b))


def _show_the_same(first: _Call, second: _Call) -> bool:
    """Whether two of one kind may be each other's target."""
    a, b = first.before, second.before
    return a is not None and b is not None and movements.alike(a, b) >= _TOGETHER


def _match(first: _Call, second: _Call) -> bool | None:
    """Whether two of two kinds say most of each other where they lie."""
    a, b = first.before, second.before
    return movements.match(a, b) if a is not None and b is not None else None


def _are_apart(first: _Call, second: _Call) -> bool:
    # By name, too: a small angle moves the middle by nothing to speak of.
    if first.by_name != second.by_name:
        return True
    one, other = first.ways, second.ways
    return bool(one and other and first.before is not None and movements.are_apart(one, other, first.before))


def _has_another(one: _Call, others: list[_Call]) -> bool:
    """Whether a picture of another kind went with it: a sample may have several pictures, each with its mask."""
    return any(_are_of_two_kinds(one, other) and other.knows and not _are_apart(one, other) for other in others)


def _described(one: _Call) -> str:
    """How a picture was moved, in words."""
    said = [(name, ", ".join(f"{key}={_short(value)}" for key, value in given)) for name, given in one.by_name]
    words = [f"{name}({given})" if given else name for name, given in said]
    return f"put through {', '.join(words)}" if words else movements.described(one.ways[0]) if one.ways else "as it was"


def _short(value: str) -> str:
    with suppress(ValueError):
        return f"{float(value):.4g}"
    return value if len(value) <= _WORD else "…"


def _values(made: Any, deep: int = _DEEP) -> Iterator[Any]:
    if isinstance(made, dict):
        made = list(made.values())
    if isinstance(made, (list, tuple)) and deep:
        for one in made[:_PICTURES]:
            yield from _values(one, deep - 1)
    else:
        yield made


def _arguments(frame: types.FrameType) -> list[Any]:
    """All that a function is given, what it gathers in `*args` and `**kwargs` as well."""
    code, values = frame.f_code, frame.f_locals
    gathered = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return [values.get(name) for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + gathered]]


def _pictures_in(given: list[Any]) -> list[Any]:
    return [one for one in _values(given) if _may_be_picture(one)]


def _may_be_picture(value: Any) -> bool:
    """A picture of PIL's, or an array or a tensor that is no mere number."""
    kind = type(value).__module__
    if kind.startswith("PIL."):
        return hasattr(value, "tobytes")
    return kind.startswith(("numpy", "torch")) and isinstance(rank := getattr(value, "ndim", 0), int) and rank > 1


def _states() -> dict[str, Any]:
    numpy = sys.modules.get("numpy")
    states: dict[str, Any] = {"torch": torch.get_rng_state().numpy().tobytes(), "random": hash(random.getstate())}
    if numpy is not None:
        known = numpy.random.get_state()
        states["numpy"] = known[1].tobytes(), known[2]
    return states


def _name(code: types.CodeType) -> str:
    whole: str = getattr(code, "co_qualname", code.co_name)
    return whole.rpartition("<locals>.")[2]


def _files(directory: str, parent: int) -> list[Path]:
    return sorted(Path(directory).glob(f"samples-{parent}-*.json"))


def _joined(directory: str) -> list[MovedApart]:
    """What all workers of this process have left, which is taken away."""
    sums: dict[Any, MovedApart] = {}
    for file in _files(directory, os.getpid()):
        with suppress(OSError, msgspec.DecodeError):
            for one in msgspec.json.decode(file.read_bytes(), type=list[MovedApart]):
                known = sums.setdefault((one.first, one.second, one.function), one)
                if known is not one:
                    known.samples, known.compared = known.samples + one.samples, known.compared + one.compared
                    known.strangers += one.strangers
                    known.apart, known.both = known.apart + one.apart, known.both + one.both
                    known.kinds, known.matched = known.kinds + one.kinds, known.matched + one.matched
                    known.example = known.example or one.example
        with suppress(OSError):
            file.unlink()
    return [one for one in sums.values() if one.apart]
