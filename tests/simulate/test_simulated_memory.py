"""Device memory as a program sees it: what torch.cuda counts, records and refuses."""

from __future__ import annotations

import ast
import gc
import inspect
import pickle
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchvet
from torchvet.simulate.allocation import workspaces
from torchvet.simulate.cards import card_of
from torchvet.simulate.cuda.memory import COMPILED

MIB = 1 << 20


def test_all_of_cudas_statistics_are_there_and_add_up() -> None:
    kept = [torch.empty(n, dtype=torch.uint8, device="cuda") for n in (1, 3 * MIB, 300)]
    del kept[0]
    stats = torch.cuda.memory_stats()
    names = ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
             "inactive_split_bytes", "requested_bytes")  # fmt: skip
    wanted = {f"{n}.{p}.{v}" for n in names for p in ("all", "small_pool", "large_pool")
              for v in ("current", "peak", "allocated", "freed")}  # fmt: skip
    assert wanted <= set(stats)
    assert stats["allocated_bytes.all.current"] == torch.cuda.memory_allocated() == 3 * MIB + 512
    assert stats["requested_bytes.small_pool.current"] == 300 and stats["allocation.all.freed"] == 1
    assert stats["segment.all.current"] == 2 and stats["reserved_bytes.all.current"] == 22 * MIB
    assert stats["num_alloc_retries"] == stats["num_ooms"] == 0 and stats["num_device_alloc"] == 2
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0
    assert "CUDA OOMs: 0" in torch.cuda.memory_summary()
    assert torch.cuda.memory_stats_as_nested_dict()["segment"]["large_pool"]["peak"] == 1


