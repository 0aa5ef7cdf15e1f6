"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const charts = read("charts");
  const root = document.documentElement;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;

  /* What Plotly draws as text it reads as a small HTML of its own: names of the program must stay text. */
  const text = (s) => String(s).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  /* Theme ------------------------------------------------------------------------------------------------------ */
  /* The colors are those of page.css, as the theme in force has them. */
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const shade = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const faded = (color, alpha) => `rgba(${color.match(/[\d.]+/g).slice(0, 3).join(",")},${alpha})`;
  let colors = {};
  function mix() {
    colors = Object.fromEntries(["ink", "soft", "line", "card", "error", "accent", "faint", "free"].map((name) => [name, shade(name)]));
    colors.span = faded(colors.soft, 0.13);
    colors.tick = faded(colors.soft, 0.25);
    colors.heat = [[0, colors.faint], [0.5, shade("heat")], [1, shade("heat-top")]];
  }
  const theme = () => colors;
  const prefers = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null, printing = false;
  try { chosen = localStorage.getItem("torchvet-theme"); } catch (error) { /* no storage for files here */ }
  const toggle = document.getElementById("theme");
  function paint() {
    root.dataset.theme = printing ? "light" : chosen || (prefers.matches ? "dark" : "light");
    mix();
    const dark = root.dataset.theme === "dark";
    toggle.textContent = dark ? "Light" : "Dark";
    toggle.setAttribute("aria-label", dark ? "Switch to the light theme" : "Switch to the dark theme");
  }
  function repaint() {
    paint();
    for (const at of drawn.keys()) draw(at);
  }
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("torchvet-theme", chosen); } catch (error) { /* as above */ }
    repaint();
  });
  prefers.addEventListener("change", () => { if (!chosen) repaint(); });

  /* Charts ----------------------------------------------------------------------------------------------------- */
  const drawn = new Map();
  const colorOf = (chart) => (role) => shade(chart.colors[role] || "c7");
  const PREFIXES = ["", "k", "M", "G", "T", "P"];
  function amount(value, unit) {
    if (value === null || value === undefined) return "unknown";
    if (unit === "bytes") {
      let n = Math.abs(value), p = 0;
      while (n >= 999.95 && p < 5) { n /= 1000; p += 1; }
      return `${value < 0 ? "-" : ""}${p ? n.toFixed(1) : Math.round(n)} ${p ? PREFIXES[p] + "B" : "bytes"}`;
    }
    if (unit === "seconds") {
      const n = Math.abs(value);
      if (n >= 0.9995) return `${value.toFixed(2)} s`;
      return n >= 0.0009995 ? `${(value * 1e3).toFixed(1)} ms` : `${Math.round(value * 1e6)} us`;
    }
    if (unit === "share") return `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;
    const n = Math.abs(value);
    const number = n && (n < 1e-3 || n >= 1e6) ? value.toExponential(3) : Number(value.toPrecision(5)).toLocaleString("en-US");
    return unit ? `${number} ${unit}` : number;
  }
  function axis(title, unit) {
    const t = theme();
    const found = {
      title: { text: text(title || ""), font: { size: 12, color: t.soft }, standoff: 8 }, gridcolor: t.line, linecolor: t.line,
      zerolinecolor: t.line, tickfont: { size: 11, color: t.soft }, automargin: true,
    };
    if (unit === "bytes") Object.assign(found, { tickformat: "~s", ticksuffix: "B" });
    if (unit === "seconds") Object.assign(found, { tickformat: "~s", ticksuffix: "s" });
    if (unit === "share") found.tickformat = ".0%";
    if (!unit) Object.assign(found, { exponentformat: "SI", separatethousands: true });
    return found;
  }
  const narrow = () => innerWidth < 700;
  function layoutOf(chart) {
    const t = theme();
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: "inherit", size: 12, color: t.ink },
      margin: { l: 8, r: 12, t: 10, b: 8 }, xaxis: axis(chart.x_title, chart.x_unit || ""), yaxis: axis(chart.y_title, chart.unit),
      hoverlabel: { bgcolor: t.card, bordercolor: t.soft, font: { color: t.ink, size: 12 }, align: "left", namelength: -1 },
      showlegend: false, hovermode: "x unified", barmode: "stack", dragmode: narrow() ? false : "zoom",
      shapes: [], annotations: [],
    };
  }
  function add_marks(chart, layout) {
    const t = theme();
    for (const span of chart.spans || []) {
      layout.shapes.push({
        type: "rect", xref: "x", yref: "paper", x0: span.start, x1: span.end, y0: 0, y1: 1, line: { width: 0 },
        fillcolor: t.span, layer: "below",
      });
    }
    for (const x of chart.ticks || []) {
      layout.shapes.push({ type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, line: { color: t.tick, width: 1 }, layer: "below" });
    }
    const range = (chart.views || []).length ? chart.views[0].x : null;
    const marks = chart.marks || [];
    /* The first row is where the label of a line across stands, which is near the top. */
    let row = marks.some((mark) => mark.x === undefined) ? 1 : 0;
    for (const [number, mark] of marks.entries()) {
      const across = mark.x === undefined;
      layout.shapes.push({
        type: "line", line: { color: mark.calm ? t.soft : t.error, width: 1.5, dash: "dot" }, layer: "above",
        ...(across ? { xref: "paper", x0: 0, x1: 1, yref: "y", y0: mark.y, y1: mark.y }
          : { xref: "x", x0: mark.x, x1: mark.x, yref: "paper", y0: 0, y1: 1 }),
      });
      const right = !across && (range ? mark.x > (range[0] + range[1]) / 2 : mark.x > middle(chart));
      layout.annotations.push({
        text: narrow() ? String.fromCharCode(65 + number) : text(short(mark.label, 90)), showarrow: false, font: { size: 11, color: mark.calm ? t.soft : t.error }, bgcolor: t.card,
        opacity: 0.95, borderpad: 2, captureevents: false,
        ...(across ? { xref: "paper", x: 0, xanchor: "left", yref: "y", y: mark.y, yanchor: "bottom" }
          : { xref: "x", x: mark.x, xanchor: right ? "right" : "left", yref: "paper", y: 1 - 0.085 * (row++ % 5),
            yanchor: "top", xshift: right ? -3 : 3 }),
      });
    }
  }
  function middle(chart) {
    let low = Infinity, high = -Infinity;
    for (const s of chart.series || []) for (const x of s.x) { if (x < low) low = x; if (x > high) high = x; }
    return (low + high) / 2;
  }
  const short = (s, most) => (s.length > most ? s.slice(0, most - 1) + "…" : s);

  function lines(chart, layout) {
    const color = colorOf(chart);
    add_marks(chart, layout);
    const stacked = (chart.series || []).some((s) => s.style === "area" || s.style === "bar");
    const data = (chart.series || []).map((s) => {
      const own = color(s.role || s.name), style = s.style || "line", unit = s.right ? chart.right_unit : chart.unit;
      const trace = {
        type: style === "bar" ? "bar" : "scatter", name: text(s.name), x: s.x, y: s.y, marker: { color: own },
        text: s.y.map((y, i) => text(amount(y, unit)) + (s.notes && s.notes[i] ? ` (${text(s.notes[i])})` : "")),
        hovertemplate: "%{text}", textposition: "none", connectgaps: false,
      };
      if (s.right) trace.yaxis = "y2";
      if (style === "bar") return { ...trace, ...((s.widths || []).length ? { width: s.widths } : {}) };
      trace.mode = style === "points" ? "markers" : s.x.length < 40 && (style === "area" || s.role === "growing") ? "lines+markers" : "lines";
      trace.marker.size = 5;
      trace.line = { color: own, width: style === "area" ? 1 : 2, dash: style === "dash" ? "dash" : "solid", shape: chart.stepped ? "hv" : "linear" };
      if (style === "points") trace.marker = { color: own, size: 8, line: { color: theme().card, width: 1 } };
      if (style === "area") Object.assign(trace, { stackgroup: "one", fillcolor: faded(own, 0.55) });
      return trace;
    });
    if ((chart.labels || []).length) {
      const every = Math.ceil(chart.labels.length / (narrow() ? 4 : 12));
      const shown = chart.labels.map((label, i) => [i, text(label)]).filter(([i]) => i % every === 0);
      Object.assign(layout.xaxis, { tickvals: shown.map(([i]) => i), ticktext: shown.map(([, label]) => label), showgrid: false });
    }
    else if (!chart.x_unit) {
      const steps = new Set((chart.series || []).flatMap((s) => (s.x.length > 12 ? [0.5] : s.x)));
      if (steps.size <= 12 && Math.max(...steps) - Math.min(...steps) <= 12 && [...steps].every(Number.isInteger)) layout.xaxis.tickvals = [...steps];
    }
    if (stacked) layout.yaxis.rangemode = "tozero";
    if ((chart.series || []).some((s) => s.right)) {
      layout.yaxis2 = { ...axis(chart.right_title, chart.right_unit), tickmode: "auto", overlaying: "y", side: "right", showgrid: false };
    }
    return data;
  }
  function heat(chart, layout) {
    layout.hovermode = "closest";
    layout.yaxis = { ...axis(chart.y_title, ""), tickvals: chart.labels.map((_, i) => i), ticktext: chart.labels.map(text), autorange: "reversed" };
    if (chart.x.length <= (narrow() ? 6 : 16)) layout.xaxis.tickvals = chart.x;
    layout.xaxis.showgrid = false;
    layout.yaxis.showgrid = false;
    const flat = chart.grid.flat().filter((v) => v !== null).sort((a, b) => a - b);
    /* One slow step (the first) would make all others look alike. */
    const top = flat.length ? flat[Math.min(flat.length - 1, Math.floor(0.98 * flat.length))] : 1;
    return [{
      type: "heatmap", x: chart.x, y: chart.labels.map((_, i) => i), z: chart.grid, zmin: flat.length ? flat[0] : 0, zmax: top || 1, hoverongaps: false,
      colorscale: theme().heat, xgap: chart.x.length < 80 ? 1 : 0, ygap: 2,
      text: chart.grid.map((row, i) => row.map((v, j) => `${text(chart.labels[i])}, ${text(chart.x_title)} ${chart.x[j].toLocaleString("en-US")}: ${amount(v, chart.unit)}`)),
      hovertemplate: "%{text}<extra></extra>",
      colorbar: { thickness: 12, outlinewidth: 0, tickfont: { size: 11, color: theme().soft }, ...(chart.unit === "seconds" ? { tickformat: "~s", ticksuffix: "s" } : chart.unit === "bytes" ? { tickformat: "~s", ticksuffix: "B" } : {}) },
    }];
  }
  function blocks(chart, layout) {
    const color = colorOf(chart), found = new Map();
    for (const box of chart.boxes) {
      if (!found.has(box.role)) found.set(box.role, []);
      found.get(box.role).push(box);
    }
    layout.hovermode = "closest";
    layout.barmode = "overlay";
    layout.xaxis = { ...axis(chart.x_title, chart.unit), showgrid: false, nticks: narrow() ? 4 : 9 };
    layout.yaxis = { ...axis(chart.y_title, ""), tickvals: chart.labels.map((_, i) => i), ticktext: chart.labels.map(text), autorange: "reversed", showgrid: false };
    return [...found].map(([role, boxes]) => ({
      type: "bar", orientation: "h", name: text(role), title: role, y: boxes.map((b) => b.row), base: boxes.map((b) => b.start), x: boxes.map((b) => b.size), width: 0.72,
      marker: role === "free" ? { color: theme().free } : { color: color(role), line: { width: 0.5, color: theme().card } },
      hovertemplate: boxes.map((b) => `${text(role)}: ${text(amount(b.size, chart.unit))}${b.note ? "<br>" + text(short(b.note, 110)) : ""}<extra></extra>`),
    }));
  }
  const KINDS = { lines, heat, blocks };

  function draw(at) {
    const chart = charts[at], place = document.getElementById(`plot-${at}`);
    if (!place || place.closest("[hidden]")) return;
    const layout = layoutOf(chart);
    try {
      const data = KINDS[chart.kind](chart, layout);
      const view = drawn.get(at) || 0;
      if ((chart.views || []).length) look(layout, chart, view);
      drawn.set(at, view);
      Plotly.react(place, data, layout, { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: "reset" });
      legend(at, place, data);
      const svg = place.querySelectorAll("svg");
      for (const one of svg) one.setAttribute("aria-hidden", "true");
    } catch (error) {
      place.classList.add("failed");
      place.textContent = "This chart could not be drawn; its figures are in the table below.";
      console.error(error);
    }
  }
  /* The legend is a list of buttons beside the chart: it wraps, and the keyboard reaches it. */
  const away = new Map();
  function legend(at, place, data) {
    const list = document.getElementById(`legend-${at}`), off = away.get(at) || new Set();
    if (!list || data.length < 2) return;
    list.replaceChildren(...data.map((trace, number) => {
      const button = document.createElement("button"), sign = document.createElement("i"), item = document.createElement("li");
      const line = trace.line || {}, color = trace.type === "bar" ? trace.marker.color : line.color;
      sign.style.background = trace.fillcolor || (line.dash === "dash" ? "none" : color);
      sign.style.borderTop = `2px ${line.dash === "dash" ? "dashed" : "solid"} ${color}`;
      sign.style.height = trace.type === "bar" || trace.fillcolor ? "10px" : "2px";
      button.type = "button";
      button.append(sign, (charts[at].series || []).length === data.length ? charts[at].series[number].name : trace.title || trace.name);
      button.setAttribute("aria-pressed", String(!off.has(number)));
      button.addEventListener("click", () => {
        if (off.has(number)) off.delete(number); else off.add(number);
        away.set(at, off);
        button.setAttribute("aria-pressed", String(!off.has(number)));
        Plotly.restyle(place, { visible: off.has(number) ? "legendonly" : true }, [number]);
      });
      item.append(button);
      return item;
    }));
    if (off.size) Plotly.restyle(place, { visible: "legendonly" }, [...off]);
  }
  function look(layout, chart, number) {
    const view = chart.views[number];
    layout.xaxis.range = [...view.x];
    if (view.y) layout.yaxis.range = [...view.y];
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-view]");
    if (!button) return;
    const at = Number(button.dataset.chart);
    drawn.set(at, Number(button.dataset.view));
    for (const one of button.parentElement.querySelectorAll("button[data-view]")) one.setAttribute("aria-pressed", String(one === button));
    draw(at);
  });

  /* Boxes within boxes: one that is chosen fills the height, and once more goes back. */
  for (const frame of document.querySelectorAll(".icicle-in")) {
    const boxes = [...frame.children];
    let chosen = null;
    const place = () => {
      const top = chosen ? Number(chosen.dataset.top) : 0, share = chosen ? Number(chosen.dataset.share) : 1;
      for (const box of boxes) {
        const height = Number(box.dataset.share) / share, begins = (Number(box.dataset.top) - top) / share;
        const low = Math.max(0, begins), high = Math.min(1, begins + height), pixels = (high - low) * frame.clientHeight;
        box.style.top = `${100 * low}%`;
        box.style.height = `${100 * Math.max(0, high - low)}%`;
        box.hidden = high - low <= 1e-6;
        box.classList.toggle("tiny", pixels < 15);
        box.classList.toggle("one", pixels >= 15 && pixels < 34);
        box.tabIndex = pixels < 15 ? -1 : 0;
      }
    };
    frame.addEventListener("click", (event) => {
      const box = event.target.closest(".box");
      if (!box) return;
      chosen = box === chosen || Number(box.dataset.share) > 0.999999 ? null : box;
      place();
    });
  }

  /* Filters ---------------------------------------------------------------------------------------------------- */
  const findings = [...document.querySelectorAll("article.finding")];
  const form = document.getElementById("filters");
  function filter() {
    const want = Object.fromEntries(new FormData(form));
    const words = (want.text || "").toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const one of findings) {
      const has = one.textContent.toLowerCase();
      const ranks = one.dataset.ranks ? one.dataset.ranks.split(" ") : null;
      const fits = (!want.severity || one.dataset.severity === want.severity) && (!want.family || one.dataset.family === want.family)
        && (!want.rank || !ranks || ranks.includes(want.rank)) && words.every((word) => has.includes(word));
      one.hidden = !fits;
      shown += fits;
    }
    document.getElementById("shown").textContent = `${shown} of ${findings.length} shown`;
  }
  if (form) {
    form.hidden = findings.length < 2;
    form.addEventListener("input", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(filter));
    filter();
  }
  document.addEventListener("change", (event) => {
    const select = event.target.closest("select[data-charts]");
    if (!select) return;
    for (const part of document.querySelectorAll(`[data-of="${select.dataset.charts}"]`)) {
      part.hidden = part.dataset.rank !== select.value;
      if (!part.hidden) for (const plot of part.querySelectorAll(".plot")) draw(Number(plot.dataset.chart));
    }
  });

  /* Links to a finding ----------------------------------------------------------------------------------------- */
  function follow() {
    let name = location.hash.slice(1);
    try { name = decodeURIComponent(name); } catch (error) { return; }
    const target = name && document.getElementById(name);
    for (const one of findings) one.classList.toggle("linked", one === target);
    if (!target || !findings.includes(target)) return;
    if (target.hidden) { form.reset(); filter(); target.hidden = false; }
    for (const part of target.querySelectorAll("details")) part.open = true;
    target.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
    target.focus({ preventScroll: true });
  }
  addEventListener("hashchange", follow);

  /* Paper is light, and nothing on it can be opened. */
  function print(begins) {
    printing = begins;
    if (begins) for (const part of document.querySelectorAll("details.print")) part.open = true;
    repaint();
  }
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));

  paint();
  charts.forEach((_, at) => draw(at));
  let width = innerWidth;
  addEventListener("resize", () => {
    if ((width < 700) !== narrow()) for (const at of drawn.keys()) draw(at);
    width = innerWidth;
  });
  follow();
  root.dataset.ready = "yes";
})();
