"""TRN104 on columns that a Trainer drops although the model asks its keywords for them, and on what looks alike."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from example_runs import forked
from handmade import FILE, outcome, program, recording, steps
from observed_fixes import fixed_lines

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import About, Finding
from torchvet.recording.records.base import Place, Source
from torchvet.recording.records.columns import DroppedColumns
from torchvet.recording.records.optimizers import OptimizerUse

MODEL = """\
from torch import nn
from transformers import Trainer, TrainingArguments

class Net(nn.Module):
    def forward(self, tokens, labels=None, **more):
        x = self.embed(tokens)
        {body}
        return self.head(x)

    def with_image(self, x, {given}):
        return x + self.image({image})

def main(net, data):
    args = TrainingArguments("out", max_steps=40)
    trainer = Trainer(model=net, args=args, train_dataset=data)
    trainer.train()
"""
ASKS = {
    "by a subscript": 'x = x + self.image(more["image"])',
    "if it is there": 'if "image" in more: x = x + self.image(more["image"])',
    "by get": 'x = self.with_image(x, more.get("image"))',
    "by pop": 'image = more.pop("image", None)',
    "by a function": 'image = pick(more, "image")',
    "of a copy": 'extra = dict(more); image = extra.pop("image", None)',
    "of a copy with others": 'extra = {"size": 3, **more}; image = extra.get("image")',
    "under another name": "extra = more.copy(); x = self.with_image(x, **extra)",
}


def finding(body: str, given: str = "image", image: str = "image", text: str = MODEL, **changes: Any) -> Finding:
    dropped = {"columns": ["id", "image"], "parts": ["embed", "image", "head"], **changes}
    silent, names = dropped.pop("silent", True), dropped.pop("without_gradient", ["image.bias", "image.weight"])
    head = dropped.pop("line", "def forward")
    text = text.format(body=body, given=given, image=image)
    line = next(n for n, one in enumerate(text.splitlines(), 1) if head in one)
    forward = Place(FILE, line, "Net.forward")
    at = Place(FILE, len(text.splitlines()), "main")
    use = OptimizerUse(
        id=1, name="AdamW", place=at, step_place=at, steps=40, checked=10, parameters=8, trainable=8,
        without_gradient=names, without_gradient_count=2, silent=silent,
    )  # fmt: skip
    record = DroppedColumns(id=0, trainer="Trainer", model="Net", forward=forward, keywords="more", place=at, **dropped)
    run = recording(program(), Source(path=FILE, text=text), *steps(40), use, record, outcome(40))
    (one,) = [f for f in diagnose(run).findings if f.code == "TRN104"]
    return one


@pytest.mark.parametrize("body", ASKS.values(), ids=ASKS)
def test_a_column_that_forward_asks_for_is_named_where_the_trainer_is_made(body: str) -> None:
    one = finding(body)
    assert one.severity == "warning" and 'drops the column "image" of the training set' in one.message
    assert one.location is not None and one.location.line == 15
    assert [(r.role, r.line) for r in one.related] == [("asks", 7), ("settings", 14)]
    assert "remove_unused_columns=False" in one.remedy.summary


def test_keywords_are_followed_to_the_method_that_takes_them() -> None:
    for given, image in (("image=None, **_", "image"), ("**rest", 'rest["image"]')):
        assert finding("x = self.with_image(x, **more)", given, image).severity == "warning"


INNER = """\
from torch import nn
from transformers import Trainer, TrainingArguments

class Part(nn.Module):
    def forward(self, tokens, {given}):
        return self.head(self.embed(tokens) + self.image({image}))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Part()

    def forward(self, tokens, labels=None, **more):
        {body}

def main(net, data):
    args = TrainingArguments("out", max_steps=40)
    trainer = Trainer(model=net, args=args, train_dataset=data)
    trainer.train()
