"""Pages in headless Chromium: they load without a network and an error, draw, filter, and open at a finding."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from check_reports import finding, report
from drawn_by_hand import broken, drawn, leak, leaking, page_of, ranks, traced
from handmade import rank

from torchvet.commands import main
from torchvet.finding import Report
from torchvet.recording import Recording
from torchvet.renderers import renderer_for

pytest.importorskip("plotly", reason="plotly is not installed")
DATA = Path(__file__).resolve().parents[1] / "data"
EVIL = (
    "<img src=x onerror=\"window.hit=1\"></script><script>window.hit=1</script><a href='javascript:window.hit=1'>a</a>"
)
WIDE, NARROW = 1280, 390


class Seen:
    """A page that is open, and what it has said and asked for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.said: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.said.append(f"asked for {request.url}")

    def open(self, path: Path, fragment: str = "") -> None:
        self.page.goto(path.as_uri() + fragment)
        self.page.wait_for_function("() => document.documentElement.dataset.ready === 'yes'")

    def count(self, selector: str) -> int:
        return int(self.page.locator(selector).count())

    def visible(self, selector: str) -> list[str]:
        return [one.get_attribute("id") for one in self.page.locator(selector).all() if one.is_visible()]


@contextmanager
def seen(browser: Any, width: int = WIDE, scheme: str = "light") -> Iterator[Seen]:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    try:
        yield Seen(context.new_page())
    finally:
        context.close()


