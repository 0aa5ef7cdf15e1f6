"""Each trap of an environment is seen where it is set, and a healthy environment is silent."""

from __future__ import annotations

from email.message import Message
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import msgspec
import pytest

from torchvet.doctor.asking import Answer
from torchvet.doctor.check import Check
from torchvet.doctor.machine import Machine, driver_version, this_machine, usable_cpus
from torchvet.doctor.machine_checks import machine_checks, pins
from torchvet.doctor.torch_checks import torch_checks
from torchvet.finding import NotChecked

HEALTHY = Machine(
    python="3.12.3",
    system="Linux 6.8",
    cpus=8,
    memory=64 << 30,
    memory_from="this machine's memory",
    open_files=1024,
    locked_memory=8 << 20,
    shared_memory=(32 << 30, 31 << 30),
    driver="550.54.15",
)
A100 = {"name": "A100", "bytes": 80 << 30, "major": 8, "minor": 0}
SAID: dict[str, Any] = {
    "imported": ["random", "types"],
    "warnings": [],
    "version": "2.13.0",
    "file": "torch/__init__.py",
    "numpy": "2.4.6",
    "build": {"cuda": "12.8", "hip": None, "debug": False},
    "cuda": {"available": True, "devices": [A100], "architectures": ["sm_75", "sm_80", "compute_90"], "why": None},
    "half": [{"name": "A100", "kind": "cuda", "capability": "8.0", "fp16": True, "bf16": True, "note": ""}],
    "precision": {"matmul": "high", "cudnn_tf32": True, "default_dtype": "torch.float32"},
    "threads": 8,
    "allocator": "",
    "pinned": True,
}


class Installed(Distribution):
    """A distribution that is not on the disk."""

    def __init__(self, name: str, version: str, *requires: str) -> None:
        self.message = Message()
        self.message["Name"], self.message["Version"] = name, version
        for line in requires:
            self.message["Requires-Dist"] = line

    @property
    def metadata(self) -> Any:
        return self.message

    @property
    def requires(self) -> list[str]:
        return list(self.message.get_all("Requires-Dist", []))

    def read_text(self, filename: str) -> None:
        return None

    def locate_file(self, path: Any) -> Path:
        return Path(path)


def set_traps(machine: Machine = HEALTHY, **said: Any) -> list[tuple[str, str]]:
    found = [*machine_checks(machine, []), *torch_checks(Answer({**SAID, **said}), machine)]
    return [(c.name, c.level) for c in found if isinstance(c, Check) and c.level != "ok"]


def with_machine(**values: Any) -> Machine:
    return msgspec.structs.replace(HEALTHY, **values)


def test_a_healthy_machine_is_silent_and_everything_was_looked_at() -> None:
    assert set_traps() == []
    found = [*machine_checks(HEALTHY, []), *torch_checks(Answer(SAID), HEALTHY)]
    assert not [n for n in found if isinstance(n, NotChecked)]
    names = {c.name for c in found if isinstance(c, Check)}
    assert names >= {"open-files", "shared-memory", "torch-version", "torch-import", "numpy", "cuda-kernels"}
    assert names >= {"bfloat16", "cpu-threads", "allocator-settings", "pinned-memory"}


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (with_machine(open_files=256), [("open-files", "warning")]),
        (with_machine(open_files=None), []),
        (with_machine(shared_memory=(64 << 20, 64 << 20)), [("shared-memory", "warning")]),
        (with_machine(shared_memory=(32 << 30, 1 << 20)), [("shared-memory", "warning")]),
        (with_machine(shared_memory=None), []),
        (with_machine(infiniband=True), [("locked-memory", "warning")]),
        (with_machine(infiniband=True, locked_memory=None), []),
        (with_machine(cpus=0.25), []),
        (with_machine(variables={"CUDA_VISIBLE_DEVICES": ""}), [("CUDA_VISIBLE_DEVICES", "warning")]),
        (with_machine(variables={"CUDA_VISIBLE_DEVICES": "0"}), []),
        (with_machine(variables={"CUDA_LAUNCH_BLOCKING": "1"}), [("CUDA_LAUNCH_BLOCKING", "warning")]),
        (with_machine(variables={"CUDA_LAUNCH_BLOCKING": "0"}), []),
        (with_machine(variables={"CUDA_LAUNCH_BLOCKING": "1"}, driver=None), []),
        (with_machine(variables={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}), [("TORCH_DISTRIBUTED_DEBUG", "warning")]),
        (with_machine(variables={"TORCHDYNAMO_DISABLE": "1"}), [("TORCHDYNAMO_DISABLE", "info")]),
        (
            with_machine(variables={"PYTORCH_ALLOC_CONF": "a:1", "PYTORCH_CUDA_ALLOC_CONF": "b:1"}),
            [("allocator-settings", "warning")],
        ),
        (with_machine(variables={"PYTORCH_ALLOC_CONF": "a:1", "PYTORCH_CUDA_ALLOC_CONF": "a:1"}), []),
    ],
)
def test_a_trap_of_the_machine(machine: Machine, expected: list[tuple[str, str]]) -> None:
    assert set_traps(machine) == expected


T4 = {"name": "T4", "bytes": 16 << 30, "major": 7, "minor": 5}
B200 = {"name": "B200", "bytes": 180 << 30, "major": 10, "minor": 0}
P100 = {"name": "P100", "bytes": 16 << 30, "major": 6, "minor": 0}


