"""Snapshots with known faults: a program's allocations, played through the allocator's model, in torch's own schema.

Stacks come from a real recording (tests/data/magma.pickle), so that what is read out of frames is read out of real
ones.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from torchvet.allocator import CachingAllocator, OutOfMemory, Settings

DATA = Path(__file__).resolve().parents[1] / "data"
KB, MB = 1024, 1024 * 1024
LIBRARY = "/usr/lib/python3/site-packages/torch/"


def frame(path: str, line: int, name: str) -> dict[str, Any]:
    """A frame as torch writes it."""
    return {"name": name, "filename": path, "line": line}


MAIN = frame("train.py", 90, "main")
OPTIMIZER = [frame(LIBRARY + "optim/adamw.py", 610, "_multi_tensor_adamw"), frame(LIBRARY + "optim/optimizer.py", 533,
             "wrapper"), MAIN]  # fmt: skip
LOADING = [frame("train.py", 40, "batches"), MAIN]
MODULE = LIBRARY + "nn/modules/module.py"
MOVING = [frame(MODULE, 1348, "convert"), frame(MODULE, 915, "_apply"), frame("train.py", 30, "build"), MAIN]
KEEPING = [frame("train.py", 61, "log_outputs"), frame("train.py", 84, "train_step"), MAIN]
EMPTYING = [frame(LIBRARY + "cuda/memory.py", 224, "empty_cache"), frame("train.py", 88, "main")]
BACKWARD: list[dict[str, Any]] = []


@lru_cache
def forward_stacks() -> list[list[dict[str, Any]]]:
    """The distinct Python stacks of a real forward pass, in the order in which they were first seen."""
    with (DATA / "magma.pickle").open("rb") as file:
        events = pickle.load(file)["device_traces"][0]
    found: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if event["action"] == "alloc" and any(f["name"] == "_call_impl" for f in event["frames"]):
            found.setdefault(repr(event["frames"]), event["frames"])
    return list(found.values())


class Recorder:
    """Allocates and frees like a program under `torch.cuda.memory._record_memory_history()`."""

    def __init__(self, capacity: int | None = None, settings: Settings | None = None) -> None:
        self.allocator = CachingAllocator(capacity, settings, self._told)
        self.events: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        self._frames: list[dict[str, Any]] = []
        self._stacks: dict[int, list[dict[str, Any]]] = {}
        self._sizes: dict[int, int] = {}
        self.recording = True
        self.now = 1_700_000_000_000_000

    def alloc(self, size: int, frames: list[dict[str, Any]]) -> int:
        """The address of `size` bytes. Raises `OutOfMemory`."""
        self._frames = frames
        address = self.allocator.malloc(size)
        frames = list(frames)  # torch writes a list of its own for every block; the frames in it are shared
        self._stacks[address], self._sizes[address] = frames, size
        self._event("alloc", address, size, frames)
        return address

    def free(self, *addresses: int) -> None:
        """Give memory back."""
        for address in addresses:
            self.let_go(address)
            self.complete(address)

    def let_go(self, address: int) -> None:
        """Free what another stream is still at work on."""
        self._event("free_requested", address, self._sizes[address], self._stacks[address])

    def complete(self, address: int) -> None:
        """Give back what was freed, once the other stream is done."""
        frames, size = self._stacks.pop(address), self._sizes.pop(address)
        self._event("free_completed", address, size, frames)
        self.allocator.free(address)

    def empty_cache(self) -> None:
        """As torch.cuda.empty_cache()."""
        self._frames = EMPTYING
        self.allocator.empty_cache()

    def mark(self, stage: str, name: str = "Optimizer.step#AdamW.step") -> None:
        """An annotation, as torch's optimizers make them."""
        if self.recording:
            self.annotations.append({"stage": stage, "name": name, "device": 0, "time_us": self.now})

    def snapshot(self) -> dict[str, Any]:
        """What `_dump_snapshot()` writes."""
        segments = []
        for chain in self.allocator.chains():
            blocks = [
                {"address": b.address, "size": b.size, "requested_size": b.requested if b.allocated else 0,
                 "state": "active_allocated" if b.allocated else "inactive", "frames": self._stacks.get(b.address, [])}
                for b in chain
            ]  # fmt: skip
            held = sum(b.size for b in chain if b.allocated)
            segments.append({
                "device": 0, "address": chain[0].address, "total_size": sum(b.size for b in chain), "stream": 0,
                "allocated_size": held, "active_size": held, "blocks": blocks, "frames": [],
                "requested_size": sum(b.requested for b in chain if b.allocated),
                "segment_type": "small" if chain[0].pool.small else "large", "segment_pool_id": (0, 0),
                "is_expandable": self.allocator.settings.expandable_segments,
            })  # fmt: skip
        return {"segments": segments, "device_traces": [self.events, []], "allocator_settings": {},
                "external_annotations": self.annotations}  # fmt: skip

    def write(self, path: Path) -> Path:
        """Dump it as torch does."""
        with path.open("wb") as file:
            pickle.dump(self.snapshot(), file)
        return path

    def _event(self, action: str, address: int, size: int, frames: list[dict[str, Any]]) -> None:
        self.now += 7
        if self.recording:
            place = {"device_free": address} if action == "oom" else {"addr": address}
            self.events.append({"action": action, **place, "size": size, "stream": 0, "time_us": self.now,
                                "frames": frames, "compile_context": "N/A", "user_metadata": ""})  # fmt: skip

    def _told(self, action: str, address: int, size: int, stream: int) -> None:
        self._event(action, address, size, self._frames)


