"""The environment as text: the verdict, the traps that are set, the values, the checklist of a script."""

from __future__ import annotations

from typing import Any

from torchvet.finding import Report
from torchvet.renderers.page import Page
from torchvet.renderers.text import add_findings, add_rest
from torchvet.renderers.text_finding import STYLES
from torchvet.renderers.verdict import notes, serious
from torchvet.renderers.wording import count, size

_LEVELS = ("error", "warning", "info")
_NOUNS = {"error": "error", "warning": "warning", "info": "note"}


def doctor_page(report: Report, color: bool, width: int) -> str:
    """The page of `torchvet doctor`."""
    page = Page(width)
    page.paragraph(headline(report), "bold", most=3)
    facts = report.facts["doctor"]
    for check in (c for c in facts["checks"] if c["level"] != "ok"):
        page.blank()
        page.verbatim(f"{check['level']} {check['name']}", STYLES[check["level"]])
        page.paragraph(check["found"], indent=2, most=4)
        page.labelled("expected", check["expected"], 2)
        page.labelled("why", check["why"], 4)
        page.labelled("what to do", check["fix"], 4)
    add_findings(page, report)
    page.heading("Environment")
    for label, text in environment(facts["environment"]):
        page.labelled(label, text, 2)
    fine = dict.fromkeys(c["name"] for c in facts["checks"] if c["level"] == "ok")
    if fine:
        page.labelled("fine", ", ".join(fine), 3)
    if facts["checklist"]:
        page.heading("Before training")
        for item in facts["checklist"]:
            page.labelled(item["name"], item["seen"] or f"not seen in the script and its own modules: {item['why']}", 2)
    add_rest(page, report)
    return page.text(color)


def headline(report: Report) -> str:
    """`2 warnings in this environment; 1 fault in train.py`, and that a part could not be looked at."""
    checks, script = report.facts["doctor"]["checks"], report.subject.get("path")
    numbers = [(level, sum(c["level"] == level for c in checks)) for level in _LEVELS]
    found = [count(number, _NOUNS[level]) for level, number in numbers if number]
    parts = [f"{', '.join(found)} in this environment" if found else "No known trap in this environment"]
    if script is not None:
        own = [count(len(serious(report)), "fault")] if serious(report) else []
        own += [count(len(notes(report)), "note")] if notes(report) else []
        parts.append(f"{', '.join(own) or 'no fault'} in the source of {script}")
    if report.not_checked:
        parts.append(f"{count(len(report.not_checked), 'thing')} not checked, see below")
    text = "; ".join(parts)
    return f"Could not judge all of it: {text[0].lower()}{text[1:]}" if report.verdict == "undetermined" else text


def environment(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """The values that people compare, a label and a text each."""
    machine, torch = facts["machine"], facts["torch"] or {}
    rows = [
        ("python", f"{machine['python']} on {machine['system']}"),
        (
            "CPUs",
            f"{machine['cpus']:g} usable"
            + (f", {count(torch['threads'], 'thread')} in torch" if _plain(torch, "threads") else ""),
        ),
        ("memory", f"{size(machine['memory'])} ({machine['memory_from']})"),
    ]
    if torch:
        build = torch["build"] if "cuda" in torch.get("build", {}) else {}
        made = f"CUDA {build['cuda']}" if build.get("cuda") else f"ROCm {build['hip']}" if build.get("hip") else "CPU"
        rows.append(("torch", f"{torch['version']}, built for {made}"))
        rows += _devices(torch)
    if machine["driver"]:
        rows.append(("driver", f"NVIDIA {machine['driver']}"))
    if machine["variables"]:
        rows.append(("variables", ", ".join(f"{name}={value}" for name, value in machine["variables"].items())))
    return rows


def _plain(torch: dict[str, Any], name: str) -> bool:
    return isinstance(torch.get(name), (int, str))


def _devices(torch: dict[str, Any]) -> list[tuple[str, str]]:
    half = torch.get("half")
    if not isinstance(half, list):
        return []
    rows = []
    for one in half:
        native = [name for name, field in (("float16", "fp16"), ("bfloat16", "bf16")) if one[field]]
        emulated = [name for name, field in (("float16", "fp16"), ("bfloat16", "bf16")) if not one[field]]
        text = [f"{' and '.join(native)} native"] if native else []
        text += [f"{' and '.join(emulated)} emulated"] if emulated else []
        capability = f" ({one['capability']})" if one.get("capability") else ""
        rows.append((one["kind"], f"{one['name']}{capability}: {', '.join(text)}"))
    precision = torch.get("precision") or {}
    if "matmul" in precision:
        rows.append(("float32", f"matrix products in {precision['matmul']!r} precision"))
    return rows


def markdown_section(facts: dict[str, Any]) -> str:
    """The checks that found something as a Markdown table."""
    from torchvet.renderers.markdown_text import escaped

    rows = [
        f"| {c['level']} | {escaped(c['name'])} | {escaped(c['found'])} | {escaped(c['fix'])} |"
        for c in facts["checks"]
        if c["level"] != "ok"
    ]
    return "\n".join(["### Environment", "", "| level | check | found | what to do |", "|---|---|---|---|", *rows])
