"""The findings: what, where in the source, who holds it, how much, and the fix as a diff. With filters over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torchvet.charts import Drawing
from torchvet.finding import SEVERITIES, Finding, Location, Related, Report
from torchvet.renderers.html.markup import NONE, Html, joined, safe, tag
from torchvet.renderers.html.overview import marked
from torchvet.renderers.places import shown_path
from torchvet.renderers.text_finding import measured, place, ranks
from torchvet.renderers.wording import count, printable
from torchvet.source.quote import Quote, quote

AROUND = 4
"""Lines of source before and after the one that a finding is about."""
MOST = 500
"""Findings on the page at most; JSON has all of them."""
CONTEXT = 3


def anchors(report: Report) -> list[str]:
    """An id for each finding, by which it is linked to: its code, and its number among those of that code."""
    numbers: Counter[str] = Counter()
    found = []
    for finding in report.findings:
        numbers[finding.code] += 1
        code = "".join(c for c in finding.code if c.isascii() and c.isalnum())
        found.append(f"{code}-{numbers[finding.code]}")
    return found


def findings_section(report: Report, drawing: Drawing) -> Html:
    """All findings, the gravest first, with the controls that pick among them."""
    names = anchors(report)
    order = sorted(range(len(names)), key=lambda at: -SEVERITIES.index(report.findings[at].severity))
    cards = [_card(report.findings[at], names[at], report, drawing) for at in order[:MOST]]
    more = len(order) - MOST
    inside = [
        tag("h2", "Findings", id="findings-title"),
        _filters(report) if cards else NONE,
        tag("div", *cards, class_="findings") if cards else tag("p", "Nothing was found.", class_="soft"),
        tag("p", f"and {count(more)} more; JSON has all of them", class_="soft") if more > 0 else NONE,
    ]
    return tag("section", *inside, id="findings", class_="card", aria_labelledby="findings-title")


def _filters(report: Report) -> Html:
    families = sorted({f.code[:3] for f in report.findings})
    severities = [s for s in reversed(SEVERITIES) if any(f.severity == s for f in report.findings)]
    numbers = sorted({r for f in report.findings for r in _ranks(f)})
    parts = [_choice("severity", "Severity", severities), _choice("family", "Family", families)]
    if numbers:
        parts.append(_choice("rank", "Rank", [str(n) for n in numbers]))
    search = tag("input", type="search", name="text", autocomplete="off", spellcheck="false")
    parts += [tag("label", "Text", search, class_="grow"), tag("button", "Reset", type="reset")]
    status = tag("p", "", id="shown", class_="soft small", role="status", aria_live="polite")
    return tag("form", *parts, status, id="filters", class_="filters", aria_label="Filter the findings", hidden=True)


def _choice(name: str, label: str, values: Sequence[str]) -> Html:
    options = [tag("option", "all", value=""), *(tag("option", v, value=v) for v in values)]
    return tag("label", label, tag("select", *options, name=name))


def _ranks(finding: Finding) -> list[int]:
    return finding.ranks or ([finding.rank] if finding.rank is not None else [])


def _card(finding: Finding, name: str, report: Report, drawing: Drawing) -> Html:
    facts = [
        ("why", joined(marked(finding.cause))),
        ("held by", _holder(finding)),
        ("measured", safe(measured(finding.measured))),
        ("what to do", joined(marked(finding.remedy.summary))),
        ("explained by", tag("code", f"torchvet explain {finding.code}")),
    ]
    said = [part for what, text in facts if text for part in (tag("dt", what), tag("dd", text))]
    return tag(
        "article",
        _head(finding, name),
        tag("p", joined(marked(finding.message)), class_="message"),
        _source(finding.location, report),
        tag("dl", *said, class_="said"),
        *_fixes(finding, report, drawing),
        _related(finding.related),
        id=name,
        class_=f"finding {finding.severity}",
        tabindex=-1,
        aria_labelledby=f"{name}-title",
        data_severity=finding.severity,
        data_family=finding.code[:3],
        data_ranks=" ".join(map(str, _ranks(finding))) or None,
    )


def _head(finding: Finding, name: str) -> Html:
    link = tag("a", finding.code, href=f"#{name}", title="Link to this finding")
    badges = [
        tag("span", finding.severity, class_=f"badge {finding.severity}"),
        tag("span", finding.evidence, class_="badge"),
    ]
    badges += [tag("span", who, class_="badge") for who in (ranks(finding), finding.device or "") if who]
    title = tag("h3", link, tag("span", finding.name), id=f"{name}-title")
    return tag("div", title, tag("p", *badges, class_="badges"), class_="head")


def _holder(finding: Finding) -> Html:
    if finding.holder is None:
        return NONE
    hops = finding.holder.path or [finding.holder.name]
    return tag("ol", *(tag("li", tag("code", hop)) for hop in hops), class_="holds")


def _source(location: Location | None, report: Report) -> Html:
    if location is None:
        return NONE
    found = quote(location, report.part("sources"), AROUND)
    title = tag("figcaption", tag("code", place(location)))
    if found is None:
        return tag("figure", title, class_="source")
    return tag("figure", title, tag("pre", joined(_lines(found, location.end_line)), tabindex=0), class_="source")


def _lines(found: Quote, end: int | None) -> Iterator[Html]:
    texts = [line.expandtabs(4) for line in found.lines]
    margin = min((len(t) - len(t.lstrip()) for t in texts if t.strip()), default=0)
    last = max(found.marked, end or 0)
    for number, line in enumerate(texts, start=found.first):
        hit = found.marked <= number <= last
        mark = tag("span", "this line: ", class_="only-read") if number == found.marked else NONE
        yield tag(
            "span",
            tag("span", str(number), class_="no"),
            mark,
            printable(line[margin:]) or " ",
            class_="row hit" if hit else "row",
        )


def _fixes(finding: Finding, report: Report, drawing: Drawing) -> Iterator[Html]:
    """The fix as a diff of each file that it changes; nothing where a file's text is not at hand."""
    texts = _texts(finding, drawing.sources)
    if texts is None:
        return
    from torchvet.fixing.edits import apply

    after, applied = apply(texts, [finding])
    if not applied:
        return
    title = "The fix" if finding.remedy.safe else "The fix, which may change what the program computes"
    for path, text in texts.items():
        rows = list(_diff(text, after[path]))
        caption = tag("figcaption", f"{title}: ", tag("code", shown_path(path)))
        yield tag("figure", caption, tag("pre", *rows, tabindex=0, class_="diff"), class_="source")


