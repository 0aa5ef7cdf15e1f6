"""What the host says: memory in use, and the memory limit in force. Each answer is None where the system has none."""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path

from torchvet.gc_pause import collector_off
from torchvet.recording.records.training import Host


class _Mallinfo2(ctypes.Structure):
    """glibc's `struct mallinfo2` (2.33): ten size_t fields, see mallinfo(3)."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


def _heap_reader() -> Callable[[], int] | None:
    # macOS and Windows have no call that counts what malloc has given out.
    if not sys.platform.startswith("linux"):
        return None
    try:
        # musl and glibc before 2.33 lack it. The older `mallinfo` counts in 32 bits and wraps at 2 GiB.
        function = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None
    function.restype = _Mallinfo2

    def read() -> int:
        info = function()
        # malloc maps large blocks, such as those of tensors, apart from its heap: `hblkhd` counts them.
        return int(info.uordblks + info.hblkhd)

    return read


heap_in_use: Callable[[], int] | None = _heap_reader()
"""Bytes that the program has from malloc and has not freed: tensors, graph nodes and everything else native.
About 10 µs. A better footnote than the resident set, which also counts what the allocator keeps."""


_BLOCK = 91
"""Bytes of a block of Python's own allocator: the average of 557,410 blocks in a process that has imported torch 2.13.0
(Python 3.11)."""
_blocks: Callable[[], int] = getattr(sys, "getallocatedblocks", lambda: 0)


_RESERVE = 2000
"""Tuples of one item that died whose memory Python keeps for the next of them, at the most, until it collects all
garbage (CPython 3.10 to 3.13)."""


def small_objects() -> int:
    """Bytes of Python's objects of up to 512 bytes, by their number: Python takes memory for them past malloc, so that
    `heap_in_use` does not see text, numbers or tuples pile up. About 150 µs."""
    _fill_reserve()
    return _BLOCK * _blocks()


def _fill_reserve() -> None:
    """Have the reserve of tuples full, so that it is the same each time: a backward call leaves one or two in it, and
    twenty-four calls in a step look like a leak of 2.5 kB until it is full."""
    # A collection amid it would empty the reserve again.
    with collector_off():
        list(map(tuple, itertools.repeat([None], _RESERVE)))


def resident() -> int | None:
    """The resident set in bytes, on Linux."""
    return _statm(1)


def virtual() -> int | None:
    """All of the process's address space in bytes, on Linux."""
    return _statm(0)


def _statm(column: int) -> int | None:
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return int(os.read(file, 256).split()[column]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
    finally:
        os.close(file)


def record(tick: int) -> Host:
    """All of it at a tick."""
    heap = heap_in_use() if heap_in_use is not None else None
    return Host(tick=tick, resident=resident(), heap=heap, virtual=virtual())


def address_space() -> int:
    """The limit on the process's address space in bytes (`ulimit -v`); 0 where there is none."""
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    except (ImportError, OSError, ValueError):
        return 0
    # Infinity is -1 on some systems and the largest number on others.
    return soft if soft != resource.RLIM_INFINITY and soft > 0 else 0


def memory_limit() -> tuple[int, str]:
    """The host memory that the program can use in bytes, and where that was read: a cgroup's limit or the machine's."""
    total = _machine()
    # Without a limit version 2 says `max`, and version 1 a number that is larger than any machine's memory.
    found = [int(text) for text in _cgroup_limits() if text.isdigit() and 0 < int(text) < (total or 1 << 62)]
    if found:
        return min(found), "the cgroup's memory limit"
    return (total, "this machine's memory") if total else (0, "unknown")


def _machine() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


def _cgroup_limits(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> list[str]:
    """What the process's control groups say, from its own up to the root: versions 2 and 1."""
    found = []
    for folder, file in _cgroups(root, own):
        try:
            found.append((folder / file).read_text().strip())
        except OSError:
            continue
    return found


def _cgroups(root: Path, own: Path) -> list[tuple[Path, str]]:
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    # `0::/path` is version 2 (no controllers named), `4:memory:/path` version 1. Hybrid systems have both.
    groups = {fields[1]: fields[2].strip("/") for line in lines if len(fields := line.split(":", 2)) == 3}
    second = groups.get("", "")
    first = next((path for names, path in groups.items() if "memory" in names.split(",")), "")
    return [
        *((folder, "memory.max") for folder in _upward(root, second)),
        *((folder, "memory.limit_in_bytes") for folder in _upward(root / "memory", first)),
    ]


def _upward(root: Path, below: str) -> list[Path]:
    parts = [p for p in below.split("/") if p and p != ".."]
    # All the way up: the limit in force is the smallest of the own group and its ancestors. `..` is what a
    # container shows of groups outside.
    return [root.joinpath(*parts[:n]) for n in range(len(parts), -1, -1)]


def memory_available() -> int | None:
    """Bytes of memory that are free to be used, by the system's and the cgroup's count; None where neither says."""
    found: list[int] = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    except (OSError, ValueError, IndexError):
        pass
    for limit, use in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            found.append(int(Path(limit).read_text()) - int(Path(use).read_text()))
        except (OSError, ValueError):
            continue
    # The machine may have plenty where the container has not, and the other way round.
    return min(found) if found else None
