"""The page: one file, nothing to load, whole whatever stands in a report, the same for the same report."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from check_reports import HOSTILE, PATHS, TEXTS, finding, report
from drawn_by_hand import drawn, leak, leaking, page_of, traced
from hypothesis import given, settings
from hypothesis import strategies as st

from torchvet.charts import Chart, Drawing, Node, Series
from torchvet.commands import main
from torchvet.finding import Edit, Finding, Holder, NotChecked, Remedy, Report
from torchvet.recording import Recording, RecordingWriter
from torchvet.renderers import renderer_for, renderer_for_path
from torchvet.renderers.html import page as page_module
from torchvet.renderers.html.markup import safe, tag
from torchvet.workflows.report_output import Delivery

pytest.importorskip("plotly", reason="plotly is not installed")
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028\u202e'\"&amp;${1}`x`"
DATA = Path(__file__).resolve().parents[1] / "data"
HTML = renderer_for("html")


@pytest.fixture(autouse=True)
def short_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its five megabytes are looked at in one test."""
    monkeypatch.setattr(page_module, "plotly", lambda: "/* plotly */")


class Elements(HTMLParser):
    """The elements of a page, and whether each is closed where it should be."""

    EMPTY = ("meta", "link", "input", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.scripts if self.open[-1:] == ["script"] else self.texts).append(data)

    def ids(self) -> list[str]:
        return [attributes["id"] or "" for _, attributes in self.found if attributes.get("id")]


def whole(text: str) -> Elements:
    """A page as its elements; that it is well-formed, and that nothing in it runs but its own scripts."""
    page = Elements(text)
    assert page.open == []
    ids = page.ids()
    assert len(ids) == len(set(ids))
    assert not [a for _, attributes in page.found for a in attributes if a.startswith("on")]
    assert len([1 for name, _ in page.found if name == "script"]) <= 3
    assert {name for name, _ in page.found} & {"img", "iframe", "object", "embed", "svg", "base", "form"} <= {"form"}
    for name, attributes in page.found:
        for key in ("href", "src"):
            link = attributes.get(key)
            assert link is None or link.startswith("#") or (name, link) == ("link", "data:,")
    return page


def data_of(page: Elements) -> list[dict[str, Any]]:
    found = json.loads(page.scripts[0])
    assert isinstance(found, list)
    return found


REPORTS = st.builds(
    lambda *given: report(*given, missed=(HOSTILE, EVIL)),
    st.builds(finding, TEXTS | st.just(EVIL), PATHS | st.just(EVIL), st.booleans(), TEXTS),
    st.builds(finding, TEXTS, PATHS),
)


@settings(max_examples=40)
@given(REPORTS)
def test_a_page_is_whole_whatever_stands_in_a_report(subject: Report) -> None:
    page = whole(HTML.render(subject))
    assert not [c for c in "".join(page.texts) if c in "\x1b\u202e\u2028" or 0xD800 <= ord(c) < 0xE000]


@settings(max_examples=25)
@given(st.text(max_size=30) | st.just(EVIL))
def test_nothing_in_a_chart_can_break_out(name: str) -> None:
    chart = Chart(
        id="memory", title=name, kind="lines", caption=name, notes=[name], columns=[name, name], rows=[[name, name]],
        series=[Series(name=name, role=name, x=[1, 2], y=[None, 2.0], notes=[name, name])],
    )  # fmt: skip
    icicle = Chart(
        id="holders", title=name, kind="icicle", caption=name, nodes=[Node(label=name, value=1.0, role=name)]
    )
    page = whole(HTML.render(report(), drawing=Drawing(charts=[chart, icicle], missing=[name])))
    shown = data_of(page)[0]["series"][0]["name"]
    assert not set(shown) & {"\n", "\x00", "\u2028", "\u202e"}


def test_hostile_names_of_a_run_are_shown_as_they_are(tmp_path: Path) -> None:
    records = leak(name="evil")
    for record in records:
        for held in getattr(record, "holdings", []):
            held_path = [f"__main__.main: {EVIL}"]
            msgspec.structs.force_setattr(held, "name", EVIL)
            msgspec.structs.force_setattr(held, "path", held_path)
    page = whole(page_of(Recording([type(leaking().ranks[0])(0, records)])))
    assert any("<img src=x onerror=alert(2)>" in text for text in page.texts)


def test_a_leaks_page_has_everything() -> None:
    text = page_of(leaking())
    page = whole(text)
    ids = page.ids()
    wanted = ["verdict", "memory", "findings", "growth", "holders", "peaks", "time", "numbers", "not-checked"]
    assert [name for name in wanted if name not in ids] == []
    assert "MEM101-1" in ids
    assert {"skip"} <= {a.get("class") for _, a in page.found}
    levels = [int(name[1]) for name, _ in page.found if re.fullmatch("h[1-6]", name)]
    assert levels[0] == 1 and levels.count(1) == 1 and all(b - a <= 1 for a, b in pairwise(levels))
    # Every chart says its figures in words and as a table.
    for number, chart in enumerate(data_of(page)):
        assert chart["caption"] and chart["rows"]
        assert f"told-{number}" in ids
    labels = [a for name, a in page.found if name in ("select", "input")]
    assert labels and all(a.get("name") or a.get("aria-label") for a in labels)