def written(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {
        name: written(folder / f"{name}.html", page_of(recording))
        for name, recording in (("leak", leaking()), ("ranks", ranks()), ("broken", broken()))
    }
    for name, given in (("snapshot", DATA / "magma.pickle"), ("trace", traced(folder))):
        found[name] = folder / f"{name}.html"
        main(["inspect", str(given), "-q", "-o", str(found[name])])
    several = report(finding("first of all"), finding("second"), finding("third"))
    info = msgspec.structs.replace(several.findings[1], severity="info", code="MEM101", ranks=[0, 2])
    warning = msgspec.structs.replace(several.findings[2], severity="warning", rank=1)
    one = msgspec.structs.replace(several, findings=[several.findings[0], info, warning])
    found["findings"] = written(folder / "findings.html", renderer_for("html").render(one))
    return found


@pytest.mark.parametrize("name", ["leak", "ranks", "broken", "snapshot", "trace"])
def test_a_page_draws_all_its_charts_without_a_word(name: str, pages: dict[str, Path], browser: Any) -> None:
    with seen(browser, WIDE) as page:
        page.open(pages[name])
        for width, scheme in ((WIDE, "light"), (NARROW, "dark")):
            page.page.set_viewport_size({"width": width, "height": 900})
            page.page.emulate_media(color_scheme=scheme)
            page.page.wait_for_function(f"() => document.documentElement.dataset.theme === '{scheme}'")
            plots, drawn_ones = page.page.evaluate(DRAWN)
            assert plots == drawn_ones > 0
            page.page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
            # No text of a chart is cut off at its edge.
            texts, cut = page.page.evaluate(CUT)
            assert texts > 0 and cut == []
        assert page.said == []


DRAWN = """() => {
  const plots = [...document.querySelectorAll('.figure:not([hidden]) .plot')];
  return [plots.length, plots.filter((plot) => plot.querySelector('.main-svg')).length];
}"""
CUT = """() => {
  const texts = [], cut = [];
  for (const plot of document.querySelectorAll('.figure:not([hidden]) .plot')) {
    const frame = plot.getBoundingClientRect();
    for (const text of plot.querySelectorAll('.xtick text, .ytick text, .y2tick text, .xtitle, .ytitle')) {
      const r = text.getBoundingClientRect();
      texts.push(text);
      const out = r.left < frame.left - 1 || r.right > frame.right + 1 || r.bottom > frame.bottom + 1;
      if (r.width && out) cut.push(text.textContent);
    }
  }
  return [texts.length, cut];
}"""


def test_the_theme_is_changed_and_charts_with_it(pages: dict[str, Path], browser: Any) -> None:
    with seen(browser) as page:
        page.open(pages["leak"])
        before = page.page.locator("#memory .ytick text").first.evaluate("one => getComputedStyle(one).fill")
        page.page.locator("#theme").click()
        assert page.page.evaluate("() => document.documentElement.dataset.theme") == "dark"
        after = page.page.locator("#memory .ytick text").first.evaluate("one => getComputedStyle(one).fill")
        assert before != after and page.said == []


def test_filters_pick_findings(pages: dict[str, Path], browser: Any) -> None:
    with seen(browser) as page:
        page.open(pages["findings"])
        everything = ["AMP101-1", "AMP101-2", "MEM101-1"]
        assert sorted(page.visible("article.finding")) == everything
        for name, value, left in (
            ("severity", "info", ["MEM101-1"]),
            ("family", "AMP", ["AMP101-1", "AMP101-2"]),
            ("rank", "2", ["AMP101-1", "MEM101-1"]),
        ):
            page.page.locator(f"#filters select[name={name}]").select_option(value)
            assert sorted(page.visible("article.finding")) == left
            assert page.page.locator("#shown").inner_text() == f"{len(left)} of 3 shown"
            page.page.locator("#filters button[type=reset]").click()
            page.page.wait_for_function("() => document.getElementById('shown').textContent.startsWith('3')")
        page.page.locator("#filters input").fill("SECOND")
        assert page.visible("article.finding") == ["MEM101-1"]
        page.page.locator("#filters input").fill("nothing has this")
        assert page.visible("article.finding") == []


def test_a_link_opens_its_finding_even_if_a_filter_hides_it(pages: dict[str, Path], browser: Any) -> None:
    with seen(browser) as page:
        page.open(pages["findings"], "#AMP101-2")
        top = "document.activeElement.getBoundingClientRect().top"
        assert page.page.evaluate("() => document.activeElement.id") == "AMP101-2"
        page.page.wait_for_function(f"() => {top} >= 0 && {top} < innerHeight")
        page.page.locator("#filters select[name=severity]").select_option("error")
        page.page.evaluate("() => { location.hash = '#MEM101-1' }")
        page.page.wait_for_function("() => document.activeElement.id === 'MEM101-1'")
        assert "MEM101-1" in page.visible("article.finding")


def test_a_rank_is_chosen(pages: dict[str, Path], browser: Any) -> None:
    with seen(browser) as page:
        page.open(pages["ranks"])
        page.page.locator("select[data-charts=time]").select_option("3")
        shown = page.page.locator("#time .figure:not([hidden])")
        assert shown.count() == 1 and shown.get_attribute("data-rank") == "3"
        assert shown.locator(".plot .main-svg").count() > 0 and page.said == []


def test_the_keyboard_reaches_everything(pages: dict[str, Path], browser: Any) -> None:
    """The first stop skips to the report; a legend takes a series away; a box of the icicle fills the height."""
    with seen(browser) as page:
        page.open(pages["leak"])
        page.page.keyboard.press("Tab")
        assert page.page.evaluate("() => document.activeElement.className") == "skip"
        button = page.page.locator("#memory .legend button").first
        button.press("Enter")
        assert button.get_attribute("aria-pressed") == "false"
        view = page.page.locator("#growth button[data-view='1']")
        view.press("Space")
        assert view.get_attribute("aria-pressed") == "true"
        box = page.page.locator("#holders .box[aria-label^='activations']").first
        low = box.bounding_box()["height"]
        box.press("Enter")
        assert box.bounding_box()["height"] > 2 * low
        box.press("Enter")
        assert abs(box.bounding_box()["height"] - low) < 2 and page.said == []


def test_every_control_and_chart_has_a_name(pages: dict[str, Path], browser: Any) -> None:
    with seen(browser) as page:
        page.open(pages["leak"])
        unnamed = """() => [...document.querySelectorAll('button, select, input, a, [role=img], [role=region]')]
          .filter((one) => !one.getAttribute('aria-label') && !one.textContent.trim())
          .filter((one) => !one.closest('label')?.textContent.trim()).map((one) => one.outerHTML)"""
        assert page.page.evaluate(unnamed) == []


def test_hostile_names_run_nothing(tmp_path: Path, browser: Any) -> None:
    records = leak()
    for record in records:
        for held in getattr(record, "holdings", []):
            msgspec.structs.force_setattr(held, "name", EVIL)
            msgspec.structs.force_setattr(held, "path", [f"__main__.main: {EVIL}"])
    subject, drawing = drawn(Recording([rank(records)]))
    hostile: Report = msgspec.structs.replace(subject, findings=[*subject.findings, finding(EVIL, EVIL, summary=EVIL)])
    with seen(browser) as page:
        page.open(written(tmp_path / "a.html", renderer_for("html").render(hostile, drawing=drawing)))
        assert page.page.evaluate("() => window.hit") is None
        assert page.count("main img") == 0 and page.count("a[href^=javascript]") == 0
        assert page.said == []
        # The name is on the chart as it is written.
        assert "<img src=x" in page.page.locator("#memory .legend").inner_text()


def test_a_page_prints_its_tables(pages: dict[str, Path], browser: Any) -> None:
    with seen(browser, scheme="dark") as page:
        page.open(pages["leak"])
        page.page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
        assert page.page.evaluate("() => document.documentElement.dataset.theme") == "light"
        assert page.count("details.print:not([open])") == 0
        page.page.emulate_media(media="print")
        assert not page.page.locator("#filters").is_visible()
        page.page.evaluate("() => dispatchEvent(new Event('afterprint'))")
        assert page.page.evaluate("() => document.documentElement.dataset.theme") == "dark"
    assert os.path.getsize(pages["leak"]) > 10**6
