// The requests of the last 15 minutes as charts.

import { h, count, ms } from "./dom.js";

const width = 300;
const height = 64;

// ceiling is the next round number.
function ceiling(n) {
  if (!(n > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 1.5, 2, 3, 5, 7.5, 10].map((f) => f * power).find((c) => c >= n * 0.999);
}

// linear and logarithmic are scales: where a value is between 0, at the bottom, and 1, and at which shares there are lines.
function linear(top) {
  return { at: (v) => v / top, top, bottom: null, grid: [0.5, 1] };
}

function logarithmic(values) {
  const known = values.filter((v) => v > 0);
  const low = known.length ? Math.floor(Math.log10(Math.min(...known))) : 0;
  const high = Math.max(low + 1, known.length ? Math.ceil(Math.log10(Math.max(...known))) : 0);
  const decades = Array.from({ length: high - low }, (_, i) => (i + 1) / (high - low));
  return { at: (v) => (Math.log10(v) - low) / (high - low), top: 10 ** high, bottom: 10 ** low, grid: decades };
}

const level = (share) => height - Math.max(0, Math.min(1, share)) * (height - 2);

// line draws a series, with gaps where there is nothing.
function line(values, scale) {
  let d = "";
  let pen = "M";
  values.forEach((v, i) => {
    if (v === null) {
      pen = "M";
      return;
    }
    const x = (i / (values.length - 1)) * width;
    const y = level(scale.at(v));
    // A value between two gaps is a dot.
    d += pen + x.toFixed(1) + " " + y.toFixed(1) + (pen === "M" && (i + 1 >= values.length || values[i + 1] === null) ? "h0.5" : "");
    pen = "L";
  });
  return d;
}

function area(values, scale) {
  return `M0 ${height}` + line(values.map((v) => v || 0), scale).replace(/^M/, "L") + `L${width} ${height}Z`;
}

// chart draws series of one unit over each other; each has a name, values and a class.
function chart(title, now, series, unit, scale, minutes) {
  const label = `${title}: ${now.map(([name, value]) => (name ? name + " " : "") + value).join(", ")} in the last minute; the scale ${scale.bottom === null ? "" : "is logarithmic and "}ends at ${unit(scale.top)}`;
  return h("figure", { class: "chart", "data-id": title },
    h("figcaption", null, h("span", { class: "title" }, title),
      h("span", { class: "nows" }, now.map(([name, value], i) =>
        h("span", { class: "now " + series[i].kind }, name ? h("span", { class: "key" }, name) : null, h("strong", null, value))))),
    h("div", { class: "plot" },
      h("span", { class: "top", "aria-hidden": "true" }, unit(scale.top)),
      scale.bottom === null ? null : h("span", { class: "bottom", "aria-hidden": "true" }, unit(scale.bottom)),
      h("svg", { role: "img", "aria-label": label, preserveAspectRatio: "none", viewBox: `0 0 ${width} ${height}` },
        scale.grid.map((share) => h("line", { class: "grid", x1: 0, x2: width, y1: level(share).toFixed(1), y2: level(share).toFixed(1) })),
        h("line", { class: "axis", x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }),
        series.map((s) => [
          s.area ? h("path", { class: "area " + s.kind, d: area(s.values, scale) }) : null,
          h("path", { class: "line " + s.kind, d: line(s.values, scale) }),
        ]))),
    h("div", { class: "times", "aria-hidden": "true" }, h("span", null, `${minutes} min ago`), h("span", null, "now")));
}

const most = (...lists) => Math.max(0, ...lists.flat().filter((v) => v !== null));

// trafficView is the charts; uptime, in seconds, says over how much of the last minute there can have been requests.
export function trafficView(past, uptime) {
  const step = past.step_seconds;
  const minutes = Math.round((past.requests.length * step) / 60);
  const born = past.requests.length - Math.floor(uptime / step); // steps before that were before the start
  const rates = past.requests.map((n, i) => (i < born ? null : n / step));
  const errors = past.requests.map((n, i) => (i < born ? null : n ? (past.errors[i] / n) * 100 : 0));
  const last = past.last_minute;
  const rate = last.requests / Math.max(step, Math.min(60, uptime));
  const failing = last.requests ? (last.errors / last.requests) * 100 : 0;
  const perSecond = (v) => (v >= 100 ? count(v) : String(+v.toFixed(v < 10 ? 2 : 1))) + " /s";
  const share = (v) => String(+v.toFixed(v < 1 ? 2 : 1)) + " %";
  return [
    chart("Rate", [["", perSecond(rate)]], [{ kind: "rate", values: rates, area: true }], perSecond, linear(ceiling(most(rates))), minutes),
    chart("Latency", [["p50", ms(last.p50_ms)], ["p95", ms(last.p95_ms)], ["p99", ms(last.p99_ms)]], [
      { kind: "p50", values: past.p50_ms }, { kind: "p95", values: past.p95_ms }, { kind: "p99", values: past.p99_ms },
    ], (v) => (v >= 1000 ? +(v / 1000).toFixed(1) + " s" : +v.toFixed(2) + " ms"), logarithmic([past.p50_ms, past.p99_ms].flat()), minutes),
    chart("Errors (5xx)", [["", share(failing)]], [{ kind: "errors", values: errors, area: true }], share, linear(Math.min(100, ceiling(most(errors)))), minutes),
  ];
}
