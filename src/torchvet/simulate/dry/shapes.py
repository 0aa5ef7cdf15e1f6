"""One operator without its arithmetic: meta tensors in and out, and the numbers of small ones that are known."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torchvet.simulate.arguments import meta_like, replaced, tensors_in
from torchvet.simulate.dry import bounds, phantoms, values
from torchvet.simulate.operations.operators import plan_of, written_of


@contextmanager
def _quietly() -> Iterator[None]:
    """torch warns of a missing Triton where its counter of operations is imported."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


with _quietly():
    from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

_META = torch.device("meta")
_aten = torch.ops.aten
_UNSET = frozenset(["empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_quantized"])
"""Operators whose results hold nothing yet."""


class _Arithmetic:
    operations = 0


arithmetic = _Arithmetic()
"""Floating-point operations of products and convolutions that were not worked out."""


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """In place of the CPU's kernel: `args` hold meta tensors, or tensors of the host; results are meta tensors."""
    # Operators that read numbers or end on the host.
    special = _SPECIAL.get(func)
    if special is not None and args and isinstance(args[0], torch.Tensor):
        return special(*args)
    args = [_inward(a) for a in args]
    kwargs = {n: _inward(a) for n, a in kwargs.items()}
    if kwargs.get("device") is not None:
        kwargs["device"] = _META
    plan = plan_of(func)
    tensors = list(tensors_in((*args, *kwargs.values())))
    # Numbers are worked out only if all that they depend on is known and small; shapes always.
    all_known = all("torchvet_known" in t.__dict__ and values.known(t) is not None for t in tensors)
    out = _shaped(func, plan, bounds.bounded(plan.name, args), kwargs, tensors)
    if _changed(func):
        _write(func, plan, args, kwargs, all_known)
    elif plan.name != "set_" and (all_known or plan.name in _UNSET):
        _work_out(func, plan, args, kwargs, out, tensors)
    elif tensors and isinstance(out, torch.Tensor):
        values.say(plan.name, args, tensors, out)
    return out


