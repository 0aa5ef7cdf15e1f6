"""Says where a batch comes from that is not finite: what its dataset holds, or which functions make it.

Only asked when a failed step was done again and its input was to blame. Nothing of the dataset's own code is run.
"""

from __future__ import annotations

import itertools
import time
import types
import weakref
from collections.abc import Iterator
from typing import Any

import msgspec
import torch
from torch.utils.data import default_collate

from torchvet.probes.base.kit import Host, Place, frames, of_program, place_in
from torchvet.probes.internals.finite import is_finite, numeric
from torchvet.probes.internals.simulated import numbers
from torchvet.probes.objects import heap
from torchvet.probes.objects.containers import tensors_in
from torchvet.probes.objects.held_values import HeldValues, Leaf
from torchvet.probes.objects.variables import frame_locals
from torchvet.probes.replay.operands import rows_of
from torchvet.recording.records.nonfinite import DataOrigin, Held, NonFinite, Operand

_WHAT = "where a batch that is not finite comes from"
_MOST = 3
_MOST_ROWS = 16
_MOST_VALUES = 12
_MOST_PARTS = 256
_FEW = 4
"""So many different small whole numbers are no chance any more. Chosen, not measured."""
_SMALL = 100.0
_MOST_COMPARED = 1 << 12
_MOST_SECONDS = 1.0
"""For the items of one list, until the one is found that the batch has. Chosen, not measured."""
_MAKES = ("__getitem__", "__getitems__", "__iter__")


class BatchOrigin:
    """The batch of this step, the loader that gave it, and where what is bad in it comes from."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._iterator: weakref.ref[Any] | None = None
        self.batch: Any = None

    def batch_got(self, iterator: Any, batch: Any) -> None:
        """A loader gives a batch."""
        self.batch = batch
        if self._iterator is None or self._iterator() is not iterator:
            self._iterator = weakref.ref(iterator)

    def clear(self) -> None:
        """The step is over."""
        self.batch = None

    def explain(self, record: NonFinite, frame: types.FrameType | None) -> None:
        """Fill in where bad data of a failed step comes from."""
        if record.found != "input" or record.reason != "bad-data" or record.result is None:
            return
        with self._host.looking(_WHAT):
            iterator = self._iterator() if self._iterator is not None and self.batch is not None else None
            bad = [t for t in tensors_in(self.batch, 4) if numeric(numbers(t)) and not is_finite(t)]
            if iterator is not None and bad:
                record.origin = _of_loader(iterator, _fitting(bad, record))
            elif self.batch is None:
                record.origin = _of_frames(frame, record)


def _fitting(bad: list[torch.Tensor], record: NonFinite) -> torch.Tensor:
    """The tensor that was found, where several of the batch are bad."""
    shape = record.result.shape if record.result is not None else ()
    return numbers(next((t for t in bad if tuple(t.shape) == shape), bad[0])).detach()


def _of_loader(iterator: Any, batch: torch.Tensor) -> DataOrigin | None:
    # Private (`private.ATTRIBUTES`).
    dataset, collate = getattr(iterator, "_dataset", None), getattr(iterator, "_collate_fn", None)
    if dataset is None:
        return None
    values = HeldValues()
    held = _bad_ones(values.of(dataset), batch)
    readers = _readers(dataset)
    for function in (*readers, collate):
        held += [
            one for name, value in _globals_of(function) for one in _variable(values, name, value, function, batch)
        ]
    held = [one for one in held if one is not None]
    return DataOrigin(
        dataset=type(dataset).__name__,
        # Of several parts nobody knows which one gave the batch's bad item.
        read=_place(readers[0]) if len(readers) == 1 else None,
        collated=_place(collate) if collate is not default_collate else None,
        held=sorted(held, key=lambda one: not one.same)[:_MOST],
        complete=values.complete and len(readers) == 1,
    )


def _within(dataset: Any) -> list[Any]:
    """What a dataset of torch's picks from."""
    if not type(dataset).__module__.startswith("torch."):
        return []
    inner, several = getattr(dataset, "dataset", None), getattr(dataset, "datasets", None)
    return [inner] if inner is not None else list(several) if isinstance(several, (list, tuple)) else []


def _readers(dataset: Any) -> list[types.FunctionType | None]:
    """The functions that make items: of the datasets behind those of torch's that pick from others."""
    parts, found = [dataset], []
    # The list grows while it is gone through.
    for one in parts:
        within = _within(one)
        parts += within
        if not within:
            found.append(_maker(one))
        if len(parts) > _MOST_PARTS:
            return []
    return list(dict.fromkeys(found))


