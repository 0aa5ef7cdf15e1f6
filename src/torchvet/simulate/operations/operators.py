"""One operator on a simulated device: checked as a GPU would, computed on the CPU, its results put on the device."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from torchvet.simulate import devices
from torchvet.simulate.allocation import host_memory, workspaces
from torchvet.simulate.api import generators
from torchvet.simulate.operations import asserts, deterministic, placement, whole_numbers
from torchvet.simulate.refusals import as_cuda, refusal
from torchvet.simulate.tensors import SimulatedTensor, dispatch_to, reshape_shell, wrap

Kernel = Callable[[Any, Any, dict[str, Any]], Any]
SPECIAL: dict[Any, Any] = {}
"""Operators that are done in another way, as `handler(func, args, kwargs)`: see `transfers.py` and `kernels.py`."""

_HOSTS_OWN = re.compile(r"\b(on|for) (the )?CPU\b|\bMKL\b|not implemented for 'ComplexHalf'")
"""In what the CPU's kernels cannot do and say, and CUDA's can."""
_RESHAPING = ("resize_", "resize_as_", "set_", "resize", "_resize_output_")


_REFUSES = dict.fromkeys(whole_numbers.KERNELS, whole_numbers.check) | dict.fromkeys(
    deterministic.NAMES, deterministic.check
)
"""Who is asked whether CUDA refuses what the CPU does."""


class _Plan:
    """What an operator's schema says about its results.

    `written` says for each result whose argument it is, by position or name, where it is one's own written in place.
    """

    __slots__ = ("draws", "func", "name", "outs", "product", "refuses", "reshapes", "special", "views", "written")

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.func, self.special = func, SPECIAL.get(func)
        self.name: str = schema.name.partition("::")[2]
        self.product = self.name.removesuffix("_") in workspaces.PRODUCTS
        self.draws = generators.draws(func)
        self.refuses = _REFUSES.get(self.name)
        self.written = _written(schema)
        self.reshapes = (
            torch.Tag.inplace_view in func.tags or any(a.is_out for a in schema.arguments) or self.name in _RESHAPING
        )
        self.outs = tuple(a.name for a in schema.arguments if a.is_out)
        self.views = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)


def _written(schema: Any) -> list[int | str | None]:
    """For each result the argument that it is. Empty where all results are new or views."""
    owners: dict[str, int | str] = {}
    for position, argument in enumerate(schema.arguments):
        alias = argument.alias_info
        if alias is not None and alias.is_write:
            # The schema names aliases by letters: the same letter on a result says whose it is.
            for name in alias.before_set:
                owners[name] = argument.name if argument.kwarg_only else position
    found = [
        next((owners[n] for n in r.alias_info.before_set if n in owners), None)
        if r.alias_info is not None and r.alias_info.is_write
        else None
        for r in schema.returns
    ]
    return found if any(f is not None for f in found) else []


_plans: dict[int, _Plan] = {}
"""By the operator's identity: its own hash is Python's, and a plan keeps its operator."""


def plan_of(func: Any) -> _Plan:
    """An operator's plan, made once."""
    plan = _plans.get(id(func))
    if plan is None:
        plan = _plans[id(func)] = _Plan(func)
    return plan


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operator of which at least one argument is on a simulated device."""
    with torch._C.DisableTorchFunction():
        special = (_plans.get(id(func)) or plan_of(func)).special
        if special is not None:
            return special(func, args, kwargs)
        return compute(func, args, kwargs)


def compute(func: Any, args: Any, kwargs: dict[str, Any], numbers: Kernel | None = None) -> Any:
    """The ordinary way: on the CPU tensors behind the arguments, by `numbers(func, args, kwargs)` or `on_host`."""
    plan = _plans.get(id(func)) or plan_of(func)
    seen: list[int] = []
    strangers: list[torch.Tensor] = []
    # One walk finds the devices as well: this is done for every operator.
    host_args = [a if a.__class__ in _PLAIN else _host(a, seen, strangers) for a in args]
    host_kwargs = {n: _host(a, seen, strangers) for n, a in kwargs.items()}
    # Tensors nearly always lie on one device, which these two lists show without a second walk.
    # Only then does the exact check run, which names the tensors.
    if strangers or plan.outs or seen.count(seen[0]) != len(seen):
        placement.check(plan.name, args, kwargs, SimulatedTensor)
    index: int | None = seen[0]
    if kwargs.get("device") is not None:
        index = _destination(host_kwargs)
    # The first product takes cuBLAS's workspace, which a GPU's memory figures show.
    if plan.product:
        workspaces.needed(seen[0])
    if plan.refuses is not None:
        plan.refuses(plan.name, args, kwargs)
    try:
        if plan.draws:  # the host's generator stands in for the device's while the kernel draws
            with generators.drawing(seen[0]):
                out = on_host(func, host_args, host_kwargs)
        else:
            out = (numbers or on_host)(func, host_args, host_kwargs)
    # The CPU's kernels say what is wrong; CUDA's assert.
    except (IndexError, RuntimeError) as error:
        asserts.raise_as_cuda(plan.name, error)
    return _put(plan, args, kwargs, out, index)


def _put(plan: _Plan, args: Any, kwargs: dict[str, Any], out: Any, index: int | None) -> Any:
    """The results as the program sees them: its own arguments that were written to, or tensors on device `index`."""
    if plan.written:
        return _own(plan, args, kwargs, out, index)
    if index is None:
        return landed(out)
    return _view(args[0], out, index) if plan.views else _wrapped(out, index)


def _view(base: Any, out: Any, index: int) -> Any:
    if torch.is_inference_mode_enabled() and not base.is_inference():
        # A view of a tensor from outside of inference mode is one too.
        # It would be an inference tensor otherwise, and torch refuses it in a graph.
        with torch.inference_mode(False):
            return _wrapped(out, index)
    return _wrapped(out, index)


def on_host(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The numbers, by the CPU's kernel. Raises `HostMemoryError` where this machine has too little memory for them."""
    carry_out = _instead[0] if _instead else _call
    try:
        # Private: whether a `torch.func` transform is under way.
        if _transforming() is not None:
            # Within `torch.func` only what the program sees is transformed, not the numbers below.
            with temporarily_clear_interpreter_stack(), torch._C._AutoDispatchBelowAutograd():
                return carry_out(func, args, kwargs)
        # Autograd has recorded the operator on the tensors of the device: the numbers below need no graph.
        with torch._C._AutoDispatchBelowAutograd():
            return carry_out(func, args, kwargs)
    except RuntimeError as error:
        if _HOSTS_OWN.search(str(error)):
            raise refusal(str(func), f"The CPU has no kernel for it: {error}.") from None
        # This machine ran out, and not the simulated card.
        if "DefaultCPUAllocator" not in str(error):
            if error.args and isinstance(error.args[0], str):
                error.args = (as_cuda(error.args[0], by_kernel=True), *error.args[1:])
            raise
        # Raised outside the handler: chained to it, the first error would keep its frames and their tensors alive.
        message = str(error)
    raise host_memory.refusal(message, str(func))


