"""The contract: what a report says of itself."""

from __future__ import annotations

import msgspec
import pytest

from torchvet._version import __version__
from torchvet.finding import SEVERITIES, Edit, Finding, Remedy, Report, Severity


def finding(severity: Severity) -> Finding:
    return Finding(
        code="MEM101", name="graph-retained", severity=severity, evidence="observed", message="m", location=None,
        cause="c", remedy=Remedy(summary="s", edits=[Edit(path="a.py", start=(1, 1), end=(1, 4), text="x")]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("severities", "worst"),
    [([], None), (["info"], "info"), (["info", "error", "warning"], "error"), (["warning", "info"], "warning")],
)
def test_the_worst_severity(severities: list[Severity], worst: Severity | None) -> None:
    assert Report(subject={}, verdict="findings", findings=[finding(s) for s in severities]).worst() == worst


def test_severities_compare_by_index() -> None:
    assert [SEVERITIES.index(s) for s in ("info", "warning", "error")] == [0, 1, 2]


def test_a_report_carries_its_schema_and_version() -> None:
    report = Report(subject={}, verdict="clean")
    assert (report.schema, report.version) == ("torchvet.report/1", __version__)


def test_a_report_survives_json() -> None:
    report = Report(subject={"kind": "run"}, verdict="findings", findings=[finding("error")])
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


def test_a_severity_that_is_none_is_refused() -> None:
    text = msgspec.json.encode(Report(subject={}, verdict="findings", findings=[finding("error")]))
    with pytest.raises(msgspec.ValidationError, match="severity"):
        msgspec.json.decode(text.replace(b'"severity":"error"', b'"severity":"fatal"'), type=Report)


def test_what_was_not_measured_is_none_and_not_zero() -> None:
    assert set(msgspec.to_builtins(finding("info").measured).values()) == {None}


def test_findings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        finding("error").severity = "info"  # type: ignore[misc]
