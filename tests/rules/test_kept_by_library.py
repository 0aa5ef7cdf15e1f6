"""What a library keeps in an attribute of its own is said at the program's line that calls it, with an edit for
Lightning's predictions."""

from __future__ import annotations

import pytest
from handmade import FILE, census, holding, outcome, program, recording, steps, window
from observed_fixes import fixed_lines

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording.records.base import Holding, Place, Source

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
