"""Turns the simulated GPU of this process into one without arithmetic."""

from __future__ import annotations

from torchvet.simulate import threads
from torchvet.simulate.allocation import memory
from torchvet.simulate.dry import batches, files, hosts, limits, shapes
from torchvet.simulate.operations import operators
from torchvet.simulate.tensors import SimulatedTensor

_dry: list[bool] = []


def dry() -> bool:
    """Whether this process works nothing out."""
    return bool(_dry)


def _data_ptr(self: SimulatedTensor) -> int:
    """The block's address: there are no numbers to be anywhere."""
    offset = int(self.host.storage_offset()) * self.host.itemsize
    return memory.address_of(self.host.untyped_storage()) + offset


def start() -> None:
    """From here on nothing is worked out. To be called once, after the simulated GPU was started."""
    _dry.append(True)
    operators.without_numbers(shapes.compute, shapes.landed)
    SimulatedTensor.data_ptr = _data_ptr  # type: ignore[method-assign]
    limits.install()
    files.install()
    batches.watch_modules()
    threads.in_every_thread(hosts.enter)