"""


def test_keywords_are_followed_to_an_inner_model() -> None:
    body, names = "return self.part(tokens, **more)", ["part.image.bias", "part.image.weight"]
    asks = {"line": "def forward(self, tokens, labels", "parts": ["part"], "without_gradient": names}
    one = finding(body, "image=None, **_", "image", INNER, **asks)
    assert one.severity == "warning" and 'the column "image"' in one.message
    assert finding(body, "mask=None, **_", "mask", INNER, **asks).severity == "info"


def test_a_model_that_goes_through_its_keywords_wants_all_of_them() -> None:
    body = "for name, value in more.items(): x = x + self.parts[name](value)"
    one = finding(body, columns=["image"])
    assert one.severity == "warning" and "would find in `**more`" in one.message
    assert finding(body, silent=False).severity == "info", "what ran is not missing"


LOOK_ALIKES: dict[str, dict[str, Any]] = {
    "hands its keywords on": {"body": "x = self.inner(x, **more)"},
    "hands them to a method that asks for others": {
        "body": "x = self.with_image(x, **more)", "given": "mask=None, **rest", "image": 'rest.get("mask")',
    },
    "asks for another name": {"body": 'x = self.inner(x, more.get("mask"))'},
    "throws it away from a copy": {"body": 'rest = dict(more); rest.pop("image", None); x = self.inner(x, **rest)'},
    "throws it away": {"body": 'more.pop("image", None)'},
    "says that it is missing": {"body": 'if "image" not in more: print("no image")'},
    "does not look at its keywords": {"body": "pass"},
    "only what nobody asks for was dropped": {"body": 'x = self.image(more["image"])', "columns": ["id", "text"]},
    "another model": {"body": 'x = self.image(more["image"])', "parts": ["encoder"]},
}  # fmt: skip


@pytest.mark.parametrize("case", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_without_a_sign_that_it_was_wanted_it_stays_a_note(case: dict[str, Any]) -> None:
    one = finding(**case)
    assert one.severity == "info" and "column" not in one.message


def test_of_two_trainers_neither_is_named() -> None:
    text = MODEL + "    Trainer(model=net)\n    trainer.train()\n"
    one = finding('x = x + self.image(more["image"])', text=text)
    assert one.location is not None and one.location.line == 18, "the line that trains"
    assert [r.role for r in one.related] == ["asks"]


KEPT = """
from transformers import Trainer, TrainingArguments
def main(net, data, options):
    args = TrainingArguments({given})
    trainer = Trainer(model=net, args=args, train_dataset=data)  # HERE
"""


def settings(given: str, variant: str = "columns dropped by a Trainer") -> list[str]:
    text = textwrap.dedent(KEPT.format(given=given))
    return [one.strip() for one in fixed_lines("TRN104", text, "# HERE", about=About(variant=variant))[1]]


def test_the_settings_keep_all_columns() -> None:
    assert settings('"out"') == ['args = TrainingArguments("out", remove_unused_columns=False)']
    (one,) = settings('"out", remove_unused_columns=True, seed=1')
    assert one == 'args = TrainingArguments("out", remove_unused_columns=False, seed=1)'


@pytest.mark.parametrize("given", ['"out", **options', '("out")'])
def test_settings_that_may_say_it_already_are_left_alone(given: str) -> None:
    assert not settings(given)
    assert not settings('"out"', variant="")


WHOLE = """
import torch
from torch import nn
from transformers import Trainer, TrainingArguments

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.sound, self.image, self.head = nn.Linear(8, 8), nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, sound, labels=None, **more):
        x = self.sound(sound)
        if more.get("image") is not None:
            x = x + self.image(more["image"])
        logits = self.head(x)
        return {{"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}}

torch.manual_seed(0)
rows = [{{"sound": torch.randn(8), "image": torch.randn(4), "labels": n % 3}} for n in range(64)]
args = TrainingArguments("out", max_steps=12, per_device_train_batch_size=8, use_cpu=True, report_to="none",
                         disable_tqdm=True, save_strategy="no"{more})
Trainer(model=Net(), args=args, train_dataset=rows).train()
"""


def test_a_real_trainer_is_seen_to_drop_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed, which the Trainer needs")
    monkeypatch.chdir(tmp_path)
    found = forked(WHOLE.format(more=""), tmp_path)
    assert found is not None
    (one,) = [f for f in found if f["code"] == "TRN104"]
    assert one["severity"] == "warning" and 'drops the column "image"' in one["message"]
    kept = forked(WHOLE.format(more=", remove_unused_columns=False"), tmp_path)
    assert kept is not None and not [f for f in kept if f["code"] == "TRN104"]
