"""TRN127: texts whose end has no label."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from handmade import program, recording

from torchvet.finding import Finding
from torchvet.probes.training.labels.end_tokens import EndTokenProbe, look
from torchvet.recording.records.base import Place, Source
from torchvet.recording.records.training import EndTokens
from torchvet.rules import rule

PATH = "/home/user/train.py"
AT = Place(PATH, 9, "train")
END = 1


def texts(
    lengths: tuple[int, ...] = (3, 5, 2, 6), pad: int = END, left: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and the attention mask of texts of words (2 and higher), each with its end."""
    ids, mask = torch.full((len(lengths), 7), pad), torch.zeros((len(lengths), 7), dtype=torch.long)
    for row, length in enumerate(lengths):
        where = slice(7 - length - 1, 7) if left else slice(0, length + 1)
        ids[row, where] = torch.tensor([*range(2, 2 + length), END])
        mask[row, where] = 1
    return ids, mask


def told(ids: torch.Tensor, mask: Any, labels: Any, times: int = 3, text: str = "") -> list[Finding]:
    seen = EndTokens(place=AT)
    for _ in range(times):
        look(seen, ids, mask, labels)
    sources = [Source(path=PATH, text=text)] if text else []
    return list(rule("TRN127").in_recording(recording(program(), *sources, seen)))


def without(ids: torch.Tensor, token: int = END) -> torch.Tensor:
    return ids.masked_fill(ids == token, -100)


@pytest.mark.parametrize("left", [False, True])
def test_ends_that_are_left_out_with_the_padding_are_told(left: bool) -> None:
    ids, mask = texts(left=left)
    (finding,) = told(ids, mask, without(ids))
    assert (finding.severity, finding.location and finding.location.line) == ("warning", 9)
    assert "token 1, which ends the texts, is never a label" in finding.message and "12 of 12 texts" in finding.message


def test_the_line_that_pads_with_the_end_is_named() -> None:
    ids, mask = texts()
    lines = (
        "def made(tokenizer):",
        "    tokenizer.pad_token = tokenizer.unk_token",
        "    tokenizer.pad_token = tokenizer.eos_token",
    )
    (finding,) = told(ids, mask, without(ids), text="\n".join(lines))
    assert finding.location is not None and finding.location.line == 3
    assert [one.line for one in finding.related] == [9]


def _ended(labels: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    # One text of four keeps its end.
    labels[0] = ids[0].masked_fill(torch.arange(7) > 3, -100)
    return labels


@pytest.mark.parametrize(
    "labels",
    [
        lambda ids, mask: ids.masked_fill(mask == 0, -100),
        # Prompts have no labels.
        lambda ids, mask: without(ids).masked_fill(torch.arange(7) < 2, -100),
        # Shifted by the collate function, and masked words.
        lambda ids, mask: torch.cat([without(ids)[:, 1:], torch.full((4, 1), -100)], 1),
        lambda ids, mask: without(ids) + (without(ids) > 3),
        lambda ids, mask: torch.full_like(ids, -100),
        lambda ids, mask: _ended(without(ids), ids),
        lambda ids, mask: None,
        lambda ids, mask: without(ids)[0],
    ],
)
def test_other_labels_are_quiet(labels: Callable[..., Any]) -> None:
    ids, mask = texts()
    assert told(ids, mask, labels(ids, mask)) == []


def test_an_end_that_is_no_padding_is_left_out_for_another_reason() -> None:
    ids, mask = texts(pad=0)
    assert told(ids, mask, without(ids).masked_fill(mask == 0, -100)) == []
    # All of one length: nothing is padded.
    ids, mask = texts((6, 6, 6, 6))
    assert told(ids, mask, without(ids)) == []


def test_texts_that_were_cut_take_no_time_and_tell_nothing() -> None:
    ids = torch.arange(40_000).reshape(400, 100)
    labels = ids.clone()
    labels[:, -1] = -100
    seen = EndTokens(place=AT)
    look(seen, ids, torch.ones_like(ids), labels)
    assert seen.mixed and seen.only == seen.labeled == 0


def test_texts_without_an_end_and_few_texts_are_quiet() -> None:
    ids, mask = texts()
    whole = ids.clone()
    mask[torch.arange(4), mask.sum(1) - 1] = 0
    assert told(whole, mask, whole.masked_fill(mask == 0, -100)) == []
    ids, mask = texts()
    assert told(ids, mask, without(ids), times=1) == []
    assert told(ids, None, without(ids)) == []


def test_batches_that_are_no_mappings_or_hold_anything_are_passed_by() -> None:
    from contextlib import nullcontext

    probe = EndTokenProbe(SimpleNamespace(looking=lambda *_: nullcontext()))  # type: ignore[arg-type]
    probe._place = AT
    ids, mask = texts()

    class Odd(dict[str, object]):
        def get(self, *_: object) -> object:
            raise KeyError("this mapping has no defaults")

    sparse = {"input_ids": ids, "attention_mask": mask.to_sparse(), "labels": without(ids)}
    for batch in (
        [ids],
        Odd(),
        Odd(labels="none"),
        {"labels": "none"},
        sparse,
        {"input_ids": ids, "attention_mask": mask, "labels": without(ids)},
    ):
        probe.batch_got(None, batch)
    (seen,) = probe.sites.values()
    assert (seen.batches, seen.texts, seen.silent, seen.only) == (1, 4, 4, 4)
