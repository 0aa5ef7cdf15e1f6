"""MEM102 on what a function collects, joins and returns: it is the result, and as large as that."""

from __future__ import annotations

import pytest
from handmade import FILE, census, holding, outcome, program, recording, site, steps

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording.records.base import Holding, Source, StepKind

TICKS = (5, 6, 9, 14, 21, 32)
SOURCE = """\
import torch


def extract(model, loader):
    features, labels = [], []
    for number, (images, target) in enumerate(loader):
        features.append(model(images))
        labels.append(target)
    return torch.cat(features), torch.cat(labels)
"""


def found(text: str = SOURCE, rate: int = 5120, kind: StepKind = "forward", shown: int | None = None) -> Finding:
    """The finding about `features`, which grows by `rate` bytes a step, of which its items show some."""

    def held(tick: int) -> Holding:
        visible = (rate if shown is None else shown) * tick
        return holding("features", direct=rate * tick, visible=visible, scope="__main__.extract", sites=[site()])

    grown = [census(t, held(t), kind=kind) for t in TICKS]
    records = [program(), Source(path=FILE, text=text), *steps(40, kind), *grown, outcome(40)]
    (one,) = [f for f in diagnose(recording(*records)).findings if f.code[:4] == "MEM1"]
    return one


def test_what_a_function_joins_and_returns_is_its_result() -> None:
    one = found()
    assert (one.code, one.severity) == ("MEM102", "info") and "extract() joins and returns it" in one.message


@pytest.mark.parametrize(
    "end",
    [
        "features = torch.cat(features)\n    return features.cpu().numpy(), labels",
        "return {'x': np.concatenate(features, axis=0), 'y': labels}",
        "rows = torch.stack(features, 0).half()\n    return rows",
    ],
)
def test_other_ways_to_return_it(end: str) -> None:
    assert found(SOURCE.replace("return torch.cat(features), torch.cat(labels)", end)).severity == "info"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return torch.cat(features), torch.cat(labels)", "return torch.cat(features).mean()"),
        ("return torch.cat(features), torch.cat(labels)", "return len(features)"),
        (
            "        labels.append(target)\n",
            "        mean = torch.cat(features).mean()\n        if mean: return mean\n",
        ),
        ("for number, (images, target) in enumerate(loader)", "while images := loader.get()"),
        ("enumerate(loader)", "zip(itertools.count(), loader)"),
    ],
)
def test_what_is_no_result_is_graded_by_its_forecast(old: str, new: str) -> None:
    text = SOURCE.replace(old, new)
    if "if mean" in new:
        text = text.replace("return torch.cat(features), torch.cat(labels)", "return labels")
    assert found(text).severity in ("warning", "error")


def test_views_that_pin_larger_storages_are_no_result() -> None:
    one = found(shown=500)
    assert (one.code, one.severity) == ("MEM113", "error")


def test_part_of_it_that_is_not_shown_is_no_result() -> None:
    one = found(shown=3000)
    assert (one.code, one.severity) == ("MEM102", "error")


def test_what_memory_does_not_last_for_is_a_fault() -> None:
    assert found(rate=1_000_000).severity == "error"


def test_training_steps_collect_no_result() -> None:
    assert found(kind="training").severity == "error"
