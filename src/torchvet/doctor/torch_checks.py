"""The checks on what torch says of itself. Imports no torch: `asking` has asked it."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from typing import Any

from torchvet.doctor.asking import Answer
from torchvet.doctor.check import Check, ok
from torchvet.doctor.machine import Machine
from torchvet.finding import NotChecked

OLDEST = (2, 6)
"""The first torch that `torchvet run` takes."""
CROWDED = 16
"""Threads for each usable CPU above which steps take clearly longer (measured with 1 to 64 threads on one CPU)."""
_TF32 = 8
"""Compute capability, major number: the first with TF32 and bfloat16."""


def torch_checks(answer: Answer, machine: Machine) -> Iterator[Check | NotChecked]:
    """What torch's answers mean on this machine, and what could not be looked at."""
    if not answer.said:
        if answer.installed:
            yield Check(
                name="torch-import",
                level="error",
                found=answer.failure,
                expected="`import torch` succeeds",
                why="no program that uses torch runs in this environment",
                fix=f"`{sys.executable} -m pip install --force-reinstall torch`, or repair the library that it names",
            )
        reason = answer.failure if not answer.installed else "torch could not be imported"
        yield NotChecked(
            check="torch's version and build, devices, precision, allocator settings, threads, pinned memory",
            reason=reason,
        )
        return
    said = answer.said
    for question in ("build", "cuda", "half", "precision", "threads", "pinned"):
        if error := _error(said.get(question)):
            yield NotChecked(check=question, reason=error)
    yield from _version(said)
    yield from _numpy(said)
    yield from _cuda(said, machine)
    yield from _precision(said)
    yield from _threads(said, machine)
    yield from _allocator(said)
    yield from _pinned(said)


def _error(value: Any) -> str:
    return str(value["error"]) if isinstance(value, dict) and set(value) == {"error"} else ""


def _value(said: dict[str, Any], name: str, otherwise: Any) -> Any:
    """An answer; `otherwise` where torch could not give it."""
    value = said.get(name)
    return otherwise if value is None or _error(value) else value


def _version(said: dict[str, Any]) -> Iterator[Check]:
    version = said["version"]
    if tuple(int(n) for n in re.findall(r"\d+", version)[:2]) < OLDEST:
        yield Check(
            name="torch-version",
            level="warning",
            found=f"torch {version}",
            expected="torch 2.6 or newer",
            why="`torchvet run` cannot observe an older one",
            fix="install a newer torch, or use `torchvet check` and `torchvet inspect`, which need none",
        )
    else:
        yield ok("torch-version", f"torch {version}")
    if said["warnings"]:
        yield Check(
            name="torch-import",
            level="warning",
            found=f"importing torch warns: {'; '.join(said['warnings'])}",
            expected="no warning",
            why="torch, or something that it imports, does not fit this environment",
            fix="do what the warning says",
        )
    else:
        yield ok("torch-import", "`import torch` succeeds without a warning")


def _numpy(said: dict[str, Any]) -> Iterator[Check]:
    if error := _error(said["numpy"]):
        yield Check(
            name="numpy",
            level="error",
            found=f"torch.from_numpy() fails: {error}",
            expected="a NumPy that this torch was built for",
            why="datasets and loaders that hand NumPy arrays over fail",
            fix="install another NumPy: torch before 2.3 needs `numpy<2`",
        )
    elif said["numpy"] is not None:
        yield ok("numpy", f"NumPy {said['numpy']} and torch share arrays")


def _cuda(said: dict[str, Any], machine: Machine) -> Iterator[Check | NotChecked]:
    build, cuda = _value(said, "build", {}), _value(said, "cuda", {})
    if cuda.get("available"):
        for device in cuda["devices"]:
            yield _kernels(device, cuda["architectures"], build)
        return
    if machine.driver is not None and not build.get("cuda") and not build.get("hip"):
        yield Check(
            name="cuda-build",
            level="warning",
            found=f"torch {said['version']} was built without CUDA; the NVIDIA driver {machine.driver} is loaded",
            expected="a torch that was built for CUDA",
            why="everything runs on the CPU, and torch.cuda.is_available() is False",
            fix="install torch from the index that pytorch.org names for this driver",
        )
    elif machine.driver is not None and build.get("cuda"):
        reasons = [r for r in (cuda.get("why"), *said.get("cuda_warnings", ())) if r]
        hidden = machine.variables.get("CUDA_VISIBLE_DEVICES")
        if hidden is None or hidden.strip() not in ("", "-1"):
            yield Check(
                name="cuda-available",
                level="error",
                found=f"torch was built for CUDA {build['cuda']} and cannot use the NVIDIA driver {machine.driver}: "
                + (reasons[0].splitlines()[0] if reasons else "torch gives no reason"),
                expected="torch.cuda.is_available() is True",
                why="everything runs on the CPU, or fails at the first .cuda()",
                fix=f"update the driver to one for CUDA {build['cuda']}, or install a torch built for an older CUDA",
            )
    yield NotChecked(
        check="GPU: kernels for its architecture, bfloat16, TF32, pinned memory", reason="torch finds no GPU here"
    )


