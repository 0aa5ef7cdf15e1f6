"""What torch's names, and those of the frameworks around it, are: knowledge, no logic."""

from __future__ import annotations

from functools import lru_cache

from torchvet.source.text import name_set

Roles = frozenset[str]
_NONE: Roles = frozenset()

OPTIMIZERS = name_set("""
    Adam AdamW SGD RMSprop Adagrad Adadelta Adamax NAdam RAdam ASGD LBFGS Rprop SparseAdam Adafactor Muon FusedAdam
    FusedLAMB Adam8bit AdamW8bit PagedAdamW Lion LARS LAMB DeepSpeedCPUAdam Ranger NovoGrad Prodigy Shampoo
    ZeroRedundancyOptimizer
""")
ADAPTIVE = name_set("Adam AdamW NAdam RAdam Adamax RMSprop Adagrad Adadelta Adafactor FusedAdam LAMB")
"""Optimizers that divide by something plus eps."""
SCHEDULERS = name_set("""
    StepLR MultiStepLR LambdaLR ExponentialLR CosineAnnealingLR ReduceLROnPlateau CyclicLR OneCycleLR
    CosineAnnealingWarmRestarts LinearLR ConstantLR PolynomialLR SequentialLR ChainedScheduler MultiplicativeLR
    SWALR get_scheduler get_linear_schedule_with_warmup get_cosine_schedule_with_warmup
    get_constant_schedule_with_warmup get_polynomial_decay_schedule_with_warmup get_constant_schedule
    get_cosine_with_hard_restarts_schedule_with_warmup
""")
LOSS_FUNCTIONS = name_set("""
    cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy
    binary_cross_entropy_with_logits kl_div poisson_nll_loss gaussian_nll_loss ctc_loss cosine_embedding_loss
    margin_ranking_loss triplet_margin_loss hinge_embedding_loss multi_margin_loss multilabel_margin_loss
    soft_margin_loss multilabel_soft_margin_loss
""")
FACTORIES = name_set("""
    zeros ones empty full rand randn randint randperm arange linspace eye tensor as_tensor from_numpy zeros_like
    ones_like empty_like full_like rand_like randn_like logspace normal bernoulli multinomial FloatTensor LongTensor
    Tensor tril triu
""")
"""Functions of `torch` that make tensors without a graph."""
NUMBER_METHODS = name_set("""
    item tolist numpy numel dim ndimension size stride data_ptr nelement element_size is_contiguous get_device
    storage_offset
""")
"""Methods of a tensor that give Python numbers, lists or arrays."""
DETACHING = NUMBER_METHODS | name_set("""
    detach detach_ argmax argmin argsort nonzero eq ne gt lt ge le bool long int requires_grad isnan isinf isfinite
    sign bincount unique any all count_nonzero new_zeros new_ones new_empty new_full new_tensor zeros_like ones_like
""")
"""Methods whose results refer to no graph."""
TENSOR_METHODS = name_set("""
    mean sum view reshape squeeze unsqueeze transpose permute t contiguous clone detach to float half double cuda
    cpu log exp sqrt pow abs max min clamp softmax log_softmax sigmoid tanh relu flatten expand repeat mul add sub
    div norm std var index_select gather masked_fill type_as requires_grad_ bmm matmul mm chunk split unbind neg
    square backward item
""")


def is_factory(dotted: str) -> bool:
    """Whether a dotted name is a function of `torch` itself that makes tensors without a graph."""
    module, _, last = dotted.rpartition(".")
    return module == "torch" and last in FACTORIES


def _roles(*roles: str) -> Roles:
    return frozenset(roles)