def _maker(dataset: Any) -> types.FunctionType | None:
    """The function by which a dataset makes an item."""
    found = (heap.namespace_of_class(cls).get(name) for name in _MAKES for cls in type(dataset).__mro__)
    return next((one for one in found if type(one) is types.FunctionType), None)


def _function(value: Any) -> types.FunctionType | None:
    """The Python function behind what is called."""
    for _ in range(4):
        if type(value) is types.FunctionType:
            return value
        if type(value) is types.MethodType:
            value = value.__func__
        elif type(value).__name__ == "partial" and hasattr(value, "func"):
            value = value.func
        else:
            value = heap.namespace_of_class(type(value)).get("__call__")
    return None


def _place(value: Any) -> Place | None:
    function = _function(value)
    if function is None or frames.owner(function.__code__.co_filename) != frames.USER:
        return None
    return place_in(function.__code__, function.__code__.co_firstlineno)


def _globals_of(value: Any) -> Iterator[tuple[str, Any]]:
    """What a function of the program reads from its module or from a function around it."""
    function = _function(value)
    if function is None or _place(function) is None:
        return
    code = function.__code__
    space = function.__globals__
    yield from ((name, dict.__getitem__(space, name)) for name in code.co_names if dict.__contains__(space, name))
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not bound yet
            continue


def _variable(values: HeldValues, name: str, value: Any, at: Any, batch: torch.Tensor) -> Iterator[Held]:
    function = _function(at)
    if function is None or issubclass(type(value), types.ModuleType):
        return
    code = function.__code__
    for one in _bad_ones(values.of(value), batch):
        # What an object among the variables has is its attribute, as any other's.
        if one.attribute:
            yield one
        else:
            yield _as_variable(one, name, "", code.co_filename, code.co_firstlineno)


def _as_variable(one: Held, name: str, owner: str, path: str, line: int) -> Held:
    named = f"{name}{one.name}"
    return msgspec.structs.replace(one, owner=owner, attribute=name, name=named, is_variable=True, path=path, line=line)


def _of_frames(frame: types.FrameType | None, record: NonFinite) -> DataOrigin | None:
    """A batch of no loader: by the variable of the running functions that has it, and those that have its values."""
    result = record.result
    for one in of_program(frame, (frames.USER,)):
        names = frame_locals(one) or {}
        found = [n for n, v in names.items() if _is_batch(v, result.shape if result is not None else ())]
        if not found:
            continue
        name = result.name if result is not None and result.name in found else found[0]
        values = HeldValues()
        held = [h for h in _variables(one, names, values, numbers(names[name]).detach(), but=name) if h.same]
        at = place_in(one.f_code, one.f_lineno)
        return DataOrigin(variable=name or "", bound=at, held=held[:_MOST], complete=values.complete)
    return None


def _variables(
    frame: types.FrameType, names: dict[str, Any], values: HeldValues, batch: torch.Tensor, but: str | None
) -> Iterator[Held]:
    """What other variables of a function hold that is not finite."""
    code = frame.f_code
    function = code.co_name if code.co_name != "<module>" else ""
    for name, value in names.items():
        if name == but or name.startswith("__") or issubclass(type(value), (types.ModuleType, type)):
            continue
        for bad in _bad_ones(values.of(value), batch):
            yield bad if bad.attribute else _as_variable(bad, name, function, code.co_filename, frame.f_lineno)


def _is_batch(value: Any, shape: tuple[int, ...]) -> bool:
    """Whether a variable is what the step began with: nothing was computed from parameters yet."""
    if not issubclass(type(value), torch.Tensor) or value.grad_fn is not None or isinstance(value, torch.nn.Parameter):
        return False
    return tuple(value.shape) == shape and numeric(numbers(value)) and not is_finite(value)


# What is held ----------------------------------------------------------------------------------------------------


def _bad_ones(leaves: Iterator[Leaf], batch: torch.Tensor) -> list[Held]:
    """What is not finite, by attribute; without what cannot have made the batch what it is."""
    found: dict[tuple[str, str], list[Leaf]] = {}
    lengths: dict[tuple[str, str], int] = {}
    for leaf in leaves:
        key = leaf.owner, leaf.attribute
        index = max([leaf.row or 0, *leaf.rows[-1:]])
        lengths[key] = max(lengths.get(key, 0), index + 1)
        if not is_finite(leaf.values):
            found.setdefault(key, []).append(leaf)
    infinite = bool(torch.isinf(batch).any())
    held = [_held(one, lengths[key], batch) for key, mine in found.items() for one in _sorted(mine, lengths[key])]
    # Arithmetic makes NaN of an infinity, and never an infinity of NaN.
    return [one for one in held if not infinite or one.operand.infinities]