class Training:
    """A training loop with AdamW: inputs, a forward pass, a backward pass without frames, an optimizer step.

    Parameters are `layers` blocks of `width` bytes; each step's forward keeps `activations` blocks until the backward.
    """

    def __init__(self, recorder: Recorder, layers: int = 8, width: int = 4 * MB, activations: int = 24) -> None:
        self.recorder, self.layers, self.width, self.activations = recorder, layers, width, activations
        self.parameters = [recorder.alloc(width + 512 * n, MOVING) for n in range(layers)]
        self.state: list[int] = []
        self.gradients: list[int] = []
        self.kept: list[int] = []

    def step(self, leak: int = 0, scale: float = 1.0) -> None:
        """One step; `leak` bytes of it are kept for ever by `train.py:61`, `scale` multiplies its activations."""
        r = self.recorder
        r.free(*self.gradients)
        batch = [r.alloc(256 * KB, LOADING), r.alloc(8 * KB, LOADING)]
        saved = list(self.forward(scale))
        if leak:
            self.kept.append(r.alloc(leak, KEEPING))
        self.gradients = self.backward(saved)
        self.optimize()
        r.free(*batch)

    def forward(self, scale: float = 1.0) -> Iterator[int]:
        """Blocks that the backward pass frees; every second one has a temporary beside it."""
        stacks = forward_stacks()
        for n in range(self.activations):
            kept = self.recorder.alloc(int(scale * (300 * KB + 1000 * (n % 7))), stacks[n % len(stacks)])
            if n % 2:
                self.recorder.free(self.recorder.alloc(int(scale * 200 * KB), stacks[n % len(stacks)]))
            yield kept

    def backward(self, saved: list[int]) -> list[int]:
        """The gradients; activations are freed in reverse."""
        gradients: list[int] = []
        for n, address in enumerate(reversed(saved)):
            temporary = self.recorder.alloc(310 * KB, BACKWARD)
            if n % max(1, len(saved) // self.layers) == 0 and len(gradients) < self.layers:
                gradients.append(self.recorder.alloc(self.width + 512 * len(gradients), BACKWARD))
            self.recorder.free(address, temporary)
        while len(gradients) < self.layers:
            gradients.append(self.recorder.alloc(self.width + 512 * len(gradients), BACKWARD))
        return gradients

    def optimize(self) -> None:
        """AdamW: its state in the first step, a temporary for every parameter in each."""
        r = self.recorder
        r.mark("START")
        if not self.state:
            self.state = [r.alloc(self.width + 512 * (n // 2), OPTIMIZER) for n in range(2 * self.layers)]
        r.free(*[r.alloc(self.width, OPTIMIZER) for _ in range(self.layers)])
        r.mark("END")


def fragmented(
    recorder: Recorder, pins: int = 24, size: int = 20 * MB, frames: list[dict[str, Any]] = KEEPING
) -> list[int]:
    """Segments of `size` bytes, each split and pinned by 2 MB that stay: what is between them fits nothing larger.

    `frames` is where those are made.
    """
    stacks = forward_stacks()
    pinned = []
    for n in range(pins):
        rest = recorder.alloc(size - 2 * MB, stacks[n % 3])
        pinned.append((recorder.alloc(2 * MB, frames), rest))
    recorder.free(*[rest for _, rest in pinned])
    return [pin for pin, _ in pinned]


__all__ = ["BACKWARD", "KB", "KEEPING", "MB", "OutOfMemory", "Recorder", "Settings", "Training", "fragmented"]
