"""Compiled code, kernels of one's own and NCCL: what cannot be simulated says so, at the call and in the report."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from torchvet.simulate.refusals import asked

TRITON = """\
class JITFunction:
    def __init__(self, function):
        self.function = function

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)

    def run(self, *args, grid, **kwargs):
        raise RuntimeError("0 active drivers ([]). There should only be one.")


def jit(function):
    return JITFunction(function)
"""


def test_compiled_programs_run_uncompiled_and_the_report_says_so(tmp_path: Path) -> None:
    torch.manual_seed(0)
    plain = nn.Linear(4, 4).cuda()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model = torch.compile(plain, mode="max-autotune")
        step = torch.compile(fullgraph=True)(lambda x: model(x).sum())
        plain.compile()
    told = [w for w in warned if "torch.compile is not simulated" in str(w.message)]
    assert len(told) == 3 and {w.filename for w in told} == {__file__}
    x = torch.ones(2, 4, device="cuda")
    assert torch.equal(model(x), plain(x)) and step(x).item() == plain(x).sum().item()
    assert list(model.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]


def test_the_report_names_what_was_asked_for_in_vain(tmp_path: Path) -> None:
    from torchvet.probes.base.unchecked import simulated_gaps

    before = {gap.check for gap in simulated_gaps()}
    assert not before & {"torch.compile", "NCCL", "CUDA extensions", "Triton kernels"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.compile(nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match=r"NCCL: not simulated\. .*gloo backend"):
        torch.distributed.init_process_group("cpu:gloo,cuda:nccl")
    gaps = {gap.check: gap.reason for gap in simulated_gaps()}
    assert gaps["torch.compile"] == "What is compiled ran uncompiled: Triton's kernels need a GPU."
    assert "gloo backend runs on the host" in gaps["NCCL"]


def test_triton_kernels_are_refused_where_they_are_launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "triton" / "runtime"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("from triton.runtime.jit import jit\n", encoding="utf-8")
    (folder / "__init__.py").write_text("", encoding="utf-8")
    (folder / "jit.py").write_text(TRITON, encoding="utf-8")
    sys.path.insert(0, str(tmp_path))
    triton = importlib.import_module("triton")

    @triton.jit
    def kernel(x, size):
        pass

    with pytest.raises(RuntimeError, match=r"Triton kernels: not simulated"):
        kernel[(1,)](torch.ones(3, device="cuda"), 3)
    assert "Triton kernels" in asked


def test_extensions_of_cuda_are_refused_and_those_of_the_host_are_not() -> None:
    from torch.utils import cpp_extension

    for ask in (
        lambda: cpp_extension.load("mine", ["mine.cpp", "mine.cu"]),
        lambda: cpp_extension.load_inline("mine", cpp_sources="", cuda_sources="__global__ void f() {}"),
        lambda: cpp_extension.CUDAExtension("mine", ["mine.cu"]),
        lambda: torch.cuda._compile_kernel("__global__ void f() {}", "f"),
    ):
        with pytest.raises(RuntimeError, match=r"CUDA extensions: not simulated"):
            ask()
    assert cpp_extension.CppExtension("mine", ["mine.cpp"]).language == "c++"


def test_process_groups_without_a_backend_by_name_get_gloo(tmp_path: Path) -> None:
    torch.distributed.init_process_group(init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    assert torch.distributed.get_backend() == "gloo" and "gloo's were used" in asked["NCCL"]
    total = torch.ones(3, device="cuda")
    torch.distributed.all_reduce(total)
    assert total.tolist() == [1, 1, 1]
    torch.distributed.destroy_process_group()
