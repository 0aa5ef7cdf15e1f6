"""A report as experiment loggers take it: counts as scalars, findings as text."""

from __future__ import annotations

from typing import Any

from torchvet.finding import Report, Severity

_NAMES: dict[Severity, str] = {"error": "errors", "warning": "warnings", "info": "notes"}


def scalars(report: Report) -> dict[str, float]:
    """Numbers by name: findings by severity, whether the run was judged, bytes that leak per step, and the peak."""
    severities = [finding.severity for finding in report.findings]
    found = {f"torchvet/{name}": float(severities.count(severity)) for severity, name in _NAMES.items()}
    found["torchvet/judged"] = float(report.verdict != "undetermined")
    growth = max((f.measured.bytes_per_step or 0.0 for f in report.findings), default=0.0)
    found["torchvet/leaked_bytes_per_step"] = growth
    peak = report.part("device_peak").get("bytes") or report.part("peak").get("bytes")
    if peak is not None:
        found["torchvet/peak_bytes"] = float(peak)
    return found


def text(report: Report) -> str:
    """The report as Markdown."""
    from torchvet.renderers import renderer_for

    return renderer_for("markdown").render(report)


def write_text(experiment: Any, report: Report, step: int) -> None:
    """Give the text to what a logger writes to, if it takes text: TensorBoard's `SummaryWriter`, or a run of W&B."""
    if hasattr(experiment, "add_text"):
        experiment.add_text("torchvet", text(report), step)
    elif type(experiment).__module__.partition(".")[0] == "wandb":
        experiment.summary["torchvet"] = text(report)
