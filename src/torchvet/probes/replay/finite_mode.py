"""A dispatch mode that asks of every operator's result whether it is finite, and where it is not, since when."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import torch

from torchvet.probes.base.callers import PROGRAM
from torchvet.probes.base.kit import Place, frames, graphs, names, outward, tensors_within
from torchvet.probes.internals import private
from torchvet.probes.internals.finite import is_finite, numeric
from torchvet.probes.internals.modes import OwnMode
from torchvet.probes.internals.simulated import numbers
from torchvet.probes.replay import stage
from torchvet.probes.replay.alignments import unaligned
from torchvet.probes.replay.lineage import Lineage
from torchvet.probes.replay.operands import (
    Namer,
    columns_of,
    described,
    first_bad,
    outline,
    rows_of,
    survives,
    value_at,
)
from torchvet.probes.replay.reasons import SINGULAR, adds_up, backward_reason, base_name, forward_reason
from torchvet.probes.replay.sources import Kind, Source, Taint, Taints, unique
from torchvet.probes.replay.widened import Wide
from torchvet.recording.records.nonfinite import Operand

_WRITTEN = names(
    "fill full full_like new_full scalar_tensor masked_fill where constant_pad_nd lift_fresh index_fill tril triu "
    "masked_scatter zeros zeros_like scatter index_put clone_scalar"
)
"""Operators that write what they were given: an infinity among it is a mask's."""
_UNINITIALISED = names("empty empty_like empty_strided new_empty new_empty_strided empty_permuted resize set")
_CHOOSING = ("Where", "MaskedFill", "MaskedSelect", "Index", "Nanmean", "Nansum", "NanToNum", "Clamp")
"""Nodes whose backward passes a gradient of zero to what was not chosen."""
# Each takes several passes over each operand; once one value is bad thousands of operators follow.
_MOST_DESCRIBED = 60
_TAKING = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.isnan.default, torch.ops.aten.eq.Tensor)
"""What takes a number out of torch, or asks it for NaN (`isfinite` compares it with itself)."""

Placed = tuple["Place | None", "Place | None", "str | None"]
WasBad = dict[int, tuple[bool, "Taint | None"]]
"""Of an operand that is written, by identity: whether it was bad before, and what is known of that."""


class Call(NamedTuple):
    """An operator that runs, its node and where that was made; and of the operands that it writes whether they were bad
    before, and copies. Operands on a simulated GPU are the CPU tensors that hold their values."""

    func: Any
    args: Any
    kwargs: Any
    node: Any
    placed: Placed | None
    was_bad: WasBad
    copies: dict[int, torch.Tensor]


