"""What torch's names, and those of the frameworks around it, are: knowledge, no logic."""

from __future__ import annotations

from functools import lru_cache

Roles = frozenset[str]
_NONE: Roles = frozenset()

OPTIMIZERS = frozenset(
    ("Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "LBFGS", "Rprop",
     "SparseAdam", "Adafactor", "Muon", "FusedAdam", "FusedLAMB", "Adam8bit", "AdamW8bit", "PagedAdamW", "Lion", "LARS",
     "LAMB", "DeepSpeedCPUAdam", "Ranger", "NovoGrad", "Prodigy", "Shampoo", "ZeroRedundancyOptimizer")
)  # fmt: skip
ADAPTIVE = frozenset(
    ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "Adadelta", "Adafactor", "FusedAdam", "LAMB")
)  # fmt: skip
"""Optimizers that divide by something plus eps."""
SCHEDULERS = frozenset(
    ("StepLR", "MultiStepLR", "LambdaLR", "ExponentialLR", "CosineAnnealingLR", "ReduceLROnPlateau", "CyclicLR",
     "OneCycleLR", "CosineAnnealingWarmRestarts", "LinearLR", "ConstantLR", "PolynomialLR", "SequentialLR",
     "ChainedScheduler", "MultiplicativeLR", "SWALR", "get_scheduler", "get_linear_schedule_with_warmup",
     "get_cosine_schedule_with_warmup",
     "get_constant_schedule_with_warmup", "get_polynomial_decay_schedule_with_warmup", "get_constant_schedule",
     "get_cosine_with_hard_restarts_schedule_with_warmup")
)  # fmt: skip
LOSS_FUNCTIONS = frozenset(
    ("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
     "binary_cross_entropy_with_logits", "kl_div", "poisson_nll_loss", "gaussian_nll_loss", "ctc_loss",
     "cosine_embedding_loss", "margin_ranking_loss", "triplet_margin_loss", "hinge_embedding_loss",
     "multi_margin_loss", "multilabel_margin_loss", "soft_margin_loss", "multilabel_soft_margin_loss")
)  # fmt: skip
FACTORIES = frozenset(
    ("zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm", "arange", "linspace", "eye", "tensor",
     "as_tensor", "from_numpy", "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like",
     "logspace", "normal", "bernoulli", "multinomial", "FloatTensor", "LongTensor", "Tensor", "tril", "triu")
)  # fmt: skip
"""Functions of `torch` that make tensors without a graph."""
NUMBER_METHODS = frozenset(
    ("item", "tolist", "numpy", "numel", "dim", "ndimension", "size", "stride", "data_ptr", "nelement", "element_size",
     "is_contiguous", "get_device", "storage_offset")
)  # fmt: skip
"""Methods of a tensor that give Python numbers, lists or arrays."""
DETACHING = frozenset((*NUMBER_METHODS, "detach", "detach_", "argmax", "argmin", "argsort", "nonzero", "eq", "ne", "gt",
                       "lt", "ge", "le", "bool", "long", "int", "requires_grad", "isnan", "isinf", "isfinite",
                       "sign", "bincount", "unique", "any", "all", "count_nonzero", "new_zeros", "new_ones",
                       "new_empty", "new_full", "new_tensor", "zeros_like", "ones_like"))  # fmt: skip
"""Methods whose results refer to no graph."""
TENSOR_METHODS = frozenset(
    ("mean", "sum", "view", "reshape", "squeeze", "unsqueeze", "transpose", "permute", "t", "contiguous", "clone",
     "detach", "to", "float", "half", "double", "cuda", "cpu", "log", "exp", "sqrt", "pow", "abs", "max", "min",
     "clamp", "softmax", "log_softmax", "sigmoid", "tanh", "relu", "flatten", "expand", "repeat", "mul", "add", "sub",
     "div", "norm", "std", "var", "index_select", "gather", "masked_fill", "type_as", "requires_grad_", "bmm", "matmul",
     "mm", "chunk", "split", "unbind", "neg", "square", "backward", "item")
)  # fmt: skip

_LIGHTNING_MODULES = ("LightningModule",)
_MODULE_BASES = ("torch.nn.", "torchvision.models.", "timm.models.")


