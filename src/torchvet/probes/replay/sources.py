"""Where values that are not finite come from: each operator that made some from finite ones, and who inherited them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch

from torchvet.probes.base.kit import Place, names
from torchvet.recording.records.nonfinite import NonFinite, Operand, Reason

Kind = Literal["nan", "inf"]
Symptom = Literal["loss", "gradient", "output", "number", "skipped"]
"""What gave a failure away."""
_HIDDEN = ("overflow", "log-of-zero", "division-by-zero")
"""Infinities that do no harm where they are not chosen, but for their gradients."""
_SHARED = names("phase operator node place inner module operands result argument rows columns survives autocast")
"""What a source and its record have both."""


@dataclass
class Source:
    """An operator that made NaN or infinities, or (`external`) a tensor that had them before any operator ran.

    `parents` are where the infinities of its operands came from, if it made NaN of infinities. `benign`: an infinity
    that somebody wrote down, as a mask does.
    """

    index: int
    kind: Kind
    operator: str = ""
    phase: Literal["forward", "backward"] = "forward"
    node: str = ""
    reason: Reason = "unknown"
    place: Place | None = None
    inner: Place | None = None
    module: str | None = None
    operands: list[Operand] = field(default_factory=list)
    result: Operand | None = None
    argument: Operand | None = None
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    survives: dict[str, bool] = field(default_factory=dict)
    autocast: str | None = None
    benign: bool = False
    compiled: bool = False
    """Whether it ran in a compiled graph: its line is that of the region."""
    external: Any = None
    parents: list[Source] = field(default_factory=list)
    note: str = ""
    hidden: bool = False
    """Of the backward pass: whether a `where` had chosen before it."""


@dataclass
class Taint:
    """A tensor that is not finite, and where its values come from. In a replay it is kept alive, so that its address
    stays its own."""

    tensor: torch.Tensor | None
    nan: list[Source] = field(default_factory=list)
    inf: list[Source] = field(default_factory=list)


class Taints:
    """All tensors of a replay that are not finite, by address."""

    def __init__(self) -> None:
        self._by_address: dict[int, Taint] = {}

    def add(self, tensor: torch.Tensor, nan: Iterable[Source], inf: Iterable[Source]) -> None:
        """Note where a tensor's values come from; of a view it is the storage's."""
        # By memory: views share it.
        self._by_address[_address(tensor)] = Taint(tensor, list(nan), list(inf))

    def of(self, tensor: torch.Tensor) -> Taint | None:
        """What is known of a tensor."""
        return self._by_address.get(_address(tensor))


class PassingTaints(Taints):
    """Those of a program that goes on: none of its tensors is kept alive, and a storage that dies is forgotten."""

    def __init__(self) -> None:
        self._by_key: dict[int, tuple[Taint, weakref.ref[Any]]] = {}

    def add(self, tensor: torch.Tensor, nan: Iterable[Source], inf: Iterable[Source]) -> None:
        """See `Taints`."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        known = self._by_key.get(key)
        # A storage's key is used again after its death: the entry has to go with it.
        # One reference for each storage: its callback must run once.
        dies = known[1] if known is not None else weakref.ref(storage, partial(self._forget, key))
        self._by_key[key] = (Taint(None, list(nan), list(inf)), dies)

    def of(self, tensor: torch.Tensor) -> Taint | None:
        """See `Taints`."""
        known = self._by_key.get(tensor.untyped_storage()._cdata)
        return known[0] if known is not None else None

    def discard(self, tensor: torch.Tensor) -> None:
        """A tensor has been overwritten, and is finite again; of a part of a storage that says nothing."""
        storage = tensor.untyped_storage()
        # Other parts of the storage may be bad still.
        if tensor.nbytes >= storage.nbytes():
            self._by_key.pop(storage._cdata, None)

    def clear(self) -> None:
        """Forget all."""
        self._by_key.clear()

    def _forget(self, key: int, _: Any) -> None:
        self._by_key.pop(key, None)


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def root_of(sources: Iterable[Source]) -> Source | None:
    """The one to name: the earliest that made something of finite values; what was made of written-down infinities
    counts for itself."""
    found = [ancestor for source in sources for ancestor in _ancestors(source, set())]
    # A mask's infinity is named only if nothing else is there.
    genuine = [s for s in found if not s.benign]
    # The earliest: what came later may follow from it.
    return min(genuine or found, key=lambda s: s.index, default=None)


def _ancestors(source: Source, seen: set[int]) -> list[Source]:
    if id(source) in seen:
        return []
    seen.add(id(source))
    # Written-down infinities are no cause.
    above = [a for p in source.parents for a in _ancestors(p, seen) if not a.benign]
    return above or [source]


def unique(groups: Iterable[Iterable[Source]]) -> list[Source]:
    """All of them without repetitions, in order."""
    return list({id(s): s for sources in groups for s in sources}.values())


def _at(source: Source) -> str:
    return f" at line {source.place.line}" if source.place is not None else ""


def _notes(root: Source, reason: Reason, heirs: list[Source]) -> Iterator[str]:
    """What else there is to say of a source: who wrote its infinities, and who made NaN of them."""
    if root.note:
        yield root.note
    if reason == "masked-sum" and root.parents:
        yield f"{root.parents[0].operator} wrote the infinity{_at(root.parents[0])}"
    if heirs:
        yield f"{heirs[0].operator} made NaN of its infinities{_at(heirs[0])}"
    if root.compiled:
        yield "it ran in a torch.compile region: the line is where that begins"


def record_of(root: Source, reason: Reason, later: Iterable[Source], record: NonFinite) -> NonFinite:
    """Fill in a record by the source that comes first; of `later` ones some were made of its infinities."""
    heirs = [s for s in later if root in s.parents]
    record.note = "; ".join(_notes(root, reason, heirs)) or None
    # The forward infinity was not chosen, and its gradient of zero times infinity is NaN.
    if heirs and heirs[0].hidden and root.phase == "forward" and reason in _HIDDEN and record.symptom == "gradient":
        reason = "where-branch"
    record.found, record.reason = "input" if root.external is not None else "operator", reason
    for name in _SHARED:
        setattr(record, name, getattr(root, name))
    return record
