"""Names that one fault makes grow are one finding; other faults stay apart."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from example_runs import forked
from handmade import FILE, census, evidence, holding, outcome, program, recording, site, steps

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Report
from torchvet.fixing.edits import apply
from torchvet.recording.records.base import Source

TICKS = (5, 6, 9, 14, 21, 32)


def report(text: str, rates: dict[str, int], **more: Any) -> Report:
    """The report on a run in which names grow by so many bytes a step."""
    looks = [
        census(
            t,
            *[holding(name, direct=rate * t, sites=[site(line=9, size=rate)], **more) for name, rate in rates.items()],
        )
        for t in TICKS
    ]
    source = Source(path=FILE, text=textwrap.dedent(text))
    return diagnose(recording(program(), steps(40), evidence(40), source, looks, outcome(40)))


METER = """
    class Meter:
        def __init__(self):
            self.preds, self.target, self.later = [], [], []

        def update(self, pred, target):
            {first}
            {second}

        def other(self, x):
            self.later.append(x + 1)


    def main():
        meter = Meter()
        for x in data:
            meter.update(x, x)
            meter.other(x)
"""
MERGED = METER.format(first="self.preds.append(pred * 2)", second="self.target.append(target * 2)")


def test_two_lists_that_one_method_fills_are_one_finding() -> None:
    found = report(MERGED, {"meter .preds": 1000, "meter .target": 3000})
    (one,) = found.findings
    assert one.holder is not None and one.holder.name == "meter.target"
    assert one.measured.bytes_per_step == 4000 and one.measured.bytes == 32 * 4000
    assert one.measured.tensors_per_step == 400
    assert "meter.target and 1 more name (`meter.preds`) keep 4.0 kB more alive" in one.message
    beside = [r for r in one.related if r.role == "also-grows"]
    assert [(r.message, r.line) for r in beside] == [("meter.preds: 1.0 kB per step", 7)]
    assert one.location is not None and one.location.line == 8
    names = found.facts["growth"]["names"]
    assert {n["name"]: (n["bytes_per_step"], n["reported_as"]) for n in names} == {
        "meter.target": (3000, "meter.target"), "meter.preds": (1000, "meter.target"),
    }  # fmt: skip


def test_the_forecast_is_that_of_all_names() -> None:
    apart = report(MERGED, {"meter .preds": 4000})
    joint = report(MERGED, {"meter .preds": 1000, "meter .target": 3000})
    assert joint.findings[0].measured.exhausted_at_step == apart.findings[0].measured.exhausted_at_step
    assert joint.findings[0].severity == apart.findings[0].severity
    assert "with all else" not in joint.findings[0].message


def test_one_finding_has_the_edits_of_all_its_names() -> None:
    text = textwrap.dedent(METER.format(first="self.preds.append(pred * 2)", second="self.target.append(target * 2)"))
    looks = [census(t, *[holding(f"meter .{n}", direct=4 * t, graph=r * t) for n, r in (("preds", 9), ("target", 99))])
             for t in TICKS]  # fmt: skip
    source = Source(path=FILE, text=text)
    (one,) = diagnose(recording(program(), steps(40), evidence(40), source, looks, outcome(40))).findings
    after, _ = apply({FILE: text}, [one])
    assert "self.preds.append((pred * 2).detach())" in after[FILE]
    assert "self.target.append((target * 2).detach())" in after[FILE]


def test_names_as_large_as_each_other_go_by_their_lines() -> None:
    (one,) = report(MERGED, {"meter .target": 1010, "meter .preds": 1000}).findings
    assert one.holder is not None and one.holder.name == "meter.preds"


def test_another_function_is_another_fault() -> None:
    found = report(MERGED, {"meter .preds": 1000, "meter .later": 1000}).findings
    assert sorted(f.holder.name for f in found if f.holder) == ["meter.later", "meter.preds"]
    assert all(f.measured.bytes_per_step == 1000 for f in found)


def test_another_mechanism_is_another_fault() -> None:
    looks = [census(t, holding("meter .preds", direct=1000 * t), holding("meter .target", graph=1000 * t))
             for t in TICKS]  # fmt: skip
    source = Source(path=FILE, text=textwrap.dedent(MERGED))
    found = diagnose(recording(program(), steps(40), evidence(40), source, looks, outcome(40))).findings
    assert sorted(f.code for f in found) == ["MEM101", "MEM102"]


def test_another_owner_is_another_fault() -> None:
    text = """
    def main():
        first, second = Meter(), Meter()
        for x in data:
            first.rows.append(x + 1)
            second.rows.append(x + 2)
    """
    assert len(report(text, {"first .rows": 1000, "second .rows": 1000}).findings) == 2


def test_variables_of_one_function_have_no_owner_in_common() -> None:
    text = """
    def main():
        losses, outputs = [], []
        for x in data:
            losses.append(x + 1)
            outputs.append(x + 2)
    """
    assert len(report(text, {"losses": 1000, "outputs": 1000}).findings) == 2


def test_another_loop_is_another_fault() -> None:
    text = """
    def main():
        run = Run()
        for x in data:
            run.trained.append(x + 1)
        for x in data:
            run.tested.append(x + 2)
    """
    assert len(report(text, {"run .trained": 1000, "run .tested": 1000}).findings) == 2


def test_what_is_bounded_stays_apart_from_what_is_not() -> None:
    looks = [
        census(t, holding("meter .preds", direct=1000 * t),
               holding("meter .target", direct=1000 * t, container="deque", capacity=10_000, length=t))
        for t in TICKS
    ]  # fmt: skip
    source = Source(path=FILE, text=textwrap.dedent(MERGED))
    found = diagnose(recording(program(), steps(40), evidence(40), source, looks, outcome(40))).findings
    assert len(found) == 2


def test_a_line_that_several_functions_hand_in_to_is_theirs() -> None:
    text = """
    class Rows:
        def __init__(self):
            self.kept = []

        def push(self, x):
            self.kept.append(x)


    def train(first):
        first.push(model(x))


    def main():
        first, second = Rows(), Rows()
        for x in data:
            train(first)
            {second}
    """
    rates = {"first .kept": 1000, "second .kept": 1000}
    assert len(report(text.format(second="second.push(x)"), rates).findings) == 2


def test_names_of_one_line_that_binds_their_owner_are_one() -> None:
    text = """
    def main():
        state = start()
        for x in data:
            state = advance(state, x)
    """
    (one,) = report(text, {"state .first": 1000, "state .second": 1000}).findings
    assert one.measured.bytes_per_step == 2000


HOOKS = """\
import torch
from torch import nn