@lru_cache(maxsize=8192)
def role_of_call(dotted: str, calling: bool = True) -> Roles:
    """What calling a dotted name gives; with `calling` False what the name itself is. Empty for what is not known."""
    if not dotted:
        return _NONE
    last = dotted.rpartition(".")[2]
    if not calling:
        return frozenset({"criterion", "function"}) if _is_functional_loss(dotted, last) else _NONE
    if last in SCHEDULERS or dotted.startswith("torch.optim.lr_scheduler."):
        return frozenset({"scheduler"})
    if last == "AveragedModel":
        return frozenset({"module"})
    if last in OPTIMIZERS or (dotted.startswith("torch.optim.") and last[:1].isupper()):
        return frozenset({"optimizer"})
    if last in ("GradScaler", "ShardedGradScaler"):
        return frozenset({"scaler"})
    if last in ("DataLoader", "StatefulDataLoader", "NeighborLoader"):
        return frozenset({"loader"})
    if dotted == "accelerate.Accelerator":
        return frozenset({"accelerator"})
    if last == "Fabric" and "lightning" in dotted:
        return frozenset({"accelerator"})
    if dotted == "deepspeed.initialize":
        return frozenset({"engine"})
    if _is_functional_loss(dotted, last):
        return frozenset({"loss", "tensor"})
    if dotted.startswith("torch.nn.functional."):
        return frozenset({"tensor"})
    if dotted.startswith("torch.nn.") and last[:1].isupper():
        if last in ("Parameter", "Buffer"):
            return frozenset({"tensor", "parameter"})
        return frozenset({"module", "criterion"}) if last.endswith("Loss") else frozenset({"module"})
    if dotted.startswith(("torchvision.models.", "timm.create_model")) or ".from_pretrained" in dotted:
        return frozenset({"module"}) if "Tokenizer" not in dotted and "Processor" not in dotted else _NONE
    if dotted.startswith("torch.") and dotted.count(".") == 1 and last in FACTORIES:
        return frozenset({"tensor", "fresh"})
    if dotted in ("float", "int", "len", "round", "time.time", "time.perf_counter"):
        return frozenset({"number"})
    return _NONE


def _is_functional_loss(dotted: str, last: str) -> bool:
    return last in LOSS_FUNCTIONS and dotted.startswith(("torch.nn.functional.", "torch."))


def role_of_base(dotted: str) -> Roles:
    """What instances of a subclass of a dotted name are."""
    last = dotted.rpartition(".")[2]
    if last in _LIGHTNING_MODULES:
        return frozenset({"module", "lightning"})
    if last in ("LightningDataModule", "Callback", "TrainerCallback"):
        return frozenset({"hooked"})
    if dotted in ("torch.nn.Module", "nn.Module", "torch.nn.Sequential", "torch.nn.ModuleList") or last == "Module":
        return frozenset({"module"})
    if dotted.startswith("torch.nn.") and last[:1].isupper():
        return frozenset({"module", "criterion"}) if last.endswith("Loss") else frozenset({"module"})
    if last == "PreTrainedModel" or last.endswith("ForCausalLM"):
        return frozenset({"module"})
    if last in ("Optimizer",) or last in OPTIMIZERS:
        return frozenset({"optimizer"})
    if dotted == "torch.autograd.Function" or dotted == "Function":
        return frozenset({"function"})
    if last in ("Dataset", "IterableDataset"):
        return frozenset({"dataset"})
    if last == "Trainer" or last.endswith("Trainer"):
        return frozenset({"trainer"})
    if last in ("LRScheduler", "_LRScheduler"):
        return frozenset({"scheduler"})
    return _NONE


def role_of_annotation(dotted: str) -> Roles:
    """What a parameter annotated with a dotted name is."""
    last = dotted.rpartition(".")[2]
    if last == "Tensor":
        return frozenset({"tensor"})
    if last in ("LRScheduler", "_LRScheduler") or last in SCHEDULERS:
        return frozenset({"scheduler"})
    if last in ("float", "int", "bool", "str"):
        return frozenset({"number" if last in ("float", "int") else "constant"})
    found = role_of_call(dotted)
    return (found - {"fresh"}) | role_of_base(dotted)
