"""TRN142: batches for a masked language model that go to a causal one, and what looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_runs import forked
from observed_fixes import FILE

from torchvet.rules import rule
from torchvet.source.model import SourceFile

MASKS = {
    "as it is": "model = GPT2LMHeadModel(config)\ncollator = DataCollatorForLanguageModeling(tokenizer)\n",
    "by name": "model = AutoModelForCausalLM.from_pretrained(x)\nc = DataCollatorForLanguageModeling(tokenizer=t)\n",
    "told so": "model = LlamaForCausalLM(config)\nc = DataCollatorForLanguageModeling(tokenizer, mlm=True)\n",
    "by place": "model = LlamaForCausalLM(config)\nc = DataCollatorForLanguageModeling(tokenizer, True)\n",
}
LEFT = {
    "not masked": "model = GPT2LMHeadModel(config)\nc = DataCollatorForLanguageModeling(tokenizer, mlm=False)\n",
    "by place": "model = GPT2LMHeadModel(config)\nc = DataCollatorForLanguageModeling(tokenizer, False)\n",
    "a masked model": "model = BertForMaskedLM(config)\nc = DataCollatorForLanguageModeling(tokenizer)\n",
    "either": "kind = AutoModelForMaskedLM if args.mlm else AutoModelForCausalLM\n"
    "c = DataCollatorForLanguageModeling(tokenizer)\n",
    "a variable": "model = GPT2LMHeadModel(config)\nc = DataCollatorForLanguageModeling(tokenizer, mlm=args.mlm)\n",
    "options": "model = GPT2LMHeadModel(config)\nc = DataCollatorForLanguageModeling(tokenizer, **options)\n",
    "both kinds": "model = XLMWithLMHeadModel(config)\nc = DataCollatorForLanguageModeling(tokenizer)\n",
    "a class of its own": "class Both(LlamaForCausalLM):\n    pass\nmodel = Both(config)\n"
    "c = DataCollatorForLanguageModeling(tokenizer)\n",
    "no model here": "c = DataCollatorForLanguageModeling(tokenizer)\n",
}


def texts(text: str) -> list[str]:
    return [one.severity for one in rule("TRN142").in_source(SourceFile(FILE, text))]


@pytest.mark.parametrize("text", MASKS.values(), ids=MASKS)
def test_a_collator_that_masks_is_found_beside_a_causal_model(text: str) -> None:
    assert texts(text) == ["warning"]


@pytest.mark.parametrize("text", LEFT.values(), ids=LEFT)
def test_another_collator_or_model_is_left(text: str) -> None:
    assert texts(text) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("DataCollatorForLanguageModeling(tokenizer)", ", mlm=False"),
        ("DataCollatorForLanguageModeling(tokenizer, mlm=True)", "False"),
        ("DataCollatorForWholeWordMask(tokenizer)", ""),
    ],
)
def test_it_is_told_not_to(line: str, expected: str) -> None:
    (one,) = rule("TRN142").in_source(SourceFile(FILE, f"model = GPT2LMHeadModel(config)\ncollator = {line}\n"))
    assert "".join(edit.text for edit in one.remedy.edits) == expected


PROGRAM = """
from types import SimpleNamespace
import torch
from torch import nn
from torch.utils.data import DataLoader

class DataCollatorForLanguageModeling:
    def __init__(self, tokenizer, mlm):
        self.mlm = mlm
    def __call__(self, rows):
        ids = torch.stack(rows)
        return {{"input_ids": ids, "labels": ids}}

class Wrapped:
    def __init__(self, data_collator):
        self.data_collator = data_collator
    def __call__(self, rows):
        return self.data_collator(rows)

class {model}(nn.Sequential):
    def forward(self, input_ids, labels=None):
        logits = super().forward(input_ids)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), input_ids.flatten())
        return SimpleNamespace(loss=loss if labels is not None else None, other=loss)

model = {model}(nn.Embedding(9, 8), nn.Linear(8, 9))
masked = type("TinyForMaskedLM", ({model},), {{}})(nn.Embedding(9, 8), nn.Linear(8, 9))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader([torch.randint(0, 9, (6,)) for _ in range(120)], 4, collate_fn={collator}):
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
LOSS, MASKING = "model(**batch).loss", "DataCollatorForLanguageModeling(None, True)"


@pytest.mark.parametrize(
    ("model", "collator", "loss", "expected"),
    [
        ("TinyForCausalLM", MASKING, LOSS, ["warning"]),
        ("TinyLMHeadModel", f"Wrapped({MASKING})", LOSS, ["warning"]),
        ("TinyForCausalLM", "DataCollatorForLanguageModeling(None, False)", LOSS, []),
        ("TinyForMaskedLM", MASKING, LOSS, []),
        ("TinyForCausalLM", MASKING, "model(batch['input_ids']).other", []),
        ("TinyForCausalLM", "None", "model(batch, batch).loss", []),
        ("TinyForCausalLM", MASKING, "masked(**batch).loss + model(**batch).loss", []),
    ],
)
def test_a_run_sees_which_model_takes_them(
    model: str, collator: str, loss: str, expected: list[str], tmp_path: Path
) -> None:
    findings = forked(PROGRAM.format(model=model, collator=collator, loss=loss), tmp_path)
    assert findings is not None
    # What source suspects beside that is a note in a run that has not seen it.
    assert [f["severity"] for f in findings if f["code"] == "TRN142" and f["evidence"] == "observed"] == expected