torch.manual_seed(0)


def disturb(layer):
    noise = torch.randn(64, 64)

    def add(module, inputs, output):
        return output + 0.001 * noise.mean()

    layer.register_forward_hook(add)


model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(COUNT)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    for layer in model:
        disturb(layer)
    loss = model(torch.randn(8, 32)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("layers", [4, 20])
def test_hooks_that_one_line_registers_on_all_layers_are_one_finding(layers: int, tmp_path: Path) -> None:
    found = forked(HOOKS.replace("COUNT", str(layers)), tmp_path)
    assert found is not None
    (one,) = [f for f in found if f["severity"] != "info"]
    assert one["code"] == "MEM106" and one["measured"]["bytes_per_step"] == pytest.approx(layers * 16384, rel=0.1)
    assert one["location"]["line"] == 13 and "hooks" in one["cause"]


def test_hooks_that_are_removed_again_are_none(tmp_path: Path) -> None:
    program = HOOKS.replace("COUNT", "12").replace("    layer.register", "    return layer.register")
    program = program.replace(
        "    for layer in model:\n        disturb(layer)", "    handles = [disturb(e) for e in model]"
    )
    program += "    for handle in handles:\n        handle.remove()\n"
    found = forked(program, tmp_path)
    assert found is not None and not [f for f in found if f["severity"] != "info"]
