"""SARIF 2.1.0: what code scanning services and editors read."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any, ClassVar

import msgspec

from torchvet.charts import NOTHING, Drawing
from torchvet.finding import Edit, Finding, Location, Report
from torchvet.renderers.json import clean
from torchvet.renderers.places import place_of, within_cell

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
BASE = "%SRCROOT%"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


class SarifRenderer:
    """The report as one SARIF run. `facts["rules"]` describes the rules, where it is there."""

    format: ClassVar[str] = "sarif"
    extensions: ClassVar[tuple[str, ...]] = (".sarif",)

    def render(self, report: Report, color: bool = False, width: int = 100, drawing: Drawing = NOTHING) -> str:
        """The log as JSON. `color` and `width` change nothing."""
        codes = list(dict.fromkeys(f.code for f in report.findings))
        run = {
            "tool": {"driver": _driver(report, codes)},
            "columnKind": "unicodeCodePoints",
            "invocations": [_invocation(report)],
            "results": _results(report, codes),
        }
        log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
        return msgspec.json.format(msgspec.json.encode(clean(log)), indent=2).decode() + "\n"


def _driver(report: Report, codes: list[str]) -> dict[str, Any]:
    known = report.part("rules")
    first = {f.code: f for f in reversed(report.findings)}
    return {
        "name": "torchvet",
        "version": report.version,
        "rules": [_rule(first[code], known.get(code) or {}) for code in codes],
    }


def _rule(finding: Finding, known: dict[str, str]) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": finding.code, "name": finding.name}
    rule["shortDescription"] = {"text": known.get("summary") or finding.name.replace("-", " ")}
    if known:
        full = " ".join(known[part] for part in ("what", "why") if part in known)
        rule["fullDescription"] = {"text": full or known["summary"]}
        advice = [known.get("remedy", ""), known.get("when_not", "")]
        rule["help"] = {"text": "\n\n".join(text for text in advice if text) or finding.remedy.summary}
        rule["defaultConfiguration"] = {"level": _LEVELS[known.get("severity", finding.severity)]}
    rule["properties"] = {"tags": ["pytorch", finding.code.rstrip("0123456789").lower()]}
    return rule


def _invocation(report: Report) -> dict[str, Any]:
    notifications = [{"level": "warning", "message": {"text": f"{i.check}: {i.reason}"}} for i in report.not_checked]
    return {"executionSuccessful": report.verdict != "undetermined", "toolExecutionNotifications": notifications}


def _results(report: Report, codes: list[str]) -> list[dict[str, Any]]:
    seen: Counter[str] = Counter()
    results = []
    for finding in report.findings:
        result: dict[str, Any] = {
            "ruleId": finding.code,
            "ruleIndex": codes.index(finding.code),
            "level": _LEVELS[finding.severity],
            "message": {"text": within_cell(finding.location) + finding.message},
            "locations": [_location(finding.location)] if finding.location is not None else [],
            "partialFingerprints": {"torchvet/v1": _fingerprint(finding, report, seen)},
            "properties": _properties(finding),
        }
        if related := _related(finding):
            result["relatedLocations"] = related
        if fix := _fix(finding):
            result["fixes"] = [fix]
        results.append(result)
    return results


def _artifact(path: str) -> dict[str, str]:
    """A file by its URI, relative to the working directory if it lies below it."""
    from urllib.parse import quote

    file = place_of(path).file
    uri = quote(os.fsencode(file))
    return {"uri": "file://" + uri} if file.startswith("/") else {"uri": uri, "uriBaseId": BASE}


def _location(at: Location) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": _artifact(at.path)}
    cell = place_of(at.path).cell
    if not cell:  # a line of a cell is not a line of the file
        physical["region"] = _region(at.line, at.column, at.end_line)
    location: dict[str, Any] = {"physicalLocation": physical}
    logical = [name for name in (cell, at.function) if name]
    if logical:
        location["logicalLocations"] = [{"name": name} for name in logical]
    return location


def _region(line: int, column: int | None, end_line: int | None) -> dict[str, int]:
    region = {"startLine": line}
    if column is not None:
        region["startColumn"] = column
    if end_line is not None and end_line >= line:
        region["endLine"] = end_line
    return region


def _related(finding: Finding) -> list[dict[str, Any]]:
    found = []
    for number, item in enumerate(finding.related, 1):
        location: dict[str, Any] = {"id": number, "message": {"text": f"{item.role.replace('-', ' ')}: {item.message}"}}
        if item.path is not None and item.line is not None:
            location |= _location(Location(path=item.path, line=item.line))
        found.append(location)
    return found


def _fix(finding: Finding) -> dict[str, Any] | None:
    """The edits; none for a notebook, since a cell is not a file."""
    edits = finding.remedy.edits
    if not edits or any(place_of(edit.path).cell for edit in edits):
        return None
    changes = [
        {"artifactLocation": _artifact(path), "replacements": [_replacement(e) for e in edits if e.path == path]}
        for path in dict.fromkeys(edit.path for edit in edits)
    ]
    return {"description": {"text": finding.remedy.summary}, "artifactChanges": changes}


def _replacement(edit: Edit) -> dict[str, Any]:
    (line, column), (end_line, end_column) = edit.start, edit.end
    region = {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}
    return {"deletedRegion": region, "insertedContent": {"text": edit.text}}


def _fingerprint(finding: Finding, report: Report, seen: Counter[str]) -> str:
    """A hash of code, file, function, the line's text and a running number: it survives a move to another line."""
    from hashlib import sha256

    at = finding.location
    parts = [finding.code]
    if at is not None:
        text = (report.part("lines").get(at.path) or {}).get(str(at.line), "")
        parts += [place_of(at.path).file, at.function or "", str(text).strip()]
    key = "\0".join(parts)
    seen[key] += 1
    return sha256(f"{key}\0{seen[key]}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _properties(finding: Finding) -> dict[str, Any]:
    measured = {k: v for k, v in msgspec.to_builtins(finding.measured).items() if v is not None}
    properties: dict[str, Any] = {"evidence": finding.evidence, "remedy": finding.remedy.summary}
    if finding.remedy.edits:
        properties["safe"] = finding.remedy.safe
    if finding.holder is not None:
        properties["holder"] = finding.holder.name
    return properties | ({"measured": measured} if measured else {})
