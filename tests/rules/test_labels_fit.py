"""TRN117: labels that a loss takes for something else, and what looks like it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from example_runs import forked

from torchvet.rules import rule
from torchvet.source.model import SourceFile

PROGRAM = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
truth = torch.randn(12, 5)
hinge, pairs, ranking = nn.HingeEmbeddingLoss(), nn.CosineEmbeddingLoss(margin=0.2), nn.MarginRankingLoss(0.1)

if __name__ == "__main__":
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 5))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(1, 19):
        x, other = torch.randn(48, 12), torch.randn(48, 5)
        y = (x @ truth).argmax(1)
        several = (x @ truth > 0).float()
        one = several[:, 0]
        hot = F.one_hot(y, 5).float()
        shares = (x @ truth).softmax(1)
        z = model(x)
        {before}
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"loss {{loss.item():.6f}}")
"""
BEFORE = PROGRAM[: PROGRAM.index("{before}")].count("\n") + 1
LINE = PROGRAM[: PROGRAM.index("{loss}")].count("\n") + 1
BCE, CE = "F.binary_cross_entropy_with_logits", "F.cross_entropy"
KL = "F.kl_div(z.log_softmax(1), {}, reduction='batchmean')"

FAULTY: dict[str, tuple[str, str, str]] = {
    "hinge": ("", "hinge(z.pow(2).mean(1), one)", "knows the labels -1 and 1, and is given 0 and 1"),
    "hinge, whole numbers": ("", "F.hinge_embedding_loss(z.abs(), several.long())", "is given 0 and 1"),
    "cosine": ("", "pairs(z, other, one)", "is given 0 and 1"),
    "cosine, two pairs a step": ("", "pairs(z[:2], other[:2], one[:2])", "is given 0 and 1"),
    "ranking": ("y = (other[:, 0] > 0).float()", "ranking(z[:, 0], z[:, 1], y)", "is given 0 and 1"),
    "soft margin": ("", "F.soft_margin_loss(z, several)", "is given 0 and 1"),
    "soft margin, classes 1 and 2": ("", "F.soft_margin_loss(z, several + 1)", "is given 1 and 2"),
    "BCE, classes 1 and 2": ("", f"{BCE}(z[:, 0], one + 1)", "from 1 to 2"),
    "BCE, -1 and 1": ("", f"{BCE}(z, 2 * several - 1)", "from -1 to 1"),
    "BCE, classes": ("", f"{BCE}(z[:, 0], y.float())", "from 0 to 4"),
    "BCE, mask": ("", "nn.BCEWithLogitsLoss()(z, several * 255)", "from 0 to 255"),
    "BCE, a mask of 255, not reduced": (
        "several *= 255",
        f"{BCE}(z, several, reduction='none').mean()",
        "from 0 to 255",
    ),
    "BCE, classes from 1, not reduced": ("", f"{BCE}(z, several + 1, reduction='none').mean()", "from 1 to 2"),
    "BCE, classes, not reduced": ("", f"{BCE}(z[:, 0], y.float(), reduction='none').mean()", "from 0 to 4"),
    "soft margins of several labels": ("", "F.multilabel_soft_margin_loss(z, 2 * several - 1)", "from -1 to 1"),
    "several classes": ("", f"{CE}(z, several)", "rows hold several ones"),
    "several classes, a module": ("", "nn.CrossEntropyLoss(label_smoothing=0.1)(z, several)", "several ones"),
    "several classes of pixels": (
        "z = z[..., None].repeat(1, 1, 3)",
        f"{CE}(z, several[..., None].expand(48, 5, 3))",
        "several ones",
    ),
    "a teacher's scores": ("", f"{CE}(z, x @ truth)", "rows hold scores"),
    "a teacher's logarithms": ("", f"{CE}(z, shares.log())", "rows are logarithms"),
    "KL, logarithms": ("", KL.format("shares.log()"), "rows are logarithms"),
    "KL, scores": ("", KL.format("x @ truth"), "rows hold scores"),
    "KL, several classes": ("", KL.format("several"), "rows hold several ones"),
    "several labels as a list": ("", "F.multilabel_margin_loss(z, several.long())", "expects lists of classes"),
}
HEALTHY: dict[str, tuple[str, str]] = {
    "hinge": ("", "hinge(z.pow(2).mean(1), 2 * one - 1)"),
    "cosine": ("", "pairs(z, other, 2 * one - 1)"),
    "cosine, positive pairs": ("", "F.cosine_embedding_loss(z, other, torch.ones(48))"),
    "cosine, one 1 for all": ("", "F.cosine_embedding_loss(z, other, torch.ones(1))"),
    "cosine, only looked at": ("with torch.no_grad(): pairs(z, other, one)", f"{CE}(z, y)"),
    "ranking": ("", "ranking(z[:, 0], z[:, 1], torch.sign(other[:, 0]))"),
    "ranking, in order": ("", "ranking(z[:, 0], z[:, 1], torch.ones(48))"),
    "ranking, ties": ("", "ranking(z[:, 0], z[:, 1], (2 * other[:, 0]).round().sign())"),
    "soft margin": ("", "F.soft_margin_loss(z, 2 * several - 1)"),
    "soft margin, some unknown": ("", "F.soft_margin_loss(z, (2 * several - 1) * (other > 0))"),
    "BCE": ("", f"{BCE}(z, several)"),
    "BCE, smoothed": ("", f"{BCE}(z, several * 0.8 + 0.1)"),
    "BCE, a GAN's": ("", f"{BCE}(z, torch.full_like(z, 0.9)) + {BCE}(-z, torch.zeros_like(z))"),
    "BCE, rounded": ("", f"{BCE}(z, several * 1.00001 - 0.000005)"),
    "BCE, bfloat16": ("", f"{BCE}(z.bfloat16(), several.bfloat16())"),
    "BCE, unknown masked out": (
        "several[:, 3] = -1",
        f"({BCE}(z, several, reduction='none') * (several >= 0)).mean()",
    ),
    "BCE, unknown weighs nothing": ("several[:, 3] = -1", f"{BCE}(z, several, weight=(several >= 0).float())"),
    "BCE, 255 left out of what is mostly 0": (
        "several *= step % 5 == 0; several[::4] = 255",
        f"{BCE}(z, several, reduction='none')[several < 2].mean()",
    ),
    "BCE, positive and unlabeled": (
        "several = 2 * several - 1",
        f"{BCE}(z, several, reduction='none')[several > 0].mean()",
    ),
    "BCE, 255 left out": ("several[::4] = 255", f"{BCE}(z, several, reduction='none')[several < 2].mean()"),
    "BCE, two marks": (
        "several[:, 3] = -1; several[:, 2] = -2",
        f"({BCE}(z, several, reduction='none') * (several >= 0)).mean()",
    ),
    "BCE, an outlier": ("several[0, 0] = 2.0 if step % 9 == 0 else 0.0", f"{BCE}(z, several)"),
    "BCE, unknown are no numbers": (
        "several[:, 3] = float('nan')",
        f"{BCE}(z, several, reduction='none').nan_to_num().mean()",
    ),
    "BCE, weights of the positive": ("", f"{BCE}(z, several, pos_weight=torch.full((5,), 9.0))"),
    "focal loss by hand": (
        f"p = z.sigmoid(); ce = {BCE}(z, several, reduction='none')",
        "(ce * (1 - p * several - (1 - p) * (1 - several)) ** 2).mean()",
    ),
    "several labels, right": ("", "F.multilabel_soft_margin_loss(z, several)"),
    "classes": ("", f"{CE}(z, y)"),
    "one-hot": ("", f"{CE}(z, hot)"),
    "smoothed": ("", f"{CE}(z, hot * 0.9 + 0.02)"),
    "smoothed by the loss": ("", f"{CE}(z, hot, label_smoothing=0.1)"),
    "mixup": ("l = torch.rand(()).item(); hot = l * hot + (1 - l) * hot.flip(0)", f"{CE}(z, hot)"),
    "cutmix": ("hot[:20] = 0.25 * hot[:20] + 0.75 * hot[20:40]", f"{CE}(z, hot)"),
    "teacher": ("", f"{CE}(z / 2, shares)"),
    "teacher in half": ("", f"{CE}(z, shares.bfloat16().float())"),
    "rows of zeros": ("hot[::3] = 0", f"{CE}(z, hot)"),
    "weights of the classes": ("", f"{CE}(z, hot, weight=torch.rand(5))"),
    "weights of the samples": ("", f"{CE}(z, hot * torch.rand(48, 1))"),
    "policy gradient": ("", f"{CE}(z, hot * torch.randn(48, 1))"),
    "several classes, divided": ("", f"{CE}(z, several / several.sum(1, keepdim=True).clamp(min=1))"),
    "logits of pixels": ("", f"{CE}(z[..., None], hot[..., None])"),
    "KL": ("", KL.format("shares")),
    "KL, logarithms": ("", KL.format("shares.log(), log_target=True")),
    "KL, padding": ("", KL.format("shares * (other[:, :1] > 0)")),
    "KL over maps": (
        "z = z.view(48, 5, 1).expand(48, 5, 4).reshape(48, 1, 5, 4)",
        "F.kl_div(z.flatten(1).log_softmax(1).view(48, 1, 5, 4), (shares / 4).view(48, 1, 5, 1).expand(48, 1, 5, 4))",
    ),
    "KL, counts of a Poisson": ("", "F.kl_div(z, several * 3) + z.exp().mean()"),
    "lists of classes": ("", "F.multilabel_margin_loss(z, torch.tensor([1, 0, -1, 0, 0]).expand(48, 5))"),
    "one label each": ("", "F.multi_margin_loss(z, y)"),
    "regression": ("", "F.mse_loss(z, x @ truth)"),
    "hinge by hand": ("", "(1 - (2 * one - 1) * z[:, 0]).clamp_min(0).mean()"),
    "own loss of the same name": (
        "def hinge_embedding_loss(input, target): return (target * input.clamp_min(0)).mean()",
        "hinge_embedding_loss(z, several)",
    ),
}
NOTES: dict[str, tuple[str, str]] = {
    "ranking in order, ties": ("", "ranking(z[:, 0], z[:, 1], (other[:, 0] > -0.8).float())"),
    "cosine, padding": ("mask = (other[:, 0] > 0).float()", "F.cosine_embedding_loss(z, other, mask)"),
    "BCE, noise on a GAN's labels": ("", f"{BCE}(z, 0.7 + 0.5 * torch.rand(48, 5))"),
    "shares with weights": ("", f"{CE}(z, shares * torch.rand(48, 1))"),
    "sigmoids": ("", KL.format("(x @ truth).sigmoid()")),
    "several positives of a batch": ("", f"{CE}(z @ z.T / 0.1, (y == y[:, None]).float())"),
    "several items of a list": ("", f"{CE}(z[..., None].squeeze(-1), several)"),
}


