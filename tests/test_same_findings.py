"""A changed finding is a difference, a reworded one is not, and nothing is counted twice."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.same_findings import compare


def finding(**fields: Any) -> dict[str, Any]:
    usual = {
        "code": "MEM101",
        "severity": "error",
        "message": "losses keeps 4.1 MB",
        "location": {"path": "train.py", "line": 7},
        "remedy": {"summary": "detach it", "edits": [{"start": [7, 1], "text": "loss.item()"}]},
        "related": [{"role": "allocated", "message": "aten.relu", "line": 3}],
        "measured": {"bytes": 100},
    }
    return {**usual, **fields}


def report(*findings: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"verdict": "findings", "findings": list(findings), "not_checked": [], "facts": {}, **fields}


def kinds(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str]]:
    return [(difference.kind, difference.code) for difference in compare(before, after, "train.vet")]


def test_equal_reports_have_no_difference() -> None:
    assert kinds(report(finding(), finding()), report(finding(), finding())) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"message": "losses holds 4.1 MB"},
        {"remedy": {**finding()["remedy"], "summary": "store a number"}},
        {"related": [{"role": "allocated", "message": "relu", "line": 3}]},
    ],
)
def test_another_wording_is_told_apart(fields: dict[str, Any]) -> None:
    assert kinds(report(finding()), report(finding(**fields))) == [("reworded", "MEM101")]


def test_another_number_in_the_wording_is_marked() -> None:
    other = finding(message="losses keeps 5.2 MB")
    assert kinds(report(finding()), report(other)) == [("reworded, other numbers", "MEM101")]


@pytest.mark.parametrize(
    "fields",
    [
        {"severity": "info"},
        {"measured": {"bytes": 101}},
        {"holder": {"name": "losses"}},
        {"remedy": {"summary": "detach it", "edits": []}},
        {"related": []},
    ],
)
def test_any_other_field_is_a_change(fields: dict[str, Any]) -> None:
    (difference,) = compare(report(finding()), report(finding(**fields)), "train.vet")
    assert (difference.kind, difference.where) == ("changed", "train.vet, train.py:7")
    assert all(name.startswith(next(iter(fields))) for name, _, _ in difference.fields)


def test_a_finding_at_another_line_is_one_change_and_another_order() -> None:
    moved = finding(location={"path": "train.py", "line": 9})
    assert sorted(kinds(report(finding()), report(moved))) == [("changed", "MEM101"), ("changed", "report")]


def test_findings_that_are_gone_or_new_are_named() -> None:
    new = finding(code="MEM104")
    found = kinds(report(finding(), finding()), report(finding(), new))
    assert found == [("changed", "report"), ("missing", "MEM101"), ("new", "MEM104")]


def test_equal_findings_are_paired_before_similar_ones() -> None:
    louder = finding(severity="info")
    assert kinds(report(finding(), louder), report(finding(), louder)) == []
    assert kinds(report(louder, finding()), report(finding(), louder)) == []


def test_gaps_and_facts_may_be_reworded_and_not_changed() -> None:
    gap = {"check": "names", "reason": "too slow"}
    before = report(not_checked=[gap], facts={"verdict": {"reason": "a few steps"}, "steps": 5})
    after = report(
        not_checked=[{**gap, "reason": "out of time"}], facts={"verdict": {"reason": "only steps"}, "steps": 5}
    )
    assert kinds(before, after) == [("reworded", "not-checked"), ("reworded", "report")]
    assert kinds(before, {**before, "not_checked": []}) == [("missing", "not-checked")]
    assert kinds(report(facts={"steps": 5}), report(facts={"steps": 6})) == [("changed", "report")]


def test_a_report_that_is_not_written_is_a_difference() -> None:
    assert ("changed", "report") in kinds(report(), {"exit_status": "70"})
