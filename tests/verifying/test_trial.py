"""What of a recording is held against another run."""

from __future__ import annotations

import pytest
from handmade import census, holding, outcome, recording, steps, survivors, window

from torchvet.diagnosis.diagnose import diagnose
from torchvet.recording.records.base import Step
from torchvet.recording.records.training import Outcome, Unwatched
from torchvet.recording.records.verify import Losses, ThreadFailed
from torchvet.verifying.report import undetermined
from torchvet.verifying.search import Verified
from torchvet.verifying.trial import trial_of


def test_a_recording_as_a_trial() -> None:
    ticks = (8, 16, 24, 32, 40)
    made = recording(
        *steps(40), *(census(t, holding("total", 1000 * t, 400 * t)) for t in ticks),
        window(1, 2, 3), survivors(1, 40, 2800), Losses(tick=1, values=[0.5, None]), Losses(tick=2, values=[0.25]),
        ThreadFailed(kind="KeyError", message="'x'"), outcome(40),
    )  # fmt: skip
    found = trial_of(made, diagnose(made), outcome(40), {"stdout": "printed"})
    assert found.curve == [0.5, None, 0.25] and found.steps == 40 and found.windows == 1
    assert found.rates == {"total": pytest.approx(1400.0)} and found.nodes == {"total": pytest.approx(40.0)}
    assert found.seconds_per_step == pytest.approx(0.1) and found.threads == {"KeyError": "'x'"}
    assert found.failure == "" and found.printed == "printed"


def test_steps_that_are_looked_at_do_not_count_for_the_time() -> None:
    times = [0.0, 0.1, 0.2, 5.0, 5.1, 5.2, 5.3]
    made = recording(*(Step(n=n, kind="training", t=t) for n, t in enumerate(times, start=1)), outcome(7))
    assert trial_of(made, diagnose(made), outcome(7)).seconds_per_step == pytest.approx(0.1)
    few = recording(*steps(4), outcome(4))
    assert trial_of(few, diagnose(few), outcome(4)).seconds_per_step is None


@pytest.mark.parametrize(
    ("end", "failure"),
    [
        (outcome(9), ""),
        (outcome(9, "steps-reached"), ""),
        (Outcome(how="exception", status=1, ticks=9, seconds=1.0, error="ValueError: x"), "ValueError: x"),
        (Outcome(how="killed", status=-9, ticks=9, seconds=1.0), "it ended with status -9 (killed)"),
        (Outcome(how="exit", status=0, ticks=9, seconds=1.0), ""),
    ],
)
def test_how_it_ended(end: Outcome, failure: str) -> None:
    made = recording(*steps(9), end)
    assert trial_of(made, diagnose(made), end).failure == failure


@pytest.mark.parametrize(("ticks", "started", "elsewhere"), [(0, True, True), (0, False, False), (20, True, False)])
def test_a_program_that_trains_in_processes_that_it_starts_is_told_from_one_that_takes_too_few_steps(
    ticks: int, started: bool, elsewhere: bool
) -> None:
    records = [Unwatched(kind="started", count=2, command="multiprocessing")] if started else []
    made = recording(*records, *steps(ticks), outcome(ticks))
    found = trial_of(made, diagnose(made), outcome(ticks))
    assert found.elsewhere is elsewhere
    why = undetermined(found, Verified())
    assert ("processes that it starts" in why) is elsewhere
