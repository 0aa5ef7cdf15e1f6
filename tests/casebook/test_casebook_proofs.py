"""What rules claim is measured again, and a claim that was not measured is a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from casebook import proofs

FOLDER = proofs.RULES / "numerics" / "num109_half_positions"


def test_the_claims_of_a_rule_are_measured() -> None:
    assert list(proofs.measured_again(FOLDER)) == ["4 claims of proof.py"]


def test_what_the_section_does_not_say_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "details.md").write_text("## What\n\n3,072\n\n## Proof\n\n769 values\nof bfloat16.\n\n## Remedy\n\n1\n")
    (tmp_path / "proof.py").write_text("print('769  values of')\nprint('3,072')\n")
    assert list(proofs.measured_again(tmp_path)) == [
        "DIFFERS: measured '3,072', which the section does not say",
        "1 claims of proof.py",
    ]
    (tmp_path / "proof.py").write_text("1 / 0\n")
    assert next(proofs.measured_again(tmp_path)) == "DIFFERS: proof.py failed: ZeroDivisionError: division by zero"


@pytest.mark.parametrize(("stated", "same"), [("262,144", True), ("262,000", True), ("300,000", False)])
def test_growth_is_counted_by_the_allocators_events(stated: str, same: bool, tmp_path: Path) -> None:
    folder = tmp_path / "memory" / "mem101_x"
    folder.mkdir(parents=True)
    (folder / "details.md").write_text(f"## Proof\n\nThe example keeps {stated} bytes per step.\n")
    (folder / "bad.py").write_text(
        "import torch\n"
        "w = torch.ones(4, requires_grad=True)\nopt = torch.optim.SGD([w], lr=0.1)\nkept = []\n"
        "for _ in range(20):\n    kept.append(torch.ones(256, 256))\n    w.sum().backward()\n    opt.step()\n"
    )
    (said,) = proofs.measured_again(folder)
    assert said.startswith("DIFFERS") is not same and "262,144 bytes per step" in said
