"""What is said of a failed step is what the run had: its values, its draws, its rounding."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_nonfinite_programs import watched

from torchvet.recording.records.nonfinite import NonFinite
from torchvet.rules.numerics import _nonfinite_words as say

STEPS = """\
import random
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
{before}
for step in range({steps}):
    x = torch.randn(16, 4)
    h = model(x)
{body}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def first(folder: Path, body: str, before: str = "", steps: int = 4) -> NonFinite:
    """The first failure of a program whose step has these lines."""
    program = folder / "program.py"
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    program.write_text(STEPS.format(body=lines, before=before, steps=steps), "utf-8")
    return watched(program, folder)[0][0]


def test_the_edge_of_a_domain_is_the_forward_arguments(tmp_path: Path) -> None:
    record = first(tmp_path, "c = (h * 0 - 1).clamp(-1, 1)\nloss = torch.asin(c).mean()")
    assert record.phase == "backward" and record.argument is not None and record.argument.at == -1.0
    assert "c (float32 [16, 8]) is -1 there, at the edge of the domain of asin" in say.cause(record)


def test_log1p_is_not_log(tmp_path: Path) -> None:
    record = first(tmp_path, "p = (h * 0 + 1)\nloss = torch.exp(torch.log1p(-p)).mean()")
    assert "is -1 at 128 elements: log1p(-1) is -inf" in say.cause(record)
    assert say.operator(record) == "the backward of log1p"


def test_an_overflow_is_of_the_operand_that_overflowed(tmp_path: Path) -> None:
    """Another one, larger in size, is as small as can be for the function."""
    body = "h = h * 0 - 200 * (torch.arange(8) == 1) + 95 * (torch.arange(8) == 5)\nloss = torch.exp(h).sum()"
    record = first(tmp_path, body)
    assert "an operand of 95 gives a result that does not fit float32" in say.cause(record)


def test_a_target_without_an_alignment_is_no_overflow(tmp_path: Path) -> None:
    before = "lengths = torch.tensor([2, 3]); targets = torch.tensor([[1, 2, 0], [3, 3, 4]])"
    body = (
        "logs = h[:3, :].log_softmax(-1)[:, None].expand(3, 2, 8)\n"
        "loss = F.ctc_loss(logs, targets, torch.full((2,), 3), lengths)"
    )
    record = first(tmp_path, body, before)
    assert record.reason == "no-alignment" and record.rows == [1]
    assert say.cause(record).startswith("target 1 has 3 labels and 1 blanks between equal ones, its input 3 frames")


GENERATORS = {
    "torch": ("g = torch.Generator().manual_seed(5)", "torch.rand(16, generator=g)"),
    "numpy": ("import numpy as np; g = np.random.default_rng(5)", "torch.from_numpy(g.random(16))"),
    "numpy, old": ("import numpy as np; g = np.random.RandomState(5)", "torch.from_numpy(g.rand(16))"),
    "python": ("g = random.Random(5)", "torch.tensor([g.random() for _ in range(16)])"),
}


@pytest.mark.parametrize("kind", GENERATORS)
def test_the_programs_own_generators_draw_again_what_they_drew(kind: str, tmp_path: Path) -> None:
    before, draw = GENERATORS[kind]
    body = f"u = {draw}.float()\nif step == 2: print('ROWS', [i for i in range(16) if u[i] < 0.3])\n"
    body += "k = u - 0.3 if step == 2 else u + 1\nloss = (torch.log(k)[:, None] + h).mean()"
    program = tmp_path / "program.py"
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    program.write_text(STEPS.format(body=lines, before=before, steps=4), "utf-8")
    record = watched(program, tmp_path)[0][0]
    scope: dict[str, object] = {}
    exec(f"import random, torch\n{before}\nfor _ in range(3): u = {draw}\nrows = (u < 0.3).nonzero()[:, 0]", scope)
    assert record.exact and record.rows == scope["rows"].tolist()  # type: ignore[attr-defined]


def test_without_the_draw_no_rows_and_figures_are_claimed(tmp_path: Path) -> None:
    """A generator that nothing leads to: within a closure."""
    before = "def make():\n    g = torch.Generator().manual_seed(5)\n    return lambda: torch.rand(16, generator=g)\n"
    body = "loss = (torch.log(draw() - 0.3)[:, None] + h).mean() if step == 2 else (h + draw()[:, None]).mean()"
    record = first(tmp_path, body, before + "draw = make()")
    assert not record.exact
    assert say.cause(record) == "an argument of log is below its domain"


def test_operands_that_were_rounded_before_are_the_dtypes_doing(tmp_path: Path) -> None:
    body = "p = torch.sigmoid(h.bfloat16() * 0 + 9)\nloss = torch.log(1 - p).float().mean()"
    record = first(tmp_path, body)
    assert record.survives["float64"] is False and record.whole == {"float32": True, "float64": True}
    assert "its operands were rounded" in (say.survival(record) or "")
    assert "`.float()` before" in say.advice(record)


def test_a_zero_in_any_dtype_is_not_the_dtypes_doing(tmp_path: Path) -> None:
    record = first(tmp_path, "m = h.bfloat16() * 0\nloss = (m / m.norm(dim=1, keepdim=True)).float().mean()")
    assert record.whole == {"float32": False, "float64": False}
    assert "the dtype is not to blame" in (say.survival(record) or "")