def _call(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


_instead: list[Any] = []


def without_numbers(done: Any, hosted: Any) -> None:
    """From now on `done(func, args, kwargs)` is done in place of the CPU's kernels, and `hosted(value)` makes of its
    results what the host may read: see `dry`."""
    _instead[:] = [done, hosted]


def without_arithmetic() -> bool:
    """Whether nothing is computed, and shapes alone are followed."""
    return bool(_instead)


def landed(value: Any) -> Any:
    """What an operator gave that the host is to have."""
    return _instead[1](value) if _instead else value


_transforming = torch._C._functorch.peek_interpreter_stack


# Most arguments are numbers: telling them by their class spares a call each.
_PLAIN = frozenset([int, float, bool, type(None), torch.dtype])
"""Classes of arguments that are what they are."""


def _host(value: Any, seen: list[int], strangers: list[torch.Tensor]) -> Any:
    """An argument with CPU tensors in place of simulated ones. What is on the host already is noted as a stranger."""
    if isinstance(value, torch.Tensor):
        if isinstance(value, SimulatedTensor):
            seen.append(value.ordinal)
            return value.host
        # CUDA takes a tensor without dimensions from the host, as it takes a number.
        if value.dim():
            strangers.append(value)
        return value
    # Lists of numbers are sizes: they are frequent, and hold no tensor.
    if isinstance(value, (list, tuple)) and value and not isinstance(value[0], (int, float)):
        return [_host(item, seen, strangers) for item in value]
    return value


def host_of(value: Any) -> Any:
    """An argument with CPU tensors in place of simulated ones."""
    return _host(value, [], [])


def _destination(kwargs: dict[str, Any]) -> int | None:
    """Where results go that are asked for on a device; None for the host. The CPU's kernel is asked on the host."""
    device = kwargs["device"]
    if not devices.is_simulated(device):
        return None
    kwargs["device"] = torch.device("cpu")
    if kwargs.get("pin_memory"):
        kwargs["pin_memory"] = False
    return devices.index_of(device)


def _wrapped(out: Any, index: int) -> Any:
    if isinstance(out, torch.Tensor):
        return out if isinstance(out, SimulatedTensor) else wrap(out, index)
    if isinstance(out, (list, tuple)):
        # Named tuples of results are made by torch outside.
        return type(out)([_wrapped(item, index) for item in out]) if type(out) in (list, tuple) else out
    return out


def written_of(plan: _Plan, args: Any, kwargs: dict[str, Any]) -> Any:
    """The results of an operator that writes in place: its own arguments."""
    found = tuple(kwargs[o] if isinstance(o, str) else args[o] for o in plan.written if o is not None)
    return found[0] if len(plan.written) == 1 else found


def _own(plan: _Plan, args: Any, kwargs: dict[str, Any], out: Any, index: int | None) -> Any:
    """The arguments that were written to, in the place of the results that they are."""
    results = out if isinstance(out, (list, tuple)) else (out,)
    given: list[Any] = []
    for owner, result in zip(plan.written, results, strict=False):
        if owner is None:
            given.append(result if index is None else _wrapped(result, index))
            continue
        own = kwargs[owner] if isinstance(owner, str) else args[owner]
        if plan.reshapes and isinstance(own, SimulatedTensor):
            reshape_shell(own)
        given.append(own)
    return tuple(given) if isinstance(out, (list, tuple)) else given[0]


dispatch_to(run)