def test_a_limit_on_the_process_is_cudas() -> None:
    torch.cuda.set_per_process_memory_fraction(0.001)
    assert torch.cuda.get_per_process_memory_fraction() == pytest.approx(0.001)
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 26\.00 MiB\. .* 24\.58 MiB allowed; Of the"):
        torch.empty(25 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_stats()["num_ooms"] == torch.cuda.memory_stats()["num_alloc_retries"] == 1
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.empty(25 * MIB, dtype=torch.uint8, device="cuda").is_cuda


def test_raw_memory_comes_from_the_same_allocator() -> None:
    address = torch.cuda.caching_allocator_alloc(1000)
    assert torch.cuda.memory_allocated() == 1024
    torch.cuda.caching_allocator_delete(address)
    assert torch.cuda.memory_allocated() == 0
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        torch.cuda.caching_allocator_delete(address)


def test_settings_can_be_changed_and_wrong_ones_are_refused() -> None:
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    kept = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    (segment,) = torch.cuda.memory_snapshot()
    assert segment["is_expandable"] and segment["total_size"] == 20 * MIB and kept.is_cuda
    for wrong, said in (("no_such:1", "Unrecognized key 'no_such'"), ("max_split_size_mb:5", "too small")):
        with pytest.raises(ValueError, match=said):
            torch.cuda.memory._set_allocator_settings(wrong)


class Leaky:
    """A training whose every step keeps an output."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.kept: list[torch.Tensor] = []

    def step(self, rows: int = 64) -> None:
        """One step."""
        x = torch.randn(rows, 64, device="cuda")
        loss = (self.model(x) - x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.kept.append(x * 2)


def test_inspect_names_the_line_that_leaks(tmp_path: Path) -> None:
    torch.cuda.memory._record_memory_history(max_entries=10_000)
    training = Leaky()
    for _ in range(14):
        training.step()
    path = tmp_path / "leak.pickle"
    torch.cuda.memory._dump_snapshot(str(path))
    report = torchvet.inspect(str(path))
    (leak,) = [f for f in report.findings if f.code == "MEM102"]
    assert leak.location is not None and leak.location.path == __file__
    assert leak.location.line == Leaky.step.__code__.co_firstlineno + 7
    assert leak.measured.bytes_per_step == 64 * 64 * 4
    assert report.facts["snapshots"][0]["steps"]["count"] == 14
    assert report.facts["snapshots"][0]["in_use"] == torch.cuda.memory_stats()["requested_bytes.all.current"]


def test_a_snapshot_has_the_schema_of_real_ones(tmp_path: Path) -> None:
    """Beside the keys of a file that torch 2.11 wrote on a GPU."""
    torch.cuda.memory._record_memory_history()
    kept = torch.empty(5 * MIB, device="cuda")
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(30 << 30, dtype=torch.uint8, device="cuda")
    del kept
    torch.cuda.empty_cache()
    kept = torch.empty(5, device="cuda")
    ours = torch.cuda.memory._snapshot()
    real = pickle.loads((Path(__file__).parents[1] / "data" / "magma.pickle").read_bytes())
    assert set(real) <= set(ours)
    assert set(real["allocator_settings"]) == set(ours["allocator_settings"])
    assert set(real["segments"][0]) == set(ours["segments"][0])
    assert set(real["segments"][0]["blocks"][0]) == set(ours["segments"][0]["blocks"][0])
    events = {e["action"]: e for e in ours["device_traces"][0]}
    assert set(events) == {
        "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "oom"
    } and set(real["device_traces"][0][0]) == set(events["alloc"])  # fmt: skip
    assert events["oom"]["device_free"] == (24 << 30) - 20 * MIB and kept.is_cuda
    frames = [f["filename"] for e in events.values() for f in e["frames"]]
    assert frames and not [f for f in frames if Path(torchvet.__file__).parent in Path(f).parents]
    assert events["oom"]["frames"][0]["filename"] == __file__, "the program's line, not the allocator's"
    assert [len(t) > 0 for t in ours["device_traces"]] == [True, False]
    torch.cuda.memory._record_memory_history(None)
    assert not torch.cuda.memory._snapshot()["device_traces"][0]


def test_a_history_is_asked_for_as_torch_2_14_does() -> None:
    """It says besides whether the host's pinned memory is meant, and whether the device's is."""
    since_2_13 = ("all", "all", "python", 10, False, False, False, [])
    for pinned, on_device, events in ((True, False, 0), (False, True, 1)):
        torch._C._cuda_record_memory_history(*since_2_13, pinned, on_device)  # type: ignore[call-arg]
        kept = torch.empty(4, device="cuda")
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
        assert [e["action"] for e in trace].count("alloc") == events and kept.is_cuda
    torch._C._cuda_record_memory_history(None, *since_2_13[1:], False, True)  # type: ignore[call-arg]
    torch._C._cuda_record_memory_history_legacy(True, True, 10, False, False, False, False, False, [], True, False)  # type: ignore[call-arg]
    assert not torch._C._cuda_isHistoryEnabled()


def test_what_is_compiled_takes_the_arguments_that_this_torch_declares() -> None:
    stub = ast.parse(Path(torch.__file__).parent.joinpath("_C", "__init__.pyi").read_text("utf-8"))
    declared = {f.name: f.args for f in stub.body if isinstance(f, ast.FunctionDef) and f.name in COMPILED}
    assert len(declared) > 15
    for name, arguments in declared.items():
        inspect.signature(COMPILED[name]).bind(*arguments.posonlyargs, *arguments.args)


def test_the_oldest_events_make_room() -> None:
    torch.cuda.memory._record_memory_history(max_entries=6, stacks="python")
    for _ in range(10):
        torch.empty(4, device="cuda")
    (trace, _) = torch.cuda.memory._snapshot()["device_traces"]
    assert [e["action"] for e in trace] == ["alloc", "free_requested", "free_completed"] * 2
    assert trace[0]["frames"][0]["filename"] == __file__


def test_memory_that_runs_out_in_a_backward_pass_can_be_caught_and_all_comes_back() -> None:
    training = Leaky()
    training.step()
    training.kept.clear()
    held = torch.cuda.memory_allocated()
    gc.disable()
    torch.cuda.set_per_process_memory_fraction(0.002)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        training.step(30_000)
    training.optimizer.zero_grad()
    training.step()
    training.kept.clear()
    assert torch.cuda.memory_allocated() == held


@pytest.mark.parametrize("kind", [ValueError, torch.OutOfMemoryError])
def test_exceptions_leave_backward_passes(kind: type[Exception]) -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            raise kind("on purpose")

    x = torch.ones(3, device="cuda", requires_grad=True)
    for _ in range(12):
        with pytest.raises(kind, match="on purpose"):
            Fails.apply(x.exp()).sum().backward()  # type: ignore[no-untyped-call]
    x.exp().sum().backward()
    assert x.grad is not None


def test_a_host_that_is_too_small_is_not_called_cudas_error() -> None:
    small = torch.ones(1024, 1024, device="cuda")
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    with pytest.raises(MemoryError, match=r"too little memory to simulate the GPU: aten.repeat.*needs 15\.62 GiB"):
        small.repeat(4000, 1)
    with pytest.raises(torch.OutOfMemoryError):
        small.repeat(40_000, 1)


def test_an_error_that_the_program_catches_can_be_explained(
    tmp_path: Path,
) -> None:
    torch.cuda.memory._record_memory_history(max_entries=10_000)
    training = Leaky()
    kept = torch.empty(20 << 30, dtype=torch.uint8, device="meta")
    for _ in range(3):
        training.step()
    try:
        torch.empty(30 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        report = torchvet.oom_report(tmp_path)
    assert report is not None and [f.code for f in report.findings] == ["MEM304"] and kept.is_meta
    (left,) = tmp_path.iterdir()
    assert left.name.endswith(".oom.pickle")


def test_a_report_that_cannot_be_made_does_not_raise(tmp_path: Path) -> None:
    assert torchvet.oom_report(tmp_path / "missing") is None


def test_the_first_product_of_each_pass_takes_a_workspace() -> None:
    workspaces.set_size(card_of("a100").workspace)
    model = nn.Linear(64, 64, bias=False).cuda()
    held = torch.cuda.memory_allocated()
    for _ in range(3):
        with torch.no_grad():
            model(torch.ones(2, 64, device="cuda"))
        assert torch.cuda.memory_allocated() == held + 8_519_680
    model(torch.ones(2, 64, device="cuda")).sum().backward()
    model.zero_grad()
    assert torch.cuda.memory_allocated() == held + 2 * 8_519_680
    torch._C._cuda_clearCublasWorkspaces()
    assert torch.cuda.memory_allocated() == held
    assert card_of("h100").workspace == 32 << 20 and card_of("24GiB").workspace == 0


def test_optimizers_take_all_parameters_at_once_as_on_a_gpu() -> None:
    parameters = [nn.Parameter(torch.ones(MIB // 4, device="cuda")) for _ in range(8)]
    for one in parameters:
        one.grad = torch.ones_like(one)
    peaks = {}
    for foreach in (None, True, False):
        optimizer = torch.optim.AdamW(parameters, lr=1e-3, foreach=foreach)
        optimizer.step()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        optimizer.step()
        peaks[foreach] = torch.cuda.max_memory_allocated() - before
        optimizer.state.clear()
    assert peaks[None] == peaks[True] >= 8 * MIB > 4 * MIB >= peaks[False]


def test_the_workspaces_of_a_named_card_are_known_by_address() -> None:
    workspaces.set_size(8_519_680)
    before = torch.cuda.memory_allocated()
    torch.ones(4, 4, device="cuda") @ torch.ones(4, 4, device="cuda")
    (address,) = workspaces.addresses(0)
    assert address
    assert torch.cuda.memory_allocated() - before == 8_519_680
    assert workspaces.addresses(1) == []
