"""NUM110: a formula that overflows or underflows where torch has a stable one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchvet.rules.base import Rule
from torchvet.rules.numerics import _formulas
from torchvet.source.model import edits

if TYPE_CHECKING:
    from torchvet.finding import Finding, Severity
    from torchvet.source.model import SourceFile


class UnstableFormula(Rule):
    """A formula that overflows or underflows where torch has a stable one."""

    code = "NUM110"
    name = "unstable-formula"
    summary = "A formula that overflows or underflows where torch has a stable one"
    severity = "warning"
    words = ("log", "exp", "sqrt")

    what = (
        "`log(softmax(x))` and `log(sigmoid(x))` take the logarithm of what was rounded to 0, `exp(x) / exp(x).sum()` "
        "and `log(exp(x).sum())` overflow at 88.7 (11.1 in float16), and the gradient of `sqrt` at 0 is infinite: "
        "times an inner gradient of 0 it is NaN."
    )
    why = (
        "It works until one logit is large, then the loss is infinite or NaN and so is every weight. The functions "
        "that do both steps at once (`log_softmax`, `logsigmoid`, `softmax`, `logsumexp`, `softplus`) are exact and "
        "faster."
    )
    when_not = (
        "With the maximum subtracted before `exp` the formula is stable. A softmax plus eps under the logarithm "
        "is finite but biased, and a root needs a sum of squares of exactly 0 to fail: `info`. `x.norm()` has gradient "
        "0 at 0 and is fine."
    )
    proof = (
        "torch 2.13.0, CPU, float32: of logits 0 and 110 `log(softmax)` gave -inf and NaN gradients, `log_softmax` "
        "-110 and 1, -1; `log(sigmoid(-90))` -inf, `logsigmoid` -90; `exp(x) / exp(x).sum()` of 1 and 90 NaN; "
        "`log(1 + exp(90))` inf, `softplus` 90. `sqrt((x ** 2).sum())` at 0 had NaN gradients, `x.norm()` 0."
    )
    remedy = "Use the function that does both steps: `F.log_softmax`, `F.logsigmoid`, `torch.logsumexp`, `F.softplus`."

    mend_changes_results = True

    BAD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(40):
    x = torch.randn(64, 16) * (1 if step < 15 else 100)
    y = x[:, :4].argmax(1)
    log_probs = torch.log(torch.softmax(model(x), dim=1))
    loss = nn.functional.nll_loss(log_probs, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    GOOD = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(40):
    x = torch.randn(64, 16) * (1 if step < 15 else 100)
    y = x[:, :4].argmax(1)
    log_probs = torch.log_softmax(model(x), dim=1)
    loss = nn.functional.nll_loss(log_probs, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step + 1} loss {loss.item():.4f}")
"""

    def in_source(self, file: SourceFile) -> Iterator[Finding]:
        """The formulas, written in one expression or over a name in between."""
        if not file.mentions(*self.words) or not file.imports.uses("torch"):
            return
        for found in _formulas.all_in(file):
            off = "no" in (file.gradients.enabled(found.event), file.gradients.carries(found.node, found.event))
            severity: Severity = "warning" if found.grave and not off else "info"
            if off and found.only_gradient:
                continue
            made = [edits.replace(file, found.node, found.twin)] if found.twin else []
            yield self.suspect(
                file, found.event, f"{file.segment(found.node)}: {found.harm}", severity=severity, node=found.node,
                cause=found.cause, advice=found.advice, safe=bool(made), edits=made,
            )  # fmt: skip
