"""Why an operator made something that is not finite, from its name, its operands' figures and what they came from."""

from __future__ import annotations

from torchvet.probes.base.operators import names
from torchvet.recording.records.nonfinite import Operand, Reason

LARGEST = {"float16": 65504.0, "bfloat16": 3.3895e38, "float32": 3.4028e38, "float64": 1.7976e308}
"""The greatest finite values of the dtypes."""
_DIVISIONS = names("div divide true_divide remainder fmod reciprocal addcdiv")
_LOGS = names("log log2 log10 log1p xlogy special_xlog1py")
_ROOTS = names("sqrt rsqrt")
_SINGULAR_DOMAIN = names("acos asin acosh atanh arccos arcsin erfinv logit digamma lgamma special_ndtri")
_REDUCTIONS = names(
    "mean var std var_mean std_mean nll_loss_forward nll_loss2d_forward median nanmean nanmedian cov logsumexp"
)
_SOFTMAX = names(
    "_softmax _log_softmax softmax log_softmax _safe_softmax _scaled_dot_product_attention_math "
    "_scaled_dot_product_flash_attention_for_cpu"
)
_SUMS = names("sum mean cumsum dot mv mm bmm matmul")
"""What adds up elements: one infinity among them is enough. (What `addmm` adds may be a mask.)"""
_DECOMPOSED = names("LinalgEigh LinalgEig LinalgSvd")
_PRODUCTS = names("mul mm bmm addmm baddbmm matmul convolution linear dot addbmm mv")
_SINGULAR_BACKWARD: dict[Reason, frozenset[str]] = {
    "root-gradient-at-zero": names("Sqrt Rsqrt Std StdMean Var"),
    "norm-gradient-at-zero": names("LinalgVectorNorm Norm Cdist CdistBackward PairwiseDistance LinalgNorm"),
    "power-gradient-at-zero": names("Pow"),
    "log-of-zero": names("Log Log2 Log10 Log1P Xlogy"),
    "domain": names("Acos Asin Atanh Acosh Atan2 Erfinv Logit"),
}
"""Nodes whose gradient is infinite where their operand is at the edge of what they take."""


SINGULAR = names(
    "sqrt rsqrt pow log log2 log10 log1p xlogy acos asin atanh acosh atan2 erfinv logit linalg_vector_norm norm div"
)
"""Operators whose nodes may have an infinite gradient."""
_ARITHMETIC = names(
    "exp exp2 expm1 sinh cosh pow mul square add sub sum cumsum prod cumprod addcmul mm bmm addmm baddbmm matmul "
    "convolution linear dot addbmm mv _to_copy linalg_vector_norm norm mse_loss tan cumulative_trapezoid rsub mean"
)
"""Operators that give an infinity of finite numbers only where the result is too large."""


def forward_reason(
    operator: str, operands: list[Operand], result: Operand, length: int | None = None, wide: bool | None = None
) -> Reason:
    """Of an operator of the forward pass. `length` is how many elements a reduction took together, `wide` whether the
    result is finite in float64."""
    name = base_name(operator)
    # Infinities among the operands come before all else: with them every formula may give NaN.
    if any(o.infinities and not o.nans for o in operands):
        return _from_infinity(name, result)
    if name in _DIVISIONS:
        return _division(name, operands, result)
    reason = _singularity(name, operands, result)
    if reason is not None:
        return reason
    if name in _REDUCTIONS and result.nans:
        return _reduction(name, operands, length)
    # The mean of nothing.
    if result.nans and any(0 in o.shape for o in operands):
        return "empty-reduction"  # a loss that averages by itself: `smooth_l1_loss`, `mse_loss`
    return "overflow" if result.infinities and _too_large(name, wide) else "unknown"


def _too_large(name: str, wide: bool | None) -> bool:
    """Whether an infinity of finite operands shows that the result does not fit."""
    # It was run in float64 and fits there, or its infinities have no other reason.
    return wide is True or name in _ARITHMETIC


def adds_up(operator: str) -> bool:
    """Whether each of an operator's results is a sum of several elements."""
    return base_name(operator) in _SUMS


def base_name(operator: str) -> str:
    """`aten.div_.Tensor` as `div`."""
    parts = operator.split(".")
    name = parts[1] if len(parts) > 1 and parts[0] in ("aten", "prims") else parts[0]
    # In-place operators have the same reasons.
    return name.rstrip("_") if not name.startswith("__") else name


def _from_infinity(name: str, result: Operand) -> Reason:
    if not result.nans:
        return "masked-sum" if name in _SUMS else "unknown"
    return "masked-row" if name in _SOFTMAX else "inf-times-zero" if name in _PRODUCTS else "inf-minus-inf"


def _division(name: str, operands: list[Operand], result: Operand) -> Reason:
    if operands and operands[-1].zeros:
        return "zero-by-zero" if result.nans and name != "reciprocal" else "division-by-zero"
    if result.infinities:
        return "overflow"
    return "zero-by-zero" if len(operands) == 1 and result.nans else "unknown"


def _singularity(name: str, operands: list[Operand], result: Operand) -> Reason | None:
    """A value that the operator is not defined for."""
    if name in _LOGS:
        return "unknown" if not operands else "log-of-negative" if result.nans else "log-of-zero"
    if name in _SINGULAR_DOMAIN:
        return "domain"
    if operands and (name in _ROOTS or name == "pow"):
        # A negative to an even power is fine.
        if operands[0].negatives and (result.nans or name != "pow"):
            return "root-of-negative"
        if operands[0].zeros and (result.infinities or name != "pow"):
            return "division-by-zero"
    return None


def _reduction(name: str, operands: list[Operand], length: int | None) -> Reason:
    if name.startswith(("var", "std", "cov")) and length == 1:
        return "single-sample"
    # `ignore_index` on every target averages over nothing.
    if name.startswith("nll_loss") or length == 0 or any(0 in o.shape for o in operands):
        return "empty-reduction"
    return "single-sample" if name.startswith(("var", "std")) else "unknown"


def backward_reason(
    node: str, operator: str, operands: list[Operand], result: Operand, chosen: bool, wide: bool | None = None
) -> Reason:
    """Of an operator of the backward pass. `chosen`: the gradient came through a `where` or a mask; `wide`: whether the
    result is finite in float64."""
    name = node.rstrip("0123456789").removesuffix("Backward")
    singular = next((reason for reason, nodes in _SINGULAR_BACKWARD.items() if name in nodes), None)
    if name in _DECOMPOSED and _divides_by_zero(operator, operands):
        return "equal-values"
    # Nodes whose gradient can be infinite.
    infinite = singular is not None or name in ("Div", "Reciprocal")
    # Before the singular node's own reason: the choice is the fault, since the value was never wanted.
    if chosen and infinite and result.nans and any(o.zeros for o in operands):
        return "where-branch"  # 0 * inf: what was not chosen gets a gradient of zero
    if singular is not None:
        return singular
    if result.infinities and not result.nans:
        return _infinite_gradient(base_name(operator), operands, wide)
    return forward_reason(operator, operands, result, wide=wide)


def _divides_by_zero(operator: str, operands: list[Operand]) -> bool:
    return base_name(operator) in _DIVISIONS and bool(operands) and operands[-1].zeros > 0


def _infinite_gradient(name: str, operands: list[Operand], wide: bool | None) -> Reason:
    if name in ("div", "reciprocal") and any(o.zeros for o in operands[1:]):
        return "division-by-zero"
    return "overflow" if _too_large(name, wide) else "unknown"
