"""TRN107 in a run: micro-batches whose gradients nothing averages, and passes that are to be summed."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from example_runs import forked
from handmade import FILE, program, recording

from torchvet.finding import Finding
from torchvet.recording.records.base import Place, Source
from torchvet.recording.records.passes import SummedPasses
from torchvet.rules.training.trn107_accumulation_not_averaged.rule import AccumulationNotAveraged

AT, MAIN = Place(FILE, 7, "advance"), Place(FILE, 10, "main")
TEXT = """
import torch
def advance(loss):
    # The passes of one step.


    loss.backward()
def main(parts, rule):
    for {loop}:
        advance(part)
    rule.step()
"""


def found(*records: SummedPasses, loop: str = "part in parts") -> list[Finding]:
    text = Source(path=FILE, text=TEXT.replace("{loop}", loop))
    return list(AccumulationNotAveraged().in_recording(recording(program(), text, *records)))


def passes(**changes: Any) -> SummedPasses:
    facts: dict[str, Any] = {
        "id": 0, "place": AT, "around": [MAIN], "passes": 8, "factors": [1.0], "optimizer": "SGD", "summed": 6,
        "batches": 6,
    }  # fmt: skip
    return SummedPasses(**{**facts, **changes})


def test_a_finding_says_what_was_measured() -> None:
    (one,) = found(passes(factors=[2.0, 0.5], unclear=1))
    assert (one.severity, one.evidence, one.location and one.location.line) == ("warning", "observed", 7)
    assert "8 passes" in one.message and "2 and 0.5 (0.25 and 0.0625 would" in one.message
    assert "6 of 7 sampled steps" in one.message
    assert "`loss / 8`" in one.remedy.summary and one.measured.steps == 6


GRADED = {
    "SGD": ({}, "warning"),
    "SGD, clipped as the average would be": ({"clipped": 6, "clipped_anyway": 6}, "info"),
    "SGD, sometimes clipped": ({"clipped": 3, "clipped_anyway": 3}, "warning"),
    "Adam": ({"optimizer": "AdamW"}, "info"),
    "Adam, never clipped": ({"optimizer": "Adam", "clipped": 0}, "info"),
    "Adam, clipped by the sum alone": ({"optimizer": "AdamW", "clipped": 6, "clipped_anyway": 2}, "warning"),
    "Adam, clipped in any case": ({"optimizer": "AdamW", "clipped": 6, "clipped_anyway": 6}, "info"),
    "Adam by another name": ({"optimizer": "Adam8bit"}, "info"),
    "signs": ({"optimizer": "Lion"}, "info"),
}


@pytest.mark.parametrize(("changes", "severity"), GRADED.values(), ids=GRADED)
def test_what_divides_by_the_gradients_size_makes_it_a_note(changes: dict[str, Any], severity: str) -> None:
    (one,) = found(passes(**changes))
    assert one.severity == severity
    assert ("clipping acted in" in one.cause) is (changes.get("clipped", 0) > changes.get("clipped_anyway", 0))


QUIET: dict[str, list[SummedPasses]] = {
    "averaged once": [passes(averaged=1)],
    "one step": [passes(summed=1, batches=1)],
    "mostly unclear": [passes(summed=3, batches=3, unclear=4)],
    "terms of one batch": [passes(batches=0)],
    "taken back": [passes(), passes(averaged=3)],
    "nothing summed": [passes(summed=0, unclear=9)],
}


@pytest.mark.parametrize("records", QUIET.values(), ids=QUIET)
def test_what_is_averaged_or_no_micro_batch_is_not_reported(records: list[SummedPasses]) -> None:
    assert found(*records) == []


@pytest.mark.parametrize(
    ("loop", "said"),
    [("part in parts", 0), ("micro_batch in parts", 1), ("i in range(accumulation_steps)", 1), ("task in tasks", 0)],
)
def test_without_a_loader_the_text_says_what_the_passes_are(loop: str, said: int) -> None:
    assert len(found(passes(batches=0), loop=loop)) == said


def test_one_line_has_one_finding() -> None:
    assert len(found(passes(), passes(id=1, around=[]))) == 1


LOSS, HELPER = Place(FILE, 7, "Mine.compute_loss"), Place(FILE, 5, "Mine.compute_loss")
TRAINED: dict[str, Any] = {"place": MAIN, "around": [], "trainer": "Mine"}
TRAINERS = {
    "a method": ({"loss_from": "method", "loss_at": HELPER, "made": LOSS}, 7, "self.model_accepts_loss_kwargs = False"),
    "a method, not heard": ({"loss_from": "method", "loss_at": HELPER}, 5, "self.model_accepts_loss_kwargs = False"),
    "a function": ({"loss_from": "function", "loss_at": HELPER, "made": MAIN}, 5, "gives the function"),
    "a model": ({"loss_from": "model", "made": LOSS}, 7, "`accepts_loss_kwargs = False` on the model's class"),
    "a model of a package": ({"loss_from": "model", "made": MAIN}, 10, "`accepts_loss_kwargs = False` on the model"),
}


@pytest.mark.parametrize(("facts", "line", "advice"), TRAINERS.values(), ids=TRAINERS)
def test_of_a_trainer_the_line_is_that_of_the_loss(facts: dict[str, Any], line: int, advice: str) -> None:
    (one,) = found(passes(**TRAINED, **facts))
    assert one.location is not None and one.location.line == line
    assert advice in one.remedy.summary and "num_items_in_batch" in one.cause and "8 times too large" in one.cause
    assert [r.line for r in one.related] == ([] if line == 10 else [10])


# Whole runs ---------------------------------------------------------------------------------------------------------

PROGRAM = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(512, 8), torch.randn(512, 1)), 8)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
rule = torch.optim.{rule}
def advance(loss):
    {advance}
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
{body}
        if i % 4 == 3:
{between}
            rule.step()
            rule.zero_grad()
"""
SGD, PLAIN = "SGD(net.parameters(), lr=0.01)", "advance(F.mse_loss(net(x), y))"
GAN = """
if i % 4 == 3:
    for target in (0.0, 1.0):
        advance(F.mse_loss(net(x), y * 0 + target))
"""
SUMMED = {
    "weighted terms": (
        SGD,
        "loss.backward()",
        "advance(0.5 * F.l1_loss(net(x), y) + 0.1 * net(x).square().mean())",
        "",
    ),
    "a sum over its own rows": (SGD, "loss.backward()", "advance(((net(x) - y) ** 2).sum() / len(x))", ""),
}
RIGHT = {
    "by the argument of backward": (SGD, "loss.backward(torch.tensor(0.25))", PLAIN, ""),
    "by hand": (SGD, "loss.backward()", PLAIN, "for p in net.parameters(): p.grad.div_(4)"),
    "real and fake": (SGD, "loss.backward()", GAN, ""),
    "terms one by one": (
        SGD,
        "loss.backward(retain_graph=True)",
        "out = net(x)\nfor loss in (F.mse_loss(out, y), out.mean()):\n    advance(loss)",
        "",
    ),
    "only asked for": (
        SGD,
        "torch.autograd.grad(loss, list(net.parameters()))",
        f"{PLAIN}\nif i % 4 == 3: F.mse_loss(net(x), y).backward()",
        "",
    ),
}


