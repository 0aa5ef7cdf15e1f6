"""JSON is the contract: it validates, it reads back, and its order is the documented one."""

from __future__ import annotations

import json

import jsonschema
import msgspec

from torchvet.docgen.documents import schema
from torchvet.finding import Finding, Location, Report
from torchvet.renderers import renderer_for

JSON = renderer_for("json")


def test_it_reads_back_as_the_same_report(report: Report) -> None:
    assert msgspec.json.decode(JSON.render(report), type=Report) == report


def test_it_validates_against_the_published_schema(report: Report) -> None:
    jsonschema.Draft202012Validator(json.loads(schema())).validate(json.loads(JSON.render(report)))


def test_the_schema_refuses_what_is_no_report(report: Report) -> None:
    tree = json.loads(JSON.render(report))
    tree["findings"][0]["severity"] = "fatal"
    errors = list(jsonschema.Draft202012Validator(json.loads(schema())).iter_errors(tree))
    assert [list(e.absolute_path) for e in errors] == [["findings", 0, "severity"]]


def test_schema_and_version_come_first_and_unknowns_are_null(report: Report) -> None:
    tree = json.loads(JSON.render(report))
    assert list(tree)[:4] == ["schema", "version", "subject", "verdict"]
    assert tree["schema"] == "torchvet.report/1"
    assert tree["findings"][0]["holder"] is None
    assert tree["findings"][1]["measured"]["peak_bytes"] is None


def test_figures_that_are_no_numbers_are_null(report: Report) -> None:
    odd = msgspec.structs.replace(report, facts={"growth": {"bytes_per_step": float("nan")}})
    assert json.loads(JSON.render(odd), parse_constant=lambda c: (_ for _ in ()).throw(ValueError(c)))["facts"] == {
        "growth": {"bytes_per_step": None}
    }


def test_undecodable_file_names_do_not_cost_the_report(report: Report, leak: Finding) -> None:
    odd = msgspec.structs.replace(leak, location=Location(path="caf\udce9.py", line=1))
    tree = json.loads(JSON.render(msgspec.structs.replace(report, findings=[odd])))
    assert tree["findings"][0]["location"]["path"] == "caf\\udce9.py"


def test_colour_and_width_change_nothing(report: Report) -> None:
    assert JSON.render(report, color=True, width=20) == JSON.render(report)
