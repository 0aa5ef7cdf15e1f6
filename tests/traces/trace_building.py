"""A host with a queue and a device with a stream, simulated, and what a profiler would write down of them.

The host runs ahead of the device as in reality, so that what a fault costs can be had by simulating the program without
it: tests compare what is reported with that difference. Times are microseconds.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MAIN, ENGINE, STREAM, COMM = 100, 200, 7, 20
LATENCY = 4.0
FORMATS: dict[str, dict[str, str]] = {
    "2.13": {},
    "2021": {
        "cpu_op": "Operator", "user_annotation": "Operator", "kernel": "Kernel", "gpu_memcpy": "Memcpy",
        "cuda_runtime": "Runtime",
    },
    "amd": {"cudaLaunchKernel": "hipLaunchKernel", "cudaMemcpyAsync": "hipMemcpyWithStream",
            "cudaStreamSynchronize": "hipStreamSynchronize"},
    "mtia": {"kernel": "mtia_ccp_events", "cuda_runtime": "mtia_runtime"},
}  # fmt: skip
"""What other versions and devices write in place of CUDA's words today."""


class Program:
    """Simulated time goes on with every call; `events` grow with it."""

    def __init__(self, rank: int = 0, world: int = 1, start: float = 1e6) -> None:
        self.host = self.device = start
        self.rank, self.world = rank, world
        self.events: list[dict[str, Any]] = []
        self.thread = MAIN
        self.number = 0
        self.header: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}]}
        if world > 1:
            self.header["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}

    def span(self, cat: str, name: str, start: float, end: float, **args: Any) -> None:
        """An event of the host."""
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": MAIN, "tid": self.thread, "ts": start,
                            "dur": end - start, "args": args})  # fmt: skip

    def python(self, duration: float) -> None:
        """Something that leaves no trace."""
        self.host += duration

    @contextmanager
    def annotated(self, name: str) -> Iterator[None]:
        """A span around what happens within."""
        start = self.host
        yield
        self.span("user_annotation", name, start, self.host)

    @contextmanager
    def function(self, name: str) -> Iterator[None]:
        """A frame of Python around what happens within."""
        start = self.host
        yield
        self.span("python_function", name, start, self.host)

    @contextmanager
    def backward(self) -> Iterator[None]:
        """On the engine's thread; the host waits until it has dispatched all."""
        self.thread = ENGINE
        yield
        self.thread = MAIN

    def call(self, name: str, duration: float) -> int:
        """A call into the driver; its correlation."""
        self.number += 1
        self.span("cuda_runtime", name, self.host, self.host + duration, correlation=self.number)
        self.host += duration
        return self.number

    def work(self, cat: str, name: str, duration: float, correlation: int, stream: int = STREAM, **args: Any) -> float:
        """Queue something on the device; when it ends."""
        start = max(self.host + LATENCY, self.device)
        if stream == STREAM:
            self.device = start + duration
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": stream, "ts": start, "dur": duration,
                            "args": {"device": 0, "stream": stream, "correlation": correlation, **args}})  # fmt: skip
        return start + duration

    def op(self, kernel: float, host: float = 20.0, name: str = "aten::mm", kernel_name: str = "sgemm") -> None:
        """An operator that takes the host `host` and launches a kernel that takes the device `kernel`."""
        start = self.host
        self.host += host * 0.6
        correlation = self.call("cudaLaunchKernel", host * 0.3)
        self.work("kernel", kernel_name, kernel, correlation)
        self.host += host * 0.1
        backward = self.thread == ENGINE
        self.span("cpu_op", "autograd::engine::evaluate_function: MmBackward0" if backward else name, start, self.host)

    def copy(self, direction: str, duration: float, size: int, pageable: bool = True) -> None:
        """A copy that the host waits for if the memory is pageable, as `.to()` and `.cpu()` do it."""
        sides = {"HtoD": "{} -> Device", "DtoH": "Device -> {}"}[direction]
        name = f"Memcpy {direction} ({sides.format('Pageable' if pageable else 'Pinned')})"
        start = self.host
        correlation = self.call("cudaMemcpyAsync", 10)
        end = self.work("gpu_memcpy", name, duration, correlation, bytes=size)
        if pageable or direction == "DtoH":
            self.host = max(self.host, end)
            self.events[-2]["dur"] = self.host - self.events[-2]["ts"]
            self.call("cudaStreamSynchronize", 3)
        self.span("cpu_op", "aten::copy_", start, self.host)

    def item(self) -> None:
        """`.item()`: a copy of four bytes that is waited for."""
        start = self.host
        self.copy("DtoH", 2, 4)
        self.span("cpu_op", "aten::item", start, self.host)

    def load(self, duration: float, workers: int = 0) -> None:
        """`next()` on a loader."""
        kind = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
        with self.annotated(f"enumerate(DataLoader)#{kind}.__next__"):
            self.python(duration)

    def train(self, steps: int, body: Any, marked: bool = True) -> Program:
        """Take steps as `body(self)` does them; the profiler waits for the device at the end."""
        for number in range(steps):
            start = self.host
            body(self)
            if marked:
                self.span("user_annotation", f"ProfilerStep#{number}", start, self.host)
            self.host += 1
        self.call("cudaDeviceSynchronize", max(0.0, self.device - self.host) + 50_000)
        return self

    @property
    def seconds(self) -> float:
        """The whole time of the host or the device, the profiler's own wait left out."""
        return (max(self.device, self.host - 50_000) - 1e6) / 1e6

    def json(self, version: str = "2.13", **header: Any) -> str:
        """The file's text as a version wrote it."""
        words = FORMATS[version]
        events = []
        for event in self.events:
            event = {**event, **{key: words.get(event[key], event[key]) for key in ("cat", "name")}}
            if version == "2021":
                event["tid"] = f"stream {event['tid']}" if event["pid"] == 0 else str(event["tid"])
            events.append(event)
        return json.dumps({**self.header, **header, "traceEvents": events}, indent=1)

    def write(self, path: Path, version: str = "2.13", **header: Any) -> Path:
        """The file itself, packed if its name says so."""
        data = self.json(version, **header).encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path