def _kernels(device: dict[str, Any], architectures: list[str], build: dict[str, Any]) -> Check:
    """Whether torch has kernels for a device: compiled for its major number, or PTX that its driver can compile."""
    major, minor, name = device["major"], device["minor"], device["name"]
    if build.get("hip"):
        return ok("cuda-kernels", name)
    for architecture in architectures:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)[a-z]?", architecture)
        if match is None:
            continue
        built = int(match[2]), int(match[3])
        if built <= (major, minor) and (match[1] == "compute" or built[0] == major):
            return ok("cuda-kernels", f"{name} ({major}.{minor})")
    return Check(
        name="cuda-kernels",
        level="error",
        found=f"{name} has compute capability {major}.{minor}; torch was built for {', '.join(architectures)}",
        expected="kernels for this device",
        why="the first kernel fails with `no kernel image is available for execution on the device`",
        fix="install a torch that was built for this device: a newer one for a new card, an older one for an old card",
    )


def _precision(said: dict[str, Any]) -> Iterator[Check]:
    devices = _value(said, "cuda", {}).get("devices") or []
    half = [one for one in _value(said, "half", []) if one["kind"] in ("cuda", "rocm")]
    for one in half:
        if one["bf16"]:
            yield ok("bfloat16", f"{one['name']} computes it natively")
        else:
            yield Check(
                name="bfloat16",
                level="info",
                found=f"{one['name']} emulates bfloat16; torch.cuda.is_bf16_supported() counts that as support",
                expected="native bfloat16, or float16 with a GradScaler",
                why="emulation saves memory and no time",
                fix="use float16 with a GradScaler here; `torchvet amp train.py` measures both",
            )
    precision = _value(said, "precision", {})
    if any(d["major"] >= _TF32 for d in devices) and precision.get("matmul") == "highest":
        yield Check(
            name="float32-matmul",
            level="info",
            found="float32 matrix products run without TF32, which is torch's default",
            expected="as it is, if all 23 bits of the mantissa matter",
            why="with TF32 the tensor cores compute them, from inputs that are rounded to 10 bits",
            fix="`torch.set_float32_matmul_precision('high')` if the program tolerates that; measure before and after",
        )


def _threads(said: dict[str, Any], machine: Machine) -> Iterator[Check]:
    threads = _value(said, "threads", None)
    if threads is None:
        return
    allowed = max(1, math.ceil(machine.cpus))
    if threads <= CROWDED * allowed:
        yield ok("cpu-threads", f"{threads} for {machine.cpus:g} usable CPUs")
        return
    yield Check(
        name="cpu-threads",
        level="warning",
        found=f"torch computes with {threads} threads, and {machine.cpus:g} CPUs may be used",
        expected=f"at most {allowed}",
        why="the threads of an operator wait for each other, and take turns on the CPUs: a step of a small model took "
        "1.4 times as long with 8 threads on one CPU, 3.4 times with 32, and 8 times with 64",
        fix=f"`OMP_NUM_THREADS={allowed}`, or torch.set_num_threads({allowed}) at the start of the program",
    )


def _allocator(said: dict[str, Any]) -> Iterator[Check | NotChecked]:
    value = said["allocator"]
    error = _error(value)
    if error.startswith("AttributeError"):
        yield NotChecked(check="allocator settings", reason=f"torch {said['version']} has no parser to ask")
    elif error:
        yield Check(
            name="allocator-settings",
            level="error",
            found=f"the allocator's settings are refused: {error.partition(': ')[2].splitlines()[0]}",
            expected="settings that torch knows",
            why="the first allocation on a GPU fails with this error",
            fix="correct PYTORCH_ALLOC_CONF or PYTORCH_CUDA_ALLOC_CONF",
        )
    else:
        yield ok("allocator-settings", value or "the defaults")


def _pinned(said: dict[str, Any]) -> Iterator[Check]:
    devices = _value(said, "cuda", {}).get("devices")
    if error := _error(said["pinned"]) if devices else "":
        yield Check(
            name="pinned-memory",
            level="error",
            found=f"64 MiB of host memory cannot be pinned: {error.splitlines()[0]}",
            expected="memory that can be pinned",
            why="`pin_memory=True` in a DataLoader fails, and copies to the GPU cannot overlap",
            fix="free host memory, or raise the container's memory limit",
        )
    elif devices:
        yield ok("pinned-memory", "64 MiB can be pinned")