def test_a_line_that_overwrites_its_own_input_does_not_find_it_bad(tmp_path: Path) -> None:
    before = "def batches():\n    for n in (4, 4, 1): yield torch.randn(n)"
    body = "for a in batches():\n    a = (a - a.mean()) / (a.std() + 1e-8)\n    loss = (h.mean() * a).mean()\n"
    body += "    optimizer.zero_grad(); loss.backward(); optimizer.step(); h = model(x)\nloss = h.mean()"
    record = first(tmp_path, body, before)
    assert (record.found, record.reason) == ("operator", "single-sample")


def test_a_bad_column_is_no_matter_of_rows(tmp_path: Path) -> None:
    before = "d = torch.randn(64, 8)\nd[:, 5] = float('nan')\n"
    before += "loader = iter(torch.utils.data.DataLoader(d, batch_size=16))"
    record = first(tmp_path, "d = next(loader)\nloss = (h + d).mean()", before)
    assert record.columns == [5], record
    assert "in column 5 of every row" in say.cause(record)
    assert "dropping rows does not help" in say.advice(record)


def test_an_infinity_that_where_did_not_choose_is_its_branchs_doing(tmp_path: Path) -> None:
    body = "big = h + 200 * (torch.arange(8) == 3)\nloss = torch.where(big < 50, big.exp(), big).mean()"
    record = first(tmp_path, body)
    assert (record.reason, record.phase, record.operator) == ("where-branch", "forward", "aten.exp")


def test_weights_that_are_lost_are_no_data(tmp_path: Path) -> None:
    """A view of them is read, not themselves."""
    body = "with torch.no_grad(): model.weight.fill_(float('nan')) if step == 2 else None\n"
    body += "h = F.linear(x, model.weight.view(8, 4))\nloss = h.mean()"
    assert first(tmp_path, body).reason == "bad-parameter"


CHECKS = ["torch.isnan(loss)", "not torch.isfinite(loss)", "math.isnan(loss.item())"]
LEAVES_OUT = """\
import math
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
y = torch.randn(64)
y[::{every}] = float("nan")
data = torch.utils.data.TensorDataset(torch.randn(64, 4), y)
for epoch in range(8):
    for x, target in torch.utils.data.DataLoader(data, batch_size=8):
        loss = ((model(x).squeeze(1) - target){change}).mean()
        if {check}:
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def left_out(folder: Path, every: int, change: str, check: str) -> tuple[list[NonFinite], list[str]]:
    program = folder / "program.py"
    program.write_text(LEAVES_OUT.format(every=every, change=change, check=check), "utf-8")
    records, _, report = watched(program, folder)
    return records, [f"{f.code} {f.severity}" for f in report.findings if f.code in ("NUM101", "MEM104")]


@pytest.mark.parametrize("every", [9, 30])
@pytest.mark.parametrize("check", CHECKS)
def test_losses_that_the_program_leaves_out_are_looked_into(check: str, every: int, tmp_path: Path) -> None:
    records, said = left_out(tmp_path, every, ".square()", check)
    assert (records[0].symptom, records[0].found, records[0].reason) == ("skipped", "input", "bad-data")
    # Of 8 batches each has one such target, or 3 have.
    assert set(said) == {"NUM101 error" if every == 9 else "NUM101 warning"}, "and not that it evaluates with gradients"


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_that_finds_nothing_says_nothing(check: str, tmp_path: Path) -> None:
    records, said = left_out(tmp_path, 9, ".nan_to_num().square()", check)
    assert (records, said) == ([], [])


ANGLES = """\
class Angles(nn.Module):
    def __init__(self):
        super().__init__()
        self.known = 16
        self.register_buffer("freq", self.make(16))
    def make(self, length):
        return torch.tensor(4.0 * length / 16 - 3.0) ** (torch.arange(8) / 8)
    def update(self, length):
        if length != self.known:
            {assign}
            self.known = length
    def forward(self, x):
        self.update(8 if step == 5 else 16)
        return x * self.freq
angles = Angles()
"""


@pytest.mark.parametrize("assign", ['self.register_buffer("freq", self.make(length))', "self.freq = self.make(length)"])
def test_a_buffer_that_the_failed_step_assigned_has_its_line(assign: str, tmp_path: Path) -> None:
    """Doing the step again finds it in place: the step has left another condition behind."""
    record = first(tmp_path, "loss = angles(h).square().mean()", ANGLES.format(assign=assign), steps=8)
    assert record.reason == "bad-buffer" and record.since == record.tick == 6
    assert record.assigned is not None and record.assigned.line == ANGLES[: ANGLES.index("{assign}")].count("\n") + 9
    assert record.place is not None and record.place.line != record.assigned.line
    assert "since step 6, when it was assigned anew" in say.cause(record)


def test_a_buffer_that_the_failed_step_wrote_in_place_has_no_step(tmp_path: Path) -> None:
    """Only running statistics are put back: whether others were bad when the step began is not known."""
    assign = "self.freq.copy_(self.make(length))"
    record = first(tmp_path, "loss = angles(h).square().mean()", ANGLES.format(assign=assign), steps=8)
    assert record.reason == "bad-buffer" and record.since is None and record.assigned is None
    assert "the failed step itself may have written it" in say.cause(record)
