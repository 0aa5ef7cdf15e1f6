"""What the operating system says of this machine and of this process's limits. Imports no torch."""

from __future__ import annotations

import multiprocessing
import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from torchvet.probes.base.host import memory_limit

VARIABLES = re.compile(
    r"(PYTORCH|TORCH|TORCHDYNAMO|TORCHINDUCTOR|CUDA|NCCL|NVIDIA|OMP|MKL|CUBLAS|CUDNN|HIP|ROCR|KMP)_\w+|LD_PRELOAD|PYTHONPATH"
)
"""Environment variables that torch or what it calls reads."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that the system does not have is None. Sizes are bytes."""

    python: str
    system: str
    cpus: float
    """CPUs that this process may use: by its affinity and its cgroup's quota."""
    memory: int
    memory_from: str
    open_files: int | None = None
    locked_memory: int | None = None
    shared_memory: tuple[int, int] | None = None
    """Bytes of /dev/shm in all, and free."""
    infiniband: bool = False
    driver: str | None = None
    """The NVIDIA driver's version."""
    start_method: str = "fork"
    """How multiprocessing starts workers by default."""
    variables: dict[str, str] = {}


def this_machine(environment: Mapping[str, str] = os.environ) -> Machine:
    """Read it."""
    memory, memory_from = memory_limit()
    return Machine(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}",
        cpus=usable_cpus(),
        memory=memory,
        memory_from=memory_from,
        open_files=_limit("RLIMIT_NOFILE"),
        locked_memory=_limit("RLIMIT_MEMLOCK"),
        shared_memory=_shared_memory(Path("/dev/shm")),
        infiniband=any(Path("/dev/infiniband").glob("uverbs*")),
        driver=driver_version(Path("/proc/driver/nvidia/version")),
        start_method=multiprocessing.get_all_start_methods()[0],
        variables={name: environment[name] for name in sorted(environment) if VARIABLES.fullmatch(name)},
    )


def usable_cpus(root: Path = Path("/sys/fs/cgroup")) -> float:
    """The CPUs of this process's affinity, or fewer where a cgroup's quota allows less."""
    affinity = getattr(os, "sched_getaffinity", None)
    found = float(len(affinity(0)) if affinity is not None else os.cpu_count() or 1)
    for quota in (_quota(root / "cpu.max"), _quota(root / "cpu/cpu.cfs_quota_us", root / "cpu/cpu.cfs_period_us")):
        if quota is not None:
            found = min(found, quota)
    return found


def _quota(*files: Path) -> float | None:
    """CPUs from `200000 100000` (quota and period), in one file or two; None without a limit."""
    try:
        quota, period = " ".join(file.read_text() for file in files).split()
        return int(quota) / int(period) if int(quota) > 0 and int(period) > 0 else None
    except (OSError, ValueError):
        return None


def driver_version(file: Path) -> str | None:
    """The version in `NVRM version: NVIDIA UNIX ... Module  550.54.15  ...`; None without a driver."""
    try:
        text = file.read_text()
    except OSError:
        return None
    match = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", text)
    return match.group() if match else "unknown"


def _limit(name: str) -> int | None:
    """A soft limit of this process; None where there is none, or no such limit."""
    if sys.platform == "win32":
        return None
    import resource

    soft = resource.getrlimit(getattr(resource, name))[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _shared_memory(folder: Path) -> tuple[int, int] | None:
    try:
        status = os.statvfs(folder)
    except (OSError, AttributeError):
        return None
    return status.f_frsize * status.f_blocks, status.f_frsize * status.f_bavail