def findings(tmp_path: Path, before: str, loss: str) -> list[dict[str, Any]]:
    found = forked(PROGRAM.format(before=before or "pass", loss=loss), tmp_path)
    assert found is not None
    return [f for f in found if f["code"] == "TRN117"]


@pytest.mark.parametrize("what", FAULTY)
def test_labels_that_do_not_fit(tmp_path: Path, what: str) -> None:
    before, loss, words = FAULTY[what]
    (found,) = findings(tmp_path, before, loss)
    assert (found["severity"], found["location"]["line"]) == ("warning", LINE)
    assert words in found["message"]


@pytest.mark.parametrize("what", HEALTHY)
def test_labels_that_fit(tmp_path: Path, what: str) -> None:
    assert not findings(tmp_path, *HEALTHY[what])


@pytest.mark.parametrize("what", NOTES)
def test_labels_that_may_be_meant_are_a_note(tmp_path: Path, what: str) -> None:
    (found,) = findings(tmp_path, *NOTES[what])
    assert (found["severity"], found["location"]["line"]) == ("info", LINE)


def test_the_line_that_makes_the_labels_is_named(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, "y = (other[:, 0] > 0).float()", "ranking(z[:, 0], z[:, 1], y)")
    assert [one["line"] for one in found["related"] if one["role"] == "labels"] == [BEFORE]


