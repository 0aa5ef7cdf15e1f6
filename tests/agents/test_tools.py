"""The tools of the MCP server: what they give, what they cut, and what they refuse to read."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp import Client
from mcp.types import CallToolResult, TextContent

from torchvet.agents.capping import DEEP_ROWS, ROWS, capped
from torchvet.agents.server import make_server
from torchvet.finding import Finding, NotChecked, Remedy, Report
from torchvet.recording import RecordingWriter
from torchvet.recording.records.base import Program
from torchvet.recording.records.training import Outcome

DATA = Path(__file__).parents[1] / "data"
SCHEMA = json.loads((Path(__file__).parents[2] / "docs/report.schema.json").read_text("utf-8"))
SCALER = "import torch\nscaler = torch.cuda.amp.GradScaler()\n"
Call = Callable[..., CallToolResult]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Calls a tool of a server for a folder of the test's own, by the SDK's client within this process."""

    def called(name: str, **arguments: Any) -> CallToolResult:
        async def session() -> CallToolResult:
            async with Client(make_server([tmp_path])) as client:
                return await client.call_tool(name, arguments)

        return asyncio.run(session())

    return called


def report_of(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, result.content
    found: dict[str, Any] = result.structured_content or {}
    jsonschema.validate(found, SCHEMA)
    return found


def message_of(result: CallToolResult) -> str:
    assert result.is_error and isinstance(result.content[0], TextContent)
    return result.content[0].text


def test_source_is_checked_as_a_file_a_folder_and_a_text(call: Call, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCALER)
    (tmp_path / "other.py").write_text("import torch\n")
    for arguments in ({"path": "train.py"}, {"path": "."}, {"text": SCALER}, {"path": str(tmp_path / "train.py")}):
        found = report_of(call("check_source", **arguments))
        assert [f["code"] for f in found["findings"]] == ["AMP210"]
        assert found["findings"][0]["remedy"]["edits"] and found["facts"]["truncated"] == []
    assert report_of(call("check_source", path=".", select=["MEM"]))["findings"] == []
    (tmp_path / "pyproject.toml").write_text("[tool.torchvet]\nignore = ['AMP']\n")
    assert report_of(call("check_source", text=SCALER))["verdict"] == "clean"
    assert {p.name for p in tmp_path.iterdir()} == {"train.py", "other.py", "pyproject.toml"}, "nothing is written"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("check_source", {}, "either `path` or `text`"),
        ("check_source", {"path": "a.py", "text": "x"}, "either `path` or `text`"),
        ("check_source", {"path": "nowhere.py"}, "nowhere.py: no such file"),
        ("check_source", {"path": "/etc/passwd"}, "lies outside of"),
        ("check_source", {"path": "../a.py"}, "lies outside of"),
        ("check_source", {"text": "x", "select": ["ZZZ"]}, "ZZZ"),
        ("inspect_file", {"paths": []}, "`paths` is empty"),
        ("inspect_file", {"paths": ["a.txt"]}, "a.txt"),
        ("read_report", {"recording": "a.txt"}, "a.txt"),
        ("read_report", {"recording": "a.json"}, "is no report of torchvet"),
        ("compare_runs", {"before": "a.txt", "after": "a.txt"}, "a.txt"),
        ("explain_rule", {"code": "MEM999"}, "MEM999: no such rule"),
    ],
)
def test_what_cannot_be_done_is_a_message(
    call: Call, tmp_path: Path, name: str, arguments: dict[str, Any], message: str
) -> None:
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "a.json").write_text("{}")
    assert message in message_of(call(name, **arguments))


def test_a_link_leads_nowhere_else(call: Call, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "a.py"
    outside.write_text(SCALER)
    (tmp_path / "link.py").symlink_to(outside)
    assert "lies outside of" in message_of(call("check_source", path="link.py"))
    assert report_of(call("check_source", path="."))["facts"]["files"] == 0


def test_files_of_a_run_are_read_and_compared(call: Call, tmp_path: Path) -> None:
    shutil.copy(DATA / "silmont.pickle", tmp_path / "a.pickle")
    found = report_of(call("inspect_file", paths=["a.pickle"]))
    assert found["subject"]["kind"] == "snapshot" and found["facts"]
    same = report_of(call("compare_runs", before="a.pickle", after="a.pickle"))
    assert same["facts"]["comparison"]["same"] is True
    (tmp_path / "report.json").write_text(json.dumps(same))
    assert report_of(call("read_report", recording="report.json"))["subject"] == same["subject"]


def test_a_recording_is_diagnosed(call: Call, tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "run.vet")
    writer.write(Program(argv=["a.py"], path="a.py", cwd="/", python="3", torch="2", device="cpu", started=0.0, pid=1))
    writer.write(Outcome(how="finished", status=0, ticks=0, seconds=0.1))
    writer.close()
    assert report_of(call("read_report", recording="run.vet"))["verdict"] == "undetermined"


def test_rules_are_explained_and_found_by_a_symptom(call: Call) -> None:
    explained = call("explain_rule", code="graph-retained").structured_content or {}
    assert explained["code"] == "MEM101" and {"what", "remedy", "faulty", "fixed"} <= explained.keys()
    found = call("search_rules", symptom="GradScaler: gradients are clipped before unscale_").structured_content or {}
    assert found["rules"][0]["code"] == "AMP101" and len(found["rules"]) == 10
    assert found["truncated"][0].startswith("rules: 10 of ")
    assert (call("search_rules", symptom="zzzz").structured_content or {}) == {"rules": [], "truncated": []}


def test_long_reports_are_cut_and_say_so() -> None:
    finding = Finding(
        code="MEM101", name="graph-retained", severity="error", evidence="observed", message="m", location=None,
        cause="c", remedy=Remedy(summary="r"),
    )  # fmt: skip
    facts = {"rows": [{"deep": list(range(40))}] * 3, "table": {str(i): i for i in range(100)}, "short": [1, 2]}
    report = Report(
        subject={}, verdict="findings", findings=[finding] * (ROWS + 5),
        not_checked=[NotChecked(check="a", reason="b")], facts=facts,
    )  # fmt: skip
    found = capped(report)
    jsonschema.validate(found, SCHEMA)
    assert len(found["findings"]) == ROWS and len(found["facts"]["rows"][0]["deep"]) == DEEP_ROWS
    assert found["facts"]["short"] == [1, 2]
    assert found["facts"]["truncated"] == [
        f"findings: {ROWS} of {ROWS + 5} shown",
        *[f"rows.deep: {DEEP_ROWS} of 40 shown"] * 3,
        "table: 48 of 100 shown",
    ]