def _texts(finding: Finding, known: Mapping[str, str]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for path in dict.fromkeys(edit.path for edit in finding.remedy.edits):
        text = known.get(path)
        if text is None:
            try:
                text = Path(path).read_bytes().decode("utf-8")
            except (OSError, ValueError):
                return None
        found[path] = text
    return found or None


def _diff(before: str, after: str) -> Iterator[Html]:
    from torchvet.patches import made

    kinds = {"+": ("row add", "added: "), "-": ("row del", "removed: "), "@": ("row hunk", "")}
    for line in made(before, after, "x").splitlines()[2:]:
        kind, word = kinds.get(line[:1], ("row", ""))
        spoken = tag("span", word, class_="only-read") if word else NONE
        yield tag("span", spoken, printable(line.expandtabs(4)) or " ", class_=kind)


def _related(related: list[Related]) -> Html:
    if not related:
        return NONE
    rows = [tag("li", *_one(item), class_="small") for item in related]
    return tag(
        "details",
        tag("summary", count(len(related), "related place")),
        tag("ul", *rows, class_="plain"),
        class_="print",
    )


def _one(item: Related) -> list[Html]:
    at = [tag("code", f"{shown_path(item.path)}:{item.line}"), Html(": ")] if item.path else []
    return [tag("span", item.role.replace("-", " "), class_="soft"), Html(" "), *at, safe(item.message)]
