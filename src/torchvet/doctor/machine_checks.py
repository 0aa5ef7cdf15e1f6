"""The checks that need no torch: limits of the system, environment variables, pinned versions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions

from torchvet.doctor.check import Check, Level, ok
from torchvet.doctor.machine import Machine
from torchvet.formatting import size

OPEN_FILES = 1024
SHARED_MEMORY = 512 << 20
"""Bytes. A batch of 256 images of 224 x 224 in float32 takes 154 MB, and each worker has two of them on the way."""
_PIN = re.compile(r"torch\s*\(?\s*==\s*([0-9][0-9A-Za-z.]*)\s*\)?\s*(?:;.*)?")
_ON = r"1|true|on|yes"
_SET: tuple[tuple[str, str, Level, str, str], ...] = (
    (
        "CUDA_VISIBLE_DEVICES",
        r"|-1",
        "warning",
        "unset, or the numbers of devices",
        "it hides every GPU of this machine from the program",
    ),
    (
        "CUDA_LAUNCH_BLOCKING",
        r"1",
        "warning",
        "unset, except to find the line of a device-side assert",
        "the host waits for each kernel, so that nothing overlaps",
    ),
    (
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        r".+",
        "warning",
        "unset, except under a memory checker",
        "each allocation is a cudaMalloc and each release a cudaFree, which waits for the device",
    ),
    (
        "NVIDIA_TF32_OVERRIDE",
        r"0|1",
        "info",
        "unset",
        "it decides on TF32 in the libraries, whatever the program asks torch for",
    ),
    (
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
        _ON,
        "info",
        "unset",
        "float32 matrix products begin with TF32, which has 10 bits of mantissa instead of 23",
    ),
    (
        "TORCH_DISTRIBUTED_DEBUG",
        r"detail",
        "warning",
        "unset, except to find a hang",
        "each collective is checked by further collectives first",
    ),
    (
        "TORCHDYNAMO_DISABLE",
        _ON,
        "info",
        "unset",
        "torch.compile() returns what it was given, and nothing is compiled",
    ),
)
"""Variables with the values that matter, as a pattern."""


def machine_checks(machine: Machine, installed: Iterable[Distribution] | None = None) -> Iterator[Check]:
    """All of them; `installed` replaces the distributions that Python finds."""
    yield from _open_files(machine)
    yield from _shared_memory(machine)
    yield from _locked_memory(machine)
    yield from _variables(machine)
    yield from pins(distributions() if installed is None else installed)


def _open_files(machine: Machine) -> Iterator[Check]:
    if not machine.system.startswith("Linux"):
        return
    if machine.open_files is None or machine.open_files >= OPEN_FILES:
        yield ok("open-files", "no limit" if machine.open_files is None else f"{machine.open_files} files")
        return
    yield Check(
        name="open-files",
        level="warning",
        found=f"{machine.open_files} open files are allowed",
        expected=f"at least {OPEN_FILES}",
        why="workers of a DataLoader hand each tensor over as an open file; a process without one left fails with "
        "`Too many open files` or `received 0 items of ancdata`",
        fix="`ulimit -n 4096` in the shell that starts the program",
    )


def _shared_memory(machine: Machine) -> Iterator[Check]:
    if machine.shared_memory is None:
        return
    total, free = machine.shared_memory
    if free >= SHARED_MEMORY:
        yield ok("shared-memory", f"{size(free)} free in /dev/shm")
        return
    yield Check(
        name="shared-memory",
        level="warning",
        found=f"{size(free)} of {size(total)} are free in /dev/shm",
        expected=f"at least {size(SHARED_MEMORY)}",
        why="workers of a DataLoader hand batches over through /dev/shm; a worker that finds it full fails with "
        "`unable to allocate shared memory` or a bus error. A Docker container has 64 MiB unless it is given more",
        fix="`docker run --shm-size=8g` or `--ipc=host`; in Kubernetes mount an emptyDir with `medium: Memory` at "
        "/dev/shm; on a host, remove stale files there",
    )


def _locked_memory(machine: Machine) -> Iterator[Check]:
    if not machine.infiniband:
        return
    if machine.locked_memory is None:
        yield ok("locked-memory", "no limit")
        return
    yield Check(
        name="locked-memory",
        level="warning",
        found=f"{size(machine.locked_memory)} may be locked, and the machine has InfiniBand",
        expected="no limit",
        why="NCCL registers its buffers with the InfiniBand card, which locks them in memory; past the limit it fails "
        "with `Cannot allocate memory`",
        fix="`ulimit -l unlimited`; in a container `--ulimit memlock=-1`",
    )


def _variables(machine: Machine) -> Iterator[Check]:
    given = machine.variables
    both = [given.get(name) for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")]
    if all(both) and both[0] != both[1]:
        yield Check(
            name="allocator-settings",
            level="warning",
            found=f"PYTORCH_CUDA_ALLOC_CONF is {both[0]!r} and PYTORCH_ALLOC_CONF is {both[1]!r}",
            expected="one of them, or both alike",
            why="torch reads PYTORCH_CUDA_ALLOC_CONF, the older name, and ignores the other",
            fix="unset the one that is not meant",
        )
    if machine.driver is None:
        return  # what follows changes nothing without a GPU
    for name, values, level, expected, why in _SET:
        if given.get(name) is not None and re.fullmatch(values, given[name].strip(), re.IGNORECASE):
            shown = f"{name} is {given[name]!r}" if given[name] else f"{name} is set and empty"
            yield Check(name=name, level=level, found=shown, expected=expected, why=why, fix=f"unset {name}")


def pins(installed: Iterable[Distribution]) -> Iterator[Check]:
    """Packages that want exactly another torch than the one that is installed."""
    by_name: dict[str, Distribution] = {}
    for one in installed:
        by_name.setdefault((one.metadata["Name"] or "").lower().replace("_", "-"), one)
    torch = by_name.get("torch")
    if torch is None:
        return
    own = torch.version.partition("+")[0]
    wrong = []
    for name, one in sorted(by_name.items()):
        for wanted in filter(None, (_PIN.fullmatch(line.strip()) for line in one.requires or ())):
            if "extra" not in wanted.group() and wanted[1].partition("+")[0] != own:
                wrong.append(f"{name} {one.version} wants torch {wanted[1]}")
    if not wrong:
        yield ok("torch-pins", f"no installed package wants another torch than {own}")
        return
    yield Check(
        name="torch-pins",
        level="warning",
        found=f"torch {own} is installed; {'; '.join(wrong)}",
        expected="packages that were built for the installed torch",
        why="a package pins torch where its compiled part was built for that version; with another one its operators "
        "may be missing or fail",
        fix=f"install the versions of these packages that belong to torch {own}, together with torch",
    )
