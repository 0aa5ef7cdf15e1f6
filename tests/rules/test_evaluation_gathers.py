"""MEM117 on what a framework's evaluation gathers until it ends: by its size at the end, at the program's own line."""

from __future__ import annotations

import pytest
from handmade import FILE, census, holding, outcome, program, recording, steps, window

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording.records.base import Census, Holding, Place, Record, Source

MB = 1 << 20
TRAINER = "/venv/lib/python3.12/site-packages/transformers/trainer.py"


def held(size: int, path: str = TRAINER) -> Holding:
    place, caller = Place(path, 2500, "Trainer.evaluation_loop"), Place(FILE, 3, "main")
    scope = "transformers.trainer.Trainer.evaluation_loop"
    return holding("all_preds .tensors", size, scope=scope, place=place, called_from=caller, container="tuple")


def looks(each: int, path: str = TRAINER, evaluation: int = -1) -> list[Census]:
    """After 8 batches of an evaluation and after 12."""
    return [
        census(40 + n, held(each * n, path), kind="evaluation", amid=evaluation, passes=n, total=each * n + 1000)
        for n in (8, 12)
    ]


TEXT = "def main():\n    trainer = make()\n    trainer.train()\n"


def found(*records: Census, text: str = TEXT) -> list[Finding]:
    """Of a run that evaluates 30 batches after 40 steps, and again."""
    evaluated: list[Record] = [*steps(30, "evaluation", 41), *steps(40, start=71), *steps(30, "evaluation", 111)]
    source = Source(path=FILE, text=text)
    run = recording(program(), source, *steps(40), *evaluated, window(1, 2, 3, peak=40 * MB), *records, outcome(140))
    return [f for f in diagnose(run).findings if f.code == "MEM117"]


def test_what_a_trainer_gathers_is_said_with_what_it_comes_to() -> None:
    (one,) = found(*looks(2 * MB), *looks(2 * MB, evaluation=-2))
    assert (
        one.severity == "warning" and one.location is not None and (one.location.path, one.location.line) == (FILE, 3)
    )
    assert one.holder is not None and one.holder.name == "all_preds.tensors"
    assert one.message == (
        "the evaluation gathers 2.1 MB of every batch in all_preds.tensors of evaluation_loop(): 62.9 MB after 30 "
        "batches, until it ends"
    )
    measured = one.measured
    assert (measured.bytes, measured.bytes_per_step, measured.exhausted_at_step) == (60 * MB, None, None)
    assert measured.share == pytest.approx(0.6) and "ignore_keys_for_eval" in one.remedy.summary


def test_little_and_what_the_program_gathers_itself_is_its_own_affair() -> None:
    assert not found(*looks(MB))
    assert not found(*looks(2 * MB, FILE))
    assert not found(looks(2 * MB)[0], looks(2 * MB, evaluation=-2)[1]), "of two evaluations"
    assert not found(*looks(2 * MB, evaluation=1)), "looks at graphs"


MADE = """
from transformers import Trainer

def score(predictions):
    "How many are right."
    best = predictions.predictions.argmax(-1)
    return {"right": float((best == predictions.label_ids).mean())}

def make(net, data, score_other):
    return Trainer(model=net, train_dataset=data, compute_metrics=score)
"""
MINE = MADE.replace("def make", "class Mine(Trainer):\n    pass\n\ndef make").replace("return Trainer(", "return Mine(")


def related(text: str) -> list[tuple[str, int | None]]:
    (one,) = found(*looks(2 * MB), text=TEXT + text)
    assert one.location is not None and one.location.line == 3
    return [(r.role, r.line) for r in one.related if r.role in ("made", "metrics")]


def test_the_line_that_makes_the_trainer_is_named_with_its_metrics() -> None:
    assert related(MADE) == [("made", 13), ("metrics", 9)]
    assert related(MINE) == [("made", 16), ("metrics", 9)]


def test_metrics_that_are_not_plain_and_one_of_several_trainers_are_not_named() -> None:
    assert related(MADE.replace("=score)", "=score_other)")) == [("made", 13)]
    assert not related(MADE + "\nother = Trainer(model=None)\n")
    assert not related("")