def _shaped(func: Any, plan: Any, args: Any, kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> Any:
    """The results' shapes: asked for once for arguments of the same shapes, since a model repeats its layers, unless
    numbers decide too."""
    # Views must share memory with their argument, so their results cannot be made again from a remembered layout.
    if plan.views or plan.reshapes or func in _by_numbers or plan.name in bounds.LARGEST:
        return _asked(func, plan.name, args, kwargs)
    try:
        # The default dtype decides some results without being an argument.
        key = (func, torch.get_default_dtype(), _key(args), _key(kwargs.items()))
        seen = _seen.get(key, _NEVER)
    # An argument that cannot be a key (a generator, a symbolic size).
    except (TypeError, RuntimeError):
        return _asked(func, plan.name, args, kwargs)
    if seen is _NEVER:
        return _first(func, plan, args, kwargs, tensors, key)
    if seen is None:
        return _asked(func, plan.name, args, kwargs)
    made, operations = seen
    arithmetic.operations += operations
    if made is not None:
        return _anew(made)
    return written_of(plan, args, kwargs) if plan.written else None


def _first(func: Any, plan: Any, args: Any, kwargs: dict[str, Any], tensors: list[torch.Tensor], key: Any) -> Any:
    """Ask, and remember under a key how the results are laid out and what they would have taken to work out."""
    before = arithmetic.operations
    out = _asked(func, plan.name, args, kwargs)
    # Asking may only now have found that numbers decide the shape.
    # The same shapes may lead to other results.
    if func in _by_numbers:
        return out
    made = None if _own_results(func, plan) else _layout(out, _storages(tensors))
    _seen[key] = (made, arithmetic.operations - before) if _own_results(func, plan) or made is not None else None
    return out


def _own_results(func: Any, plan: Any) -> bool:
    """Whether an operator gives nothing but what it was given."""
    return None not in plan.written if plan.written else not func._schema.returns


def _storages(tensors: list[torch.Tensor]) -> set[int]:
    return {t.untyped_storage()._cdata for t in tensors if _dense(t)}


_NEVER = object()
_seen: dict[Any, Any] = {}
"""By operator and shapes: how results are laid out (None for an operator that writes in place) and what it would have
worked out; None where a result is a number, or another's memory, which no schema says of `_unsafe_view`."""
_by_numbers: set[Any] = set()
"""Operators that no meta kernel gives the shapes of: numbers may decide them."""


def _asked(func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    bound = bounds.LARGEST.get(name)
    if bound is not None:
        return bound(func, args, kwargs)
    try:
        out = func(*args, **kwargs)
    except (NotImplementedError, RuntimeError) as error:
        # No meta kernel, or one that wants numbers; any other error is the program's.
        if isinstance(error, NotImplementedError) or "meta" in str(error):
            _by_numbers.add(func)
            return bounds.by_zeros(func, args, kwargs)
        raise
    count = _FLOPS.get(func._overloadpacket)
    if count is not None:
        arithmetic.operations += count(*args, **kwargs, out_val=out)
    return out


def _key(values: Any) -> Any:
    return tuple([_key_of(v) for v in values])


def _key_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.size(), value.stride(), value.dtype
    if isinstance(value, (list, tuple)):
        return _key(value)
    # 1, 1.0 and True are equal as keys, and lead to results of different dtypes.
    return type(value), value


def _dense(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided


def _layout(out: Any, given: set[int]) -> Any:
    """How the results of an operator are made again; None where they cannot be."""
    if isinstance(out, torch.Tensor):
        return _layout_of(out, given)
    if isinstance(out, (list, tuple)) and type(out) in (list, tuple):
        # A number among the results may be another one for other tensors of the same shapes.
        rows = [_layout(o, given) if isinstance(o, torch.Tensor) else ("", o) if o is None else None for o in out]
        return None if any(r is None for r in rows) else (type(out), rows)
    return None


def _layout_of(out: torch.Tensor, given: set[int]) -> Any:
    """Only a tensor that has a whole storage to itself is made again: any other shares memory with something."""
    # A result that is an argument's memory must stay that.
    if not _dense(out) or out.storage_offset() or out.untyped_storage()._cdata in given:
        return None
    given.add(out.untyped_storage()._cdata)
    if out.untyped_storage().nbytes() != _extent(out) or out.is_conj() or out.is_neg():
        return None
    return out.size(), out.stride(), out.dtype


def _extent(tensor: torch.Tensor) -> int:
    if not tensor.numel():
        return 0
    return (1 + sum((n - 1) * s for n, s in zip(tensor.size(), tensor.stride(), strict=True))) * tensor.itemsize


def _anew(made: Any) -> Any:
    if len(made) == 3:
        return torch.empty_strided(made[0], made[1], dtype=made[2], device=_META)
    kind, rows = made
    return kind(row[1] if row[0] == "" else _anew(row) for row in rows)


_changes: dict[Any, list[int | str]] = {}


def _changed(func: Any) -> list[int | str]:
    """The arguments that an operator writes to, by position or name."""
    found = _changes.get(func)
    if found is None:
        found = _changes[func] = [
            argument.name if argument.kwarg_only else place
            for place, argument in enumerate(func._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
    return found


def _given(place: int | str, args: Any) -> bool:
    return isinstance(place, str) or place < len(args)


def _write(func: Any, plan: Any, args: Any, kwargs: dict[str, Any], all_known: bool) -> None:
    """What is written in place is worked out where all is known, else it is not known any more."""
    owners = [kwargs.get(o) if isinstance(o, str) else args[o] for o in _changed(func) if _given(o, args)]
    written = list(tensors_in(owners))
    # On the small host tensors that hold the known numbers.
    if all_known and all(phantoms.bytes_of(t) <= values.MOST for t in written) and not plan.reshapes:
        func(*[_numbers(a) for a in args], **{n: _numbers(a) for n, a in _on_cpu(kwargs).items()})
        return
    if plan.name == "_amp_foreach_non_finite_check_and_unscale_":
        return  # gradients are not known anyway, and the flag that an infinity was found keeps its zero
    for tensor in written:
        # A copy makes known what its source is.
        if plan.name == "copy_" and values.take_over(tensor, args[1]):
            continue
        values.forget(tensor)


def _work_out(func: Any, plan: Any, args: Any, kwargs: dict[str, Any], out: Any, tensors: list[Any]) -> None:
    found = list(tensors_in((out,)))
    if not found or (not plan.views and sum(map(phantoms.bytes_of, found)) > values.MOST):
        return
    if plan.name in _UNSET:
        _know_zeros(out)
        return
    numbers = func(*[_numbers(a) for a in args], **{n: _numbers(a) for n, a in _on_cpu(kwargs).items()})
    same = tensors[0] if plan.views and tensors else None
    for meta, real in zip(found, tensors_in((numbers,)), strict=True):
        if meta.size() != real.size():
            continue
        values.know(meta, real, same)


def _know_zeros(out: torch.Tensor) -> None:
    # Of integers what is not known reads as zeros, too: with zeros it stays known what is written there later.
    if not out.is_floating_point() and not out.is_complex() and _dense(out):
        with torch._C._DisableTorchDispatch():
            values.know(out, torch.empty_strided(out.size(), out.stride(), dtype=out.dtype).zero_())


def _on_cpu(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**kwargs, "device": torch.device("cpu")} if kwargs.get("device") is not None else kwargs


def _inward(value: Any) -> Any:
    """An argument with meta tensors in place of the host's."""
    return replaced(value, lambda tensor: tensor if tensor.device.type == "meta" else _twin(tensor))


def _twin(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is not torch.strided:
        return tensor.to(_META)
    meta = meta_like(tensor)
    if phantoms.bytes_of(tensor) <= values.MOST and not phantoms.is_phantom(tensor):
        values.know(meta, tensor)
    return meta


def _numbers(value: Any) -> Any:
    return replaced(value, values.known)


def landed(value: Any) -> Any:
    """A result that is to be on the host."""
    return replaced(value, lambda tensor: phantoms.host_copy(tensor) if tensor.device.type == "meta" else tensor)


def _copy(target: torch.Tensor, source: torch.Tensor, *_: Any) -> torch.Tensor:
    """`copy_`, which may end on the host."""
    if target.device.type == "meta":
        inward = _inward(source)
        target.copy_(inward)
        if not values.take_over(target, inward):
            values.forget(target)
    elif not phantoms.is_phantom(target):
        numbers = values.known(source) if source.device.type == "meta" else source
        # What the host reads of unknown numbers is always the same.
        target.copy_(numbers) if numbers is not None else target.fill_(values.stand_in(source))
    return target


def _equal(one: torch.Tensor, other: torch.Tensor, *_: Any) -> bool:
    """`equal` and `allclose`: of what is not known it holds."""
    numbers = [values.known(_inward(t)) for t in (one, other)]
    if numbers[0] is not None and numbers[1] is not None:
        return torch.equal(numbers[0], numbers[1])
    return one.size() == other.size()


def _attention(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    return sdpa_flop_count(query.shape, key.shape, value.shape)  # type: ignore[no-any-return, no-untyped-call]


def _attention_back(by_out: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    return sdpa_backward_flop_count(by_out.shape, query.shape, key.shape, value.shape)  # type: ignore[no-any-return, no-untyped-call]


_FLOPS: dict[Any, Any] = {
    **flop_registry,
    _aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_back,
}
_SPECIAL: dict[Any, Any] = {
    _aten._local_scalar_dense.default: values.number,
    _aten.copy_.default: _copy,
    _aten.equal.default: _equal,
    _aten.allclose.default: _equal,
}
