"""The names of torch's private parts that probes rely on: which they are, and what is lost without each.

Probes take such names from here and from nowhere else (`tests/probes/test_private.py` holds them to it). Importing this
module never fails. Where a version of torch lacks a name, what stands here is a substitute, or raises `LacksName` when
it is used: the probe that used it is switched off alone, and the report says so.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch

_NONE: Any = object()

missing: dict[str, str] = {}
"""Names that this torch lacks, with what is lost without each."""


class LacksName(Exception):
    """A probe has used a private name that this version of torch does not have."""

    def __init__(self, path: str) -> None:
        super().__init__(f"torch {torch.__version__} has no {path}")


class Lacking:
    """Stands for a name that is missing and that nothing can be put in place of."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise LacksName(self._path)

    def __enter__(self) -> Any:
        raise LacksName(self._path)

    def __exit__(self, *error: Any) -> None:
        """Never entered."""


def _resolve(path: str) -> Any:
    """What a dotted path leads to: the module as far as there is one, then attributes."""
    module, _, name = path.rpartition(".")
    # From the longest module path down: `torch.utils.data._utils.worker` is a module, the rest may be attributes.
    try:
        # Submodules are imported by this where torch has not yet done so.
        owner = importlib.import_module(module)
    except ImportError:
        owner = _resolve(module)
    return getattr(owner, name)


def _name(path: str, lost: str, instead: Any = _NONE) -> Any:
    try:
        return _resolve(path)
    except (ImportError, AttributeError):
        # Told in the report as unchecked, by `session/unchecked`.
        missing[path] = lost
        return Lacking(path) if instead is _NONE else instead


def _no(*_: Any) -> bool:
    return False


def _none(*_: Any) -> None:
    return None


def _zero() -> int:
    return 0


class _NoTracing:
    @staticmethod
    def try_get() -> None:
        """Nothing is being traced, as far as is known."""


class _NoMode:
    """A base for modes of our own that can be defined and never entered."""

    def __init__(self) -> None:
        pass

    def __enter__(self) -> None:
        raise LacksName("torch.utils._python_dispatch.TorchDispatchMode")


def _norms(tensors: Any) -> Any:
    return [t.norm() for t in tensors]


def _flat(tensors: Any) -> Any:
    return torch.cat([t.reshape(-1) for t in tensors])


# Dispatch modes: how storages of sampled steps are noted, and operators heard.
_MODES = "storages of sampled steps, and everything that is heard of operators"
if TYPE_CHECKING:
    from torch.utils._python_dispatch import TorchDispatchMode

    DispatchMode = TorchDispatchMode
else:
    DispatchMode = _name("torch.utils._python_dispatch.TorchDispatchMode", _MODES, _NoMode)
MODES_BESIDE_COMPILE = hasattr(DispatchMode, "_should_skip_dynamo")
"""Whether a mode can be on while compiled code runs. Before torch 2.11 the compiler takes the mode's own code for the
program's, or leaves the program uncompiled."""
dispatch_modes: Any = _name("torch.utils._python_dispatch._get_current_dispatch_mode_stack", _MODES)
pop_mode: Any = _name("torch.utils._python_dispatch._pop_mode", _MODES)
push_mode: Any = _name("torch.utils._python_dispatch._push_mode", _MODES)
DisableTorchDispatch: Any = _name("torch._C._DisableTorchDispatch", "work of our own that modes must not hear")
disabled_dispatch: Any = _name(
    "torch._C._disabled_torch_dispatch_impl", "operators on subclasses of tensors, while what is not finite is found"
)
DisableTorchFunction: Any = _name("torch._C.DisableTorchFunction", "work of our own that subclasses must not hear")
_SPARED = "nothing: what it spares is spared by DisableTorchFunction"
DisableTorchFunctionSubclass: Any = _name("torch._C.DisableTorchFunctionSubclass", _SPARED, DisableTorchFunction)
DisableAutocast: Any = _name("torch._C._DisableAutocast", "how much float32 would change what ran in half precision")

# Functions of torch's own that are wrapped while data are prepared.
_PREPARED = "numbers that lose their differences when data are prepared"
register_builtin: Any = _name("torch.jit._builtins._register_builtin", _PREPARED)
device_constructors: Any = _name("torch.utils._device._device_constructors", _PREPARED)
DeviceContext: Any = _name("torch.utils._device.DeviceContext", _PREPARED, _NoMode)