_MODULE = _roles("module")
_OPTIMIZER = _roles("optimizer")
_SCHEDULER = _roles("scheduler")
_BY_LAST_NAME: dict[str, Roles] = {
    **dict.fromkeys(SCHEDULERS, _SCHEDULER),
    **dict.fromkeys(OPTIMIZERS, _OPTIMIZER),
    **dict.fromkeys(("GradScaler", "ShardedGradScaler"), _roles("scaler")),
    **dict.fromkeys(("DataLoader", "StatefulDataLoader", "NeighborLoader"), _roles("loader")),
    "AveragedModel": _MODULE,
}
"""What calling something gives, wherever it is imported from."""
_BY_DOTTED_NAME: dict[str, Roles] = {
    "accelerate.Accelerator": _roles("accelerator"),
    "deepspeed.initialize": _roles("engine"),
    **dict.fromkeys(("float", "int", "len", "round", "time.time", "time.perf_counter"), _roles("number")),
}
_BY_BASE: dict[str, Roles] = {
    "LightningModule": _roles("module", "lightning"),
    **dict.fromkeys(("LightningDataModule", "Callback", "TrainerCallback"), _roles("hooked")),
    **dict.fromkeys(("Module", "PreTrainedModel"), _MODULE),
    **dict.fromkeys((*OPTIMIZERS, "Optimizer"), _OPTIMIZER),
    **dict.fromkeys(("Dataset", "IterableDataset"), _roles("dataset")),
    **dict.fromkeys(("LRScheduler", "_LRScheduler"), _SCHEDULER),
}
"""What instances of a subclass are, by the last identifier of the base."""


@lru_cache(maxsize=8192)
def role_of_call(dotted: str, calling: bool = True) -> Roles:
    """What calling a dotted name gives; with `calling` False what the name itself is. Empty for what is not known."""
    last = dotted.rpartition(".")[2]
    # Of torch alone: a program's own `nll_loss` may give anything.
    is_loss = last in LOSS_FUNCTIONS and dotted.startswith("torch.")
    if not calling:
        return _roles("criterion", "function") if is_loss else _NONE
    if is_loss:
        return _roles("loss", "tensor")
    # By the last name wherever it is from: apex, bitsandbytes and timm have optimizers of these names.
    found = _BY_LAST_NAME.get(last) or _BY_DOTTED_NAME.get(dotted)
    if found is not None:
        return found
    torch_role = _role_of_torch(dotted, last) if dotted.startswith("torch.") else _NONE
    return torch_role or _role_of_library(dotted, last)


def _role_of_torch(dotted: str, last: str) -> Roles:
    # torch's own functions, as `torch.zeros`; all else is in a module of it.
    if dotted.count(".") == 1:
        return _roles("tensor", "fresh") if is_factory(dotted) else _NONE
    if dotted.startswith("torch.optim.lr_scheduler."):
        return _SCHEDULER
    if dotted.startswith("torch.nn.functional."):
        return _roles("tensor")
    # Also an optimizer that a later torch adds.
    if dotted.startswith("torch.optim.") and last[:1].isupper():
        return _OPTIMIZER
    if last in ("Parameter", "Buffer") and dotted.startswith("torch.nn."):
        return _roles("tensor", "parameter")
    return _role_of_layer(dotted, last)


def _role_of_layer(dotted: str, last: str) -> Roles:
    if not dotted.startswith("torch.nn.") or not last[:1].isupper():
        return _NONE
    # All of torch.nn's criteria, and nothing else in it, end so.
    return _roles("module", "criterion") if last.endswith("Loss") else _MODULE


def _role_of_library(dotted: str, last: str) -> Roles:
    if last == "Fabric" and "lightning" in dotted:
        return _roles("accelerator")
    if dotted.startswith(("torchvision.models.", "timm.create_model")) or ".from_pretrained" in dotted:
        return _MODULE if "Tokenizer" not in dotted and "Processor" not in dotted else _NONE
    return _NONE


def role_of_base(dotted: str) -> Roles:
    """What instances of a subclass of a dotted name are."""
    last = dotted.rpartition(".")[2]
    if last in _BY_BASE:
        return _BY_BASE[last]
    if dotted in ("torch.autograd.Function", "Function"):
        return _roles("function")
    if last.endswith("ForCausalLM"):
        return _MODULE
    # transformers' and others', whose loop is not the program's.
    return _roles("trainer") if last.endswith("Trainer") else _role_of_layer(dotted, last)


def role_of_annotation(dotted: str) -> Roles:
    """What a parameter annotated with a dotted name is."""
    last = dotted.rpartition(".")[2]
    if last == "Tensor":
        return _roles("tensor")
    if last in ("LRScheduler", "_LRScheduler"):
        return _SCHEDULER
    if last in ("float", "int", "bool", "str"):
        return _roles("number" if last in ("float", "int") else "constant")
    # What a caller gives may have a graph, even if its class makes new ones.
    return (role_of_call(dotted) - {"fresh"}) | role_of_base(dotted)
