"""What is said of values of the step before (MEM202): whether `del` is safe, and how many names there are."""

from __future__ import annotations

from typing import Any

import pytest
from handmade import FILE, evidence, outcome, program, recording, steps

from torchvet.diagnosis.diagnose import diagnose
from torchvet.finding import Finding
from torchvet.recording.records.base import Place, Source
from torchvet.recording.records.training import StaleAtPeak

ROLLOUTS = """\
def main():
    state = start()
    for turn in range(100):
        before = state
        action, state = policy(observation, before)
        rollout.append((before, action.item()))
        update(rollout)
"""


def found(text: str, names: list[str], line: int = 5, graph: int = 10**7, saved: int = 10**7) -> Finding | None:
    """What a run says whose steps left these names bound at their peaks; the first is bound on this line."""
    fields: dict[str, Any] = {"bytes": saved, "peak": 5 * saved, "saving": saved, "with_graph": graph}
    stale = [
        StaleAtPeak(tick=t, kind="training", names=names, name_bytes=[10**7, 0][: len(names)],
                    bound=Place(FILE, line, "main"), **fields) for t in (9, 20)
    ]  # fmt: skip
    report = diagnose(recording(program(), steps(40), evidence(40), *stale, Source(path=FILE, text=text), outcome(40)))
    return next((one for one in report.findings if one.code == "MEM202"), None)


def test_one_name_is_and_two_names_are() -> None:
    text = ROLLOUTS.replace("before = state", "before = start()")
    one, two = found(text, ["state"]), found(text, ["state", "action"])
    assert one is not None and two is not None
    assert one.message.startswith("state of the step before is still bound with the autograd graph behind it when")
    assert "keeps its value until it is assigned" in one.cause
    assert two.message.startswith("state and action of the step before are still bound with the autograd graph behind")
    assert "behind them" in two.message and "keep their values until they are assigned" in two.cause


@pytest.mark.parametrize(("old", "new"), [
    ("", ""),
    ("        before = state\n        action, state = policy(observation, before)",
     "        action, state = policy(observation, state)"),
])  # fmt: skip
def test_what_the_next_pass_reads_is_to_be_detached_and_not_deleted(old: str, new: str) -> None:
    seen = found(ROLLOUTS.replace(old, new) if old else ROLLOUTS, ["state", "action"], 4 if old else 5)
    assert seen is not None and seen.remedy is not None
    assert "del " not in seen.remedy.summary and "`.detach()`" in seen.remedy.summary
    assert "the next pass reads the value of state" in seen.cause


def test_what_the_next_pass_reads_has_no_finding_without_a_graph() -> None:
    assert found(ROLLOUTS, ["state"], graph=0) is None
    assert found(ROLLOUTS.replace("before = state", "before = start()"), ["state"], graph=0) is not None


@pytest.mark.parametrize("change", [
    ("before = state", "before = start()"),
    ("update(rollout)", "update(state)"),
    ("before = state", "before, state.x = start(), 1"),
])  # fmt: skip
def test_what_is_read_after_it_is_bound_may_be_deleted(change: tuple[str, str]) -> None:
    text = ROLLOUTS.replace("before = state", "before = start()").replace(*change)
    seen = found(text, ["state"])
    assert seen is not None and seen.remedy is not None and seen.remedy.summary.startswith("`del state`")


@pytest.mark.parametrize(("saved", "severity"), [(2 << 20, "info"), (64 << 20, "warning")])
def test_a_fifth_of_a_small_peak_is_a_note(saved: int, severity: str) -> None:
    seen = found(ROLLOUTS.replace("before = state", "before = start()"), ["state"], saved=saved)
    assert seen is not None and seen.severity == severity
