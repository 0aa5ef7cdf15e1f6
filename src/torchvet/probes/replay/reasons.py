"""Why an operator made something that is not finite, from its name, its operands' figures and what they came from."""

from __future__ import annotations

from torchvet.recording.records.nonfinite import Operand, Reason

LARGEST = {"float16": 65504.0, "bfloat16": 3.3895e38, "float32": 3.4028e38, "float64": 1.7976e308}
"""The greatest finite values of the dtypes."""
_LOGS = {"log", "log2", "log10", "log1p"}
_ROOTS = {"sqrt", "rsqrt"}
_SINGULAR_DOMAIN = {
    "acos",
    "asin",
    "acosh",
    "atanh",
    "arccos",
    "arcsin",
    "erfinv",
    "logit",
    "digamma",
    "lgamma",
    "special_ndtri",
}
_REDUCTIONS = {
    "mean", "var", "std", "var_mean", "std_mean", "nll_loss_forward", "nll_loss2d_forward", "median", "nanmean",
    "nanmedian", "cov", "logsumexp",
}  # fmt: skip
_SOFTMAX = {
    "_softmax", "_log_softmax", "softmax", "log_softmax", "_safe_softmax", "_scaled_dot_product_attention_math",
    "_scaled_dot_product_flash_attention_for_cpu",
}  # fmt: skip
_PRODUCTS = {"mul", "mm", "bmm", "addmm", "baddbmm", "matmul", "convolution", "linear", "dot", "addbmm", "mv"}


def forward_reason(operator: str, operands: list[Operand], result: Operand, length: int | None = None) -> Reason:
    """Of an operator of the forward pass. `length` is how many elements a reduction took together."""
    name = base_name(operator)
    if any(o.infinities and not o.nans for o in operands):
        return _from_infinity(name, result)
    first = operands[0] if operands else None
    if name in ("div", "divide", "true_divide", "remainder", "fmod", "reciprocal", "addcdiv"):
        return _division(name, operands, result)
    if name in _LOGS or name in ("xlogy", "special_xlog1py"):
        return _logarithm(name, operands, result)
    if name in _ROOTS and first is not None:
        if first.negatives:
            return "root-of-negative"
        if first.zeros:
            return "division-by-zero"
    if name == "pow" and first is not None:
        if first.negatives and result.nans:
            return "root-of-negative"
        if first.zeros and result.infinities:
            return "division-by-zero"
    if name in _SINGULAR_DOMAIN:
        return "domain"
    if name in _REDUCTIONS and result.nans:
        return _reduction(name, operands, length)
    if result.nans and any(0 in o.shape for o in operands):
        return "empty-reduction"  # a loss that averages by itself: `smooth_l1_loss`, `mse_loss`
    if result.infinities:
        return "overflow"
    return "unknown"


def base_name(operator: str) -> str:
    """`aten.div_.Tensor` as `div`."""
    parts = operator.split(".")
    name = parts[1] if len(parts) > 1 and parts[0] in ("aten", "prims") else parts[0]
    return name.rstrip("_") if not name.startswith("__") else name


def _from_infinity(name: str, result: Operand) -> Reason:
    if not result.nans:
        return "unknown"
    if name in _SOFTMAX:
        return "masked-row"
    if name in _PRODUCTS:
        return "inf-times-zero"
    return "inf-minus-inf"


def _division(name: str, operands: list[Operand], result: Operand) -> Reason:
    divisor = operands[-1] if operands else None
    if divisor is None or divisor.zeros == 0:
        return (
            "overflow" if result.infinities else ("zero-by-zero" if len(operands) == 1 and result.nans else "unknown")
        )
    return "zero-by-zero" if result.nans and name != "reciprocal" else "division-by-zero"


def _logarithm(name: str, operands: list[Operand], result: Operand) -> Reason:
    argument = operands[-1] if operands else None
    if argument is None:
        return "unknown"
    if result.nans:
        return "log-of-negative"
    return "log-of-zero"


def _reduction(name: str, operands: list[Operand], length: int | None) -> Reason:
    if name.startswith(("var", "std", "cov")) and length == 1:
        return "single-sample"
    if name.startswith("nll_loss"):
        return "empty-reduction"
    if length == 0 or any(0 in o.shape for o in operands):
        return "empty-reduction"
    return "single-sample" if name.startswith(("var", "std")) else "unknown"


def backward_reason(node: str, operator: str, operands: list[Operand], result: Operand, chosen: bool) -> Reason:
    """Of an operator of the backward pass. `chosen`: the gradient came through a `where` or a mask."""
    name = node.rstrip("0123456789").removesuffix("Backward")
    zero_gradient = bool(operands) and any(o.zeros for o in operands)
    singular = _backward_singularity(name, operands)
    if chosen and result.nans and zero_gradient and (singular is not None or name in ("Div", "Reciprocal")):
        return "where-branch"
    if singular is not None:
        return singular
    if result.infinities and not result.nans:
        return "division-by-zero" if base_name(operator) in ("div", "reciprocal") and any(
            o.zeros for o in operands[1:]) else "overflow"  # fmt: skip
    return forward_reason(operator, operands, result)


def _backward_singularity(name: str, operands: list[Operand]) -> Reason | None:
    if name in ("Sqrt", "Rsqrt"):
        return "root-gradient-at-zero"
    if name in ("LinalgVectorNorm", "Norm", "Cdist", "CdistBackward", "PairwiseDistance", "LinalgNorm"):
        return "norm-gradient-at-zero"
    if name == "Pow":
        return "power-gradient-at-zero"
    if name in ("Std", "StdMean", "Var"):
        return "root-gradient-at-zero"
    if name in ("Log", "Log2", "Log10", "Log1P", "Xlogy"):
        return "log-of-zero"
    if name in ("Acos", "Asin", "Atanh", "Acosh", "Atan2", "Erfinv", "Logit"):
        return "domain"
    return None