def test_the_fix_stands_beside_the_line_as_a_diff() -> None:
    text = "import torch\n\nfor x in y:\n    x.backward()\n"
    edit = Edit(path="/gone/a.py", start=(4, 5), end=(4, 17), text="x.sum().backward()")
    fixed = msgspec.structs.replace(finding(path="/gone/a.py"), remedy=Remedy(summary="sum", safe=True, edits=[edit]))
    page = whole(HTML.render(report(fixed), drawing=Drawing(sources={"/gone/a.py": text})))
    rows = [a.get("class") for name, a in page.found if name == "span" and (a.get("class") or "").startswith("row ")]
    assert [row for row in rows if row in ("row del", "row add")] == ["row del", "row add"]
    assert "+    x.sum().backward()" in page.texts
    # Without the file's text there is nothing to show a change of.
    assert "row add" not in re.sub("<style>.*?</style>", "", HTML.render(report(fixed)))


def test_the_same_recording_gives_the_same_bytes() -> None:
    assert page_of(leaking()) == page_of(leaking())


def test_nothing_is_loaded_and_only_the_pages_own_scripts_run() -> None:
    text = page_of(leaking())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None and "default-src &#x27;none&#x27;" in policy[1] and "unsafe-eval" not in policy[1]
    assert policy[1].count("sha256-") == 2 and "script-src &#x27;unsafe-inline" not in policy[1]
    outside = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert "http://" not in outside and "https://" not in outside and "@import" not in outside


def test_plotly_is_in_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    text = page_of(leaking())
    assert "plotly.js v" in text and len(text) > 10**6
    assert text.count("</script>") == 3
    # A page without charts does not carry it.
    assert len(HTML.render(report(finding()))) < 10**6


def test_only_a_report_at_hand_is_said(report_of_run: Report) -> None:
    text = HTML.render(report_of_run)
    assert "only the report was at hand" in text
    assert "only the report was at hand" not in HTML.render(report())


@pytest.fixture
def report_of_run() -> Report:
    return drawn(leaking())[0]


def test_without_plotly_the_program_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torchvet.renderers.find_spec", lambda name: None)
    program = tmp_path / "train.py"
    program.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    for options in (["-o", str(tmp_path / "x.html")], ["--format", "html"]):
        assert main(["run", *options, str(program)]) == 2
        assert "pip install 'torchvet[report]'" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists() and not (tmp_path / "x.html").exists()


def fail(*given: object) -> str:
    raise ZeroDivisionError("by hand")


@pytest.mark.parametrize(
    ("verb", "file", "broken", "lost"),
    [
        ("report", "run.vet", "drawing.time._told", "time"),
        ("inspect", "run.vet", "drawing.growth._told", "growth"),
        ("inspect", "run.vet", "drawing.memory._told", "memory"),
        ("inspect", "magma.pickle", "drawing.snapshot._divided", "layout"),
        ("inspect", "traces/gloo_rank0.json.gz", "drawing.trace._spread", "time"),
        ("inspect", "traces/gloo_rank0.json.gz", "drawing.trace.stretches_of", "kernels"),
    ],
)
def test_a_chart_that_fails_is_left_out_and_the_page_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verb: str,
    file: str,
    broken: str,
    lost: str,
) -> None:
    writer = RecordingWriter(tmp_path / "run.vet")
    for record in leak():
        writer.write(record)
    words = [verb, str((tmp_path if file == "run.vet" else DATA) / file), "-q", "-o", str(tmp_path / "a.html")]
    status = main(words)
    before = [chart["id"] for chart in data_of(whole((tmp_path / "a.html").read_text("utf-8")))]
    monkeypatch.setattr(f"torchvet.{broken}", fail)
    assert main(words) == status and capsys.readouterr().err == ""
    text = (tmp_path / "a.html").read_text("utf-8")
    after = [chart["id"] for chart in data_of(whole(text))]
    assert lost in before and lost not in after and len(after) >= 1
    assert "not drawn: </strong>" in text and "this is a bug in torchvet" in text
    assert re.search(r"ZeroDivisionError: by hand, [a-z/]+\.py:\d+", text), "the place that failed is said"


