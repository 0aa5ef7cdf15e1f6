"""Edits that keep sums and positions in float32."""

from __future__ import annotations

import pytest
from observed_fixes import fixed_lines
from source_fixes import fixed

from torchvet.finding import About

SUM = """
    def main(model, loader, kept):
        total = {start}
        for x in loader:
            loss = model(x)
            loss.backward()
            total {add}
            {read}
    """


def summed(start: str, read: str = "pass", add: str = "+= loss.detach()") -> str:
    out, put = fixed("NUM107", SUM.format(start=start, read=read, add=add))
    assert len(out) == len(put) < 2
    return "".join(put).strip().removeprefix("total = ")


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("torch.zeros(3, dtype=torch.bfloat16)", "torch.zeros(3, dtype=torch.float32)"),
        ("torch.zeros((), dtype=torch.half, device=kept)", "torch.zeros((), dtype=torch.float32, device=kept)"),
        ("torch.zeros_like(kept.half())", "torch.zeros_like(kept.half(), dtype=torch.float32)"),
        ("torch.zeros(3).half().cuda()", "torch.zeros(3).float().cuda()"),
        ("torch.zeros(3).to('cuda', torch.half)", "torch.zeros(3).to('cuda', torch.float32)"),
        ("torch.tensor(0.0, dtype=torch.float16)  # é", "torch.tensor(0.0, dtype=torch.float32)  # é"),
    ],
)
def test_a_sum_begins_in_float32(start: str, expected: str) -> None:
    assert summed(start) == expected
    assert summed(start, add=".add_(loss.detach())").removeprefix("total ") in (expected, "")


START = "torch.zeros(3, dtype=torch.bfloat16)"


@pytest.mark.parametrize(
    "read",
    ["print(total / 3)", "kept.append((total / 3).item())", "x = f'{total.mean()}'", "if total.sum() > 3: break",
     "total.mul_(0.5).clamp_(max=3)"],
)  # fmt: skip
def test_what_is_shown_or_made_a_number_may_have_another_dtype(read: str) -> None:
    assert summed(START, read).endswith("dtype=torch.float32)")


@pytest.mark.parametrize(
    "read", ["y = model(total)", "y = x @ total", "kept.append(total)", "yield total", "x += total"]
)
def test_nothing_where_its_dtype_may_meet_another(read: str) -> None:
    assert summed(START, read) == ""
    text = SUM.format(start=START, add="+= loss.detach()", read=read)
    assert fixed_lines("NUM107", text, "total +=")[1] == ["    total = torch.zeros(3, dtype=torch.float32)"]


METER = """
    class Meter:
        def __init__(self):
            self.total = torch.zeros((), dtype=torch.bfloat16)

        def reset(self):
            self.total = {again}

        def add(self, loss):
            self.total += loss.detach()

        def mean(self):
            return {read}
    """


def test_every_start_of_an_attribute_is_made_float32() -> None:
    text = METER.format(again="torch.zeros((), dtype=torch.bfloat16)", read="self.total.item()")
    out, _ = fixed_lines("NUM107", text, "self.total +=")
    assert len(out) == 2
    text = METER.format(again="self.first.clone()", read="self.total.item()")
    assert fixed_lines("NUM107", text, "self.total +=") == ([], [])
    returned = METER.format(again="torch.zeros((), dtype=torch.bfloat16)", read="self.total")
    assert fixed("NUM107", returned) == ([], [])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("p = torch.arange(4096, dtype=torch.bfloat16)", "p = torch.arange(4096, dtype=torch.float32)"),
        ("p = torch.arange(4096).to(torch.bfloat16)", "p = torch.arange(4096).to(torch.float32)"),
        ("p = torch.arange(4096).half()[:, None]", "p = torch.arange(4096).float()[:, None]"),
    ],
)
def test_positions_are_counted_in_float32_where_that_is_what_they_become(line: str, expected: str) -> None:
    text = "def waves():\n    {}\n    return p.float().sin() + p[None].float()\n"
    assert fixed("NUM109", text.format(line))[1] == [f"    {expected}"]
    elsewhere = "def waves(q):\n    {}\n    return q * p + p.float()\n"
    assert fixed("NUM109", elsewhere.format(line)) == ([], [])
    again = "def waves():\n    {}\n    if p[0]: p = 3\n    return p.float()\n"
    assert fixed("NUM109", again.format(line)) == ([], [])


@pytest.mark.parametrize(
    ("line", "seen", "expected"),
    [
        ("p = torch.arange(n, dtype=self.dtype)", "", "p = torch.arange(n, dtype=torch.float32)"),
        ("p = positions.to(x.dtype)", "converted", "p = positions.to(torch.float32)"),
        ("p = torch.arange(n) + torch.arange(n, dtype=x.dtype)", "", ""),
        ("p = torch.arange(n, device=x.device)", "", ""),
        ("p = torch.from_numpy(np.arange(n, dtype=np.float16))", "", ""),
    ],
)
def test_a_range_that_a_run_has_counted(line: str, seen: str, expected: str) -> None:
    assert "".join(fixed_lines("NUM109", line + "\n", line, about=About(seen))[1]) == expected