def _sorted(leaves: list[Leaf], length: int) -> Iterator[list[Leaf]]:
    """Leaves that are items of one list together; each alone that has more rows than there are of its like."""
    items = [leaf for leaf in leaves if leaf.rows or (leaf.row is not None and length > len(leaf.values))]
    if items:
        yield items
    yield from ([leaf] for leaf in leaves if not any(leaf is one for one in items))


def _held(leaves: list[Leaf], length: int, batch: torch.Tensor) -> Held:
    until = time.perf_counter() + _MOST_SECONDS
    tried = itertools.takewhile(lambda _: time.perf_counter() < until, leaves)
    same = next((leaf for leaf in tried if _has_values_of(leaf.values, batch)), None)
    leaf = same or leaves[0]
    bad = ~torch.isfinite(leaf.values)
    kind = str(leaf.values.dtype).removeprefix("torch.")
    wide = leaf.values.dim() > 1 or leaf.row is not None
    held = Held(
        owner=leaf.owner,
        attribute=leaf.attribute,
        name=f"{leaf.attribute}{leaf.path}",
        operand=Operand(
            dtype=kind,
            shape=tuple(leaf.values.shape),
            nans=sum(int(torch.isnan(one.values).sum()) for one in leaves),
            infinities=sum(int(torch.isinf(one.values).sum()) for one in leaves),
        ),
        first=[int(i) for i in bad.nonzero()[0]],
        rows=rows_of(leaf.values),
        of=leaf.values.shape[0],
        columns=bad.reshape(-1, bad.shape[-1]).any(dim=0).nonzero()[:_MOST_ROWS, 0].tolist() if wide else [],
        fills=any(n > 1 and bool(bad.all(dim=d).any()) for d, n in enumerate(bad.shape)),
        same=same is not None,
    )
    if leaf.names and len(held.columns) == 1:
        held = msgspec.structs.replace(held, name=f"{held.name}[{leaf.names[held.columns[0]]!r}]")
    return _of_items(held, leaf, leaves, length, bad)


def _of_items(held: Held, leaf: Leaf, leaves: list[Leaf], length: int, bad: torch.Tensor) -> Held:
    """The same with the items of a list as its rows, where the leaves are such."""
    if leaf.rows:
        rows = [leaf.rows[int(i)] for i in bad.nonzero()[:_MOST_ROWS, 0]]
        name = held.name.replace("[…]", f"[{rows[0]}]", 1)
        return msgspec.structs.replace(held, name=name, rows=rows, of=length, first=[], of_items=True)
    if leaf.row is not None and length > len(leaf.values):
        rows = [one.row for one in leaves[:_MOST_ROWS] if one.row is not None]
        return msgspec.structs.replace(held, rows=rows, of=length, of_items=True)
    return held


def _has_values_of(values: torch.Tensor, batch: torch.Tensor) -> bool:
    """Whether the numbers that stand in the batch beside the bad one are all among some values: then it was taken
    from there as it is."""
    bad = ~torch.isfinite(batch)
    row = batch[bad.nonzero()[0, 0]] if batch.dim() > 1 else batch
    values = values.to(batch.device, batch.dtype)
    if batch.dim() > 1 and _has_line(values, batch, bad):
        return True
    wanted = set(row[torch.isfinite(row)].flatten()[:_MOST_COMPARED].tolist())
    telling = {v for v in wanted if abs(v) > _SMALL or v != round(v)}
    # Ones and zeros are everywhere.
    if not telling and len(wanted) < _FEW:
        return False
    found = [values == one for one in sorted(telling or wanted)[:_MOST_VALUES]]
    return all(bool(one.any()) for one in found) and _in_bad_row(values, found)


def _in_bad_row(values: torch.Tensor, found: list[torch.Tensor]) -> bool:
    """Whether a row that has all the numbers found is one that is not finite. Where several rows have them, as of a
    window, nothing speaks against it."""
    if values.dim() < 2:
        return True
    whole = torch.stack([one.flatten(1).any(dim=1) for one in found]).all(dim=0)
    return not bool(whole.any()) or not bool(values[whole].isfinite().all())


def _has_line(values: torch.Tensor, batch: torch.Tensor, bad: torch.Tensor) -> bool:
    """Whether the line of the batch that has the first bad element stands in the values, with its NaN."""
    line = batch[tuple(bad.nonzero()[0, :-1])]
    if values.dim() < 1 or values.shape[-1] != line.shape[-1] or line.shape[-1] < 2:
        return False
    lines = values.reshape(-1, values.shape[-1])
    lines = lines[~torch.isfinite(lines).all(dim=1)][:_MOST_COMPARED]
    alike = (lines == line) | (torch.isnan(lines) & torch.isnan(line))
    return bool(alike.all(dim=1).any())
