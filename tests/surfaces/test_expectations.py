"""What tests may expect of a run, by reports made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from torchvet.finding import Evidence, Finding, Location, Measured, Remedy, Report, Severity, Verdict
from torchvet.surfaces import expectations
from torchvet.surfaces.expectations import Expectation


def finding(
    code: str = "MEM101", severity: Severity = "error", rate: float | None = 100.0, evidence: Evidence = "observed"
) -> Finding:
    return Finding(
        code=code, name="a-fault", severity=severity, evidence=evidence, message=f"{code} was found", cause="why",
        location=Location(path="test_a.py", line=7), remedy=Remedy(summary="do it"),
        measured=Measured(bytes_per_step=rate),
    )  # fmt: skip


def report(*findings: Finding, **facts: Any) -> Report:
    facts = {"steps": 25, "verdict": {"earned": True, "evidence": []}, **facts}
    verdict: Verdict = "findings" if findings else "clean"
    return Report(subject={"kind": "run"}, verdict=verdict, findings=list(findings), facts=facts)


def undetermined(*evidence: dict[str, Any], reason: str = "") -> Report:
    facts = {"steps": 25, "verdict": {"earned": False, "reason": reason, "evidence": list(evidence)}}
    return Report(subject={"kind": "run"}, verdict="undetermined", facts=facts)


def seen(witness: str, state: str, unit: str | None = "bytes") -> dict[str, Any]:
    return {"witness": witness, "state": state, "unit": unit, "reason": f"{witness} was {state}", "fix": "run longer"}


def fails(given: Report, *expected: Expectation) -> str:
    return expectations.failure_text(given, expected)


def test_growth_fails_and_other_faults_and_notes_do_not() -> None:
    leak = expectations.no_leak(20)
    assert "MEM101 was found" in fails(report(finding()), leak)
    assert fails(report(finding("TRN101", rate=None)), leak) == ""
    assert fails(report(finding(severity="info")), leak) == ""


def test_too_few_steps_are_no_pass() -> None:
    leak = expectations.no_leak(20)
    assert "12 steps seen, 20 expected" in fails(report(steps=12), leak)
    assert fails(report(steps=20), leak) == ""


@pytest.mark.parametrize(
    ("row", "passes"),
    [
        (seen("live storages", "flat"), True),
        (seen("live storages", "not seen"), False),
        (seen("graph nodes", "grows", "nodes"), False),
        (seen("device memory", "not seen"), False),
        (seen("steps", "not seen", None), False),
        (seen("heap", "not seen"), True),
        # Other ranks have a test of their own.
        (seen("ranks", "not seen", None), True),
    ],
)
def test_growth_that_was_not_seen_well_enough_is_no_pass(row: dict[str, Any], passes: bool) -> None:
    text = fails(undetermined(row), _leak())
    assert (text == "") is passes
    assert passes or f"could not judge: {row['reason']}; run longer" in text


def _leak() -> Expectation:
    return expectations.no_leak(20)


def test_a_peak_is_the_devices_where_there_is_one() -> None:
    peak = expectations.limit_peak(10_000_000)
    device = {"device": 0, "bytes": 12_000_000, "exact": True}
    text = fails(report(device_peak=device, peak={"bytes": 1}, simulated_gpu="NVIDIA L4"), peak)
    assert "the peak of the simulated GPU's allocator is 12.0 MB, 2.0 MB over 10.0 MB" in text
    assert "of CUDA's allocator is 12.0 MB" in fails(report(device_peak=device), peak)
    assert "of the tensors on the CPU" in fails(report(peak={"bytes": 12_000_000}), peak)
    assert fails(report(peak={"bytes": 10_000_000}), peak) == ""


def test_a_peak_that_is_not_known_is_no_pass() -> None:
    peak = expectations.limit_peak(10_000_000)
    assert "was not measured" in fails(report(), peak)
    unsure = {"device": 0, "bytes": 12_000_000, "exact": False}
    assert "is not known: it had held 12.0 MB before the test" in fails(report(device_peak=unsure), peak)
    assert fails(report(device_peak={**unsure, "bytes": 9_000_000}), peak) == "", "a bound that is low enough will do"


WAIT = {"path": "test_a.py", "line": 9, "function": "train", "what": "item()", "waits": 3, "steps": 3, "sampled": 11}


def test_each_line_that_waits_is_named() -> None:
    text = fails(report(waits=[WAIT], device="cuda"), expectations.no_sync())
    assert "test_a.py:9 in train: item() makes the host wait for the device in 3 of 11 steps" in text


def test_a_line_that_a_finding_is_about_is_named_once() -> None:
    found = finding("OPS101", "info", None)
    text = fails(report(found, waits=[{**WAIT, "line": 7}], device="cuda"), expectations.no_sync())
    assert "OPS101 was found" in text and "makes the host wait" not in text


def test_without_a_gpu_that_was_used_or_steps_nothing_is_said_of_waits() -> None:
    device = {"device": 0, "bytes": 5, "exact": True}
    assert "no GPU was used" in fails(report(device="cpu"), expectations.no_sync())
    assert "2 steps are needed" in fails(report(device_peak=device, steps=1), expectations.no_sync())
    assert fails(report(device_peak=device), expectations.no_sync()) == ""


def test_all_faults_count_where_nothing_is_asked_for() -> None:
    wrong = report(finding("TRN101", rate=None), finding("OPS101", "info", None))
    text = fails(wrong, expectations.no_fault)
    assert "TRN101 was found" in text and "OPS101" not in text
    unsure = undetermined(reason="3 steps are too few")
    assert "Could not judge: 3 steps are too few" in fails(unsure, expectations.no_fault)
    assert fails(unsure, expectations.only_findings) == ""


def test_a_finding_that_two_marks_ask_for_is_told_once() -> None:
    text = fails(report(finding()), expectations.no_leak(20), expectations.no_fault)
    assert text.count("MEM101 was found") == 1


def test_of_a_test_that_fails_itself_only_findings_are_told() -> None:
    assert expectations.failure_text(report(steps=2), [_leak()], findings_only=True) == ""
    assert "MEM101" in expectations.failure_text(report(finding(), steps=2), [_leak()], findings_only=True)