def step(program: Program, kernel: float = 300.0, host: float = 30.0, ops: int = 30) -> None:
    """A healthy step in which the device is the bottleneck."""
    for _ in range(ops):
        program.op(kernel, host)
    with program.backward():
        for _ in range(2 * ops):
            program.op(kernel, host)
    with program.annotated("Optimizer.step#AdamW.step"):
        program.op(kernel, host, "aten::_fused_adamw_", "multi_tensor_apply_kernel")


def ranks(number: int, steps: int, late: int | None = None, by: float = 0.0, base: float = 1_000.0) -> list[Program]:
    """Data-parallel ranks: an all-reduce in the backward of each step ends on all of them together.

    Rank `late` computes `by` microseconds longer in its backward, before the all-reduce.
    """
    programs = [Program(rank, number, start=1e6 + 1e9 * rank) for rank in range(number)]  # no common clock
    origins = [p.host for p in programs]
    begun: list[float] = [0.0] * number
    for count in range(steps):
        arrivals, correlations = [], []
        for rank, program in enumerate(programs):
            begun[rank] = program.host
            for _ in range(20):
                program.op(300, 30)
            program.thread = ENGINE
            for _ in range(20):
                program.op(300, 30)
            if rank == late:
                program.op(by, 30)
            correlations.append(program.call("cudaLaunchKernelExC", 8))
            arrivals.append(max(program.host + LATENCY, program.device))
        end = max(a - o for a, o in zip(arrivals, origins, strict=True)) + base
        for rank, program in enumerate(programs):
            program.device = arrivals[rank]
            name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            program.work("kernel", name, origins[rank] + end - arrivals[rank], correlations[rank])
            program.thread = MAIN
            with program.annotated("Optimizer.step#AdamW.step"):
                program.op(300, 30, "aten::_fused_adamw_")
            program.item()
            program.span("user_annotation", f"ProfilerStep#{count}", begun[rank], program.host)
            program.host += 1
    return programs
