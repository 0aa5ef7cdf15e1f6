"""DST108: every rank uses the first GPU."""

from __future__ import annotations

import ast
import re

from torchvet.rules.distributed._modules import modules_of
from torchvet.rules.kit import Finding, Findings, Identity, RankRecording, Recording, Rule, SourceFile, records
from torchvet.rules.shared.training_loops import is_test
from torchvet.source.model import Event, Unit, argument, origins, receiver, terminal
from torchvet.source.syntax import parts

_SELECTS = re.compile(
    r"CUDA_VISIBLE_DEVICES|cuda\.device\(|cuda:\{|cuda:%|[\"']cuda:[\"'] *\+|device_id=|gpu_id"
    r"|\.cuda\((?!\s*(?:\)|0|non_blocking))|\.to\((local_)?rank|device\([\"']cuda[\"'], *\w"
)
"""Text that selects a GPU by rank in some way."""
_ADVICE = (
    "call `torch.cuda.set_device(local_rank)` first, with the local rank from the launcher "
    "(`int(os.environ['LOCAL_RANK'])` under torchrun)"
)


class AllRanksOnOneDevice(Rule):
    """Every rank uses the first GPU."""

    severity = "warning"
    words = ("init_process_group",)
    runs_on = "cuda"

    def cannot_apply(self, recording: Recording) -> bool:
        """There was one process: the first GPU is its own."""
        worlds = {rank.program.world_size for rank in recording.ranks if rank.program is not None}
        return worlds == {1}

    def in_recording(self, recording: Recording) -> Findings:
        """The ranks of one host whose wrapped models all lie on one GPU, of several that each sees."""
        hosts: dict[str, list[tuple[RankRecording, records.ranks.DistributedModule]]] = {}
        for rank in recording.members:
            assert rank.member is not None
            hosts.setdefault(rank.member.host, []).extend((rank, module) for module in modules_of(rank)[:1])
        for host, found in hosts.items():
            on = {module.device for _, module in found}
            if host and len(found) > 1 and len(on) == 1 and all(module.devices > 1 for _, module in found):
                yield from (self._seen(rank, module, len(found)) for rank, module in found)

    def _seen(self, rank: RankRecording, module: records.ranks.DistributedModule, ranks: int) -> Finding:
        return self.observed(
            rank,
            module.place,
            f"all {ranks} ranks of this host have their model on {module.device}, and each sees {module.devices} GPUs",
            cause="each process starts with GPU 0 as its current device, and nothing has selected another",
            advice=_ADVICE,
            device=module.device,
        )

    def in_file(self, file: SourceFile) -> Findings:
        """A model that is wrapped for one process per GPU and put on the current device, which nothing selects."""
        calls = (e for e in file.calls("init_process_group") if file.mentions("cuda"))
        starts = [e for e in calls if file.dotted(e.call.func).startswith("torch.distributed.")]
        if is_test(file) or all(_is_gloo(e) for e in starts) or _SELECTS.search(file.text):
            return
        selecting = [*file.calls("set_device")]
        for event in selecting if all(_is_number(e) for e in selecting) else ():
            yield self._finding(file, event, "the same GPU in every rank")
        placed = _first_placed(file) if not selecting else None
        if placed is not None:
            yield self._finding(file, placed, "GPU 0 in every rank")

    def _finding(self, file: SourceFile, event: Event, where: str) -> Finding:
        message = f"{file.segment(event.node)} is {where}: nothing selects a device by the local rank"
        cause = "each process starts with GPU 0 as its current device, and this file starts one process per GPU"
        return self.suspect(file, event, message, cause=cause, advice=_ADVICE)


def _first_placed(file: SourceFile) -> Event | None:
    """The first call that puts a wrapped model on the current, or on the first, GPU."""
    for made in file.calls("DistributedDataParallel", "DDP"):
        if made.call.args and file.dotted(made.call.func).endswith("DistributedDataParallel"):
            model = origins.identity(made.call.args[0], made.unit)
            placed = next((e for e in file.calls("cuda", "to") if _places(file, e, model)), None)
            if placed is not None:
                return placed
    return None


def _is_gloo(event: Event) -> bool:
    """Whether the processes communicate by a backend that needs no GPU of their own."""
    backend = argument(event.call, "backend", 0)
    return isinstance(backend, ast.Constant) and backend.value in ("gloo", "mpi", "ucc", "xla", "hccl")


def _is_number(event: Event) -> bool:
    dotted = event.unit.file.dotted(event.call.func)
    given = event.call.args[0] if event.call.args else None
    return dotted == "torch.cuda.set_device" and isinstance(given, ast.Constant)


def _places(file: SourceFile, event: Event, model: Identity) -> bool:
    """Whether a call puts the model on the current, or on the first, GPU."""
    call, on = event.call, receiver(event.call)
    if on is None or call.keywords or not origins.identity(on, event.unit) & model:
        return False
    if terminal(call) == "cuda":
        return not call.args or (isinstance(call.args[0], ast.Constant) and call.args[0].value == 0)
    return len(call.args) == 1 and _is_first_gpu(file, call.args[0], event.unit)


def _is_first_gpu(file: SourceFile, node: ast.expr, unit: Unit) -> bool:
    # A parameter stands for itself too: what this file's callers give it is taken for all.
    values = [
        v for v, where in origins.made_by(node, unit) if not (isinstance(v, ast.Name) and v.id in where.parameters)
    ]
    written = [_written_device(file, v) for v in values]
    choices = (parts(one) if isinstance(one, ast.IfExp) else [one] for one in written)
    texts = {p.value for some in choices for p in some if isinstance(p, ast.Constant)}
    return bool(written) and None not in written and texts <= {"cuda", "cuda:0", "cpu"} and texts != {"cpu"}


def _written_device(file: SourceFile, value: ast.expr) -> ast.expr | None:
    """A constant, or what `torch.device(…)` is given; None for anything else."""
    if isinstance(value, ast.Call) and file.dotted(value.func) == "torch.device":
        return value.args[0] if len(value.args) == 1 and not value.keywords else None
    return value if isinstance(value, ast.Constant) else None