def test_a_figure_that_fails_leaves_the_others() -> None:
    report, drawing = drawn(leaking())
    bad = Chart(id="x", title="Broken", kind="icicle", caption="c", nodes=[Node(label="a", value=1.0, parent=7)])
    text = HTML.render(report, drawing=msgspec.structs.replace(drawing, charts=[*drawing.charts, bad]))
    assert "MEM101-1" in text and "Broken: this is a bug in torchvet" in text and 'id="memory"' in text


def test_no_fault_before_the_first_chart_loses_the_report(tmp_path: Path) -> None:
    delivery = Delivery(outputs=(str(tmp_path / "a.html"),), format=None, quiet=True)
    assert delivery.deliver(drawn(leaking())[0], fail) == 1  # type: ignore[arg-type]
    text = (tmp_path / "a.html").read_text("utf-8")
    assert "MEM101-1" in text and "all charts: this is a bug in torchvet" in text


def test_the_extension_picks_the_format() -> None:
    assert renderer_for_path("a/report.HTML").format == renderer_for_path("x.htm").format == "html"


def test_a_recording_is_reported_on_as_a_page(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "run.vet")
    for record in leak():
        writer.write(record)
    for verb in ("report", "inspect"):
        out = tmp_path / f"{verb}.html"
        assert main([verb, str(tmp_path / "run.vet"), "-q", "-o", str(out)]) == 1
        page = whole(out.read_text("utf-8"))
        assert {"memory", "growth", "time"} <= set(page.ids())


def test_snapshots_are_drawn(tmp_path: Path) -> None:
    out = tmp_path / "a.html"
    assert main(["inspect", str(DATA / "magma.pickle"), "-q", "-o", str(out)]) == 0
    page = whole(out.read_text("utf-8"))
    charts = {chart["id"]: chart for chart in data_of(page)}
    assert list(charts) == ["memory", "holders", "layout"]
    series = [s for s in charts["memory"]["series"] if s.get("style") == "area"]
    peak = max(sum(s["y"][i] or 0 for s in series) for i in range(len(series[0]["x"])))
    assert peak == pytest.approx(charts["holders"]["nodes"][0]["value"])
    rows = {box["row"] for box in charts["layout"]["boxes"]}
    assert rows == set(range(len(charts["layout"]["labels"])))
    assert "shown as" in charts["memory"]["notes"][0]


def test_traces_are_drawn(tmp_path: Path) -> None:
    out = tmp_path / "a.html"
    files = [str(DATA / "traces" / f"gloo_rank{n}.json.gz") for n in (0, 1)]
    assert main(["inspect", *files, "-q", "-o", str(out)]) == 1
    found = [chart["id"] for chart in data_of(whole(out.read_text("utf-8")))]
    assert found == ["device", "device", "ranks", "step", "kernels", "time", "time"]
    assert main(["inspect", str(traced(tmp_path)), "-q", "-o", str(out)]) in (0, 1)
    charts = {chart["id"]: chart for chart in data_of(whole(out.read_text("utf-8")))}
    assert charts["step"]["labels"] == ["phases of the host", "device 0"]
    assert any(label.startswith("idle: ") for label in charts["device"]["labels"])
    # A bar for what the device did, and for what it waited for, of the same length as the step.
    parts = [s["y"] for s in charts["device"]["series"]]
    assert all(sum(y[i] is not None for y in parts) == 1 for i in range(len(charts["device"]["labels"])))


def test_a_comparison_is_drawn(tmp_path: Path) -> None:
    for name, number in (("a.vet", 60), ("b.vet", 80)):
        writer = RecordingWriter(tmp_path / name)
        for record in leak(number):
            writer.write(record)
    out = tmp_path / "a.html"
    assert main(["compare", str(tmp_path / "a.vet"), str(tmp_path / "b.vet"), "-q", "-o", str(out)]) == 0
    assert whole(out.read_text("utf-8"))


def test_a_check_has_its_findings_without_charts(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\nlosses = []\nfor x in y:\n    loss = f(x)\n    losses.append(loss)\n")
    out = tmp_path / "a.html"
    assert main(["check", str(tmp_path / "a.py"), "-q", "-o", str(out)]) in (0, 1)
    page = whole(out.read_text("utf-8"))
    assert data_of(page) == []


def test_markup_goes_in_only_as_markup() -> None:
    assert safe("<b>") == "&lt;b&gt;" and tag("p", tag("b", "<"), data_x='"') == '<p data-x="&quot;"><b>&lt;</b></p>'
    assert safe("a\u202eb\x1b") == "a\\u202eb\\x1b"


def test_unknown_holders_and_missing_parts_are_no_error() -> None:
    one: Finding = msgspec.structs.replace(
        finding(), location=None, holder=Holder(name="x", kind="unknown"), ranks=[1, 2]
    )
    page = whole(HTML.render(msgspec.structs.replace(report(one), not_checked=[NotChecked(check="a", reason="b")])))
    assert any(a.get("data-ranks") == "1 2" for _, a in page.found)