# Tracing and sizing: tensors that have no values.
_TRACED = "tensors without values would be read as if they had some"
ModeKey: Any = _name("torch._C._TorchDispatchModeKey", _TRACED, None)
get_dispatch_mode: Any = _name("torch._C._get_dispatch_mode", _TRACED, _none)
modes_on: Any = _name("torch._C._len_torch_dispatch_stack", _TRACED, _zero)
tracing_state: Any = _name("torch._C._get_tracing_state", _TRACED, _none)
is_functorch_wrapped: Any = _name("torch._C._functorch.is_functorch_wrapped_tensor", _TRACED, _no)
functorch_level: Any = _name("torch._C._functorch.peek_interpreter_stack", _TRACED, _none)
is_profiling: Any = _name("torch._C._autograd._profiler_enabled", "profilers that are never stopped", _no)
is_fake: Any = _name("torch._subclasses.fake_tensor.is_fake", _TRACED, _no)
TracingContext: Any = _name("torch._guards.TracingContext", "steps that are traced would count as steps", _NoTracing)

_RING = "what the flight recorder keeps counts as growth of the heap"

# Autograd.
graph_task: Any = _name("torch._C._current_graph_task_id", "whether something runs within a backward pass")
current_node: Any = _name("torch._C._current_autograd_node", "whether storages are of the backward pass", _none)
sequence_nr: Any = _name("torch._C._autograd._get_sequence_nr", "which graph nodes are older than which")
run_backward: Any = _name("torch.autograd.graph._engine_run_backward", "lines of backward passes that are not finite")
after_backward: Any = _name(
    "torch.autograd.Variable._execution_engine.queue_callback", "which rank the others wait for"
)
SavedTensor: Any = _name("torch._C._autograd.SavedTensor", "nothing: saved tensors are unpacked then", None)
SLOTS_SHOW_TENSORS = hasattr(SavedTensor, "data")
"""Whether a saved tensor can be read without unpacking it. Since torch 2.10; see `saved.py`."""
_FunctionBase: Any = _name("torch._C._FunctionBase", "what custom Functions saved, before torch 2.10", object)


def saved_of_function(node: Any) -> Any:
    """What a custom Function saved, past what its class says of it."""
    # A Function's own class may define `saved_tensors` anew; this is torch's descriptor.
    return vars(_FunctionBase)["saved_tensors"].__get__(node)


RECORDS_COLLECTIVES = _name("torch._C._distributed_c10d._dump_fr_trace", _RING, None) is not None
"""Whether torch keeps what its last collectives were on every backend. Not on gloo in torch 2.6."""
process_groups: Any = _name("torch.distributed.distributed_c10d._world", _RING, None)
"""Knows all process groups of this rank; without it only the default one is."""
store_of_group: Any = _name(
    "torch.distributed.distributed_c10d._get_default_store", "other ranks, by `watch()` and callbacks"
)

# Numbers.
foreach_norm: Any = _name("torch._foreach_norm", "nothing: the norms are taken one by one", _norms)
flatten: Any = _name("torch._C._nn.flatten_dense_tensors", "nothing: tensors are flattened one by one", _flat)
copy_each: Any = _name("torch._foreach_copy_", "a failed step is not done again")

# Attention.
fused_sdp_choice: Any = _name("torch._fused_sdp_choice", "attention that could take a fused implementation")

# Modules, loaders.
_BATCH_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d, torch.nn.SyncBatchNorm)
_NORMS = (*_BATCH_NORMS, torch.nn.InstanceNorm1d, torch.nn.InstanceNorm2d, torch.nn.InstanceNorm3d)
_DROPOUTS = (torch.nn.Dropout, torch.nn.Dropout1d, torch.nn.Dropout2d, torch.nn.Dropout3d, torch.nn.AlphaDropout)
_BATCH = "torch.nn.modules.batchnorm"
BatchNorms: Any = _name(f"{_BATCH}._BatchNorm", "batch norms of the program's own", _BATCH_NORMS)
Normalizations: Any = _name(f"{_BATCH}._NormBase", "normalizations of the program's own", _NORMS)
Dropouts: Any = _name("torch.nn.modules.dropout._DropoutNd", "dropouts of the program's own", _DROPOUTS)
LoaderIterator: Any = _name("torch.utils.data.dataloader._BaseDataLoaderIter", "batches of loaders")
DatasetKind: Any = _name("torch.utils.data.dataloader._DatasetKind", "what is read from files again")
loader_workers: Any = _name("torch.utils.data._utils.worker", "what loaders' workers spend their time on")
OpOverload: Any = _name("torch._ops.OpOverload", "which operators may be looked at while what is not finite is found")
tensor_text: Any = _name("torch._tensor_str", "tensors that are printed, which waits for the device")