@pytest.mark.parametrize(
    ("loss", "edited"),
    [
        ("hinge(z.pow(2).mean(1), one)", "hinge(z.pow(2).mean(1), 2 * one - 1)"),
        ("pairs(z, other, target=one)", "pairs(z, other, target=2 * one - 1)"),
        ("F.soft_margin_loss(z, several)", "F.soft_margin_loss(z, 2 * several - 1)"),
        (f"{BCE}(z, several * 255)", f"{BCE}(z, (several * 255) / 255)"),
        (f"{BCE}(z, 2 * several - 1)", f"{BCE}(z, ((2 * several - 1) + 1) / 2)"),
        (f"{CE}(z, shares.log())", f"{CE}(z, shares.log().exp())"),
    ],
)
def test_the_fix_gives_the_labels_that_the_loss_knows(tmp_path: Path, loss: str, edited: str) -> None:
    (found,) = findings(tmp_path, "", loss)
    assert [edit["text"] for edit in found["remedy"]["edits"]]
    (edit,) = found["remedy"]["edits"]
    assert edit["text"] in edited


@pytest.mark.parametrize("loss", [f"{BCE}(z[:, 0], y.float())", f"{CE}(z, several)"])
def test_no_fix_where_the_numbers_do_not_say_what_they_mean(tmp_path: Path, loss: str) -> None:
    (found,) = findings(tmp_path, "", loss)
    assert not found["remedy"]["edits"]