def told(folder: Path, rule: str, advance: str, body: str, between: str) -> list[tuple[str, str]]:
    """The severity of TRN107's findings and the text of their lines."""
    inner = {"body": indent(body.strip(), " " * 8), "between": indent(between or "pass", " " * 12)}
    text = PROGRAM.format(rule=rule, advance=advance, **inner)
    found = forked(text, folder)
    assert found is not None
    mine = [f for f in found if f["code"] == "TRN107"]
    return [(f["severity"], text.splitlines()[f["location"]["line"] - 1].strip()) for f in mine]


@pytest.mark.parametrize("case", SUMMED.values(), ids=SUMMED)
def test_a_run_sees_micro_batches_that_are_summed(case: tuple[str, str, str, str], tmp_path: Path) -> None:
    assert told(tmp_path, *case) == [("warning", "loss.backward()")]


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_a_run_sees_what_is_right(case: tuple[str, str, str, str], tmp_path: Path) -> None:
    assert told(tmp_path, *case) == []


def test_clipping_that_acts_on_the_sum_alone_matters_to_adam(tmp_path: Path) -> None:
    adam = ("Adam(net.parameters(), lr=0.001)", "loss.backward()", PLAIN)
    norm = "nn.utils.clip_grad_norm_(net.parameters(), {})"
    assert told(tmp_path, *adam, norm.format(2.0)) == [("warning", "loss.backward()")]
    assert told(tmp_path, *adam, norm.format(100.0)) == [("info", "loss.backward()")]


def test_what_source_suspects_and_a_run_sees_is_one_finding_with_its_edit(tmp_path: Path) -> None:
    body = indent("loss = F.mse_loss(net(x), y)\nloss.backward()", " " * 8)
    found = forked(PROGRAM.format(rule=SGD, advance="pass", body=body, between=""), tmp_path)
    assert found is not None
    (one,) = [f for f in found if f["code"] == "TRN107"]
    assert one["evidence"] == "observed" and "a gradient of 1 (0.25 would average them)" in one["message"]
    assert [edit["text"] for edit in one["remedy"]["edits"]] == ["(loss / 4)"]
