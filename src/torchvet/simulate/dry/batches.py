"""Another batch size without the program's help: what comes to a device outside of modules with as many rows as the
batch gets as many rows as are wanted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from torchvet.simulate.dry import phantoms
from torchvet.simulate.tensors import SimulatedTensor

_CREATORS = frozenset(
    ["rand", "randn", "randint", "zeros", "ones", "empty", "full", "normal", "rand.generator", "randn.generator"]
)


class Batches:
    """`rows` is the batch size that is wanted, None for the program's own, which is `own`."""

    def __init__(self) -> None:
        self.own = 0
        self.rows: int | None = None
        self.stack: list[torch.nn.Module] = []
        """Modules that are being called within each other, the innermost last."""
        self.seen: Counter[tuple[int, bool]] = Counter()
        """Rows of tensors of devices that were given to modules from outside, since `begin`, and whether a graph was
        built."""
        self.called: Callable[[], None] = lambda: None
        """Called when a module is called from outside of all modules."""

    def begin(self, rows: int | None) -> None:
        """From now on this batch size."""
        self.rows = rows
        self.seen.clear()

    def rows_seen(self) -> list[int]:
        """The rows since `begin`, in the order in which they came first; of passes without a graph where none had."""
        return [n for n, grad in self.seen if grad] or [n for n, _ in self.seen]

    @property
    def changes(self) -> bool:
        """Whether what comes to a device now may need other rows."""
        # Within modules and backward passes rows follow from what was given from outside.
        return self.rows is not None and not self.stack and torch._C._current_graph_task_id() == -1

    def grown(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor that is about to come to a device, with the rows that are wanted."""
        if (
            not tensor.dim()
            or tensor.size(0) != self.own
            or self.rows is None
            or isinstance(tensor, torch.nn.Parameter)
        ):
            return tensor
        if phantoms.is_phantom(tensor):
            size = (self.rows, *tensor.size()[1:])
            return phantoms.phantom(size, torch.empty(size, device="meta").stride(), tensor.dtype)
        # The program's own rows, again and again: labels and indices stay within their ranges.
        # Taken in turn, from the beginning.
        return tensor[torch.arange(self.rows) % self.own]

    def made(self, func: Any, args: Any) -> Any:
        """The arguments of a factory with the rows that are wanted."""
        if func._schema.name.partition("::")[2] not in _CREATORS:
            return args
        return [[self.rows, *a[1:]] if isinstance(a, (list, tuple)) and a and a[0] == self.own else a for a in args]


batches = Batches()


def watch_modules() -> None:
    """Let every call of a module count."""
    call: Callable[..., Any] = torch.nn.Module.__call__

    def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not batches.stack:
            batches.called()
            # The rows of the first tensor count: others may be lengths, or weights of classes.
            for value in (*args, *kwargs.values()):
                if isinstance(value, SimulatedTensor) and value.dim():
                    batches.seen[value.size(0), torch.is_grad_enabled()] += 1
                    break
        batches.stack.append(self)
        try:
            return call(self, *args, **kwargs)
        finally:
            batches.stack.pop()

    torch.nn.Module.__call__ = __call__  # type: ignore[method-assign]