SOURCE = """
import torch
from torch import nn
from torch.nn import functional as F
criterion = nn.CosineEmbeddingLoss(margin=0.3)
def step(a, b, scores, y, seen):
    {given}
    return {loss}
"""
COMPARED: dict[str, tuple[str, str]] = {
    "at once": ("pass", "criterion(a, b, (y == seen).float())"),
    "by a name": ("same = (y == seen).to(a.dtype)", "criterion(a, b, same)"),
    "soft margin": ("same = y > 0", "F.soft_margin_loss(scores, same.float())"),
    "hinge": ("same = (y > 0).long()", "nn.HingeEmbeddingLoss()(scores, target=same)"),
}
NOT_COMPARED: dict[str, tuple[str, str]] = {
    "signs": ("same = (y == seen).float()", "criterion(a, b, 2 * same - 1)"),
    "zeros filled": ("same = (y == seen).float()\n    same[same == 0] = -1", "criterion(a, b, same)"),
    "in place": ("same = (y == seen).float()\n    same.mul_(2).sub_(1)", "criterion(a, b, same)"),
    "bound again": ("same = (y == seen).float()\n    same = same * 2 - 1", "criterion(a, b, same)"),
    "a mask": ("mask = (y == seen).float()", "criterion(a, b, mask)"),
    "another loss": ("pass", "F.binary_cross_entropy_with_logits(scores, (y > 0).float())"),
    "a ranking's ties": ("pass", "F.margin_ranking_loss(a, b, (y > seen).float())"),
    "given": ("pass", "criterion(a, b, y)"),
    "chosen": ("pass", "criterion(a, b, torch.where(y == seen, 1.0, -1.0))"),
}


@pytest.mark.parametrize("what", COMPARED)
def test_comparisons_as_labels_are_read_in_source(what: str) -> None:
    given, loss = COMPARED[what]
    (found,) = rule("TRN117").in_source(SourceFile("train.py", SOURCE.format(given=given, loss=loss)))
    assert found.location is not None and found.location.line == 8
    assert found.remedy.edits[0].text.startswith("2 * ") and found.remedy.edits[0].text.endswith(" - 1")


@pytest.mark.parametrize("what", NOT_COMPARED)
def test_other_labels_are_left_in_source(what: str) -> None:
    given, loss = NOT_COMPARED[what]
    assert not list(rule("TRN117").in_source(SourceFile("train.py", SOURCE.format(given=given, loss=loss))))
