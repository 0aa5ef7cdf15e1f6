"""The numbers that an object keeps in its attributes: tensors, arrays, tables and lists. None of its code is run."""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from torchvet.probes.internals import private
from torchvet.probes.internals.finite import numeric
from torchvet.probes.internals.simulated import numbers
from torchvet.probes.objects import arrays, naming

# Chosen, not measured.
_MOST_BYTES = 1 << 28
_MOST_SECONDS = 2.0
_DEEPEST = 6
_MOST_OBJECTS = 1 << 20
_MOST_IN_ARRAY = 1 << 16
_LARGEST = 1 << 53
_NOT_ENTERED = (torch.nn.Module, type, types.ModuleType, types.FunctionType, types.MethodType, torch.Generator)
_NOT_NUMBERS = frozenset((str, bytes, bool, int, type(None)))


@dataclass
class Leaf:
    """Numbers under one name. `attribute` belongs to an object of class `owner`; `path` leads from there on, and `row`
    is its first index. Scalars that stand in many items of one list are one leaf, `rows` has the items."""

    owner: str
    attribute: str
    path: str
    values: torch.Tensor
    row: int | None = None
    rows: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Of a table the names of its columns."""


@dataclass
class _At:
    owner: str = ""
    attribute: str = ""
    path: str = ""
    row: int | None = None
    depth: int = 0

    def inside(self, key: Any) -> _At:
        step = f"[{key!r}]" if type(key) in (str, int) else "[…]"
        row = key if self.row is None and type(key) is int else self.row
        return _At(self.owner, self.attribute, self.path + step, row, self.depth + 1)


class HeldValues:
    """Goes through an object once. `complete` says afterward whether all of it was read."""

    def __init__(self) -> None:
        self.complete = True
        self._bytes = 0
        self._objects = 0
        self._ends = time.perf_counter() + _MOST_SECONDS
        self._seen: set[int] = set()
        self._scalars: dict[tuple[str, str, str], list[tuple[int, float]]] = {}

    def of(self, root: Any) -> Iterator[Leaf]:
        """All leaves of an object, scalars last."""
        yield from self._walk(root, _At(type(root).__name__))
        for (owner, attribute, path), found in self._scalars.items():
            values = torch.tensor([value for _, value in found], dtype=torch.float64)
            yield Leaf(owner, attribute, path, values, None, [row for row, _ in found])
        self._scalars = {}

    def _walk(self, root: Any, start: _At) -> Iterator[Leaf]:
        waiting = [(root, start)]
        while waiting:
            value, at = waiting.pop()
            self._objects += 1
            if self._objects > _MOST_OBJECTS or time.perf_counter() > self._ends or self._bytes > _MOST_BYTES:
                self.complete = False
                return
            cls = type(value)
            if cls in _NOT_NUMBERS:
                continue
            if cls is float:
                self._scalar(at, value)
                continue
            # Numbers are made anew where they are read; containers are what can hold itself.
            if id(value) in self._seen:
                continue
            self._seen.add(id(value))
            names, tensor = self._table(value) if _is_pandas(cls) else ([], self._tensor(value))
            if tensor is not None and tensor.dim() == 0:
                self._scalar(at, float(tensor))
            elif tensor is not None:
                yield Leaf(at.owner, at.attribute, at.path, tensor, at.row, names=names)
            elif at.depth >= _DEEPEST:
                self.complete = False
            else:
                waiting += reversed(list(_parts(value, at)))

    def _scalar(self, at: _At, value: float) -> None:
        path = at.path if at.row is None else at.path.replace(f"[{at.row}]", "[…]", 1)
        self._scalars.setdefault((at.owner, at.attribute, path), []).append((at.row or 0, value))

    def _table(self, table: Any) -> tuple[list[str], torch.Tensor]:
        """The numbers of a table of pandas', by rows, with the names of the columns."""
        names, columns = _columns(table)
        self._bytes += 8 * sum(column.size for column in columns)
        self.complete &= self._bytes <= _MOST_BYTES
        if not columns or not columns[0].size or self._bytes > _MOST_BYTES:
            return [], torch.zeros(1)
        parts = [torch.from_numpy(column.astype("float64")) for column in columns]
        return names, torch.stack(parts, dim=1) if names else parts[0]

    def _tensor(self, value: Any) -> torch.Tensor | None:
        """The numbers that a value is, if it is any; a subclass is read as its base, none of its own code runs."""
        cls = type(value)
        if arrays.is_array(cls):
            value = arrays.plain(value)
        with private.DisableTorchFunction():
            if issubclass(cls, torch.Tensor) and not _is_dense(value):
                self.complete = False
                return torch.zeros(1)
            size = _bytes_of(value)
            if size is None:
                return None
            self._bytes += size
            self.complete &= self._bytes <= _MOST_BYTES
            # Of whole numbers, or of too many: as if it were one that is finite.
            if not size or self._bytes > _MOST_BYTES:
                return torch.zeros(1)
            if issubclass(cls, torch.Tensor):
                return numbers(value).detach()
        if issubclass(cls, (list, tuple)):
            return torch.tensor([_as_float(one) for one in value], dtype=torch.float64)
        # A copy: of a read-only or a backward array torch makes no tensor.
        return torch.from_numpy(value.astype("float64" if value.dtype.itemsize > 4 else "float32"))


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested and not numbers(tensor).is_meta


