"""The document: head, sections in their order, data, scripts. The browser may load nothing and run nothing else."""

from __future__ import annotations

import base64
import hashlib
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import msgspec

from torchvet.charts import Chart, Drawing, guarded
from torchvet.errors import BadInput
from torchvet.finding import SEVERITIES, Report
from torchvet.renderers.html.colors import colors_of
from torchvet.renderers.html.facts import as_text, environment, lines_of_step, not_checked, ranks
from torchvet.renderers.html.figures import PLOTTED, Figure, figures, section_of
from torchvet.renderers.html.findings import findings_section
from torchvet.renderers.html.from_facts import charts_of_facts
from torchvet.renderers.html.markup import NONE, Html, joined, json_block, tag
from torchvet.renderers.html.overview import NO_FINDINGS, overview
from torchvet.renderers.verdict import headline

MISSING = "HTML reports draw with Plotly, which is not installed: pip install 'torchvet[report]'"
_HERE = Path(__file__).parent
_LEADS = {"MEM": "memory", "NUM": "numbers", "AMP": "numbers", "TRN": "numbers", "OPS": "time", "DST": "ranks"}
"""The chart that comes before the findings, by the family of the gravest."""


def page(report: Report, drawing: Drawing) -> str:
    """The whole document. Raises `BadInput` where Plotly is not installed."""
    failed: list[str] = []
    charts = [*drawing.charts, *charts_of_facts(report, failed)]
    parts = _sections(report, drawing, charts, failed)
    own = (_HERE / "page.js").read_text("utf-8")
    scripts = [plotly(), own] if any(chart.kind in PLOTTED for chart in charts) else [own]
    title = headline(report)
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(scripts)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content=f"torchvet {report.version}"),
        tag("link", rel="icon", href="data:,"),
        tag("title", f"torchvet: {title}"),
        tag("style", Html((_HERE / "page.css").read_text("utf-8"))),
    ]
    body = [
        tag("a", "Skip to the report", class_="skip", href="#main"),
        _top(parts),
        tag("main", *(part for _, _, part in parts), id="main"),
        tag("footer", f"torchvet {report.version}. This page is complete in itself and loads nothing."),
        json_block("charts", [msgspec.to_builtins(c) | {"colors": colors_of(c)} for c in charts]),
        *(Html(f"<script>{script}</script>") for script in scripts),
    ]
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', *body), lang='en')}\n"


def _sections(report: Report, drawing: Drawing, charts: list[Chart], failed: list[str]) -> list[tuple[str, str, Html]]:
    """What the page shows, in order: an id, a word for the navigation, the section. `failed` gets charts that fail."""
    drawn = figures(charts, report)
    first = [f for f in drawn if f.id == _lead(report, drawn)]
    rest = [f for f in drawn if f not in first]
    parts = [("verdict", "Verdict", overview(report))]
    parts += [_figure(f, failed) for f in first]
    if report.subject.get("kind") not in NO_FINDINGS:
        parts.append(("findings", "Findings", findings_section(report, drawing)))
    parts += [_figure(f, failed) for f in rest]
    parts += [
        ("lines", "Lines", lines_of_step(report)),
        ("rank-table", "Ranks", ranks(report)),
        ("not-checked", "Not checked", not_checked(report, drawing, failed)),
        ("environment", "Environment", environment(report)),
        ("text", "As text", as_text(report)),
    ]
    return [part for part in parts if part[2]]


def _figure(figure: Figure, failed: list[str]) -> tuple[str, str, Html]:
    return figure.id, figure.word, guarded(figure.title, partial(section_of, figure), failed) or NONE


def _lead(report: Report, drawn: list[Figure]) -> str:
    worst = max(report.findings, key=lambda f: SEVERITIES.index(f.severity), default=None)
    wanted = _LEADS.get(worst.code[:3], "") if worst is not None else ""
    ids = [figure.id for figure in drawn]
    return wanted if wanted in ids else ids[0] if ids else ""


def _top(parts: list[tuple[str, str, Html]]) -> Html:
    links = [tag("li", tag("a", word, href=f"#{name}")) for name, word, _ in parts]
    sections = tag("nav", tag("ul", *links), class_="sections", aria_label="Sections", tabindex=0)
    theme = tag("button", "Theme", type="button", id="theme", hidden=True)
    brand = tag("span", "torch", tag("span", "vet"), class_="brand")
    return tag("header", tag("div", brand, sections, theme, class_="top-in"), class_="top")


def _policy(scripts: list[str]) -> str:
    """Only these scripts run, and nothing is loaded: what a report says cannot change that."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def plotly() -> str:
    """Plotly's library for browsers. Raises `BadInput` where it is not installed."""
    found = find_spec("plotly")
    places = found.submodule_search_locations if found is not None else None
    for folder in places or ():
        file = Path(folder) / "package_data" / "plotly.min.js"
        if file.is_file():
            # What would end the element ends no string of JavaScript with a backslash before it.
            return file.read_text("utf-8").replace("</script", "<\\/script")
    raise BadInput(MISSING)


__all__ = ["MISSING", "NONE", "joined", "page", "plotly"]
