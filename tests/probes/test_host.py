"""What the host says is a number where the system says it, and None where it does not."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest
import torch

from torchvet.probes.base import host

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc and glibc")
MB = 1 << 20


@linux
def test_the_resident_set_follows_what_is_touched() -> None:
    before = host.resident()
    held = torch.ones(16 * MB)
    after = host.resident()
    assert before is not None and after is not None
    assert after - before >= 48 * MB, held.shape


@linux
def test_the_heap_in_use_follows_what_is_allocated_and_freed() -> None:
    if host.heap_in_use is None:
        pytest.skip("no mallinfo2")
    before = host.heap_in_use()
    held = torch.empty(16 * MB)
    during = host.heap_in_use()
    del held
    assert 60 * MB <= during - before <= 70 * MB
    assert abs(host.heap_in_use() - before) <= 4 * MB


def test_what_python_keeps_for_the_next_tuple_is_no_growth() -> None:
    """A backward call leaves a tuple or two in Python's reserve, until it collects all garbage: no object's memory."""
    weight = torch.ones(2, requires_grad=True)

    def backwards(times: int) -> int:
        for _ in range(times):
            (weight * 2).backward(torch.ones(2))
        return host.small_objects()

    gc.disable()
    try:
        backwards(10)
        before = backwards(10)
        grown = backwards(300) - before
    finally:
        gc.enable()
    assert grown < 91 * 150


def test_the_limit_is_the_smaller_of_cgroup_and_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_machine", lambda: 100 * MB)
    for text, expected in (
        (str(50 * MB), (50 * MB, "the cgroup's memory limit")),
        ("max", (100 * MB, "this machine's memory")),
        (str(1 << 62), (100 * MB, "this machine's memory")),
        ("0", (100 * MB, "this machine's memory")),
        ("", (100 * MB, "this machine's memory")),
    ):
        monkeypatch.setattr(host, "_cgroup_limits", lambda t=text: [t])
        assert host.memory_limit() == expected, text


def test_no_limit_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_machine", lambda: 0)
    monkeypatch.setattr(host, "_cgroup_limits", list)
    assert host.memory_limit() == (0, "unknown")


def test_a_system_without_proc_has_no_resident_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: Path, *args: object, **kwargs: object) -> str:
        raise OSError("no /proc here")

    monkeypatch.setattr(Path, "read_text", missing)
    monkeypatch.setattr(host.os, "open", missing)
    assert host.resident() is None
    assert host.memory_limit()[1] in ("this machine's memory", "unknown")


@linux
def test_the_limit_of_this_machine_is_plausible() -> None:
    limit, source = host.memory_limit()
    assert 64 * MB < limit < 1 << 50 and source != "unknown"


def test_small_objects_are_counted_though_malloc_does_not_see_them() -> None:
    before, heap = host.small_objects(), host.heap_in_use() if host.heap_in_use is not None else 0
    kept = [f"epoch {n} accuracy" for n in range(50_000)]
    assert host.small_objects() - before > 50_000 * 60
    assert host.heap_in_use is None or host.heap_in_use() - heap < 50_000 * 20  # the list itself
    assert len(kept) == 50_000


def hierarchy(tmp_path: Path, own: str, **limits: str) -> list[str]:
    """What is read where `/proc/self/cgroup` says `own` and these files lie below `/sys/fs/cgroup`."""
    root, said = tmp_path / "cgroup", tmp_path / "own"
    root.mkdir()
    said.write_text(own)
    for path, text in limits.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{text}\n")
    return host._cgroup_limits(root, said)


@pytest.mark.parametrize(
    ("own", "limits", "read"),
    [
        ("0::/\n", {"memory.max": "700"}, ["700"]),
        ("0::/user/job\n", {"user/job/memory.max": "max", "user/memory.max": "500"}, ["max", "500"]),
        ("0::/user/job\n", {"memory.max": "700", "user/memory.max": "500", "other/memory.max": "3"}, ["500", "700"]),
        # A container that sees only its own part of the hierarchy: its path leads out of what is mounted.
        ("0::/../../pod\n", {"memory.max": "700"}, ["700"]),
        ("5:cpu:/a\n4:hugetlb,memory:/docker/x\n", {"memory/docker/x/memory.limit_in_bytes": "400"}, ["400"]),
        ("4:memory:/docker/x\n", {"memory/memory.limit_in_bytes": "9", "docker/x/memory.max": "3"}, ["9"]),
        # Both versions are mounted: either may have the limit.
        ("4:memory:/a\n0::/b\n", {"b/memory.max": "max", "memory/a/memory.limit_in_bytes": "400"}, ["max", "400"]),
        ("", {"memory.max": "700"}, ["700"]),
        ("nonsense\n", {}, []),
    ],
    ids=["root", "parent", "own and root", "namespace", "version 1", "version 1 root", "both", "no group", "nothing"],
)
def test_limits_are_read_from_the_own_group_up(
    own: str, limits: dict[str, str], read: list[str], tmp_path: Path
) -> None:
    assert hierarchy(tmp_path, own, **limits) == read


def test_without_a_file_of_groups_the_root_is_asked(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("700")
    assert host._cgroup_limits(tmp_path, tmp_path / "missing") == ["700"]


@linux
def test_what_is_available_is_not_more_than_there_is() -> None:
    available, machine = host.memory_available(), host._machine()
    assert available is not None and available < machine
    assert isinstance(host.address_space(), int)