def _as_float(value: float) -> float:
    # A whole number has no end, and is finite.
    return value if type(value) is float else float(max(-_LARGEST, min(_LARGEST, value)))


def _bytes_of(value: Any) -> int | None:
    """The bytes of what is nothing but numbers, 0 where these can be nothing but finite; None for all else."""
    # By type alone: `isinstance` would ask the program's object for its class.
    if issubclass(type(value), torch.Tensor):
        return value.nbytes if numeric(numbers(value)) and not value.is_complex() else 0
    if arrays.is_array(type(value)):
        # An array of objects holds them.
        return None if value.dtype.kind == "O" else value.nbytes if value.dtype.kind == "f" else 0
    if type(value) in (list, tuple) and value and all(type(one) in (float, int) for one in value):
        return 8 * len(value) if any(type(one) is float for one in value) else 0
    return None


def _parts(value: Any, at: _At) -> Iterator[tuple[Any, _At]]:
    """What is within a container or an object."""
    cls = type(value)
    if issubclass(cls, (list, tuple)):
        yield from _items(value, at)
    elif issubclass(cls, dict):
        yield from ((one, at.inside(key)) for key, one in list(dict.items(value)))
    elif arrays.is_array(cls):
        value = arrays.plain(value)
        few = value.size <= _MOST_IN_ARRAY
        yield from ((one, at.inside(index)) for index, one in enumerate(value.ravel().tolist() if few else ()))
    elif not issubclass(cls, _NOT_ENTERED):
        names = {**_slots(value), **(naming.namespace(value) or {})}
        yield from ((one, _At(cls.__name__, name, "", None, at.depth + 1)) for name, one in names.items())


def _items(value: Any, at: _At) -> Iterator[tuple[Any, _At]]:
    base = list if issubclass(type(value), list) else tuple
    # The first and the last say of what kind the items are: a list of a million names is not gone through.
    if not base.__len__(value) or {type(base.__getitem__(value, i)) for i in (0, -1)} <= _NOT_NUMBERS:
        return
    yield from ((one, at.inside(index)) for index, one in enumerate(base.__iter__(value)))


def _slots(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for cls in type.__dict__["__mro__"].__get__(type(value)):
        for name, slot in type.__dict__["__dict__"].__get__(cls).items():
            if type(slot) is types.MemberDescriptorType and not name.startswith("__"):
                try:
                    found[name] = slot.__get__(value)
                except AttributeError:
                    continue
    return found


def _is_pandas(cls: type) -> bool:
    pandas = sys.modules.get("pandas")
    known = (getattr(pandas, "DataFrame", None), getattr(pandas, "Series", None)) if pandas is not None else ()
    return cls in known


def _columns(table: Any) -> tuple[list[str], list[Any]]:
    """The names and the numbers of the columns of a table of pandas' that has floating point."""
    if not hasattr(table, "columns"):
        return [], [table.to_numpy()] if table.dtype.kind == "f" else []
    known = [(str(name), table.iloc[:, index]) for index, name in enumerate(table.columns)]
    # Whole numbers as well: they stand in the same rows.
    known = [(name, column) for name, column in known if getattr(column.dtype, "kind", "") in "fiu"]
    return [name for name, _ in known], [column.to_numpy() for _, column in known]
