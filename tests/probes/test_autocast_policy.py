"""The emulated lists are CUDA's: those of the documentation, and those of the installed torch's own header."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from torchvet.probes.base.ledger import storage_key
from torchvet.probes.precision.autocast_policy import FLOAT32, HALF, PROMOTE, policy_of
from torchvet.probes.precision.forecast_mode import ForecastMode

Program = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
A = torch.rand(4, 4) * 0.8 + 0.1
IMAGE = (1, 4, 4, 1)

HALF_IN_THE_DOCUMENTS: dict[str, Program] = {
    "__matmul__": lambda h, x: h @ x, "addbmm": lambda h, x: torch.addbmm(x, h[None], x[None]),
    "addmm": lambda h, x: torch.addmm(x, h, x), "addmv": lambda h, x: torch.addmv(x[0], h, x[0]),
    "addr": lambda h, x: torch.addr(x, h[0], x[0]), "baddbmm": lambda h, x: torch.baddbmm(x[None], h[None], x[None]),
    "bmm": lambda h, x: torch.bmm(h[None], x[None]), "chain_matmul": lambda h, x: torch.chain_matmul(h, x, x),
    "multi_dot": lambda h, x: torch.linalg.multi_dot([h, x, x]),
    "conv1d": lambda h, x: F.conv1d(h[None], x[..., None]),
    "conv2d": lambda h, x: F.conv2d(h.reshape(IMAGE), x[..., None, None]),
    "conv3d": lambda h, x: F.conv3d(h.reshape(1, 4, 4, 1, 1), x[..., None, None, None]),
    "conv_transpose1d": lambda h, x: F.conv_transpose1d(h[None], x[..., None]),
    "conv_transpose2d": lambda h, x: F.conv_transpose2d(h.reshape(IMAGE), x[..., None, None]),
    "conv_transpose3d": lambda h, x: F.conv_transpose3d(h.reshape(1, 4, 4, 1, 1), x[..., None, None, None]),
    "linear": lambda h, x: F.linear(h, x, x[0]), "matmul": lambda h, x: torch.matmul(h, x),
    "mm": lambda h, x: torch.mm(h, x), "mv": lambda h, x: torch.mv(h, x[0]),
    "prelu": lambda h, x: F.prelu(h, x[0, :1]),
}  # fmt: skip
FLOAT32_IN_THE_DOCUMENTS: dict[str, Program] = {
    **{name: (lambda h, x, n=name: getattr(torch, n)(h)) for name in (
        "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt",
        "sinh", "tan", "sum", "prod")},
    **{name: (lambda h, x, n=name: getattr(F, n)(h, x)) for name in (
        "binary_cross_entropy_with_logits", "mse_loss", "smooth_l1_loss", "kl_div", "cross_entropy",
        "poisson_nll_loss")},
    **{name: (lambda h, x, n=name: getattr(F, n)(h, dim=-1)) for name in ("softmax", "log_softmax", "softmin")},
    "__pow__": lambda h, x: h**2, "__rpow__": lambda h, x: 2.0**h, "__rdiv__": lambda h, x: 1.0 / h,
    "cumprod": lambda h, x: torch.cumprod(h, 0), "cumsum": lambda h, x: torch.cumsum(h, 0),
    "dist": lambda h, x: torch.dist(h, x), "cdist": lambda h, x: torch.cdist(h, x),
    "group_norm": lambda h, x: F.group_norm(h, 2), "layer_norm": lambda h, x: F.layer_norm(h, (4,)),
    "nll_loss": lambda h, x: F.nll_loss(h, torch.zeros(4, dtype=torch.long)),
    "norm": lambda h, x: torch.norm(h), "pdist": lambda h, x: F.pdist(h), "pow": lambda h, x: torch.pow(h, 2),
    "renorm": lambda h, x: torch.renorm(h, 2, 0, 1.0), "softplus": lambda h, x: F.softplus(h),
    "multi_margin_loss": lambda h, x: F.multi_margin_loss(h, torch.zeros(4, dtype=torch.long)),
}  # fmt: skip
FOLLOWS: dict[str, tuple[Program, bool]] = {
    "relu": (lambda h, x: F.relu(h), True), "half + half": (lambda h, x: h + h, True),
    "half + float32": (lambda h, x: h + x, False), "half * scalar": (lambda h, x: h * 3.0, True),
    "half * float32 without dimensions": (lambda h, x: h * x.mean(), True),
    "mean": (lambda h, x: h.mean(), True), "cat of both": (lambda h, x: torch.cat([h, x]), False),
    "float32 matmul in place": (lambda h, x: x.clone().addmm_(h, x), False),
    "atan2 of both": (lambda h, x: torch.atan2(h, x), False),
    "batch norm of half": (lambda h, x: F.batch_norm(h, x[0].clone(), x[1].clone(), training=True), True),
}  # fmt: skip


def is_half(program: Program) -> bool:
    """Whether the result of a program on one half and one float32 tensor is half, as the mode follows it."""
    mode = ForecastMode()
    mode.inside = True
    with mode:
        half = torch.mm(A, A)
        half = half / half.max() * 0.9
        result = program(half, A)
    return storage_key(result) in mode._half


@pytest.mark.parametrize("name", HALF_IN_THE_DOCUMENTS)
def test_what_the_documents_say_runs_in_half_does(name: str) -> None:
    assert is_half(HALF_IN_THE_DOCUMENTS[name])


@pytest.mark.parametrize("name", FLOAT32_IN_THE_DOCUMENTS)
def test_what_the_documents_say_runs_in_float32_does(name: str) -> None:
    assert not is_half(FLOAT32_IN_THE_DOCUMENTS[name])


@pytest.mark.parametrize("name", FOLLOWS)
def test_the_rest_follows_by_promotion(name: str) -> None:
    program, half = FOLLOWS[name]
    assert is_half(program) == half


def lists() -> Iterator[tuple[str, str, str]]:
    """Policy, name and overload of every entry in torch's own header."""
    text = (Path(torch.__file__).parent / "include/ATen/autocast_mode.h").read_text()
    for policy, macro in (
        ("half", "LOWER_PRECISION_FP"), ("float32", "FP32"), ("float32", "FP32_SET_OPT_DTYPE"), ("promote", "PROMOTE"),
    ):  # fmt: skip
        block = text.split(f"#define AT_FORALL_{macro}(_)")[1].split("\n\n")[0]
        for name, overload in re.findall(r"_\((\w+)(?:,\s*(\w+))?\)", block):
            yield policy, name, overload


def test_the_tables_are_those_of_the_header() -> None:
    known: dict[str, set[str]] = {}
    for policy, name, _ in lists():
        known.setdefault(policy, set()).add(name)
    assert known["half"] == HALF
    assert known["float32"] == FLOAT32 - {"norm"}, "norm is in a table of its own there"
    assert known["promote"] == PROMOTE


def test_variants_with_out_and_in_place_are_not_eligible() -> None:
    assert policy_of("mm", "") == "half" and policy_of("mm", "out") == "follows"
    assert policy_of("exp", "") == "float32" and policy_of("exp_", "") == "follows"