_HISTORY = "the history of device memory"
WHERE_USED: dict[str, str] = {
    "torch.cuda.memory._record_memory_history": _HISTORY,
    "torch.cuda.memory._snapshot": _HISTORY,
    "torch.cuda._lazy_call": _HISTORY,
}
"""Names that are read where they are used, since a simulated GPU or the program puts its own in their place."""
CUDA_ONLY = frozenset(["torch._C._cuda_isHistoryEnabled", "torch._C._cuda_attach_out_of_memory_observer"])
"""The same; builds without CUDA lack these."""

_DDP = "torch.nn.parallel.DistributedDataParallel"
ATTRIBUTES: dict[str, tuple[str, str]] = {
    "_cdata": ("torch.UntypedStorage", "which storage is which"),
    "_sequence_nr": ("torch._C._FunctionBase", "which graph nodes are older than which"),
    "_input_metadata": ("torch._C._FunctionBase", "shapes of gradients"),
    "_version": ("torch.Tensor", "what was changed in place"),
    "_base": ("torch.Tensor", "what is a view of what"),
    "_is_view": ("torch.Tensor", "what is a view of what"),
    "_backward_hooks": ("torch.Tensor", "hooks of tensors"),
    "_indices": ("torch.Tensor", "storages of sparse tensors"),
    "_values": ("torch.Tensor", "storages of sparse tensors"),
    "_nnz": ("torch.Tensor", "how much of a sparse gradient is there"),
    "_schema": ("", "which operators make storages"),
    "_lazy_init_old_dispatch_mode_flags": (
        "torch.utils._python_dispatch.TorchDispatchMode", "modes beneath the program's own"
    ),
    "_recompile_re": ("", "torchvet's own frames would be compiled with the program's"),
    "_forward_cls": ("", "the name of a custom Function"),
    "_fwd_used_autocast": ("", "custom Functions that say what autocast is to do"),
    "_mode_key": ("", "modes of torch's own"),
    "_buffers": ("", "names of buffers"),
    "_modules": ("", "names of modules"),
    "_parameters": ("", "names of parameters"),
    "_orig_mod": ("", "modules that were compiled"),
    "_get_op_type": ("torch.distributed.Work", "stages of a pipeline, which wait for each other by design"),
    "_get_sequence_number_for_group": ("torch.distributed.ProcessGroup", _RING),
    "_collate_fn": ("", "batches that are read row by row"),
    "_dataset": ("", "datasets that reading changes"),
    "_index_sampler": ("", "the lines that made loaders"),
    "_local_tensor": ("", "one rank's part of a tensor"),
    "_num_workers": ("", "workers of loaders"),
    "_num_yielded": ("", "the first batch of an epoch"),
    "_prefetch_factor": ("", "batches that loaders read ahead"),
    "_step_count": ("", "schedulers that step too early"),
    "_opt_called": ("", "schedulers that step too early"),
    "_step_supports_amp_scaling": ("", "fused optimizers under a scaler"),
    "_enabled": ("", "scalers that are off"),
    "_cache_enabled": ("", "autocast's copies of weights"),
    "_device": ("", "the device of a scaler"),
    "_scale": ("", "the scale of a scaler"),
    "_init_scale": ("", "the scale of a scaler"),
    "_growth_interval": ("", "the scale of a scaler"),
    "_backoff_factor": ("", "the scale of a scaler"),
    "_growth_factor": ("", "the scale of a scaler"),
    "_bit_generator": ("", "NumPy's own generators"),
    "_per_optimizer_states": ("", "what a scaler has done with each optimizer"),
    "_get_ddp_logging_data": (_DDP, "what DistributedDataParallel says of its passes"),
    "_rebuild_buckets": ("torch.distributed.Reducer", "what is kept by buckets of gradients, and what by the program"),
    "_post_forward": (_DDP, "what the search for unused parameters costs"),
}  # fmt: skip
"""Attributes of torch's objects, which are read where they are needed: by name the class that has it (none where only
its instances do), and what is lost without it."""


def _note_the_rest() -> None:
    for path, lost in WHERE_USED.items():
        _name(path, lost)
    for name, (owner, lost) in ATTRIBUTES.items():
        try:
            found = not owner or hasattr(_resolve(owner), name)
        except (ImportError, AttributeError):
            found = False
        # Told at the start and not at the first use: an attribute that is missing would look like a value
        # that is not there.
        if not found:
            missing[f"{owner}.{name}"] = lost


_note_the_rest()
