"""Digests are merged in whatever order they come."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchvet.finding import Evidence, Finding, Location, Measured, NotChecked, Remedy, Severity, Verdict
from torchvet.fleet.digest import Digest
from torchvet.fleet.figures import COLUMNS
from torchvet.fleet.merge import merged
from torchvet.renderers import renderer_for

NO_FIGURES: dict[str, float | None] = dict.fromkeys(COLUMNS)
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
VERDICTS: tuple[Verdict, ...] = ("clean", "undetermined")
OBSERVED: Evidence = "observed"
FINDINGS = st.builds(
    lambda code, line, severity, rate: Finding(
        code=code,
        name="name",
        severity=severity,
        evidence=OBSERVED,
        message=f"grows by {rate}",
        location=Location(path="train.py", line=line) if line else None,
        cause="why",
        remedy=Remedy(summary="do"),
        measured=Measured(bytes_per_step=rate),
    ),
    st.sampled_from(["MEM101", "MEM102"]),
    st.integers(0, 2),
    st.sampled_from(SEVERITIES),
    st.sampled_from([None, 1.0, 2.0, 3.5]),
)
DIGESTS = st.builds(
    lambda kind, findings, gaps, figures, verdict, error: Digest(
        path="",
        kind="" if error else kind,
        error=error,
        verdict="findings" if findings else verdict,
        findings=[] if error else findings,
        not_checked=[] if error else [NotChecked(check=gap, reason="why") for gap in gaps],
        figures={} if error else dict.fromkeys(COLUMNS, figures),
    ),
    st.sampled_from(["snapshot", "trace", "run"]),
    st.lists(FINDINGS, max_size=3),
    st.lists(st.sampled_from(["a", "b"]), max_size=2),
    st.sampled_from([None, 1.0, 1.1, 40.0]),
    st.sampled_from(VERDICTS),
    st.sampled_from([None, None, None, "damaged"]),
)
FLEETS = st.lists(DIGESTS, max_size=9).map(
    lambda digests: [msgspec.structs.replace(d, path=f"rank{n}.pickle") for n, d in enumerate(digests)]
)


@given(FLEETS, st.randoms())
def test_the_order_in_which_digests_come_changes_nothing(digests: list[Digest], dice: object) -> None:
    shuffled = list(digests)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    files = len(digests) + 1
    assert merged(shuffled, files) == merged(digests, files)
    for format in ("text", "markdown", "sarif", "github"):
        renderer_for(format).render(merged(digests, files))


@given(FLEETS)
def test_no_finding_is_lost_and_none_is_said_twice(digests: list[Digest]) -> None:
    report = merged(digests, len(digests))

    def faults(kind: str, findings: list[Finding]) -> set[tuple[object, ...]]:
        return {(kind, f.code, f.location.line if f.location else None) for f in findings}

    expected = {fault for d in digests for fault in faults(d.kind, d.findings)}
    found = [(o["kind"], o["code"], o["line"]) for o in report.facts["occurrences"]]
    assert set(found) == expected and len(found) == len(expected) == len(report.findings)
    damaged = [d.path for d in digests if d.error is not None]
    assert [g.check for g in report.not_checked if g.reason == "damaged"] == damaged


@pytest.mark.parametrize(
    "other",
    [Digest(path="b", error="not a snapshot"), Digest(path="b", kind="snapshot", figures=NO_FIGURES)],
    ids=["damaged", "no evidence"],
)
def test_one_file_that_shows_nothing_keeps_a_thousand_from_being_called_healthy(other: Digest) -> None:
    healthy = Digest(path="a", kind="snapshot", verdict="clean", figures=NO_FIGURES)
    assert merged([healthy], 1).verdict == "clean"
    assert merged([healthy, other], 2).verdict == "undetermined"