class FiniteMode(OwnMode):  # type: ignore[no-untyped-call]
    """One for a replay. `named` gives a tensor's name where it has one, `module` the module that runs."""

    def __init__(self, named: Namer, module: Callable[[], str | None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.taints = Taints()
        self.sources: list[Source] = []
        self.alone = False
        """Whether this process is a child, in which memory that is shared with the parent must not be written."""
        self.backward_code: Any = None
        """The code of the function that runs backward: frames above it are not of the backward pass."""
        self.largest = 1 << 62
        """Tensors of more bytes are neither copied nor described."""
        self.autocast: Callable[[], str | None] = lambda: None
        self.taken: Callable[[torch.Tensor], None] = lambda tensor: None
        """Hears what a number is about to be taken from."""
        self.wide: Wide | None = None
        """The same step in a wider dtype, where that is asked for."""
        self.lineage: Lineage | None = None
        """What is made of parameters, where that is asked for."""
        self.generators: list[torch.Generator] = []
        """Those that operators were given."""
        self._named: Namer = lambda tensor: named(self._outside(tensor))
        self._shells: dict[int, torch.Tensor] = {}
        """What the program knows an operand as, by the identity of what holds its values."""
        self._module = module
        self._index = 0
        self._places: dict[int, Placed] = {}
        self._given: dict[int, torch.Tensor] = {}
        """By a node's number what its operator was given, of operators whose gradients have a singular point."""
        self._chosen = self._hidden = False
        self._described = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else the first operator imports torch._dynamo, where no optimizer has: that makes files, as nothing here may.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        call = self._before(func, args, kwargs)
        wide = self.wide.before(func, args, kwargs, _written_operands(func, args, kwargs)) if self.wide else None
        result = func(*args, **kwargs)
        self._after(result, call)
        if self.wide:
            self.wide.after(result, wide)
        return result

    def _before(self, func: Any, args: Any, kwargs: Any) -> Call:
        self._index += 1
        # Of this operator only: they hold the program's tensors.
        self._shells = {}
        args, kwargs = self._values_of(args), self._values_of(kwargs)
        if self.alone:
            self.generators += [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Generator)]
        if func in _TAKING and args[0].numel() == 1:
            self.taken(args[0])
        node = private.current_node()
        placed = self._place(node)
        # Its gradient's operator shows nothing of where the forward argument was: sqrt at 0.
        if self.alone and node is None and base_name(str(func)) in SINGULAR:
            # Autograd gives a node its number before its operator runs.
            self._given.setdefault(private.sequence_nr() - 1, args[0])
        written = _written_operands(func, args, kwargs)
        # What is written in place is gone afterwards.
        # In-place operators overwrite what explains them.
        was_bad = {id(t): (False, None) if is_finite(t) else (True, self.taints.of(t)) for t in written}
        copies = {id(t): t.detach().clone() for t in written if numeric(t) and t.nbytes <= self.largest}
        if self.alone:
            # A forked child shares the memory of shared tensors with its parent, whose values must not
            # change.
            stage.unshare(written)
        return Call(func, args, kwargs, node, placed, was_bad, copies)

    def _after(self, result: Any, call: Call) -> None:
        result = self._values_of(result)
        if self.lineage is not None:
            self.lineage.made(tensors_within([call.args, call.kwargs]), tensors_within(result))
        for out in _tensors(result):
            # What `empty` returns may hold any bits.
            if numeric(out) and not is_finite(out) and base_name(str(call.func)) not in _UNINITIALISED:
                self._bad(out, call)

    def _values_of(self, value: Any) -> Any:
        """Arguments or results, of a simulated GPU's tensors what holds their values."""
        if isinstance(value, torch.Tensor):
            host = numbers(value)
            if host is not value:
                self._shells[id(host)] = value
            return host
        if isinstance(value, (list, tuple)):
            return [self._values_of(v) for v in value]
        return {n: self._values_of(v) for n, v in value.items()} if isinstance(value, dict) else value

    def _outside(self, tensor: torch.Tensor) -> torch.Tensor:
        """As the program knows it."""
        return self._shells.get(id(tensor), tensor)

    def _place(self, node: Any) -> Placed | None:
        """Notes where a node of the graph is made; of a node that runs, where it was made."""
        if node is None:
            here = (*frames.outside_torch(3, handlers=False), self._module())
            # Autograd makes an operator's node before the operator runs: its number is the last one given out.
            self._places.setdefault(private.sequence_nr() - 1, here)
            return here
        name = graphs.name_of(node)
        # For the rest of the pass: gradients of zero flow on from there.
        self._chosen = self._chosen or name.startswith(_CHOOSING)
        self._hidden = self._hidden or name.startswith("Where")
        # Code of the program's that runs within backward has a line of its own, better than that of the node.
        inner = _within_backward(self.backward_code)
        if inner is not None:
            # A custom function's backward, a hook, or a forward pass done again by checkpointing.
            here = (inner, None, self._module())
            self._places.setdefault(private.sequence_nr() - 1, here)
            return here
        return self._places.get(node._sequence_nr())

    def _bad(self, out: torch.Tensor, call: Call) -> None:
        originals = [t for t in _tensors([call.args, call.kwargs]) if _counts(t)]
        inputs = [call.copies.get(id(t), t) for t in originals]
        taints = self._taints_of(originals, inputs, call.was_bad)
        has_nan, has_inf = bool(torch.isnan(out).any()), bool(torch.isinf(out).any())
        # Kept apart: an infinity may be a mask's, and a NaN never is.
        nan, inf = unique(t.nan for t in taints), unique(t.inf for t in taints)
        # A NaN among the operands explains the result: only without one can the operator be the cause.
        mine = [] if nan else self._made(out, call, inputs, inf, has_nan)
        # Infinities of a mask that were added up: from there on they are the sum's.
        inherited = mine if mine and not has_nan else inf
        self.taints.add(out, (nan or mine) if has_nan else [], (inherited or mine or nan) if has_inf else [])

    def _made(
        self, out: torch.Tensor, call: Call, inputs: list[torch.Tensor], inf: list[Source], has_nan: bool
    ) -> list[Source]:
        """NaN of finite operands or of infinities, or infinities of finite operands or of a mask's: this operator made
        them."""
        # Infinities in, infinities out: nothing was made here.
        if inf and not has_nan and not _spreads(call, inputs, inf):
            return []
        return [self._source(out, call, inputs, inf)]

    def _taints_of(self, originals: list[torch.Tensor], inputs: list[torch.Tensor], was_bad: WasBad) -> list[Taint]:
        """Of the operands that were not finite before the operator ran: what is known, else that they came so."""
        found = []
        for original, value in zip(originals, inputs, strict=True):
            written = was_bad.get(id(original))
            if is_finite(value) if written is None else not written[0]:
                continue
            # Of an operand that is overwritten: as it was before.
            known = self.taints.of(original) if written is None else written[1]
            found.append(known if known is not None else self._external(original, value))
        return found

    def _external(self, tensor: torch.Tensor, value: torch.Tensor) -> Taint:
        place, inner = frames.outside_torch(5, handlers=False)
        nan = bool(torch.isnan(value).any())
        outside = self._outside(tensor)
        source = Source(self._index, "nan" if nan else "inf", external=outside, module=self._module())
        source.place, source.inner = place, inner
        source.result, source.rows = self._described_as(value, self._named(tensor)), rows_of(value)
        source.columns = columns_of(value)
        # A scalar infinity that was there before is a constant of a mask.
        if not nan and value.untyped_storage().nbytes() <= 16:
            source.benign = True  # `torch.tensor(-inf)`, made before the step
        self.sources.append(source)
        self.taints.add(tensor, [source] if nan else [], [source] if bool(torch.isinf(value).any()) else [])
        known = self.taints.of(tensor)
        assert known is not None
        return known

    def _source(self, out: torch.Tensor, call: Call, inputs: list[torch.Tensor], parents: list[Source]) -> Source:
        kind: Kind = "nan" if bool(torch.isnan(out).any()) else "inf"
        source = Source(self._index, kind, str(call.func).removesuffix(".default"), parents=parents)
        if call.node is not None:
            source.phase, source.node, source.hidden = "backward", graphs.name_of(call.node), self._hidden
        source.place, source.inner, source.module = call.placed or (None, None, None)
        source.autocast = self.autocast()
        # `masked_fill(-inf)`: meant as long as nothing adds it up.
        source.benign = not parents and base_name(source.operator) in _WRITTEN and _given_infinity(call)
        self.sources.append(source)
        # To describe takes several passes over each operand, and the source that is named is the earliest.
        if self._described < _MOST_DESCRIBED:
            self._described += 1
            self._describe(source, out, call, inputs)
        return source

    def _describe(self, source: Source, out: torch.Tensor, call: Call, inputs: list[torch.Tensor]) -> None:
        # Whole numbers count as well: a divisor may be a count.
        originals = [t for t in _tensors([call.args, call.kwargs]) if t.dtype is not torch.bool]
        # Only of pointwise operators do the operands have a value at the same place.
        index = first_bad(out) if torch.Tag.pointwise in getattr(call.func, "tags", ()) else None
        source.operands = [self._read(call.copies.get(id(t), t), self._named(t), index, out) for t in originals][:6]
        source.operands += [_scalar(a) for a in call.args if _is_number(a)][:2]
        source.result = result = self._described_as(out)
        source.rows = rows_of(out)
        # Once more in wider dtypes: does it fail by rounding or by mathematics?
        if self._again(call.func) and sum(t.nbytes for t in originals) <= self.largest:
            source.survives = survives(call.func, call.args, call.kwargs)
        self._explain(source, result, out, call, inputs)

    def _explain(
        self, source: Source, result: Operand, out: torch.Tensor, call: Call, inputs: list[torch.Tensor]
    ) -> None:
        """The reason, by what was described."""
        operands, wide = source.operands, source.survives.get("float64")
        if call.node is None:
            # How many elements a reduction took together for each of its results.
            length = inputs[0].numel() // out.numel() if inputs and out.numel() else None
            source.note = unaligned(source.operator, call.args)
            reason = forward_reason(source.operator, operands, result, length, wide)
            source.reason = "no-alignment" if source.note else reason
            return
        given = self._given.get(call.node._sequence_nr())
        if given is not None:
            source.argument = self._read(given, self._named(given), first_bad(out), out)
        source.reason = backward_reason(source.node, source.operator, operands, result, self._chosen, wide)

    def _read(
        self, tensor: torch.Tensor, name: str | None, index: tuple[int, ...] | None, out: torch.Tensor
    ) -> Operand:
        """An operand in figures, with its value where the result is not finite if that can be said."""
        found = self._described_as(tensor, name)
        if index is None or tensor.nbytes > self.largest:
            return found
        return msgspec.structs.replace(found, at=value_at(tensor, index, out.shape))

    def _described_as(self, tensor: torch.Tensor, name: str | None = None) -> Operand:
        return described(tensor, name) if tensor.nbytes <= self.largest else outline(tensor, name)

    def _again(self, func: Any) -> bool:
        """Whether an operator may run once more, on copies."""
        schema = getattr(func, "_schema", None)
        # One that writes has changed what it would need.
        return schema is not None and not schema.is_mutable


def _spreads(call: Call, inputs: list[torch.Tensor], inf: list[Source]) -> bool:
    """Whether infinities that somebody wrote down are added to other numbers, which are lost by that."""
    written = bool(inf) and all(s.benign for s in inf)
    return written and adds_up(str(call.func)) and any(bool(torch.isfinite(t).any()) for t in inputs)


def _counts(tensor: torch.Tensor) -> bool:
    """Whether a tensor is an operand to speak of: empty ones are."""
    return numeric(tensor) or (tensor.numel() == 0 and tensor.is_floating_point())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _scalar(value: float) -> Operand:
    size = abs(float(value))
    finite = size if math.isfinite(size) else 0.0
    operand = Operand(dtype="scalar", shape=(), largest=finite, smallest=finite, zeros=int(size == 0))
    infinities, nans = int(math.isinf(size)), int(math.isnan(size))
    return msgspec.structs.replace(operand, negatives=int(value < 0), infinities=infinities, nans=nans)


def _given_infinity(call: Call) -> bool:
    """Whether what an operator writes was an infinity (or NaN) already: a number among its arguments."""
    return any(_is_number(a) and not math.isfinite(a) for a in (*call.args, *call.kwargs.values()))


def _written_operands(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The operands that the operator changes in place."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    found = []
    for index, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            # The schema's order is that of the call.
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            found += list(_tensors([value]))
    return found


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Those that hold the values."""
    return (t._values() if t.is_sparse else t for t in tensors_within(value))


def _within_backward(code: Any) -> Place | None:
    """The user's line, if code of the user's runs within the backward pass."""
    for frame in outward(sys._getframe(3)):
        # Beyond it stands whoever called backward.
        if frame.f_code is code:
            return None
        if frames.owner(frame.f_code.co_filename) in PROGRAM:
            return frames.place_of(frame)
    return None
