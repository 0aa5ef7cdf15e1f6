"""What a library keeps in an attribute of its own is said at the program's line that calls it, with an edit for
Lightning's predictions."""

from __future__ import annotations

from typing import Any

import pytest
from handmade import FILE, census, holding, outcome, program, recording, steps, window
from observed_fixes import fixed_lines

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording.records.base import Holding, Place, Source
from torchvet.recording.records.training import LoopBound

MB = 1 << 20
LOOP = "/venv/lib/python3.12/site-packages/lightning/pytorch/loops/utilities.py"
TEXT = """import lightning as L

def main():
    trainer = L.Trainer()
    {call}
"""


def held(size: int, path: str = LOOP) -> Holding:
    place, caller = Place(path, 158, "_decorator"), Place(FILE, 5, "main")
    facts = {"scope": "lightning.loops._decorator", "place": place, "called_from": caller}
    return holding("self ._predictions", size, **facts)


def found(call: str, path: str = LOOP) -> Finding:
    looks = [census(20 + n, held(MB * n, path), total=MB * (n + 1)) for n in (8, 12, 16)]
    source = Source(path=FILE, text=TEXT.format(call=call))
    run = recording(program(), source, *steps(40), window(1, 2, 3, peak=40 * MB), *looks, outcome(40))
    (one,) = (f for f in diagnose(run).findings if f.code == "MEM102")
    return one


def test_the_line_is_the_programs_call() -> None:
    one = found("trainer.predict(model, loader)")
    assert one.location is not None and (one.location.path, one.location.line) == (FILE, 5)
    assert one.remedy.summary.startswith("line 5 calls what keeps self._predictions")


def test_what_another_file_of_the_program_keeps_is_the_programs_to_empty() -> None:
    one = found("engine.predict(model, loader)", "/project/engine.py")
    assert one.location is None and "not the program's to empty" not in one.remedy.summary


@pytest.mark.parametrize(
    ("call", "edited"),
    [
        ("trainer.predict(model, loader)", "trainer.predict(model, loader, return_predictions=False)"),
        ("found = trainer.predict(model, loader)", None),
        ("trainer.predict(model, loader, return_predictions=True)", None),
        ("trainer.predict(model, **options)", None),
        ("trainer.test(model, loader)", None),
    ],
)
def test_predictions_that_nobody_takes_are_not_returned(call: str, edited: str | None) -> None:
    assert fixed_lines("MEM102", TEXT.format(call=call), call)[1] == ([f"    {edited}"] if edited else [])


def evaluated(call: str, batches: int, each: int, name: str = "self ._predictions", start: int = 40) -> list[Finding]:
    """What is found where a call that goes over so many batches keeps so many bytes of each."""
    facts: dict[str, Any] = {"place": Place(LOOP, 158, "_decorator"), "called_from": Place(FILE, 5, "main")}
    facts |= {"scope": "lightning.loops._decorator", "files": []}
    looks = [
        census(tick, holding(name, each * (tick - start), **facts), kind="evaluation")
        for tick in (start + 8, start + 20, start + 50)
    ]
    source, bound = (
        Source(path=FILE, text=TEXT.format(call=call)),
        LoopBound(place=Place(FILE, 5, "main"), length=batches),
    )
    ran = [*steps(40), *steps(80, "evaluation", 41)]
    run = recording(program(), source, *ran, window(1, 2, 3, peak=40 * MB), *looks, bound, outcome(120))
    return [f for f in diagnose(run).findings if f.code == "MEM102"]


def test_what_a_call_gathers_ends_with_its_loader() -> None:
    (one,) = evaluated("trainer.predict(model, loader)", 100, MB)
    assert "the call in line 5 goes over 100 batches" in one.message and "exhausted" not in one.message
    assert one.measured.exhausted_at_step is None


@pytest.mark.parametrize(
    ("call", "batches", "each", "severity"),
    [
        ("trainer.predict(model, loader)", 100, MB, "warning"),
        ("trainer.predict(model, loader)", 100, 1000, "info"),  # nobody misses it
        ("found = trainer.predict(model, loader)", 100, MB, "info"),  # nobody takes for nothing what it asks for
        ("use(trainer.predict(model, loader))", 100, MB, "info"),
        ("rows.append(trainer.predict(model, loader))", 100, MB, "info"),
        ("trainer.predict(model, L.Loader(data))", 100, MB, "warning"),
        ("found = trainer.predict(model, loader)", 5000, MB, "error"),  # 1 GiB is less
        ("found = trainer.predict(model, loader)", 20, MB, "error"),  # it has outlived the call
    ],
)
def test_what_a_call_gathers_is_grave_where_it_is_for_nothing_or_does_not_fit(
    call: str, batches: int, each: int, severity: str
) -> None:
    assert [one.severity for one in evaluated(call, batches, each)] == [severity]


def test_a_variable_of_a_librarys_function_is_not_the_programs_to_empty() -> None:
    """`all_preds` of the evaluation of transformers' Trainer."""
    (one,) = evaluated("found = trainer.predict(data)", 100, MB, "all_preds .tensors")
    assert one.location is not None and (one.location.path, one.location.line) == (FILE, 5)
    assert one.remedy.summary.startswith("line 5 calls what keeps all_preds.tensors")
