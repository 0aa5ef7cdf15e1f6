"""A report as experiment loggers take it: counts as scalars, findings as text."""

from __future__ import annotations

from typing import Any

from torchvet.finding import SEVERITIES, Report


def scalars(report: Report) -> dict[str, float]:
    """Numbers by name: findings of each severity, bytes that grow per step, the peak, and whether it was judged."""
    found = {f"torchvet/{severity}s": 0.0 for severity in reversed(SEVERITIES)}
    for finding in report.findings:
        found[f"torchvet/{finding.severity}s"] += 1
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