def cuda(*devices: dict[str, Any]) -> dict[str, Any]:
    return {**SAID["cuda"], "devices": list(devices)}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"version": "2.4.1"}, [("torch-version", "warning")]),
        ({"warnings": ["UserWarning: A module was compiled using NumPy 1.x"]}, [("torch-import", "warning")]),
        ({"numpy": {"error": "RuntimeError: Numpy is not available"}}, [("numpy", "error")]),
        ({"numpy": None}, []),
        ({"cuda": cuda(P100)}, [("cuda-kernels", "error")]),
        ({"cuda": cuda(B200)}, []),  # the driver compiles compute_90 for it
        ({"cuda": {**cuda(B200), "architectures": ["sm_80", "sm_90a"]}}, [("cuda-kernels", "error")]),
        ({"cuda": {**cuda(T4), "architectures": ["sm_70"]}}, []),
        ({"half": [{**SAID["half"][0], "bf16": False}]}, [("bfloat16", "info")]),
        ({"precision": {**SAID["precision"], "matmul": "highest"}}, [("float32-matmul", "info")]),
        (
            {"precision": {**SAID["precision"], "matmul": "highest"}, "cuda": cuda(T4)},
            [],
        ),
        ({"threads": 128}, []),
        ({"threads": 129}, [("cpu-threads", "warning")]),
        ({"allocator": {"error": "ValueError: Unrecognized key 'x' in CUDA allocator config."}},
         [("allocator-settings", "error")]),
        ({"allocator": {"error": "AttributeError: no parser"}}, []),
        ({"pinned": {"error": "RuntimeError: CUDA error: out of memory"}}, [("pinned-memory", "error")]),
    ],
)  # fmt: skip
def test_a_trap_that_torch_tells(said: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert set_traps(**said) == expected


NONE = {"available": False, "devices": [], "architectures": [], "why": "driver too old (found version 11040)"}


def test_a_build_and_a_driver_that_do_not_fit() -> None:
    cpu = {"cuda": None, "hip": None, "debug": False}
    assert set_traps(build=cpu, cuda={**NONE, "why": None}) == [("cuda-build", "warning")]
    assert set_traps(cuda=NONE) == [("cuda-available", "error")]
    assert set_traps(with_machine(driver=None), build=cpu, cuda=NONE) == []
    assert set_traps(with_machine(variables={"CUDA_VISIBLE_DEVICES": "-1"}), cuda=NONE) == [
        ("CUDA_VISIBLE_DEVICES", "warning")
    ]
    found = [*torch_checks(Answer({**SAID, "cuda": NONE}), HEALTHY)]
    assert [c.found for c in found if isinstance(c, Check) and "11040" in c.found]
    assert [n.check for n in found if isinstance(n, NotChecked)] == [
        "GPU: kernels for its architecture, bfloat16, TF32, pinned memory"
    ]


def test_what_torch_could_not_answer_is_said() -> None:
    found = [*torch_checks(Answer({**SAID, "cuda": {"error": "RuntimeError: x"}}), HEALTHY)]
    assert ("cuda", "RuntimeError: x") in [(n.check, n.reason) for n in found if isinstance(n, NotChecked)]


def test_without_torch_nothing_is_reassured() -> None:
    missing = [*torch_checks(Answer({}, "torch is not installed for python", installed=False), HEALTHY)]
    assert [type(one) for one in missing] == [NotChecked]
    broken = [*torch_checks(Answer({}, "ImportError: libcudart.so.12"), HEALTHY)]
    assert [(type(one), getattr(one, "level", None)) for one in broken] == [(Check, "error"), (NotChecked, None)]


def test_a_package_that_was_built_for_another_torch() -> None:
    def levels(*installed: Distribution) -> list[tuple[str, str]]:
        return [(c.level, c.found) for c in pins(installed)]

    own = Installed("torch", "2.13.0+cpu")
    assert [level for level, _ in levels(own, Installed("torchvision", "0.28.0", "numpy", "torch==2.13.0"))] == ["ok"]
    assert [level for level, _ in levels(own, Installed("lightning", "2.5", "torch<4.0,>=2.1"))] == ["ok"]
    assert [level for level, _ in levels(own, Installed("x", "1", "torch==2.6.0; extra == 'old'"))] == ["ok"]
    ((level, found),) = levels(own, Installed("torchvision", "0.21.0", "torch (==2.6.0)"))
    assert level == "warning" and "torchvision 0.21.0 wants torch 2.6.0" in found
    assert levels(Installed("torchvision", "0.21.0", "torch==2.6.0")) == []


def test_this_machine_is_read(tmp_path: Path) -> None:
    machine = this_machine({"PYTORCH_ALLOC_CONF": "x", "HOME": "/", "OMP_NUM_THREADS": "1"})
    assert machine.variables == {"OMP_NUM_THREADS": "1", "PYTORCH_ALLOC_CONF": "x"}
    assert machine.cpus > 0 and machine.memory > 0 and machine.start_method
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\nGCC 12.3.0\n")
    assert driver_version(tmp_path / "version") == "550.54.15" and driver_version(tmp_path / "none") is None


def test_a_quota_limits_the_cpus(tmp_path: Path) -> None:
    all_of_them = usable_cpus(tmp_path)
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert usable_cpus(tmp_path) == 0.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert usable_cpus(tmp_path) == all_of_them
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("25000")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000")
    assert usable_cpus(tmp_path) == 0.25
