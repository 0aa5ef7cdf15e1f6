"""The samples of a step are those that loaders gave for it, and a rate is by the usual step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torchvet.analysis.time_facts import time_facts
from torchvet.probes.time.step_samples import SampleCounter
from torchvet.recording import RankRecording
from torchvet.recording.records.base import Step
from torchvet.recording.records.timing import StepSamples


def counted(*steps: tuple[str, list[Any]]) -> list[Any]:
    host: Any = SimpleNamespace()
    counter = SampleCounter(host)
    for tick, (kind, batches) in enumerate(steps, start=1):
        for batch in batches:
            counter.batch_got(None, batch)
        counter.boundary(tick, kind)  # type: ignore[arg-type]
    return [*counter.totals(9)]


@pytest.mark.parametrize(
    "batch",
    [
        torch.rand(8, 3),
        (torch.rand(8, 3), torch.rand(8)),
        {"scale": torch.tensor(2.0), "x": torch.rand(8)},
        [{"x": torch.rand(8, 2)}],
    ],
)
def test_the_first_tensor_with_a_dimension_has_them(batch: Any) -> None:
    assert counted(("training", [batch])) == [StepSamples(samples=8, steps=1)]


def test_batches_of_one_step_are_added_and_those_of_evaluations_left_out() -> None:
    small, large = torch.rand(4), torch.rand(100)
    steps = [("training", [small, small]), ("evaluation", [large]), ("training", [small, small]), ("training", [large])]
    assert counted(*steps) == [StepSamples(samples=8, steps=3)]


def test_nothing_is_said_of_what_loaders_did_not_give() -> None:
    assert not counted(("training", [])) and not counted(("training", [object()]))


def test_a_rate_is_by_the_median_step() -> None:
    steps = [Step(n=n, kind="training", t=n * 0.02) for n in range(1, 40)]
    facts = time_facts(RankRecording(0, [*steps, StepSamples(samples=16, steps=5)]))["time"]
    assert facts["samples_per_second"] == pytest.approx(800) and facts["samples_per_step"] == 16
    assert "samples_per_second" not in time_facts(RankRecording(0, [*steps]))["time"]
